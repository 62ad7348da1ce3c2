//! The program as people and scripts meet it: real child processes, exit codes, what is printed where.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use stickycas_harness::exit::EXIT_CODES;
use stickycas_harness::run::OwnServer;
use stickycas_model::judge::{Explanation, Outcome, Verdict};
use stickycas_server::cli::command_line;

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../examples/scenarios/{name}.toml"))
}

/// Runs the program in a fresh folder.
fn loadgen(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG").output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn standard_output_of_a_run_is_the_verdict_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("quickstart");
    let arguments = ["run", file.to_str().unwrap(), "--seed", "21", "--json", "--expect", "valid"];
    let output = loadgen(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let verdict: Verdict = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict.verdict, Outcome::Valid);
    assert_eq!((verdict.n, verdict.f, verdict.seed.get()), (16, 2, 21));
    assert!(told(&output).starts_with("seed 21\n"), "{}", told(&output));

    let run = folder.path().join("runs/quickstart-21");
    assert_eq!(fs::read(run.join("verdict.json")).unwrap(), output.stdout);
    let environment = fs::read_to_string(run.join("environment.json")).unwrap();
    assert!(environment.contains("\"child_processes\""), "{environment}");
}

#[test]
fn a_silent_child_is_ended_without_failure() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        name = "absent"
        [instance]
        processes = 6
        warp_size = 2
        read_size = 2
        join_timeout = "5s"
        patience = "20s"
        [proposals]
        distinct = 1
        [[faults]]
        processes = [3]
        strategy = "absent"
    "#;
    fs::write(folder.path().join("absent.toml"), text).unwrap();
    let output = loadgen(folder.path(), &["run", "absent.toml", "--json", "--expect", "valid"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let verdict: Verdict = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict.decisions.len(), 5);
}

#[test]
fn a_second_run_gets_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("one-warp");
    for _ in 0..3 {
        let output = loadgen(folder.path(), &["simulate", file.to_str().unwrap(), "--seed", "4"]);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(String::from_utf8(output.stdout).unwrap().contains("verdict: VALID\n"));
    }
    let mut runs: Vec<_> =
        fs::read_dir(folder.path().join("runs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    runs.sort();
    assert_eq!(runs, ["one-warp-4", "one-warp-4-2", "one-warp-4-3"]);
}

#[test]
fn an_unexpected_verdict_fails_and_names_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("late-append-open");
    let path = file.to_str().unwrap();
    let outside = loadgen(folder.path(), &["simulate", path, "--seed", "8"]);
    assert_eq!(outside.status.code(), Some(0), "{}", told(&outside));
    let report = String::from_utf8(outside.stdout.clone()).unwrap();
    let broken = "verdict: BROKEN: agreement (not promised: append window open)\n";
    assert!(report.contains(broken) && report.contains(" = 3 < 5: inside the bound\n"), "{report}");
    let note = "exit code 0: no promise was broken (--expect valid makes this fail)";
    assert_eq!(told(&outside).lines().last(), Some(note));
    let unexpected = loadgen(folder.path(), &["simulate", path, "--seed", "8", "--expect", "valid"]);
    assert_eq!(unexpected.status.code(), Some(1));
    let repeat = format!("seed 8; to repeat it: stickycas-loadgen simulate {path} --expect valid --seed 8\n");
    assert!(told(&unexpected).contains(&repeat), "{}", told(&unexpected));
}

