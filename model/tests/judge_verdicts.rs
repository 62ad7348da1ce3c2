//! Verdicts on runs whose history keeps every rule (SPEC V1 to V5, B3, D1 to D3, section 9).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::time::Duration;

use stickycas_model::access::{Answer, Op};
use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::judge::{Observed, Outcome, Property};
use stickycas_model::params::{AppendWindow, Patience};
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::SessionId;

use crate::story::{Story, id, phase, value, values};

#[test]
fn a_decision_that_is_not_the_mode_is_a_violation() {
    let mut story = Story::full_run("a a b", 1, 3);
    let place = story.place(2, |event| matches!(event, Event::Decided { .. }));
    story.history[place].event = Event::Decided { process: id(3), value: value("b") };
    story.report(3).decision = Some(value("b"));
    let verdict =
        story.is(Outcome::Violation, "D1: process 3 decided b; the mode of the 3 entries that it read is a");
    assert_eq!(verdict.agreement, Observed::Violated);
    assert_eq!(verdict.decision, None);
}

#[test]
fn a_decision_from_a_part_of_the_sealed_list_is_a_violation() {
    let mut story = Story::full_run("a a b", 1, 3);
    let read = story.place(2, |event| matches!(event, Event::Answered { answer: Answer::Read(_), .. }));
    if let Event::Answered { answer: Answer::Read(answer), .. } = &mut story.history[read].event {
        answer.count = 2;
    }
    story.report(3).from.pop();
    let says = "D1: process 3 decided a from 2 entries, where its next read was to start at 2";
    story.is(Outcome::Violation, says);
}

#[test]
fn having_read_what_the_list_does_not_hold_is_a_violation() {
    let mut story = Story::full_run("a a b", 1, 3);
    story.report(3).from = values("a b a").into();
    let says = "R2: process 3 reports that it read [a b a], and by the record it read [a a b]";
    story.is(Outcome::Violation, says);
}

#[test]
fn a_decision_on_record_that_differs_is_a_violation() {
    let mut story = Story::full_run("a a b", 1, 3);
    let place = story.place(0, |event| matches!(event, Event::Decided { .. }));
    story.history[place].event = Event::Decided { process: id(1), value: value("b") };
    story.is(Outcome::Violation, "D3: process 1 decided a, and b is on record");
}

#[test]
fn an_accepted_decision_without_a_record_is_a_violation() {
    let mut story = Story::full_run("a a b", 1, 3);
    story.remove(2, |event| matches!(event, Event::Decided { .. }));
    story.remove(0, |event| *event == Event::Finished);
    let says = "D3: process 3 decided a, the server took its report, and has no record of it";
    story.is(Outcome::Violation, says);
    // It may be what the history lacks, or the process may not have got through.
    story.complete = false;
    assert_eq!(story.verdict().verdict, Outcome::Unknown);
    story.complete = true;
    story.report(3).ended = ProcessEnd::Failed("connection lost".to_owned());
    assert_eq!(story.verdict().verdict, Outcome::Unknown);
}

#[test]
fn a_process_restarted_after_its_decision_has_no_entries() {
    let mut story = Story::full_run("a a b", 1, 3);
    let session = |number| Event::Session {
        process: id(3),
        session: SessionId::new(number).unwrap(),
        incarnation: number.into(),
    };
    let decided = story.place(2, |event| matches!(event, Event::Decided { .. }));
    story.insert(decided + 1, session(2));
    story.insert(story.place(0, |event| matches!(event, Event::GatheringEnded { .. })), session(1));
    let report = story.report(3);
    (report.from, report.phase) = (Vec::new().into(), None);
    assert_eq!(story.is_valid().decisions[&id(3)].phase, Some(phase(6)));
    let place = story.place(2, |event| matches!(event, Event::Decided { .. }));
    story.history[place].event = Event::Decided { process: id(3), value: value("b") };
    story.report(3).decision = Some(value("b"));
    story.is(Outcome::Violation, "D1: process 3 decided b; the mode of the 3 entries that it read is a");
}

