//! An explanation says in words what a run shows, for every kind of verdict.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::path::Path;

use stickycas_harness::explain::{ROWS, text};
use stickycas_harness::report::grid::WIDTH;
use stickycas_harness::{Record, Scenario, simulate};
use stickycas_model::judge::Outcome;

fn simulated(name: &str) -> Record {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/scenarios/{name}.toml"));
    simulate(&Scenario::load(&path, Some(3)).unwrap())
}

/// Where lines end depends on the numbers in them.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn says(record: &Record, sentences: &[&str]) {
    let text = text(record, &record.explained(), ROWS, WIDTH);
    let words = one_line(&text);
    for sentence in sentences {
        assert!(words.contains(&one_line(sentence)), "no {sentence:?} in\n{text}");
    }
}

#[test]
fn a_valid_run_shows_why_it_had_to_be_valid() {
    let record = simulated("quickstart");
    assert_eq!(record.verdict.verdict, Outcome::Valid);
    says(
        &record,
        &[
            "VALID\n  Every promise and every rule was kept",
            "n = 16 processes were to agree on a value.",
            "The list: 8 entries",
            "process 3 is Byzantine: it plays collude(value=aaa)",
            "f*(|Vc|+1)*p < n. Here 2*(2+1)*2 = 12 < 16; it holds up to f = 2.",
            "strong validity: held. What is decided was proposed by a correct process.\n    It was promised.",
            "Nothing broke.",
            "Correct processes accused: nobody.",
        ],
    );
}

#[test]
fn a_split_shows_both_lists_margins_and_the_event() {
    let record = simulated("late-append-open");
    assert_eq!(record.verdict.verdict, Outcome::Outside);
    says(
        &record,
        &[
            "BROKEN: agreement (not promised: append window open)\n  A property broke that was not promised here",
            "Processes 1, 2 decided a.\n    From 4 entries: 2 x a, 2 x b.",
            "The tie rule decided: a, b stand equally often, and a is the smallest.",
            "The margin is 1 entry: had 1 of the a been b instead, that would have been\n    decided.",
            "Processes 4, 5 decided b.\n    From 5 entries: 3 x b, 2 x a.",
            "agreement: BROKE.",
            "a premise is missing: append window open.",
            "process 3: late or repeated append (1)",
            "Seen to commit an offence that can be proved: process 3; of these on record: 1.",
        ],
    );
    let broke = &record.explained().broke;
    let index = broke[0].event.unwrap();
    let line = format!("line {} of history.ndjson: process {}", index + 1, 4);
    let text = text(&record, &record.explained(), ROWS, WIDTH);
    assert!(text.contains(&line) || text.contains(&line.replace("process 4", "process 5")), "{text}");
}

#[test]
fn a_run_beyond_the_bound_shows_the_missing_premise() {
    let record = simulated("over-the-bound");
    says(
        &record,
        &[
            "strong validity: BROKE.",
            "f*(|Vc|+1)*p < n does not hold: 2*(2+1)*2 = 12 >= 12",
            "Byzantine processes added 2 of 6 entries.",
            "which no correct process proposed",
            "The tie rule decided: 0, a, b stand equally often, and 0 is the smallest.",
        ],
    );
}

#[test]
fn of_a_violation_it_names_the_rule_and_the_line() {
    let fine = simulated("quickstart");
    let mut reports = fine.reports.clone();
    let process = reports[0].process;
    reports[0].from.pop();
    let decided = fine.history.iter().position(|recorded| {
        matches!(recorded.event, stickycas_model::history::Event::Decided { process: who, .. } if who == process)
    });
    let record = Record::judged(fine.scenario, fine.how, fine.history, true, fine.counted, reports);
    assert_eq!(record.verdict.verdict, Outcome::Violation);
    let line = format!("line {} of history.ndjson: process {process} decides", decided.unwrap() + 1);
    says(
        &record,
        &["A promise or a rule broke. This is a bug.", "a rule: R2: process 1 reports that it read", &line],
    );
}

#[test]
fn an_unknown_run_shows_its_anomalies() {
    let record = simulated("one-warp").with_anomalies(vec!["process 2 fell over".to_owned()]);
    assert_eq!(record.verdict.verdict, Outcome::Unknown);
    says(
        &record,
        &["PROVES NOTHING: process 2 fell over\n  The run proves nothing", "  - process 2 fell over"],
    );
    assert_eq!(record.explained().verdict, record.verdict);
}
