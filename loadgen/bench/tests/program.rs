//! The program with very little work: the figures mean nothing, but every part of it runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn bench(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-bench"));
    command.args(arguments.split(' '));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The results of a run that succeeds and leaves nothing on its disk.
fn results(arguments: &str) -> Value {
    let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("results.json");
    let output = bench(arguments).arg("--json").arg(&file).arg("--disk").arg(disk.path()).output().unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(is_empty(disk.path()), "data are not deleted");
    let results: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let measured = arguments.split(' ').next().unwrap();
    assert_eq!((&results["format"], &results["measured"]), (&"stickycas-bench".into(), &measured.into()));
    results
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

fn row<'a>(results: &'a Value, name: &str) -> &'a Value {
    let all = results["rows"].as_array().unwrap();
    all.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {results}"))
}

fn figure(row: &Value, name: &str) -> f64 {
    row["figures"][name]["median"].as_f64().unwrap_or_else(|| panic!("no {name} in {row}"))
}

/// The median of a figure in units of another row's.
fn of(row: &Value, other: &str, name: &str) -> f64 {
    row["of"][other][name]["median"].as_f64().unwrap_or_else(|| panic!("no {name} of {other} in {row}"))
}

#[test]
fn wire_compares_with_floors_a_log_tls_and_other_builds() {
    let server = Path::new(env!("CARGO_BIN_EXE_stickycas-bench")).with_file_name("stickycas-server");
    assert!(server.is_file(), "the program of the server is missing: cargo build -p stickycas-server");
    let results = results(&format!(
        "wire --rounds 2 --scale 0.004 --beside same={} --only \
         unary-floor,unary,stream-floor/16,attach/16,attach-batch/16,attach-durable/16,attach-tls/64",
        server.display()
    ));
    for (name, floor) in [("unary", "unary-floor"), ("attach/16", "stream-floor/16")] {
        let one = row(&results, name);
        assert_eq!(one["figures"]["accesses_per_s"]["turns"].as_array().unwrap().len(), 2);
        assert!(of(one, floor, "accesses_per_s") > 0.0);
        assert!(figure(one, "server_cost_us") < figure(one, "cost_us"));
        assert!(of(row(&results, &format!("{name}@same")), name, "server_cost_us") > 0.0);
    }
    let durable = row(&results, "attach-durable/16");
    assert!(of(durable, "attach/16", "accesses_per_s") > 0.0);
    assert!(figure(durable, "commits_per_s") > 0.0 && figure(durable, "log_bytes_per_access") > 0.0);
    assert!(row(&results, "attach/16")["figures"]["commits_per_s"].is_null(), "it has no log");
    assert!(figure(row(&results, "attach-tls/64"), "accesses_per_s") > 0.0);
}

#[test]
fn latency_is_also_given_in_round_trips() {
    let results = results("latency --rounds 1 --scale 0.01");
    for (name, alone, at_once) in [("attach", "message", "messages"), ("unary", "call", "calls")] {
        let one = row(&results, name);
        assert!(of(one, alone, "median_us") > 0.0 && of(one, at_once, "median_us") > 0.0);
        assert!(figure(one, "with_create_us") > figure(one, "median_us"));
        assert!(of(row(&results, &format!("{name}-durable")), name, "median_us") > 0.0);
    }
}

#[test]
fn memory_and_starts_are_measured_of_everything_that_a_server_holds() {
    let options = "scale --principals 16 --finished 24 --live 8 --cost 3";
    let results = results(&format!("{options} --start-up 24 --starts 1"));
    let arguments = results["conditions"]["server_arguments"].as_array().unwrap();
    assert!(arguments.iter().any(|it| it == "--requests-per-second"), "{results}");
    for (name, count) in [
        ("connections, server that does nothing", 16.0),
        ("connected principals", 16.0),
        ("finished instances", 24.0),
        ("live instances", 8.0),
    ] {
        assert!((figure(row(&results, name), "count") - count).abs() < 0.1, "{name}");
    }
    assert!(figure(row(&results, "cost beside 3 live"), "server_cost_us") > 0.0);
    // They fail if a server has not all instances.
    for name in ["start after a kill", "start after compaction"] {
        assert!(figure(row(&results, name), "peak_bytes") > 0.0);
    }
    assert!(figure(row(&results, "log"), "archived_each_bytes") > 0.0);
}

#[test]
fn a_soak_sees_disk_and_memory_of_the_server() {
    let results = results("soak --instances 300");
    let samples = &row(&results, "without")["detail"];
    for column in ["disk_bytes", "resident_bytes"] {
        // However short the run is, its end is a sample.
        let values = samples[column].as_array().unwrap();
        assert!(!values.is_empty() && values.iter().all(|value| value.as_u64().unwrap() > 0), "{results}");
    }
    let accesses = samples["accesses"].as_array().unwrap().iter();
    // Each of 8 processes appends and reads in each instance.
    let all: u64 = accesses.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(all, 300 * 16, "accesses of the end belong to no sample");
}