/// Two processes in one warp; process 2 reads in round `round` only.
fn second_reads_in_round(round: u64) -> Story {
    let mut story = Story::new("a a", 2, 1, |spec| spec.patience = Patience::Finite(Duration::ZERO));
    story.all_join();
    story.append(1, "a");
    story.append(2, "a");
    story.step();
    for read in 2..=round {
        story.read(1, 0);
        if read == 2 && round > 2 {
            story.record(Event::PatienceSpent { process: id(2) });
        }
        if read == round {
            story.read(2, 0);
        }
        story.step();
    }
    story.decides(1);
    story.decides(2);
    story.record(Event::Finished);
    story
}

#[test]
fn a_missed_phase_moves_the_bound_of_its_process_only() {
    let mut story = Story::new("a a", 2, 1, |spec| spec.patience = Patience::Finite(Duration::ZERO));
    story.all_join();
    story.append(1, "a");
    story.append(2, "a");
    story.step();
    story.read(1, 0);
    story.record(Event::PatienceSpent { process: id(2) });
    story.step();
    story.decides(1);
    story.read(2, 0);
    story.step();
    story.decides(2);
    story.record(Event::Finished);
    let verdict = story.is_valid();
    assert_eq!(verdict.decisions[&id(1)].bound, phase(2));
    let late = &verdict.decisions[&id(2)];
    assert_eq!((late.missed, late.phase, late.bound), (1, Some(phase(3)), phase(3)));
    assert_eq!(verdict.phase_bound, phase(3));
    assert_eq!(verdict.late, []);
}

#[test]
fn a_decision_beyond_its_bound_is_a_violation() {
    let story = second_reads_in_round(3);
    let verdict =
        story.is(Outcome::Violation, "termination was promised and broke: process 1 decided in phase 3");
    assert_eq!(verdict.termination, Observed::Violated);
}

#[test]
fn a_read_that_an_earlier_life_took_along_moves_the_bound() {
    for (incarnations, outcome) in
        [([1, 2], Outcome::Valid), ([0, 0], Outcome::Valid), ([1, 1], Outcome::Violation)]
    {
        let mut story = Story::new("a", 1, 1, |_| {});
        story.join(1);
        story.session(1, 1, incarnations[0]);
        story.record(Event::GatheringEnded { joined: 1 });
        story.append(1, "a");
        story.step();
        story.read(1, 0);
        story.step();
        story.session(1, 2, incarnations[1]);
        story.read(1, 0);
        story.step();
        story.all_decide();
        assert_eq!(story.verdict().verdict, outcome, "{incarnations:?}");
    }
}

#[test]
fn all_accesses_without_a_decision_break_termination() {
    let mut story = second_reads_in_round(3);
    story.report(1).phase = Some(phase(2));
    story.remove(0, |event| matches!(event, Event::Decided { .. }));
    story.remove(0, |event| *event == Event::Finished);
    let report = story.report(1);
    (report.decision, report.ended) = (None, ProcessEnd::Failed("gave up".to_owned()));
    story.is(Outcome::Violation, "termination was promised and broke: process 1 had 3 accesses executed");
}

#[test]
fn nothing_to_decide_breaks_a_promised_termination() {
    let mut story = Story::full_run("a a", 1, 2);
    let report = story.report(2);
    (report.decision, report.ended) = (None, ProcessEnd::NothingToDecide);
    story.is(Outcome::Violation, "termination was promised and broke: process 2 found nothing to decide");
}

#[test]
fn with_no_punctual_correct_process_termination_is_not_promised() {
    let mut story = Story::new("!x a", 1, 1, |_| {});
    story.expected.late.insert(id(2));
    story.all_join_but(&[2]);
    story.read(1, 0);
    story.step();
    story.pass_at_next_access();
    story.read(1, 0);
    story.seal_before_step();
    story.step();
    story.join(2);
    story.append(2, "a");
    story.record(Event::Decided { process: id(1), value: value("x") });
    story.step();
    story.read(2, 0);
    story.phase = 6;
    story.step();
    story.reports.push(Report {
        process: id(2),
        decision: None,
        phase: Some(phase(6)),
        from: Vec::new().into(),
        ended: ProcessEnd::NothingToDecide,
        unanswered: None,
    });
    let verdict = story.is(Outcome::Outside, "termination was not promised and broke");
    assert_eq!(
        verdict.finding(Property::Termination),
        (Observed::Violated, Some("no correct process was punctual"))
    );
}