#[test]
fn reports_fit_into_the_lines_of_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["late-append-open", "over-the-bound"] {
        fs::copy(scenario(name), folder.path().join(format!("{name}.toml"))).unwrap();
    }
    let campaign = "name = \"small\"\nseed = 1\n[axes]\nprocesses = 4\nwarp_size = 1\nread_size = 4\nbyzantine = \
                    [0, 1]\nstrategy = \"silent\"\n[[sweep]]\nname = \"a-sweep-of-some-length\"\nruns = 1000\n";
    fs::write(folder.path().join("small.toml"), campaign).unwrap();
    for columns in [60, 80] {
        let run = format!("run-{columns}");
        for arguments in [
            &["simulate", "late-append-open.toml", "--seed", "8", "--out", &run][..],
            &["simulate", "over-the-bound.toml", "--seed", "8", "--runs", "50"],
            &["explain", &run],
            &["campaign", "small.toml", "--out", &format!("campaign-{columns}")],
            &["explore", "--claim", "b", "--max-n", "2"],
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
            let command = command.args(arguments).current_dir(folder.path()).env_remove("RUST_LOG");
            let output = command.env("COLUMNS", columns.to_string()).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", told(&output));
            let text = String::from_utf8(output.stdout).unwrap();
            // A command stays in one line, in which it can be copied.
            let long = |line: &&str| !line.starts_with("to repeat ") && line.chars().count() > columns;
            assert_eq!(text.lines().find(long), None, "{arguments:?} at {columns}:\n{text}");
            assert!(text.lines().count() > 3, "{text}");
        }
    }
    // A file has all.
    let whole = fs::read_to_string(folder.path().join("run-60/report.txt")).unwrap();
    assert!(whole.contains("┆ proposal ┆ append "), "{whole}");
}

#[test]
fn what_cannot_be_run_is_wrong_usage_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "name = \"bad\"\ncolour = \"red\"\n").unwrap();
    let wire = "name = \"wire\"\n[instance]\nprocesses = 4\nwarp_size = 1\nread_size = 1\n\
                [proposals]\ndistinct = 1\n[[faults]]\ncount = 1\nattack = \"flood(frames=9)\"\n";
    fs::write(folder.path().join("wire.toml"), wire).unwrap();
    for (arguments, why) in [
        (&["simulate", "bad.toml"][..], "bad.toml:2: there is no key colour"),
        (&["simulate", "nowhere.toml"], "nowhere.toml: "),
        (&["simulate"], "SCENARIO.toml"),
        (
            &["simulate", "wire.toml"],
            "wire attacks need the network, and the scenario has flood(frames=9): use run",
        ),
        (&["simulate", "bad.toml", "--expect", "fine"], "give valid, outside, unknown or violation"),
        (&["walk", "bad.toml"], "unrecognized subcommand"),
        (&["load", "--server", "nonsense"], "nonsense"),
    ] {
        let output = loadgen(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(told(&output).contains(why), "{arguments:?}: {}", told(&output));
        assert!(output.stdout.is_empty());
    }
    let taken = folder.path().join("out");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("mine"), "").unwrap();
    let file = scenario("one-warp");
    let output = loadgen(folder.path(), &["simulate", file.to_str().unwrap(), "--out", "out"]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("exists already"), "{}", told(&output));
    assert!(output.stdout.is_empty(), "it is said before the run, not after");
}

/// A limit of the size of files, as a full disk is one.
#[test]
fn a_run_that_cannot_be_written_leaves_no_part_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("one-warp");
    let program = env!("CARGO_BIN_EXE_stickycas-loadgen");
    let mut limited = Command::new("prlimit");
    limited.args(["--fsize=500", program, "simulate", file.to_str().unwrap(), "--out", "run"]);
    let output = limited.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains("File too large"), "{}", told(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_changed_run_folder_fails_explain_and_replay() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("late-append-open");
    let done = loadgen(folder.path(), &["simulate", file.to_str().unwrap(), "--seed", "8", "--out", "run"]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));

    let explained = loadgen(folder.path(), &["explain", "run"]);
    assert_eq!(explained.status.code(), Some(0), "an explanation judges nothing: {}", told(&explained));
    let text = String::from_utf8(explained.stdout).unwrap();
    assert!(text.contains("Processes 1, 2 decided a."), "{text}");
    let json = loadgen(folder.path(), &["explain", "run", "--json"]);
    let explanation: Explanation = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((explanation.verdict.verdict, explanation.entries.len()), (Outcome::Outside, 5));

    let replayed = loadgen(folder.path(), &["replay", "run"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", told(&replayed));
    let verdict = folder.path().join("run/verdict.json");
    let changed = fs::read_to_string(&verdict).unwrap().replacen("\"outside\"", "\"valid\"", 1);
    fs::write(&verdict, changed).unwrap();
    let replayed = loadgen(folder.path(), &["replay", "run", "--json"]);
    assert_eq!(replayed.status.code(), Some(1), "{}", told(&replayed));
    let found: serde_json::Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(found["fields"][0]["field"], "verdict");
    assert!(
        told(&loadgen(folder.path(), &["explain", "run"])).contains("does not follow from its own inputs")
    );

    // A folder of run folders stands for the newest of them.
    fs::create_dir_all(folder.path().join("runs/older")).unwrap();
    fs::write(folder.path().join("runs/older/harness.json"), "{}").unwrap();
    fs::rename(folder.path().join("run"), folder.path().join("runs/run")).unwrap();
    let touched = fs::File::options().append(true).open(folder.path().join("runs/run/harness.json")).unwrap();
    touched.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(9)).unwrap();
    let newest = loadgen(folder.path(), &["explain", "runs"]);
    assert!(told(&newest).contains("run folder: runs/run"), "{}", told(&newest));
    fs::rename(folder.path().join("runs/run"), folder.path().join("run")).unwrap();

    fs::remove_file(folder.path().join("run/history.ndjson")).unwrap();
    for command in ["explain", "replay"] {
        let refused = loadgen(folder.path(), &[command, "run"]);
        assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
        assert!(told(&refused).contains("run: history.ndjson is missing"), "{}", told(&refused));
    }
}

