//! The programs that run in bulk, `simulate --runs` and `explore`: what they print, and their exit codes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::json_schema;

const BEYOND_THE_BOUND: &str = include_str!("../lab/tests/beyond_the_bound.toml");

/// Runs the program in a fresh folder.
fn loadgen(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG").output().unwrap()
}

fn written(folder: &Path) -> PathBuf {
    let file = folder.join("beyond.toml");
    fs::write(&file, BEYOND_THE_BOUND).unwrap();
    file
}

#[test]
fn simulate_names_the_command_for_the_first_unexpected_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(folder.path());
    let file = file.to_str().unwrap();
    let arguments = ["simulate", file, "--runs", "300", "--seed", "5", "--jobs", "2"];
    let output = loadgen(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("to repeat BROKEN: stickycas-loadgen "));
    let repeated: Vec<&str> = command.unwrap().split_whitespace().collect();
    let again = loadgen(folder.path(), &[&repeated[..], &["--expect", "outside"]].concat());
    assert_eq!(again.status.code(), Some(0), "{again:?}");

    let output = loadgen(folder.path(), &[&arguments[..], &["--json"]].concat());
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    let schema: Json =
        serde_json::from_str(include_str!("../../docs/schema/simulate-runs.schema.json")).unwrap();
    assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
    let tally = &json["tally"];
    assert_eq!(
        (&json["asked"], &json["first_seed"], &tally["runs"]),
        (&300.into(), &"5".into(), &300.into())
    );
    assert_eq!(tally["verdicts"]["outside"]["first_seed"], repeated[3]);
    let broken = &tally["properties"]["strong_validity"]["broken"]["runs"];
    assert_eq!(*broken, tally["verdicts"]["outside"]["runs"]);
    assert_eq!(tally["properties"]["agreement"]["promised"], 300);
    assert!(!folder.path().join("runs").join("beyond-the-bound-5").exists(), "no run folder for many runs");
}

#[test]
fn many_runs_fail_if_one_is_not_as_expected() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(folder.path());
    let code = |more: &[&str]| {
        let arguments = [&["simulate", file.to_str().unwrap(), "--runs", "100"], more].concat();
        loadgen(folder.path(), &arguments).status.code()
    };
    assert_eq!(code(&["--seed", "5", "--expect", "valid"]), Some(1), "some are outside");
    assert_eq!(code(&["--seed", "9223372036854775800"]), Some(2), "seeds end");
    assert_eq!(code(&["--out", "somewhere"]), Some(2), "many runs leave no folder");
}

#[test]
fn explore_writes_the_witness_and_its_exit_code_is_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let loadgen = |arguments: &[&str]| loadgen(folder.path(), arguments);
    let arguments = ["explore", "--claim", "a", "--max-n", "4", "--json", "--out", "witness.toml"];
    let output = loadgen(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let written = fs::read_to_string(folder.path().join("witness.toml")).unwrap();
    assert_eq!(report["witness"], written);
    assert!(report["rows"][0]["states"].as_u64().unwrap() > 0);
    let taken = loadgen(&arguments);
    assert_eq!(taken.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&taken.stderr).contains("exists already"));
    let output = loadgen(&["simulate", "witness.toml", "--expect", "outside", "--out", "run"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for (arguments, why) in [
        (["explore", "--claim", "e", "--json"], "give a, b, c or d"),
        (["explore", "--claim", "c", "--max-n=40"], "too many to search"),
    ] {
        let output = loadgen(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{arguments:?}");
    }
}