#[test]
fn a_correct_process_that_is_accused_is_a_violation() {
    let accuse = |story: &mut Story, process: u32| {
        let detail = "append with access number 2".to_owned();
        let kind = OffenceKind::LateAppend;
        let offence = Offence { process: id(process), kind, number: None, phase: None, detail };
        let last = story.history.len() - 1;
        story.insert(last, Event::Offence(offence));
    };
    let mut story = Story::full_run("a a !b", 1, 3);
    accuse(&mut story, 3);
    let verdict = story.is_valid();
    assert_eq!(verdict.blame[&id(3)][&OffenceKind::LateAppend], 1);
    accuse(&mut story, 1);
    let verdict = story.is(Outcome::Violation, "B3: process 1 is correct and was accused of LateAppend");
    assert_eq!(verdict.accused_correct, [id(1)]);
}

/// Process 3 was observed to append late, which may be on record.
fn late_append_seen(on_record: bool) -> Story {
    let mut story = Story::full_run("a a !b", 1, 3);
    let committed = [OffenceKind::LateAppend, OffenceKind::FalseDecision];
    story.expected.offences.insert(id(3), committed.into());
    let kinds = if on_record { &committed[..] } else { &committed[1..] };
    for &kind in kinds {
        let detail = "append with access number 2".to_owned();
        let last = story.history.len() - 1;
        story.insert(
            last,
            Event::Offence(Offence { process: id(3), kind, number: None, phase: None, detail }),
        );
    }
    story
}

#[test]
fn a_culprit_all_of_whose_offences_are_on_record_is_named() {
    let verdict = late_append_seen(true).is_valid();
    assert_eq!((verdict.culprits, verdict.named, verdict.unnamed), (vec![id(3)], vec![id(3)], vec![]));
}

#[test]
fn an_observed_offence_without_a_record_is_a_violation() {
    let mut story = late_append_seen(false);
    let verdict = story
        .is(Outcome::Violation, "B2: process 3 was seen to commit LateAppend, and that is not on record");
    assert_eq!(verdict.reasons.len(), 1, "the other offence is on record");
    assert_eq!((verdict.culprits, verdict.named, verdict.unnamed), (vec![id(3)], vec![], vec![id(3)]));
    // Its end may hold the offence.
    story.complete = false;
    story.is(Outcome::Unknown, "the history is incomplete");
}

#[test]
fn an_attack_that_never_fired_makes_the_run_prove_nothing() {
    let mut story = Story::full_run("a a !b", 1, 3);
    story.expected.attacks.insert("flood".to_owned());
    story.is(Outcome::Unknown, "the attack flood was planned and never seen to fire");
    story.fired.insert("flood".to_owned(), 0);
    story.is(Outcome::Unknown, "the attack flood was planned and never seen to fire");
    story.fired.insert("flood".to_owned(), 12);
    assert_eq!(story.is_valid().fired["flood"], 12);
}

#[test]
fn an_incomplete_history_proves_nothing_and_breaks_nothing() {
    let mut story = Story::full_run("a a b", 1, 3);
    story.complete = false;
    for keep in (0..story.history.len()).rev() {
        story.history.truncate(keep);
        story.is(Outcome::Unknown, "the history is incomplete");
    }
}

#[test]
fn an_incomplete_history_excuses_a_decision_without_entries() {
    let mut story = Story::full_run("a a a", 1, 3);
    let first = story.history.iter().position(|recorded| matches!(recorded.event, Event::Decided { .. }));
    story.history.truncate(first.unwrap());
    story.report(1).from.clear();
    story.complete = false;
    story.is(Outcome::Unknown, "the history is incomplete");
}

