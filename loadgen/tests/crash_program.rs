//! The kill test: two short rounds, which must find nothing. What it can find is shown by planted bugs
//! (`model/mutants.toml`) and by records made by hand (`stickycas-faults`).
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::process::Command;

use stickycas_faults::CrashResult;

#[test]
fn a_server_that_is_killed_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(["crash", "--rounds", "2", "--seed", "3", "--json"]).current_dir(folder.path());
    let output = command.env_remove("RUST_LOG").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let result: CrashResult = serde_json::from_slice(&output.stdout).unwrap();
    // Beside many other tests patience cannot be judged; that it is kept is shown in virtual time.
    let expected = if result.is_starved() { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{told}");
    assert_eq!((result.rounds, result.counts.violations_found), (2, 0), "{told}");
    // A kill that hits nobody would show nothing.
    assert!(
        result.counts.kills >= 4 && result.counts.accesses > 1_000 && result.counts.decisions > 500,
        "{result:?}"
    );
    let left: Vec<_> = std::fs::read_dir(folder.path().join("runs/crash-3")).unwrap().collect();
    assert_eq!(left.len(), 1, "the result alone is left of rounds that found nothing: {left:?}");
}

const PLAN: &str = r#"
name = "two-kills"
expect = "valid"
[[steps]]
when = { served = "100ms" }
do = "kill"
services = ["server"]
lasts = "0s"
[[steps]]
when = { ended = true }
do = "kill"
services = ["server"]
lasts = "0s"
"#;

/// The exit code, what was told, and the result of a round with the steps of this plan.
fn round_of(plan: &str) -> (Option<i32>, String, Option<CrashResult>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plan.toml"), plan).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args([
        "crash",
        "--rounds",
        "1",
        "--seed",
        "3",
        "--instances",
        "20",
        "--plan",
        "plan.toml",
        "--json",
    ]);
    let output = command.current_dir(folder.path()).env_remove("RUST_LOG").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told, serde_json::from_slice(&output.stdout).ok())
}

#[test]
fn the_steps_of_a_plan_take_the_place_of_those_that_are_drawn() {
    let (_, told, result) = round_of(PLAN);
    let counts = result.unwrap().counts;
    assert_eq!((counts.kills, counts.instances, counts.violations_found), (2, 20, 0), "{told}");
}

#[test]
fn a_plan_that_the_kill_test_cannot_carry_out_is_refused() {
    for (from, to) in
        [("\"server\"", "\"judge\""), ("served = \"100ms\"", "phase = 3"), ("\"kill\"", "\"pause\"")]
    {
        let (code, told, _) = round_of(&PLAN.replace(from, to));
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains("the kill test has no such step"), "{told}");
    }
}

#[test]
fn what_a_plan_has_for_the_demo_or_an_outage_is_refused() {
    for (from, to, told_of) in [
        ("\"valid\"", "\"violation\"", "plan.toml:3: expect: the kill test"),
        ("\n[[steps]]", "\nin_memory = true\n[[steps]]", "plan.toml:4: in_memory: the kill test"),
        ("\n[[steps]]", "\nfaulty = []\n[[steps]]", "plan.toml:4: faulty: the kill test"),
        ("\n[[steps]]", "\n[instance]\npace = \"1s\"\n[[steps]]", "plan.toml:4: instance: the kill test"),
        (
            "\n[[steps]]",
            "\n[expectations]\nowners = 1\n[[steps]]",
            "plan.toml:4: expectations: the kill test",
        ),
        ("lasts = \"0s\"", "lasts = \"0s\"\nahead = \"2days\"", "give --outage"),
        ("served = \"100ms\"", "under_way = true", "give --outage"),
    ] {
        let (code, told, _) = round_of(&PLAN.replacen(from, to, 1));
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains(told_of), "{told}");
    }
}

fn without_etcd() -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(["crash", "--cluster", "3"]).current_dir(folder.path());
    let output = command.env_remove("RUST_LOG").env("PATH", folder.path()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(feature = "cluster")]
#[test]
fn a_cluster_without_etcd_is_not_tried() {
    let (code, told) = without_etcd();
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("etcd is missing"), "{told}");
}

#[cfg(not(feature = "cluster"))]
#[test]
fn a_program_without_clusters_says_how_to_build_one_with_them() {
    let (code, told) = without_etcd();
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("--features cluster"), "{told}");
}
