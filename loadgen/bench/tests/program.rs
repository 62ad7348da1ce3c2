//! The program with very little work: the figures mean nothing, but every part of it runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-bench"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// The results of a run that succeeds.
fn results(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let output = bench(arguments).arg("--json").arg(&file).output().unwrap();
    succeeded(&output);
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn candidate<'a>(results: &'a Value, name: &str) -> &'a Value {
    let all = results["candidates"].as_array().unwrap();
    all.iter().find(|candidate| candidate["name"] == name).unwrap_or_else(|| panic!("no {name} in {results}"))
}

#[test]
fn wire_compares_with_floors_and_writes_every_sample() {
    let names = "unary-floor,unary,stream-floor/16,attach/16,attach-batch/16";
    let results = results(&["wire", "--rounds", "2", "--scale", "0.01", "--only", names]);
    assert_eq!(results["measured"], "wire");
    for name in ["unary", "attach/16", "attach-batch/16"] {
        let one = candidate(&results, name);
        assert_eq!(one["samples"].as_array().unwrap().len(), 2);
        assert!(one["rate"]["median"].as_f64().unwrap() > 0.0);
        assert!(one["of_floor"]["median"].as_f64().unwrap() > 0.0);
    }
    let sample = &candidate(&results, "unary")["samples"][0];
    let instances = sample["instances"].as_u64().unwrap();
    // Each of 32 processes appends and reads in each instance.
    assert_eq!(sample["accesses"].as_u64().unwrap(), instances * 64);
}

#[test]
fn a_log_on_disk_is_compared_with_memory() {
    let disk = tempfile::tempdir().unwrap();
    let names = "unary,unary-durable,attach-batch/16,attach-batch-durable/16";
    let place = disk.path().to_str().unwrap();
    let results = results(&["wire", "--rounds", "2", "--scale", "0.01", "--disk", place, "--only", names]);
    assert!(results["disk"].is_string(), "{results}");
    for name in ["unary-durable", "attach-batch-durable/16"] {
        let one = candidate(&results, name);
        assert!(one["of_memory"]["rate"]["median"].as_f64().unwrap() > 0.0);
        let (accesses, log) = (one["samples"][0]["accesses"].as_f64().unwrap(), &one["samples"][0]["log"]);
        // Each access is a step; on Attach a hello and a decision are, too.
        assert!(log["steps"].as_f64().unwrap() >= accesses, "{one}");
        assert!(log["commits"].as_f64().unwrap() >= 1.0 && log["sync_s"].as_f64().unwrap() > 0.0, "{one}");
        assert!(one["accesses_per_commit"]["median"].as_f64().unwrap() > 0.0);
    }
    assert!(candidate(&results, "unary")["samples"][0]["log"].is_null());
    assert!(is_empty(disk.path()), "the logs are not deleted");
}