#[test]
fn a_late_process_counts_in_f_and_must_be_in_the_plan() {
    let mut story = Story::new("a a a a b", 1, 5, |_| {});
    story.all_join_but(&[5]);
    for process in 1..=4 {
        story.append(process, "a");
        story.step();
    }
    // Process 5 comes while phase 6 is awaited.
    story.pass_at_next_access();
    for process in 1..=4 {
        story.read(process, 0);
        if process == 1 {
            story.seal_before_step();
        }
        story.step();
    }
    story.join(5);
    story.append(5, "b");
    (1..=4).for_each(|process| story.decides(process));
    story.step();
    story.phase = 15;
    story.read(5, 0);
    story.step();
    story.decides(5);
    story.record(Event::Finished);

    let verdict = story.is(Outcome::Unknown, "late, which the plan does not name: 5");
    assert_eq!((verdict.f, verdict.late.as_slice()), (1, [id(5)].as_slice()));
    assert_eq!(verdict.distinct_correct_proposals, 2);
    assert!(verdict.strong_validity_promised, "1*(2+1)*1 < 5");
    assert_eq!(verdict.decisions[&id(5)].missed, 1);
    story.expected.late.insert(id(5));
    story.is_valid();
}

impl Story {
    /// The current phase passes without a step as soon as something waits; the seal is told then.
    fn pass_at_next_access(&mut self) {
        let told = self.history.len();
        self.pass();
        self.held = self.history.split_off(told);
    }

    fn seal_before_step(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.history.extend(held);
    }
}

#[test]
fn a_process_that_the_plan_kills_counts_in_f_and_is_not_judged() {
    let mut story = Story::full_run("a a a b b", 1, 5);
    story.reports.retain(|report| report.process != id(5));
    story.is(Outcome::Unknown, "no report came from correct processes: 5");
    story.expected.faulty.insert(id(5));
    let verdict = story.is_valid();
    assert_eq!((verdict.f, verdict.distinct_correct_proposals), (1, 2));
    assert!(!verdict.decisions.contains_key(&id(5)));
    story.expected.faulty.insert(id(4));
    let verdict = story.is_valid();
    assert_eq!((verdict.f, verdict.distinct_correct_proposals), (2, 1));
    assert!(verdict.common_validity_promised, "2*2*1 < 5");
}

#[test]
fn a_correct_process_that_failed_makes_the_run_prove_nothing() {
    let mut story = Story::full_run("a a a", 1, 3);
    story.report(2).ended = ProcessEnd::Failed("connection lost".to_owned());
    story.is(Outcome::Unknown, "process 2 is correct and failed: connection lost");
}

#[test]
fn what_a_byzantine_process_reports_counts_for_nothing() {
    let mut story = Story::full_run("a a !b", 1, 3);
    let report = story.report(3);
    (report.decision, report.from) = (Some(value("z")), values("z z z").into());
    let place = story.place(2, |event| matches!(event, Event::Decided { .. }));
    story.history[place].event = Event::Decided { process: id(3), value: value("z") };
    assert_eq!(story.is_valid().decision, Some(value("a")));
}

/// SPEC section 9: Algorithm 1 as printed, inside its bound, does not agree.
fn counterexample() -> Story {
    let mut story = Story::new("a a !b b b", 1, 5, |spec| spec.append_window = AppendWindow::Open);
    story.all_join();
    for process in 1..=5 {
        match process {
            3 => story.read(3, 0),
            _ => story.accept(process, Op::Append(story.proposal(process))),
        }
        story.step();
    }
    for process in 1..=5 {
        match process {
            3 => story.append(3, "b"),
            _ => story.read(process, 0),
        }
        let read = story.list().to_vec();
        story.step();
        if process != 3 {
            story.decides_from(process, &read);
        }
    }
    story.record(Event::Decided { process: id(3), value: value("b") });
    story.record(Event::Finished);
    story
}

