//! What the judge says of a correct process that has not decided (SPEC V1).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use stickycas_model::bounds::Premise;
use stickycas_model::history::Event;
use stickycas_model::judge::{Observed, Outcome, Property};
use stickycas_model::params::{AppendWindow, Patience};
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::AccessNumber;

use crate::story::{Story, id};

/// Processes 1 and 2 decide. The read of process 3, its access 2, is accepted and never answered; then the
/// run is given up and the instance closed. `unanswered` is what process 3 says that it waited for.
fn given_up(unanswered: Option<u64>) -> Story {
    let mut story = Story::new("a a a", 1, 3, |_| {});
    give_up(&mut story, unanswered);
    story
}

fn give_up(story: &mut Story, unanswered: Option<u64>) {
    story.all_join();
    story.round_of_appends();
    for process in [1, 2] {
        story.read(process, 0);
        story.step();
        story.decides(process);
    }
    story.read(3, 0);
    story.close();
    story.reports.push(Report {
        process: id(3),
        decision: None,
        phase: None,
        from: Vec::new().into(),
        ended: ProcessEnd::Failed("stopped before it decided".to_owned()),
        unanswered: unanswered.and_then(AccessNumber::new),
    });
}

/// The processes that were asked to play are given up, each waiting for the answer of this access.
fn all_give_up(story: &mut Story, unanswered: Option<u64>) {
    let correct: Vec<_> = story.truth.correct().collect();
    for process in correct {
        story.reports.push(Report {
            process,
            decision: None,
            phase: None,
            from: Vec::new().into(),
            ended: ProcessEnd::Failed("stopped before it decided".to_owned()),
            unanswered: unanswered.and_then(AccessNumber::new),
        });
    }
}

/// The promise of termination, and what was observed.
fn promise(story: &Story) -> (bool, Observed) {
    let verdict = story.verdict();
    (verdict.termination_promised, verdict.termination)
}

fn termination(story: &Story) -> Observed {
    story.verdict().finding(Property::Termination).0
}

#[test]
fn an_accepted_access_never_answered_breaks_termination() {
    let story = given_up(Some(2));
    let says = "process 3 has not decided: its access 2 was accepted and never answered, and its session stood when \
                the run was given up";
    let verdict = story.is(Outcome::Violation, &format!("termination was promised and broke: {says}"));
    assert_eq!(verdict.finding(Property::Termination), (Observed::Violated, None));
    assert_eq!(verdict.witness, [says]);
}

#[test]
fn a_lost_connection_leaves_termination_unknown() {
    let mut story = given_up(None);
    story.report(3).ended = ProcessEnd::Failed("connection lost".to_owned());
    let verdict = story.is(Outcome::Unknown, "process 3 is correct and failed: connection lost");
    assert_eq!(verdict.finding(Property::Termination), (Observed::Unknown, None));
}

#[test]
fn a_process_without_a_report_leaves_termination_unknown() {
    let mut story = given_up(Some(2));
    story.reports.retain(|report| report.process != id(3));
    story.is(Outcome::Unknown, "no report came from correct processes: 3");
    assert_eq!(termination(&story), Observed::Unknown);
}

#[test]
fn an_access_that_the_history_lacks_breaks_nothing() {
    for number in [1, 3] {
        let story = given_up(Some(number));
        assert_eq!(story.verdict().verdict, Outcome::Unknown, "access {number}");
        assert_eq!(termination(&story), Observed::Unknown, "access {number}");
    }
}

#[test]
fn an_incomplete_history_leaves_termination_unknown() {
    let mut story = given_up(Some(2));
    story.complete = false;
    story.is(Outcome::Unknown, "the history is incomplete");
    assert_eq!(termination(&story), Observed::Unknown);
}

#[test]
fn a_process_that_the_plan_makes_faulty_owes_no_decision() {
    let mut story = given_up(Some(2));
    story.expected.faulty.insert(id(3));
    assert_eq!(story.is_valid().termination, Observed::Held);
}

#[test]
fn without_a_promise_an_undecided_process_is_outside() {
    // Process 4 joins and stays without acting, and patience has no end.
    let mut story = Story::new("a a a !b", 1, 3, |spec| spec.patience = Patience::Endless);
    story.all_join();
    for process in [1, 2, 3] {
        story.append(process, "a");
    }
    (0..3).for_each(|_| story.step());
    (1..=3).for_each(|process| story.read(process, 0));
    story.close();
    all_give_up(&mut story, Some(2));
    let verdict = story.verdict();
    let missing = Premise::EveryoneActs { process: id(4) }.to_string();
    assert_eq!(verdict.verdict, Outcome::Outside, "{:?}", verdict.reasons);
    assert_eq!(verdict.finding(Property::Termination), (Observed::Violated, Some(&*missing)));
}

#[test]
fn an_unanswered_access_breaks_it_in_an_open_window_too() {
    let mut story = Story::new("a a a", 1, 3, |spec| spec.append_window = AppendWindow::Open);
    give_up(&mut story, Some(2));
    story.is(
        Outcome::Violation,
        "termination was promised and broke: process 3 has not decided: its access 2",
    );
}

#[test]
fn a_server_that_executes_no_phase_breaks_termination() {
    for patience in [Patience::default(), Patience::Endless] {
        let mut story = Story::new("a a a", 1, 3, |spec| spec.patience = patience);
        story.all_join();
        (1..=3).for_each(|process| story.append(process, "a"));
        story.close();
        all_give_up(&mut story, Some(1));
        let says = "termination was promised and broke: process 1 has not decided: its access 1 was accepted";
        story.is(Outcome::Violation, says);
    }
}

#[test]
fn a_warp_that_never_gets_its_first_phase_breaks_it() {
    // Process 1 missed its phase; the processes 2 and 3 wait for theirs, which never come.
    let mut story = Story::new("a !b a", 1, 3, |_| {});
    story.expected.late.insert(id(1));
    story.all_join();
    story.append(2, "b");
    story.append(3, "a");
    story.now += 1_000_000_000;
    story.record(Event::PatienceSpent { process: id(1) });
    story.pass();
    story.step();
    story.append(1, "a");
    story.close();
    all_give_up(&mut story, None);
    assert_eq!(promise(&story), (true, Observed::Unknown), "{:#?}", story.verdict());
    story.report(3).unanswered = AccessNumber::new(1);
    let says = "termination was promised and broke: process 3 has not decided: its access 1 was accepted";
    story.is(Outcome::Violation, says);
}

#[test]
fn without_an_accepted_access_no_process_is_punctual() {
    let mut story = Story::new("a a a", 1, 3, |_| {});
    story.all_join();
    story.close();
    all_give_up(&mut story, None);
    let verdict = story.is(Outcome::Outside, "termination was not promised and broke");
    let missing = Premise::PunctualProcess.to_string();
    assert_eq!(verdict.finding(Property::Termination), (Observed::Violated, Some(&*missing)));
}

#[test]
fn an_access_accepted_after_the_first_phase_promises_nothing() {
    let mut story = Story::new("!b a", 1, 2, |_| {});
    story.expected.late.insert(id(2));
    story.all_join_but(&[2]);
    story.append(1, "b");
    story.step();
    story.pass();
    story.read(1, 0);
    story.step();
    story.join(2);
    story.append(2, "a");
    story.close();
    all_give_up(&mut story, Some(1));
    assert_eq!(promise(&story), (false, Observed::Violated), "{:#?}", story.verdict());
}