#[test]
fn every_layout_of_clients_and_server_works() {
    for layout in ["one-runtime", "two-runtimes", "two-programs"] {
        let results = results(&[
            "wire",
            "--rounds",
            "1",
            "--scale",
            "0.01",
            "--layout",
            layout,
            "--only",
            "unary-floor,attach/16,attach-durable/16",
        ]);
        assert_eq!(results["layout"], layout);
        for name in ["attach/16", "attach-durable/16"] {
            assert!(candidate(&results, name)["rate"]["median"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn servers_of_other_builds_are_compared_with_the_first() {
    let program = env!("CARGO_BIN_EXE_stickycas-bench");
    let (before, after) = (format!("before={program}"), format!("after={program}"));
    let results = results(&[
        "wire",
        "--rounds",
        "2",
        "--scale",
        "0.01",
        "--only",
        "unary-floor,unary",
        "--server",
        &before,
        "--server",
        &after,
    ]);
    let rows = results["candidates"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| [&row["name"], &row["server"]]).collect();
    assert_eq!(
        names,
        [["unary-floor", "before"], ["unary-floor", "after"], ["unary", "before"], ["unary", "after"]]
    );
    for row in rows {
        assert!(
            row["server_cost_us"]["median"].as_f64().unwrap() < row["cost_us"]["median"].as_f64().unwrap()
        );
        assert_eq!(row["samples"].as_array().unwrap().len(), 2);
        assert_eq!(row["of_first_server"].is_null(), row["server"] == "before", "{row}");
    }
    assert!(rows[3]["of_first_server"]["server_cost_us"]["median"].as_f64().unwrap() > 0.0);
    assert!(rows[3]["of_floor"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn latency_is_also_given_in_round_trips() {
    let results = results(&["latency", "--rounds", "1", "--scale", "0.02"]);
    for (name, alone, at_once) in [
        ("attach", "message", "messages"),
        ("attach-ahead", "message", "messages"),
        ("unary", "call", "calls"),
    ] {
        let one = candidate(&results, name);
        assert_eq!(one["samples_us"][0].as_array().unwrap().len(), 6);
        assert!(one["of"][alone]["median"].as_f64().unwrap() > 0.0);
        assert!(one["of"][at_once]["median"].as_f64().unwrap() > 0.0);
        let with_create = one["with_create_us"]["median"].as_f64().unwrap();
        assert!(with_create > one["median_us"]["median"].as_f64().unwrap());
    }
    for name in ["attach-durable", "attach-ahead-durable", "unary-durable"] {
        let log = &candidate(&results, name)["log"];
        assert!(log["of_memory"]["median"].as_f64().unwrap() > 0.0, "{log}");
        assert!(log["syncs_per_round"]["median"].is_number(), "{log}");
        assert!(log["commits_per_round"]["median"].is_number(), "{log}");
    }
}

#[test]
fn engines_commit_batches_of_the_same_sizes() {
    let results = results(&["engine", "--rounds", "2", "--commits", "20"]);
    let rows = results["candidates"].as_array().unwrap();
    let sizes = |name: &str| {
        let own = rows.iter().filter(|row| row["name"] == name);
        own.map(|row| row["batch_bytes"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(sizes("redb"), [1 << 10, 16 << 10, 128 << 10, 1 << 20]);
    assert_eq!((sizes("segments"), sizes("redb-one-phase")), (sizes("redb"), sizes("redb")));
    for row in rows {
        assert!(row["rate"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["of_redb"].is_null(), row["name"] == "redb", "{row}");
    }
}

#[test]
fn without_etcd_its_candidates_are_left_out_with_one_line() {
    let mut command =
        bench(&["wire", "--rounds", "1", "--scale", "0.01", "--only", "unary-floor,etcd/16,etcd/64"]);
    let output = command.env("PATH", "").output().unwrap();
    succeeded(&output);
    let stderr = text(&output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("left out: etcd/16, etcd/64: there is no etcd"), "{stderr}");
}

#[test]
fn a_missing_etcd_that_was_named_fails_the_run() {
    let output = bench(&["wire", "--rounds", "1", "--etcd", "/nowhere/etcd"]).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/nowhere/etcd"));
}

#[test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
fn etcd_decides_the_same_and_leaves_no_data() {
    let disk = tempfile::tempdir().unwrap();
    let disk_text = disk.path().to_str().unwrap();
    let results = results(&[
        "wire",
        "--rounds",
        "1",
        "--scale",
        "0.05",
        "--disk",
        disk_text,
        "--only",
        "attach/16,etcd/16",
    ]);
    assert!(results["programs"]["etcd"].as_str().is_some());
    assert!(candidate(&results, "attach/16")["of_etcd"]["etcd/16"]["rate"]["median"].as_f64().unwrap() > 0.0);
    assert!(is_empty(disk.path()), "its data are not deleted");
}

#[cfg(feature = "cluster")]
#[test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
fn cluster_benchmarks_compare_servers_over_etcd() {
    let disk = tempfile::tempdir().unwrap();
    let common = ["--members", "1", "--disk", disk.path().to_str().unwrap()];
    let options = "cluster --rounds 1 --scale 0.02 --only naive/16,cluster/16,cluster-get/16,memory/16";
    let options: Vec<&str> = options.split(' ').chain(common).collect();
    let compared = results(&options);
    let cluster = candidate(&compared, "cluster/16");
    for figure in ["writes_per_second", "steps_per_write", "commit_us", "etcd_cost_us", "servers_cost_us"] {
        assert!(cluster[figure]["median"].as_f64().unwrap() > 0.0, "{figure}: {cluster}");
    }
    assert!(cluster["of_naive"]["rate"]["median"].as_f64().unwrap() > 0.0);
    assert!(cluster["of_memory"]["cost"]["median"].as_f64().unwrap() > 0.0);
    assert!(cluster["of_durable"].is_null(), "it had no turn");
    let reads = &candidate(&compared, "cluster-get/16")["reads_per_second"]["median"];
    assert!(reads.as_f64().unwrap() > 0.0, "a Get is confirmed");
    assert!(is_empty(disk.path()), "data are not deleted");
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn an_unknown_candidate_is_refused_with_the_known_ones() {
    let output = bench(&["wire", "--only", "attach/17"]).output().unwrap();
    assert!(!output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.contains("attach/17") && stderr.contains("attach/16"), "{stderr}");
}

#[test]
fn bad_options_are_refused_with_a_hint_and_no_backtrace() {
    for (arguments, hint) in [
        (&["scale", "--cost", "10,0"][..], "0 is not in 1.."),
        (&["scale", "--principals", "3"], "give a multiple of 8"),
        (&["scale", "--principals", "0"], "give a multiple of 8"),
        (&["scale", "--finished", "0"], "0 is not in 1.."),
        (&["scale", "--live", "0"], "0 is not in 1.."),
        (&["scale", "--own-rosters"], "--finished"),
        (
            &["scale"],
            "error: say what to measure: --principals, --finished, --live, --waiting, --table, --cost",
        ),
        (
            &["scale", "--cost", "1", "--server", "/nowhere/server"],
            "error: /nowhere/server is missing: cargo build",
        ),
        (&["wire", "--scale", "0"], "give a number above 0"),
        (&["wire", "--server", "before"], "give NAME=PATH"),
        (&["wire", "--server", "before=/nowhere/bench"], "/nowhere/bench is missing"),
        (&["wire", "--server", "a=/bin/sh", "--server", "a=/bin/sh"], "error: --server: 'a' twice"),
        (&["wire", "--server", "a=/bin/sh", "--layout", "one-runtime"], "leave out --layout"),
        (&["wire", "--only", "unary", "--server", "a=/bin/true"], "/bin/true ended at once"),
        (&["latency", "--rounds", "0"], "0 is not in 1.."),
        (&["latency", "--only", "nobody"], "error: --only: no candidate 'nobody'; there are: message"),
    ] {
        let output = bench(arguments).env("RUST_BACKTRACE", "1").output().unwrap();
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("backtrace") && !stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_server_is_started_on_a_log_with_every_instance() {
    let arguments = ["start-up", "--archived", "24", "--live", "8", "--starts", "2"];
    let results = results(&arguments);
    let starts = results["starts"].as_array().unwrap();
    let after: Vec<_> = starts.iter().map(|it| &it["after"]).collect();
    assert_eq!(after, ["killed", "compacted"]);
    for one in starts {
        assert_eq!(one["starts"].as_array().unwrap().len(), 2);
        assert!(one["starts"][0]["peak_rss_bytes"].as_u64().unwrap() > 0, "{one}");
    }
    assert!(results["archived_bytes_each"].as_u64().unwrap() > 0, "{results}");
}

#[test]
fn a_log_that_is_kept_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().join("of/builds");
    let kept = parent.join("log");
    let kept = kept.to_str().unwrap();
    let arguments = ["start-up", "--archived", "24", "--live", "8", "--starts", "1", "--keep", kept];
    let (made, again) = (results(&arguments), results(&arguments));
    assert_eq!(made["made_s"], again["made_s"]);
    assert_eq!(std::fs::read_dir(&parent).unwrap().count(), 1, "a folder is left beside the log");
    let more = ["start-up", "--archived", "25", "--live", "8", "--keep", kept];
    let refused = bench(&more).output().unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("holds 24 archived and 8 live instances"), "{told}");
}

#[test]
fn a_soak_sees_disk_and_memory_of_the_server() {
    let arguments = ["soak", "--instances", "300", "--live", "8", "--retention", "100ms"];
    let results = results(&arguments);
    for column in ["disk_bytes", "rss_bytes"] {
        // However short the run is, its end is a sample.
        let values = results["samples"][column].as_array().unwrap();
        assert!(!values.is_empty() && values.iter().all(|value| value.as_u64().unwrap() > 0), "{results}");
        assert_eq!(results["trends"][column].is_object(), values.len() >= 3, "{results}");
    }
    let accesses = results["samples"]["accesses"].as_array().unwrap();
    let accesses: u64 = accesses.iter().map(|count| count.as_u64().unwrap()).sum();
    // Each of 8 processes appends and reads in each instance.
    assert_eq!(accesses, 300 * 16, "accesses of the end belong to no sample");
    assert!(results["wall_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn memory_is_measured_of_everything_that_a_server_holds() {
    let server = Path::new(env!("CARGO_BIN_EXE_stickycas-bench")).with_file_name("stickycas-server");
    assert!(server.is_file(), "the program of the server is missing: cargo build -p stickycas-server");
    let results = results(&[
        "scale",
        "--principals",
        "16",
        "--finished",
        "24",
        "--live",
        "8",
        "--waiting",
        "9",
        "--table",
        "230",
        "--look",
        "2s",
    ]);
    let arguments = results["server_arguments"].as_array().unwrap();
    assert!(arguments.iter().any(|it| it == "--requests-per-second"), "{results}");
    let counts: Vec<u64> =
        results["measurements"].as_array().unwrap().iter().map(|it| it["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [16, 16, 24, 8, 6_720]);
    // It fails if the page refuses a request, or shows rows of another state.
    assert_eq!(results["tables"][0]["instances"], 230);
}

/// Whether there is a processor for attackers beside ours.
fn has_two_processors() -> bool {
    std::thread::available_parallelism().unwrap().get() >= 2
}

/// What takes long on a busy machine is no lateness here: patience lasts as long as that.
#[test]
fn correct_processes_decide_beside_attackers_that_attack() {
    if !has_two_processors() {
        return;
    }
    let attacks = ["double", "oversize"];
    let results = results(&[
        "attackers",
        "--instances",
        "10",
        "--rate",
        "10",
        "--lanes",
        "1",
        "--processes",
        "8",
        "--patience",
        "60s",
        "--attack",
        attacks[0],
        "--attack",
        attacks[1],
    ]);
    let pairs = results["attacks"].as_array().unwrap();
    let names: Vec<_> = pairs.iter().map(|pair| pair["name"].as_str().unwrap()).collect();
    assert_eq!(names, attacks);
    for (pair, refusal) in pairs.iter().zip(["ACCESS_CONTENT_DIFFERS", "VALUE_TOO_LARGE"]) {
        for turn in ["quiet_us", "busy_us", "attacked_us"] {
            assert_eq!(pair[turn].as_array().unwrap().len(), 10, "{pair}");
        }
        let (late, not_valid) = (pair["late"].as_u64(), pair["not_valid"].as_u64());
        assert_eq!((late, not_valid), (Some(0), Some(0)), "{pair}");
        let name = pair["name"].as_str().unwrap();
        assert!(pair["shown_by"][name].as_u64().unwrap() > 0, "{pair}");
        assert!(pair["done"][name]["refusals"][refusal].as_u64().unwrap() > 0, "{pair}");
        assert!(pair["counted"][refusal].as_u64().unwrap() > 0, "{pair}");
        assert!(pair["peak_bytes"].as_u64().unwrap() > 0, "{pair}");
    }
}

#[test]
fn an_attack_that_does_not_exist_is_refused() {
    let output = bench(&["attackers", "--attack", "fload"]).output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("there is no wire attack \"fload\""), "{}", text(&output.stderr));
}

#[test]
fn tls_is_measured_beside_plain_connections_in_each_round() {
    let results = results(&["tls", "--rounds", "1", "--scale", "0.02", "--connections", "20"]);
    let measures = results["measures"].as_array().unwrap();
    let names: Vec<_> = measures.iter().map(|measure| measure["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["unary", "attach/64", "connect"]);
    for measure in measures {
        let [plain, tls] = ["plain", "tls"].map(|side| measure[side][0]["rate"].as_f64().unwrap());
        let of_plain = measure["of_plain"]["median"].as_f64().unwrap();
        assert!((of_plain * plain / tls - 1.0).abs() < 1e-9, "{measure}");
    }
    assert!(measures[2]["tls"][0]["memory_bytes"].as_f64().is_some(), "{results}");
}

#[test]
fn newcomers_get_in_among_clients_that_connect() {
    if !has_two_processors() {
        return;
    }
    let results = results(&["newcomer", "--newcomers", "3", "--held", "64", "--at-once", "2"]);
    assert_eq!(results["newcomers_us"].as_array().unwrap().len(), 3);
    assert!(results["connects_per_s"].as_f64().unwrap() > 0.0, "{results}");
}