#[test]
fn disagreement_with_an_open_window_is_outside() {
    let verdict =
        counterexample().is(Outcome::Outside, "agreement was not promised and broke: processes 1, 2");
    assert_eq!(verdict.finding(Property::Agreement), (Observed::Violated, Some("append window open")));
    assert_eq!(
        verdict.witness,
        [
            "processes 1, 2 decided a from [a a b b]: 2 x a, 2 x b",
            "processes 4, 5 decided b from [a a b b b]: 3 x b, 2 x a",
        ]
    );
    assert_eq!(verdict.decision, None);
    assert!(verdict.strong_validity_promised, "the run is inside the bound");
    assert_eq!(verdict.strong_validity, Observed::Held, "of every decision");
    assert_eq!(verdict.termination, Observed::Held);
}

#[test]
fn strong_validity_that_breaks_beyond_the_bound_is_outside() {
    let story = Story::full_run("!X !X a b", 1, 4);
    let verdict = story.is(Outcome::Outside, "strong validity was not promised and broke");
    let premise = "f*(|Vc|+1)*p < n does not hold: 2*(2+1)*1 = 6 >= 4";
    assert_eq!(verdict.finding(Property::StrongValidity), (Observed::Violated, Some(premise)));
    assert_eq!(verdict.weak_validity, Observed::Held);
    assert_eq!(verdict.common_validity, Observed::Held, "vacuously: correct proposals differ");
    assert_eq!(
        verdict.witness,
        [
            "processes 3, 4 decided X from [X X a b]: 2 x X, 1 x a, 1 x b",
            "X was proposed by no correct process; appended by 1, 2",
            "the list: 2 x X, 1 x a, 1 x b",
            "correct processes proposed a, b",
        ]
    );
}

#[test]
fn common_validity_that_breaks_beyond_the_bound_is_outside() {
    let verdict =
        Story::full_run("!X !X a a", 1, 4).is(Outcome::Outside, "common-value validity was not promised");
    let premise = "2*f*p < n does not hold: 2*2*1 = 4 >= 4";
    assert_eq!(verdict.finding(Property::CommonValidity), (Observed::Violated, Some(premise)));
    assert_eq!(verdict.finding(Property::StrongValidity).0, Observed::Violated);
}

/// Process 2 is correct and proposes a; what stands of it in the list is X.
fn betrayed() -> Story {
    let mut story = Story::new("!X a a a", 1, 4, |_| {});
    story.all_join();
    for (process, appended) in [(1, "X"), (2, "X"), (3, "a"), (4, "a")] {
        story.append(process, appended);
        story.step();
    }
    story.round_of_reads(0);
    story.all_decide();
    story
}

#[test]
fn validity_that_breaks_inside_the_bound_is_a_violation() {
    let verdict = betrayed().is(Outcome::Violation, "strong validity was promised and broke");
    assert!(verdict.strong_validity_promised && verdict.common_validity_promised);
    assert_eq!(verdict.common_validity, Observed::Violated);
}

#[test]
fn a_violation_comes_before_what_is_outside_and_what_is_unknown() {
    let mut story = Story::full_run("!X !X a b", 1, 4);
    story.expected.attacks.insert("flood".to_owned());
    assert_eq!(story.verdict().verdict, Outcome::Outside);
    assert_eq!(story.verdict().reasons.len(), 2);
    story.report(3).from.pop();
    assert_eq!(story.verdict().verdict, Outcome::Violation);
}

#[test]
fn a_decision_that_nobody_proposed_breaks_weak_validity() {
    let mut story = Story::full_run("a a", 1, 2);
    for process in [1, 2] {
        story.report(process).decision = Some(value("z"));
    }
    let verdict = story.is(Outcome::Violation, "weak validity was promised and broke");
    assert_eq!(verdict.agreement, Observed::Held);
}

#[test]
fn endless_patience_promises_termination_if_all_act_or_leave() {
    let tell = |leaves: bool| {
        let mut story = Story::new("a !b", 1, 2, |spec| spec.patience = Patience::Endless);
        story.all_join();
        story.round_of_appends();
        story.read(1, 0);
        story.step();
        story.decides(1);
        if leaves {
            story.decides(2);
            story.record(Event::Finished);
        }
        story.is_valid()
    };
    let missing = tell(false).termination_missing_premise;
    assert_eq!(
        missing.as_deref(),
        Some("patience is without end, and process 2 joined but neither acts nor left")
    );
    assert!(tell(true).termination_promised);
}
