//! What people do wrong, and what the program answers: the mistake and its remedy in plain words on standard
//! error, behind `error:`, nothing on standard output, and the exit code.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// The files of the rows, by their names.
const FILES: [(&str, &str); 8] = [
    (
        "good.toml",
        "name = \"good\"\n[instance]\nprocesses = 4\nwarp_size = 1\nread_size = 4\n[proposals]\ndistinct = 2\n",
    ),
    (
        "profile.toml",
        "name = \"steady\"\n[instance]\nprocesses = 4\nwarp_size = 1\nread_size = 4\n[load]\nrate = 5\nduration = \"1s\"\n",
    ),
    (
        "campaign.toml",
        "name = \"small\"\nseed = 1\n[axes]\nprocesses = 4\nwarp_size = 1\nread_size = 4\nbyzantine = [0, 1]\nstrategy = \"silent\"\n\
         [[sweep]]\nname = \"one\"\nruns = 2\n",
    ),
    (
        "plan.toml",
        "name = \"killed\"\nexpect = \"valid\"\n[[steps]]\nwhen = \"before\"\ndo = \"kill\"\nservices = [\"server\"]\n",
    ),
    (
        "argument.toml",
        "name = \"argument\"\n[instance]\nprocesses = 4\nwarp_size = 1\nread_size = 4\n[proposals]\ndistinct = 2\n\
         [[faults]]\nprocesses = [3]\nstrategy = \"late-append(acces=2, value=b)\"\n",
    ),
    (
        "strategy.toml",
        "name = \"strategy\"\n[instance]\nprocesses = 4\nwarp_size = 1\nread_size = 4\n[proposals]\ndistinct = 2\n\
         [[faults]]\nprocesses = [3]\nstrategy = \"colude(value=b)\"\n",
    ),
    (
        "attack.toml",
        "name = \"attack\"\n[instance]\nprocesses = 4\nwarp_size = 1\nread_size = 4\n[proposals]\ndistinct = 2\n\
         [[faults]]\ncount = 1\nattack = \"flood(frames=9)\"\n",
    ),
    ("open.toml", "name = \"open\n"),
];

/// A mistake: the arguments in one line, what is said, the exit code.
type Row = (&'static str, &'static str, i32);

const COMMAND_LINE: [Row; 22] = [
    ("walk", "unrecognized subcommand 'walk'", 2),
    ("simulat good.toml", "a similar subcommand exists: 'simulate'", 2),
    ("simulate", "required arguments were not provided:\n  <SCENARIO.toml>", 2),
    ("simulate good.toml --sede 1", "a similar argument exists: '--seed'", 2),
    ("simulate good.toml --runs 0", "give a number from 1, such as 1000, 1_000 or 1e3", 2),
    ("simulate good.toml --jobs 2", "required arguments were not provided:\n  --runs <N>", 2),
    ("simulate good.toml --expect fine", "give valid, outside, unknown or violation", 2),
    ("simulate good.toml --out taken", "taken exists already: give another --out", 2),
    ("load --rate fast", "--rate fast: the text \"fast\" stands where a number is wanted", 2),
    ("load --duration 5", "give a duration such as 10s", 2),
    ("load --duration 0s", "--duration 0s: duration = \"0s\": give more, such as \"10s\"", 2),
    ("load --server http://127.0.0.1:1", "Connection refused; to start a server: stickycas-server serve", 3),
    ("run good.toml --server http://nowhere.invalid:7420", "there is no host nowhere.invalid", 3),
    (
        "run good.toml --server https://127.0.0.1:1 --credentials taken",
        "taken/loadgen is no folder with ca.crt",
        2,
    ),
    ("load --rate 5 --in-flight 3", "'--rate <RATE>' cannot be used with '--in-flight <K>'", 2),
    ("load --noise much", "give a number such as 0.1", 2),
    ("load --fail-if p99>50ms", "there is no figure p99: did you mean instance_p99?", 2),
    ("load --fail-if instance_p99>4", "4 is no value of it: give a duration such as 50ms", 2),
    ("load --find-limit eror_rate>0", "there is no figure eror_rate: did you mean error_rate?", 2),
    ("explore --claim e", "give a, b, c or d", 2),
    ("explore --claim b --out witness.toml", "only claim a has a witness to write", 2),
    ("play --port 99999", "99999 is not in 0..=65535", 2),
];