#[test]
fn with_json_an_error_is_json() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, kind, word) in [
        (&["simulate", "none.toml", "--json"][..], "usage", "none.toml"),
        (&["simulate", "--json", "--sede", "1"], "usage", "--sede"),
    ] {
        let output = loadgen(folder.path(), arguments);
        let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(error["error"]["kind"], kind, "{arguments:?}");
        assert!(error["error"]["message"].as_str().unwrap().contains(word), "{arguments:?}: {error}");
    }
}

#[test]
fn every_help_tells_the_same_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = command_line();
    let serve = server.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
    assert!(serve.ends_with(&format!("{EXIT_CODES}\n")), "{serve}");
    for command in [&["--help"][..], &["run", "--help"], &["load", "--help"], &["client", "--help"]] {
        let output = loadgen(folder.path(), command);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.ends_with(&format!("{EXIT_CODES}\n")), "{command:?}: {help}");
    }
}

#[test]
fn the_client_is_part_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let output = loadgen(folder.path(), &["client", "propose", "--help"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(String::from_utf8(output.stdout).unwrap().contains("--strategy"));
    let output = loadgen(folder.path(), &["client", "list"]);
    assert_eq!(output.status.code(), Some(2), "the client's own exit code: {}", told(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_there_already_is_used() {
    let server = OwnServer::start().await.unwrap();
    let url = server.url().to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir().unwrap();
        let file = scenario("singletons");
        let output =
            loadgen(folder.path(), &["run", file.to_str().unwrap(), "--server", &url, "--out", "out"]);
        let environment = fs::read_to_string(folder.path().join("out/environment.json")).unwrap();
        assert!(environment.contains(&url), "{environment}");
        output
    });
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    server.stop().await.unwrap();
}

#[test]
fn a_server_that_is_not_there_is_given_up_and_the_seed_is_told() {
    let folder = tempfile::tempdir().unwrap();
    // Bound and dropped: nobody listens on this port.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (file, url) = (scenario("one-warp"), format!("http://127.0.0.1:{port}"));
    let output = loadgen(folder.path(), &["run", file.to_str().unwrap(), "--server", &url, "--seed", "6"]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains(&url) && told(&output).starts_with("seed 6\n"), "{}", told(&output));
}

#[test]
fn completions_and_man_pages_are_there() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = loadgen(folder.path(), &["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(String::from_utf8(output.stdout).unwrap().contains("campaign"), "{shell}");
    }
    let output = loadgen(folder.path(), &["man", "pages"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    for page in ["stickycas-loadgen.1", "stickycas-loadgen-load.1"] {
        assert!(
            fs::read_to_string(folder.path().join("pages").join(page)).unwrap().contains(".SH NAME"),
            "{page}"
        );
    }
}
