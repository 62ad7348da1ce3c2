//! Seeds in virtual time: repeated exactly, and nothing found. That something can be found is shown by
//! planted bugs (`model/mutants.toml`).
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

#[cfg(feature = "cluster")]
mod cluster;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stickycas-virtual");

/// The result of a seed that is run in a process of its own, and its trace.
fn one(test: &[&str], seed: u64, folder: &Path) -> (Value, String) {
    let trace = folder.join("trace");
    let mut command = Command::new(PROGRAM);
    command
        .args(["one", "--seed", &seed.to_string(), "--trace"])
        .arg(&trace)
        .args(test)
        .env_remove("RUST_LOG");
    let output = command.output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), std::fs::read_to_string(trace).unwrap())
}

/// Whether there is time for many seeds.
fn is_long() -> bool {
    std::env::var_os("STICKYCAS_LONG").is_some()
}

/// The results and traces of these seeds. Each is another run than the others, and so many of them are played
/// again, and repeated line by line.
fn played(test: &[&str], seeds: impl IntoIterator<Item = u64>, repeated: usize) -> (Vec<Value>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (mut results, mut traces) = (Vec::new(), Vec::new());
    for seed in seeds {
        let (result, trace) = one(test, seed, folder.path());
        if traces.len() < repeated {
            let (again, same) = one(test, seed, folder.path());
            let differs = trace.lines().zip(same.lines()).enumerate().find(|(_, (one, other))| one != other);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!((trace.len(), &result), (same.len(), &again), "seed {seed}");
        }
        assert!(trace.lines().count() > 100, "seed {seed}: a trace of next to nothing");
        results.push(result);
        traces.push(trace);
    }
    assert_eq!(BTreeSet::from_iter(&traces).len(), traces.len(), "another seed is another run");
    (results, traces)
}

/// The result of these seeds, in which nothing is found.
fn finds_nothing(test: &[&str], first: u64, seeds: u64) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["--seeds", &seeds.to_string(), "--seed", &first.to_string(), "--json"]).args(test);
    let output = command.current_dir(folder.path()).env_remove("RUST_LOG").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with(&format!("seed {first}\n")), "{told}");
    assert_eq!(output.status.code(), Some(0), "{told}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let count = |what: &str| result["rounds"][what].as_u64().unwrap();
    assert_eq!((count("rounds"), count("violations_found")), (seeds, 0), "{told}");
    result
}

#[test]
fn seeds_are_repeated_and_everything_that_is_to_happen_happens() {
    // The few have all of it together.
    let seeds = if is_long() { (1..=40).collect() } else { vec![6, 15, 19, 23, 25] };
    let (results, traces) = played(&[], seeds, 3);
    let all = traces.concat();
    let happenings = [
        "the server is gone: Process",
        "the server is gone: Power",
        "the server is told to stop",
        "its log has failed: WriteFails(Nothing)",
        "its log has failed: WriteFails(Whole)",
        "its log has failed: SyncFails",
        "its log has failed: ReadFails",
        "its log has failed: Full",
        "reset: ",
        " ToServer for ",
        " ToClient for ",
        " Both for ",
    ];
    for what in happenings {
        assert!(all.contains(what), "{what}");
    }
    let torn = |line: &str| {
        let kept = line.split_once("its log has failed: WriteFails(").map(|(_, kept)| kept);
        kept.is_some_and(|kept| kept != "Nothing)" && kept != "Whole)")
    };
    assert!(all.lines().any(torn), "a write that fails is torn");
    let sum = |what: &str| results.iter().map(|result| result["round"][what].as_u64().unwrap()).sum::<u64>();
    for what in ["disks", "torn", "lied", "flipped", "misread", "events", "older", "reported"] {
        let count = |result: &Value| result["disks"][what].as_u64().unwrap();
        assert!(results.iter().map(count).sum::<u64>() > 0, "{what}: {results:?}");
    }
    assert!(sum("clients_killed") > 10, "{results:?}");
    assert!(sum("kills_before_serving") >= 4, "{results:?}");
    let ends: Vec<[u64; 2]> = traces.iter().map(|trace| ends(trace)).collect();
    let [all, early] = [0, 1].map(|which| ends.iter().map(|ends| ends[which]).sum::<u64>());
    assert_eq!(
        (all, early),
        (sum("kills"), sum("kills_before_serving")),
        "each hits a server that had begun"
    );
}

/// How often a server that had begun came to its end, and how often of these before it served.
fn ends(trace: &str) -> [u64; 2] {
    let (mut counts, mut has_begun, mut is_early) = ([0; 2], false, false);
    for line in trace.lines() {
        if line.ends_with("the server starts") {
            has_begun = true;
        } else if line.ends_with("the server has begun and does not serve yet") {
            is_early = true;
        } else if line.contains("the server is gone") {
            counts[0] += u64::from(has_begun);
            counts[1] += u64::from(has_begun && is_early);
            (has_begun, is_early) = (false, false);
        }
    }
    counts
}

#[test]
fn no_seed_finds_anything() {
    // Planted bugs are caught by these.
    let seeds = if is_long() { 100 } else { 20 };
    let result = finds_nothing(&[], 100, seeds);
    let count = |what: &str| result["rounds"][what].as_u64().unwrap() / seeds;
    assert!(count("kills") >= 2 && count("accesses") > 50 && count("decisions") > 15, "{result}");
}