/// What takes long on a busy machine is no lateness here: patience lasts as long as that.
#[test]
fn correct_processes_and_newcomers_beside_attackers_that_attack() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let size = "--instances 10 --rate 20 --lanes 1 --processes 8 --patience 60s --newcomers 3";
    let results = results(&format!("attackers {size} --attack double --attack oversize --attack newcomers"));
    for (name, refusal) in [("double", "ACCESS_CONTENT_DIFFERS"), ("oversize", "VALUE_TOO_LARGE")] {
        let one = row(&results, name);
        assert!(figure(one, "p50_ratio") > 0.0 && figure(one, "shown_of") > 0.0, "{one}");
        assert!(figure(one, "wrong") < 0.1, "{one}");
        assert!(one["detail"]["done"][name][refusal].as_u64().unwrap() > 0, "{one}");
        assert!(one["detail"]["counted"][refusal].as_u64().unwrap() > 0, "{one}");
    }
    assert!(figure(row(&results, "newcomers"), "connects_per_s") > 0.0, "{results}");
}

#[test]
#[ignore = "needs valgrind; scripts/verify instructions runs it"]
fn instructions_are_compared_with_budgets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("budgets.toml");
    let budgets = file.to_str().unwrap();
    let counted = results(&format!("instructions --only attach/16 --set --budgets {budgets}"));
    assert!(figure(row(&counted, "attach/16"), "instructions") > 1_000.0, "{counted}");
    let written = std::fs::read_to_string(&file).unwrap();
    let check = || bench(&format!("instructions --only attach/16 --check --budgets {budgets}")).output();
    assert!(check().unwrap().status.success());
    let halved = written.lines().map(|line| match line.strip_prefix("instructions = ") {
        Some(count) => format!("instructions = {}", count.parse::<f64>().unwrap() / 2.0),
        None => line.to_owned(),
    });
    std::fs::write(&file, halved.collect::<Vec<_>>().join("\n")).unwrap();
    let failed = check().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(text(&failed.stderr).contains("instructions for each access, +"), "{}", text(&failed.stderr));
    let other = written.replace("rustc 1", "rustc 9");
    std::fs::write(&file, other).unwrap();
    let mut skipped = bench(&format!("instructions --check --budgets {budgets}"));
    assert_eq!(skipped.env_remove("CI").output().unwrap().status.code(), Some(77));
    assert_eq!(skipped.env("CI", "true").output().unwrap().status.code(), Some(1));
}

#[test]
fn etcd_that_is_missing_is_left_out_unless_it_was_named() {
    let options = "wire --rounds 1 --scale 0.004 --only unary-floor,etcd/16,etcd/64";
    let output = bench(options).env("PATH", "").output().unwrap();
    assert!(output.status.success());
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("left out: etcd/16, etcd/64: there is no etcd"), "{stderr}");
    let output = bench("wire --rounds 1 --etcd /nowhere/etcd").output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("/nowhere/etcd"));
}

#[cfg(feature = "cluster")]
#[test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
fn three_servers_and_etcd_decide_the_same() {
    let compared = results("wire --rounds 1 --scale 0.05 --only attach/16,etcd/16");
    assert!(compared["programs"]["etcd"].as_str().is_some());
    assert!(of(row(&compared, "attach/16"), "etcd/16", "instances_per_s") > 0.0);

    let names = "naive/16,cluster/16,memory/16";
    let compared = results(&format!("cluster --rounds 1 --scale 0.02 --members 1 --only {names}"));
    let cluster = row(&compared, "cluster/16");
    for name in ["writes_per_s", "steps_per_write", "commit_us", "etcd_cost_us", "server_cost_us"] {
        assert!(figure(cluster, name) > 0.0, "{name}: {cluster}");
    }
    assert!(of(cluster, "naive/16", "instances_per_s") > 0.0);
    assert!(cluster["of"]["durable/16"].is_null(), "it had no turn");
}

#[test]
fn bad_options_are_refused_with_a_hint_and_no_backtrace() {
    for (arguments, hint) in [
        ("scale --cost 10,0", "0 is not in 1.."),
        ("scale --principals 3", "give a multiple of 8"),
        ("scale --finished 0", "0 is not in 1.."),
        ("scale", "error: say what to measure: --principals, --finished, --live, --cost"),
        ("scale --cost 1 --server /nowhere/server", "error: /nowhere/server is missing: cargo build"),
        ("wire --scale 0", "give a number above 0"),
        ("wire --only attach/17", "there are: unary-floor"),
        ("wire --beside before", "give NAME=PATH"),
        ("wire --beside before=/nowhere/server", "/nowhere/server is missing"),
        ("wire --beside a=/bin/sh --beside a=/bin/sh", "one name is there twice"),
        ("wire --only unary --server /bin/true", "/bin/true ended at once"),
        ("latency --rounds 0", "0 is not in 1.."),
        ("latency --only nobody", "error: --only: no candidate 'nobody'; there are: message"),
        ("attackers --attack fload", "there is no wire attack \"fload\""),
        ("instructions --check --set", "cannot be used with"),
    ] {
        let output = bench(arguments).env("RUST_BACKTRACE", "1").output().unwrap();
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments}");
        assert!(stderr.contains(hint), "{arguments}: {stderr}");
        assert!(!stderr.contains("backtrace") && !stderr.contains("panicked"), "{arguments}: {stderr}");
    }
}
