//! Seeds in virtual time: nothing found, everything that is to happen, and seeds repeated exactly. That
//! something can be found is shown by planted bugs (`model/mutants.toml`).
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

#[cfg(feature = "cluster")]
mod cluster;

use std::collections::BTreeSet;
use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_stickycas-virtual");

/// A seed that was run.
struct Run {
    result: Value,
    trace: String,
}

impl Run {
    fn count(&self, part: &str, what: &str) -> u64 {
        self.result[part][what].as_u64().unwrap_or(0)
    }

    fn says(&self, what: &str) -> bool {
        self.trace.lines().any(|line| line.contains(what))
    }
}

/// What is to happen, and whether it has in a run.
type Happening<'a> = (&'a str, &'a dyn Fn(&Run) -> bool);

/// Runs a seed in a process of its own.
fn one(test: &[&str], seed: u64) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut command = Command::new(PROGRAM);
    command.args(["one", "--seed", &seed.to_string(), "--trace"]).arg(&trace).args(test);
    let output = command.env_remove("RUST_LOG").output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    let result = serde_json::from_slice(&output.stdout).unwrap();
    Run { result, trace: std::fs::read_to_string(trace).unwrap() }
}

/// Runs these seeds, in which nothing is found, one on each processor. Each is another run than the others.
fn clean(test: &[&str], mut seeds: Range<u64>) -> Vec<Run> {
    let processors = thread::available_parallelism().unwrap().get();
    let (first, runs) = (seeds.start, Mutex::new(Vec::new()));
    let left = Mutex::new(&mut seeds);
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(seed) = { left.lock().unwrap().next() } {
                    let run = one(test, seed);
                    assert_eq!(run.count("round", "violations_found"), 0, "seed {seed}: {}", run.result);
                    assert!(run.trace.lines().count() > 100, "seed {seed}: a trace of next to nothing");
                    runs.lock().unwrap().push((seed, run));
                }
            });
        }
    });
    let mut runs = runs.into_inner().unwrap();
    runs.sort_by_key(|(seed, _)| *seed);
    assert_eq!(runs[0].0, first);
    let traces: BTreeSet<&str> = runs.iter().map(|(_, run)| run.trace.as_str()).collect();
    assert_eq!(traces.len(), runs.len(), "another seed is another run");
    runs.into_iter().map(|(_, run)| run).collect()
}

/// Checks that a seed that is run again is the same run, line by line.
fn check_repeated(test: &[&str], seed: u64, run: &Run) {
    let again = one(test, seed);
    let lines = run.trace.lines().zip(again.trace.lines()).enumerate();
    assert_eq!(lines.into_iter().find(|(_, (one, other))| one != other), None, "seed {seed}");
    assert_eq!((run.trace.len(), &run.result), (again.trace.len(), &again.result), "seed {seed}");
}

/// Checks that each of these happens in one of the runs or, if it is rare, in one of the seeds behind them.
fn check_happens(test: &[&str], runs: &[Run], next: u64, happenings: &[Happening<'_>]) {
    let mut missing: Vec<_> = happenings.iter().filter(|(_, has)| !runs.iter().any(has)).collect();
    for seed in next..next + 100 {
        if missing.is_empty() {
            return;
        }
        let run = one(test, seed);
        missing.retain(|(_, has)| !has(&run));
    }
    let missing: Vec<&str> = missing.iter().map(|(what, _)| *what).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// Whether there is time for many seeds.
fn is_long() -> bool {
    std::env::var_os("STICKYCAS_LONG").is_some()
}

// Planted bugs are caught by this.
#[test]
fn no_seed_finds_anything_and_all_that_is_to_happen_happens() {
    let seeds = if is_long() { 100..200 } else { 100..120 };
    let runs = clean(&[], seeds.clone());
    for (seed, run) in seeds.clone().zip(&runs).take(2) {
        check_repeated(&[], seed, run);
    }
    let in_trace = [
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
    let in_trace = in_trace.map(|what| (what, move |run: &Run| run.says(what)));
    let of_disks = ["disks", "torn", "lied", "flipped", "misread", "events", "older", "reported"];
    let of_disks = of_disks.map(|what| (what, move |run: &Run| run.count("disks", what) > 0));
    let torn = |run: &Run| {
        let kept = |line: &str| Some(line.split_once("its log has failed: WriteFails(")?.1.to_owned());
        run.trace.lines().filter_map(kept).any(|kept| kept != "Nothing)" && kept != "Whole)")
    };
    let mut happenings: Vec<Happening<'_>> = vec![("a write that fails is torn", &torn)];
    happenings.extend(in_trace.iter().map(|(what, has)| (*what, has as _)));
    happenings.extend(of_disks.iter().map(|(what, has)| (*what, has as _)));
    check_happens(&[], &runs, seeds.end, &happenings);

    let sum = |what: &str| runs.iter().map(|run| run.count("round", what)).sum::<u64>();
    let [ends, early] = [0, 1].map(|which| runs.iter().map(|run| count_ends(&run.trace)[which]).sum::<u64>());
    let counted = (sum("kills"), sum("kills_before_serving"));
    assert_eq!((ends, early), counted, "each hits a server that had begun");
    let each = |what: &str| sum(what) / runs.len() as u64;
    assert!(each("kills") >= 2 && each("accesses") > 50 && each("decisions") > 15);
    assert!(sum("clients_killed") > 10 && early >= 4, "{early}");
}

/// How often a server that had begun came to its end, and how often of these before it served.
fn count_ends(trace: &str) -> [u64; 2] {
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
fn many_seeds_are_those_that_are_run_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["--seeds", "2", "--seed", "1", "--json"]).current_dir(folder.path());
    let output = command.env_remove("RUST_LOG").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("seed 1\n"), "{told}");
    assert_eq!(output.status.code(), Some(0), "{told}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = clean(&[], 1..3);
    let sum = |what: &str| runs.iter().map(|run| run.result[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!(all["rounds"]["rounds"], 2);
    for what in ["messages", "disturbances"] {
        assert_eq!(all[what], sum(what), "{what}");
    }
}