const FILES_OF_ANOTHER_KIND: [Row; 9] = [
    ("run campaign.toml", "campaign.toml:9: this is a campaign: stickycas-loadgen campaign campaign.toml", 2),
    ("simulate plan.toml", "plan.toml:3: this is a plan of faults: stickycas-loadgen perturb plan.toml", 2),
    (
        "simulate profile.toml --runs 9",
        "profile.toml:6: this is a load profile: stickycas-loadgen load --profile profile.toml",
        2,
    ),
    ("campaign good.toml", "good.toml:6: this is a scenario: stickycas-loadgen run good.toml", 2),
    (
        "campaign profile.toml",
        "profile.toml:6: this is a load profile: stickycas-loadgen load --profile profile.toml",
        2,
    ),
    (
        "load --profile good.toml",
        "good.toml:6: this is a scenario: stickycas-loadgen run good.toml; a load profile has [load]",
        2,
    ),
    ("perturb good.toml", "good.toml:6: this is a scenario: stickycas-loadgen run good.toml", 2),
    (
        "crash --plan campaign.toml",
        "campaign.toml:9: this is a campaign: stickycas-loadgen campaign campaign.toml",
        2,
    ),
    ("judge good.toml --plan profile.toml", "profile.toml:6: this is a load profile:", 2),
];

const FILES_AND_FOLDERS: [Row; 15] = [
    ("simulate none.toml", "none.toml: No such file or directory", 2),
    ("simulate open.toml", "open.toml:1: ", 2),
    (
        "simulate attack.toml",
        "wire attacks need the network, and the scenario has flood(frames=9): use run",
        2,
    ),
    (
        "simulate argument.toml",
        "argument.toml:10: late-append has no argument acces: did you mean access?",
        2,
    ),
    ("simulate strategy.toml", "strategy.toml:10: there is no strategy \"colude\": did you mean collude?", 2),
    ("simulate good.toml --set peace=1s", "--set peace=1s: there is no key peace: did you mean pace?", 2),
    ("simulate good.toml --set pace", "--set pace: give KEY=VALUE, such as pace=250ms", 2),
    ("simulate good.toml --set warp_size=9", "--set warp_size=9: warp size p = 9: give 1 to n = 4", 2),
    ("simulate good.toml --set order=sideways", "there is no value sideways: give one of", 2),
    ("campaign campaign.toml --only two", "there is no sweep \"two\": give one of one", 2),
    ("campaign campaign.toml --cell 99", "there is no cell 99: the last one is 2", 2),
    ("explain none", "none", 2),
    ("replay taken", "taken", 2),
    ("explain taken --instance tea", "--instance is for a dump: a run folder has one instance", 2),
    ("report none", "none", 2),
];

#[track_caller]
fn each_is_answered(rows: &[Row]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::create_dir(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("taken/mine"), "").unwrap();
    let wrong: Vec<String> = rows.iter().filter_map(|row| wrong_answer(folder.path(), row)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The answer to a mistake, if it is not the one of the row.
fn wrong_answer(folder: &Path, (arguments, said, code): &Row) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stickycas-loadgen"));
    let command = command.args(arguments.split(' ')).current_dir(folder).env_remove("RUST_LOG");
    let output = command.env("COLUMNS", "200").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let errors = told.lines().filter(|line| line.starts_with("error: ")).count();
    let is_right =
        output.status.code() == Some(*code) && told.contains(said) && errors == 1 && output.stdout.is_empty();
    (!is_right).then(|| format!("{arguments}: {:?}, no {said:?} in:\n{told}", output.status))
}

#[test]
fn a_wrong_command_line_is_answered_with_what_to_do() {
    each_is_answered(&COMMAND_LINE);
}

#[test]
fn another_service_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        }
    });
    for command in ["load", "run good.toml"] {
        let line: &'static str = format!("{command} --server http://{address}").leak();
        each_is_answered(&[(line, "no gRPC server but one for browsers and probes", 3)]);
    }
}

#[test]
fn a_file_of_another_kind_is_answered_with_its_command() {
    each_is_answered(&FILES_OF_ANOTHER_KIND);
}

#[test]
fn a_wrong_file_or_folder_is_answered_with_its_place() {
    each_is_answered(&FILES_AND_FOLDERS);
}
