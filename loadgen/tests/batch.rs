//! Many runs of one scenario: each is the run that its seed gives alone, and they add up the same however they are
//! shared out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value as Json;
use stickycas_loadgen::batch::{IN_FULL, Runs, Tally, tally};
use stickycas_loadgen::files::Settings;
use stickycas_loadgen::scenario::Template;
use stickycas_loadgen::simulate;
use stickycas_model::judge::{Outcome, VerdictSummary};

fn jobs(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// Every scenario that ships and that the simulator can show, and some in which everything is drawn.
fn templates() -> Vec<Template> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let shipped = files.map(|file| Template::load(&file, Some(0), &Settings::default()).unwrap());
    let drawn = |text: &str| Template::parse("drawn", text, Some(0)).unwrap();
    let mut templates: Vec<Template> =
        shipped.filter(|template| template.scenario().check_simulable().is_ok()).collect();
    assert!(templates.len() >= 8, "{} scenarios", templates.len());
    templates.extend([drawn(ALL_DRAWN), drawn(BEYOND_THE_BOUND)]);
    templates
}

const ALL_DRAWN: &str = r#"
    name = "all-drawn"
    [instance]
    processes = 13
    warp_size = 3
    read_size = 2
    order = "shuffled"
    arbiter = "uniform"
    [proposals]
    distinct = 3
    [[faults]]
    count = 2
    placement = "random"
    strategy = "distinct"
    [[faults]]
    count = 2
    placement = "random"
    strategy = "silent"
"#;

/// Strong validity breaks in some runs and not in others.
const BEYOND_THE_BOUND: &str = r#"
    name = "beyond-the-bound"
    [instance]
    processes = 12
    warp_size = 3
    read_size = 4
    [proposals]
    distinct = 2
    [[faults]]
    count = 2
    strategy = "collude(value=0)"
"#;

#[test]
fn a_run_of_many_is_the_run_that_its_seed_gives_alone() {
    for template in templates() {
        let mut runs = Runs::of(&template);
        // Not in order, so that nothing of one run can be mistaken for the next one's.
        for seed in [1, 7, 2, 9_000_000_001, 3, 1] {
            let alone = simulate(&template.with_seed(seed).unwrap());
            let summary = runs.summary(seed).unwrap();
            assert_eq!(
                summary,
                VerdictSummary::from(&alone.verdict),
                "{} with seed {seed}",
                template.scenario().name
            );
        }
    }
}

#[test]
fn on_any_number_of_threads_the_same_is_counted_as_by_one_run_after_the_other() {
    let template = Template::parse("beyond", BEYOND_THE_BOUND, None).unwrap();
    let seeds = IN_FULL - 300..IN_FULL + 300;
    let mut expected = Tally::default();
    for seed in seeds.clone() {
        let verdict = simulate(&template.with_seed(seed).unwrap()).verdict;
        expected.add(seed, &VerdictSummary::from(&verdict));
    }
    assert_eq!(expected.runs, 600);
    let verdicts = expected.verdicts;
    assert!(verdicts.valid.runs > 0 && verdicts.outside.runs > 0, "both happen: {verdicts:?}");
    assert_eq!(expected.worst(), Outcome::Outside);
    for threads in [1, 3] {
        let ran = AtomicU64::new(0);
        let go_on = AtomicBool::new(false);
        let told = |runs| _ = ran.fetch_add(runs, Ordering::Relaxed);
        let counted = tally(&template, seeds.clone(), jobs(threads), &go_on, told).unwrap();
        assert_eq!(counted, expected, "{threads} threads");
        assert_eq!(ran.into_inner(), 600);
    }
}

#[test]
fn who_is_told_to_stop_returns_what_was_counted_so_far() {
    let template = Template::parse("beyond", BEYOND_THE_BOUND, None).unwrap();
    let stop = AtomicBool::new(false);
    let told = |_| stop.store(true, Ordering::Relaxed);
    let counted = tally(&template, 0..1_000_000_000, jobs(2), &stop, told).unwrap();
    assert!((1..10_000).contains(&counted.runs), "{} runs", counted.runs);
}

#[test]
fn a_seed_under_which_a_process_is_drawn_twice_ends_the_runs_with_the_line() {
    let text = ALL_DRAWN.replacen(
        "count = 2\n    placement = \"random\"\n    strategy = \"silent\"",
        "processes = [1, 2, 3]\n    strategy = \"silent\"",
        1,
    );
    assert_ne!(text, ALL_DRAWN);
    let seed = (0..).find(|seed| Template::parse("drawn", &text, Some(*seed)).is_ok()).unwrap();
    let template = Template::parse("drawn", &text, Some(seed)).unwrap();
    let error = tally(&template, 0..1_000, jobs(2), &AtomicBool::new(false), |_| {}).unwrap_err();
    assert!(error.to_string().contains("is in the fault plan already"), "{error}");
}

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
fn the_program_counts_and_names_the_command_that_repeats_the_first_unexpected_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(folder.path());
    let file = file.to_str().unwrap();
    let arguments = ["simulate", file, "--runs", "300", "--seed", "5", "--jobs", "2"];
    let output = loadgen(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("to repeat outside: stickycas-loadgen "));
    let repeated: Vec<&str> = command.unwrap().split_whitespace().collect();
    let again = loadgen(folder.path(), &[&repeated[..], &["--expect", "outside"]].concat());
    assert_eq!(again.status.code(), Some(0), "{again:?}");

    let output = loadgen(folder.path(), &[&arguments[..], &["--json"]].concat());
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
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
fn many_runs_fail_where_one_of_them_is_not_as_expected_or_a_seed_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let file = written(folder.path());
    let code = |more: &[&str]| {
        let arguments = [&["simulate", file.to_str().unwrap(), "--runs", "100"], more].concat();
        loadgen(folder.path(), &arguments).status.code()
    };
    assert_eq!(code(&["--seed", "5", "--expect", "valid"]), Some(1), "some are outside");
    assert_eq!(code(&["--seed", "9223372036854775800"]), Some(3), "seeds end");
    assert_eq!(code(&["--out", "somewhere"]), Some(3), "many runs leave no folder");
}
