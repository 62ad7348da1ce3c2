//! Campaigns as people and scripts meet them: killed, interrupted, printed, reported on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value as Json;
use stickycas_lab::campaign::cell::Results;
use stickycas_lab::campaign::journal::JOURNAL;

use crate::json_schema;

/// A campaign of so many cells with so many runs each.
fn campaign(folder: &Path, cells: u32, runs: u32) {
    let text = format!(
        "name = \"program\"\nseed = 3\n[[sweep]]\nname = \"only\"\nruns = {runs}\n\
         [sweep.axes]\nn = {{ from = 9, to = {} }}\np = 2\nr = 4\nf = 1\nstrategy = \"collude(value=0)\"\n",
        8 + cells
    );
    fs::write(folder.join("program.toml"), text).unwrap();
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn loadgen(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn file(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Starts a campaign and returns when it has so many cells in its journal.
fn started(folder: &Path, cells: usize) -> Child {
    let arguments = ["campaign", "program.toml", "--out", "out", "--jobs", "1"];
    let mut child = command(folder, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
    let begun = lines.take_while(|line| !line.contains(" runs")).count();
    assert_eq!(begun, 1, "first the seed, then what is to be done");
    let journal = folder.join("out").join(JOURNAL);
    // The first two lines are the campaign and the session.
    while fs::read_to_string(&journal).map_or(0, |text| text.lines().count()) < 2 + cells {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be stopped");
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_kill_loses_no_cell_that_is_done() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    campaign(folder, 8, 800);
    let mut child = started(folder, 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let survived = file(folder, "out/journal.ndjson").matches("{\"cell\":").count();
    assert!((2..8).contains(&survived), "{survived}");

    let resumed = loadgen(folder, &["campaign", "program.toml", "--out", "out"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", told(&resumed));
    assert!(
        told(&resumed).contains(&format!("going on: {survived} of 8 cells are done")),
        "{}",
        told(&resumed)
    );
    let whole = loadgen(folder, &["campaign", "program.toml", "--out", "whole", "--json"]);
    assert_eq!(whole.status.code(), Some(0), "{}", told(&whole));
    assert_eq!(file(folder, "out/results.csv"), file(folder, "whole/results.csv"));
    let schema: Json =
        serde_json::from_str(include_str!("../../docs/schema/campaign-results.schema.json")).unwrap();
    let json: Json = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!(json_schema::faults(&schema, &schema, &json, ""), [""; 0]);
    let results: Results = serde_json::from_value(json).unwrap();
    assert!(results.complete() && results.cells().all(|cell| cell.counts.runs == 800));
}

#[test]
fn an_interrupted_campaign_leaves_results() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    campaign(folder, 1, 500_000_000);
    let child = started(folder, 0);
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(told(&output).contains("interrupted: nothing that was done is lost"), "{}", told(&output));
    let results: Results = serde_json::from_str(&file(folder, "out/results.json")).unwrap();
    assert!(!results.complete());
    assert!(file(folder, "out/report.html").contains("</html>"));
}

#[test]
fn a_cell_is_printed_as_a_scenario_and_its_command_repeats_it() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    campaign(folder, 3, 50);
    let done = loadgen(folder, &["campaign", "program.toml", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    let results: Results = serde_json::from_slice(&done.stdout).unwrap();
    let cell = results.cells().last().unwrap();
    let printed = loadgen(folder, &["campaign", "program.toml", "--cell", &cell.number.to_string()]);
    fs::write(folder.join("cell.toml"), &printed.stdout).unwrap();
    let seed = cell.first_seed.to_string();
    let one = loadgen(folder, &["simulate", "cell.toml", "--seed", &seed, "--expect", "valid"]);
    assert_eq!(one.status.code(), Some(0), "{}", told(&one));
    let none = loadgen(folder, &["campaign", "program.toml", "--cell", "4"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(told(&none).contains("there is no cell 4: the last one is 3"), "{}", told(&none));
}

#[test]
fn settings_hold_for_the_runs_of_a_campaign_and_its_results() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let text = "name = \"set\"\nseed = 3\n[axes]\nn = 9\np = 2\nr = 4\nf = 1\nstrategy = \"collude(value=0)\"\n\
                [[sweep]]\nname = \"only\"\nruns = 5\n";
    fs::write(folder.join("set.toml"), text).unwrap();
    let arguments = [
        "campaign",
        "set.toml",
        "--set",
        "processes=7",
        "--set",
        "axes.p=1",
        "--set",
        "axes.byzantine=[2, 3]",
        "--json",
    ];
    let done = loadgen(folder, &arguments);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    let results: Results = serde_json::from_slice(&done.stdout).unwrap();
    let points: Vec<_> = results.cells().map(|cell| (cell.point.n, cell.point.p, cell.point.f)).collect();
    assert_eq!(points, [(7, 1, 2), (7, 1, 3)]);
    assert!(results.command.contains("--set 'processes=7' --set 'axes.p=1'"), "{}", results.command);
    let other = loadgen(folder, &["campaign", "set.toml", "--set", "processes=8", "--out", "runs/set-3"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(told(&other).contains("holds another campaign"), "{}", told(&other));
}

#[test]
fn the_results_are_made_again_from_the_journal_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    campaign(folder, 3, 50);
    assert_eq!(loadgen(folder, &["campaign", "program.toml"]).status.code(), Some(0));
    let out = folder.join("runs/program-3");
    let files = || ["results.json", "results.csv", "report.html"].map(|name| file(&out, name));
    let before = files();
    for name in ["results.json", "results.csv", "report.html"] {
        fs::remove_file(out.join(name)).unwrap();
    }
    fs::remove_file(folder.join("program.toml")).unwrap();
    let again = loadgen(folder, &["report", "runs/program-3"]);
    assert_eq!(again.status.code(), Some(0), "{}", told(&again));
    assert_eq!(files(), before);
    let left: Vec<_> = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "nothing half written is left: {left:?}");
}

#[test]
fn what_cannot_be_run_is_wrong_usage_and_says_why() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    campaign(folder, 3, 1_000_000);
    for (arguments, why) in [
        (&["campaign", "program.toml", "--budget", "1s"][..], "and the budget is 1s: cut runs to"),
        (&["campaign", "program.toml", "--only", "other"], "there is no sweep \"other\": give one of only"),
        (&["campaign", "nowhere.toml"], "nowhere.toml: "),
        (&["campaign"], "CAMPAIGN.toml"),
        (&["report", "runs"], "holds no campaign"),
    ] {
        let output = loadgen(folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", told(&output));
        assert!(told(&output).contains(why), "{arguments:?}: {}", told(&output));
        assert!(output.stdout.is_empty());
    }
    assert!(!folder.join("runs").exists(), "what is refused leaves nothing behind");
}
