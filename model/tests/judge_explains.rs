//! The explanation of a verdict: entries and their winners, decisions and their margins, the processes that
//! count in f, and the first event that shows each breach.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::sync::Arc;

use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::judge::{Case, Explanation, FaultReason, FaultyProcess, Margin, Property, explain};
use stickycas_model::process::ProcessEnd;

use crate::story::{Story, id, phase, value, values};

fn explained(story: &Story) -> Explanation {
    explain(&Case {
        params: Arc::clone(&story.params),
        truth: &story.truth,
        expected: &story.expected,
        history: &story.history,
        complete: story.complete,
        reports: &story.reports,
        fired: story.fired.clone(),
    })
}

#[test]
fn each_entry_has_its_winner_and_those_it_won_against() {
    let story = Story::full_run("a b c d e", 2, 3);
    let entries = explained(&story).entries;
    let won: Vec<_> = entries
        .iter()
        .map(|entry| (entry.value.to_string(), entry.process.get(), entry.warp.get(), entry.phase.get()))
        .collect();
    assert_eq!(won, [("a".to_owned(), 1, 1, 1), ("c".to_owned(), 3, 2, 2), ("e".to_owned(), 5, 3, 3)]);
    let against: Vec<_> = entries.iter().map(|entry| entry.against.clone()).collect();
    assert_eq!(against, [vec![id(2)], vec![id(4)], vec![]]);
}

#[test]
fn a_decision_comes_with_the_entries_that_it_was_made_from() {
    let mut story = Story::full_run("b a b a", 1, 4);
    let choices = explained(&story).choices;
    let [choice] = &choices[..] else { panic!("{choices:?}") };
    assert_eq!((&choice.value, choice.processes.len()), (&value("a"), 4));
    let tally = choice.tally.as_ref().unwrap();
    assert_eq!((tally.entries, &tally.tied), (4, &values("a b")));
    assert_eq!(tally.margin, Some(Margin { entries: 1, rival: Some(value("b")) }));

    // Of a process that had decided in an earlier life, what it had read is not known.
    let report = story.report(3);
    (report.from, report.phase) = (Vec::new().into(), None);
    let choices = explained(&story).choices;
    let shown: Vec<_> =
        choices.iter().map(|choice| (choice.processes.len(), choice.tally.is_some())).collect();
    assert_eq!(shown, [(1, false), (3, true)]);
}

#[test]
fn everybody_who_counts_in_f_is_listed_with_the_reason() {
    let mut story = Story::new("!x a a a", 1, 4, |_| {});
    story.expected.faulty.insert(id(2));
    story.all_join_but(&[4]);
    for process in 1..=3 {
        story.append(process, "a");
        story.step();
    }
    story.pass();
    story.read(1, 0);
    story.step();
    let explanation = explained(&story);
    let why =
        [(1, FaultReason::Byzantine("silent".to_owned())), (2, FaultReason::Planned), (4, FaultReason::Late)];
    let faulty = why.map(|(process, why)| FaultyProcess { process: id(process), why });
    assert_eq!(explanation.faulty, faulty);
    assert_eq!(explanation.verdict.f, 3);
}

#[test]
fn what_the_earliest_event_shows_comes_first_and_points_to_it() {
    // X wins beyond the bound, and process 4 is accused before anybody decides.
    let mut story = Story::full_run("!X !X a b", 1, 4);
    let detail = "made up".to_owned();
    story.insert(
        6,
        Event::Offence(Offence {
            process: id(4),
            kind: OffenceKind::Malformed,
            number: None,
            phase: None,
            detail,
        }),
    );
    let broke = explained(&story).broke;
    assert_eq!((broke[0].property, broke[0].event), (None, Some(6)));
    assert!(broke[0].says.starts_with("B3: process 4 is correct"), "{broke:?}");
    let first_correct = story.place(2, |event| matches!(event, Event::Decided { .. }));
    let strong = broke.iter().find(|broke| broke.property == Some(Property::StrongValidity)).unwrap();
    assert_eq!(strong.event, Some(first_correct));
    assert_eq!(strong.says, "process 3 decides X, which no correct process proposed");
}

#[test]
fn a_split_points_to_the_first_decision_that_differs() {
    let mut story = Story::full_run("a a b", 1, 3);
    let place = story.place(1, |event| matches!(event, Event::Decided { .. }));
    story.history[place].event = Event::Decided { process: id(2), value: value("b") };
    story.report(2).decision = Some(value("b"));
    let broke = explained(&story).broke;
    let agreement = broke.iter().find(|broke| broke.property == Some(Property::Agreement)).unwrap();
    assert_eq!(agreement.event, Some(place));
    assert_eq!(agreement.says, "process 1 decided a, and process 2 decides b");
}

#[test]
fn a_late_decision_comes_with_the_sentence_of_its_process() {
    // Both decide after their bounds, process 2 first.
    let mut story = Story::new("a a", 2, 1, |_| {});
    story.all_join();
    (1..=2).for_each(|process| story.append(process, "a"));
    story.step();
    for _ in 0..2 {
        (1..=2).for_each(|process| story.read(process, 0));
        story.step();
    }
    story.decides(2);
    story.decides(1);
    story.record(Event::Finished);
    let first = story.place(0, |event| matches!(event, Event::Decided { .. }));
    let broke = explained(&story).broke;
    let termination = broke.iter().find(|broke| broke.property == Some(Property::Termination)).unwrap();
    assert_eq!(termination.event, Some(first));
    assert!(termination.says.starts_with("process 2 decided in phase 3"), "{broke:?}");
}

#[test]
fn a_termination_breach_without_an_event_comes_last() {
    // Process 1 finds nothing to decide; the decision of process 2 was in time.
    let mut story = Story::full_run("a a", 1, 2);
    let report = story.report(1);
    (report.decision, report.ended) = (None, ProcessEnd::NothingToDecide);
    let broke = explained(&story).broke;
    let termination = broke.iter().find(|broke| broke.property == Some(Property::Termination)).unwrap();
    assert_eq!((termination.event, &*termination.says), (None, "process 1 found nothing to decide"));
}

#[test]
fn a_broken_rule_points_to_the_event_that_breaks_it() {
    let mut story = Story::full_run("a a b", 1, 3);
    let place = story.place(1, |event| matches!(event, Event::Stepped { .. }));
    let Event::Stepped { phase: stepped, .. } = &mut story.history[place].event else { panic!() };
    *stepped = phase(9);
    let broke = explained(&story).broke;
    assert_eq!(broke[0].event, Some(place), "{broke:?}");
    assert!(broke[0].says.contains(&format!("broken by event {place}")), "{broke:?}");
}

#[test]
fn what_no_event_shows_comes_last() {
    let mut story = Story::full_run("a a !b", 1, 3);
    story.expected.offences.insert(id(3), [OffenceKind::LateAppend].into());
    let broke = explained(&story).broke;
    assert_eq!(broke.last().map(|broke| broke.event), Some(None));
    assert!(broke.last().unwrap().says.starts_with("B2: process 3"), "{broke:?}");
}

#[test]
fn of_a_run_in_which_nothing_broke_nothing_is_said_to_have() {
    let explanation = explained(&Story::full_run("a a b", 1, 3));
    assert_eq!((explanation.broke, explanation.faulty), (vec![], vec![]));
}
