//! The rules of SPEC, each broken once in an otherwise correct history: the judge must say which.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod story;

use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::history::Event;
use stickycas_model::params::Arbiter;
use stickycas_model::types::{AccessNumber, Position, ProcessId, SessionId, Time, Value, WarpId};

use story::{Story, id, phase, value};

/// Six processes in three warps, none Byzantine; a read returns two entries.
fn six() -> Story {
    Story::full_run("a a b a b b", 2, 2)
}

fn is_added(event: &Event) -> bool {
    matches!(event, Event::Added { .. })
}

fn is_stepped(event: &Event) -> bool {
    matches!(event, Event::Stepped { .. })
}

fn is_accepted(event: &Event) -> bool {
    matches!(event, Event::Accepted { .. })
}

fn is_append_answer(event: &Event) -> bool {
    matches!(event, Event::Answered { answer: Answer::Append(_), .. })
}

fn is_read_answer(event: &Event) -> bool {
    matches!(event, Event::Answered { answer: Answer::Read(_), .. })
}

/// Changes the first read's answer.
fn with_read(change: impl Fn(&mut ReadAnswer)) -> Story {
    let mut story = six();
    if let Event::Answered { answer: Answer::Read(answer), .. } = story.event(0, is_read_answer) {
        change(answer);
    }
    story
}

#[test]
fn a_correct_history_is_accepted() {
    let verdict = six().is_valid();
    assert_eq!(verdict.list, story::values("a b b"));
    assert_eq!(verdict.decision, Some(value("b")));
    assert_eq!((verdict.last_decision_phase, verdict.phase_bound), (Some(phase(9)), phase(9)));
}

#[test]
fn a_hole_breaks_a3() {
    let mut story = six();
    if let Event::Added { position, .. } = story.event(1, is_added) {
        *position = Position::new(2);
    }
    story.breaks("A3");
}

#[test]
fn a_rewritten_position_breaks_a3() {
    let mut story = six();
    if let Event::Added { position, .. } = story.event(1, is_added) {
        *position = Position::new(0);
    }
    story.breaks("A3");
}

#[test]
fn two_appends_told_of_success_break_a1() {
    let mut story = six();
    if let Event::Answered { answer, .. } = story.event(1, is_append_answer) {
        *answer = Answer::Append(AppendAnswer::Success(Position::new(0)));
    }
    story.breaks("A1");
}

#[test]
fn a_loser_told_of_the_limit_breaks_a1() {
    let mut story = six();
    if let Event::Answered { answer, .. } = story.event(1, is_append_answer) {
        *answer = Answer::Append(AppendAnswer::LimitReached);
    }
    story.breaks("A1");
}

#[test]
fn a_phase_without_its_winner_breaks_a1() {
    let mut story = six();
    story.remove(2, is_added);
    story.breaks("A1");
}

#[test]
fn another_value_than_the_winners_breaks_a1() {
    let mut story = six();
    if let Event::Added { value: added, .. } = story.event(0, is_added) {
        *added = value("x");
    }
    story.breaks("A1");
}

#[test]
fn a_second_entry_in_one_phase_breaks_a5() {
    let mut story = six();
    let place = story.place(0, is_added);
    let second =
        Event::Added { position: Position::new(1), process: id(2), phase: phase(1), value: value("a") };
    story.insert(place + 1, second);
    story.breaks("A5");
}

#[test]
fn an_entry_outside_any_step_breaks_a5() {
    let mut story = six();
    let added = story.remove(0, is_added);
    let place = story.place(0, is_stepped);
    story.history.insert(place, added);
    story.breaks("A5");
}

#[test]
fn a_winner_that_came_second_breaks_a4() {
    let mut story = six();
    if let Event::Added { process, .. } = story.event(0, is_added) {
        *process = id(2);
    }
    story.breaks("A4");
}

/// Two processes in one warp, recorded as if the first that came had won.
fn pair(arbiter: Arbiter, first: u32) -> Story {
    let mut story = Story::new("a b", 2, 1, |spec| spec.arbiter = arbiter);
    story.all_join();
    let second = 3 - first;
    for process in [first, second] {
        story.accept(process, Op::Append(story.proposal(process)));
    }
    story.step();
    story.round_of_reads(0);
    story.all_decide();
    story
}

#[test]
fn a_winner_that_is_not_the_first_in_priority_breaks_a4() {
    pair(Arbiter::Priority(vec![id(2)]), 2).is_valid();
    pair(Arbiter::Priority(vec![id(2)]), 1).breaks("A4");
}

#[test]
fn a_winner_without_the_lowest_hash_breaks_a4() {
    let told = [1, 2].map(|first| pair(Arbiter::Uniform, first).verdict().reasons.is_empty());
    assert!(told[0] != told[1], "one of the two has the lower hash");
    let loser = if told[0] { 2 } else { 1 };
    pair(Arbiter::Uniform, loser).breaks("A4");
}

#[test]
fn an_append_after_the_window_that_wins_breaks_a2() {
    let mut story = late_append();
    if let Event::Answered { answer, .. } = story.event(2, is_append_answer) {
        *answer = Answer::Append(AppendAnswer::Success(Position::new(2)));
    }
    story.breaks("A2");
    let place = story.place(2, is_append_answer);
    let added =
        Event::Added { position: Position::new(2), process: id(1), phase: phase(3), value: value("b") };
    story.insert(place, added);
    story.breaks("A2");
}

/// Process 1 is Byzantine and appends again in its second phase.
fn late_append() -> Story {
    let mut story = Story::new("!b a", 1, 2, |_| {});
    story.all_join();
    story.round_of_appends();
    story.append(1, "b");
    story.read(2, 0);
    story.step();
    story.step();
    story.all_decide();
    story
}

#[test]
fn an_append_after_the_window_is_answered_limit_reached() {
    let verdict = late_append().verdict();
    assert!(
        !verdict.reasons.iter().any(|reason| reason.contains("broken by event")),
        "{:?}",
        verdict.reasons
    );
}

#[test]
fn a_list_that_is_never_sealed_breaks_a2() {
    let mut story = six();
    story.remove(0, |event| matches!(event, Event::Sealed { .. }));
    story.breaks("A2");
}

#[test]
fn a_list_that_is_sealed_too_early_breaks_a2() {
    let mut story = six();
    let place = story.place(2, is_stepped);
    story.insert(place, Event::Sealed { phase: phase(3), length: 2 });
    story.breaks("A2");
}

#[test]
fn a_reader_told_that_a_sealed_list_is_not_breaks_a2() {
    with_read(|answer| answer.sealed = false).breaks("A2");
}

#[test]
fn a_read_beyond_the_prefix_breaks_r2() {
    with_read(|answer| answer.length += 1).breaks("R2");
}

#[test]
fn a_stale_prefix_breaks_f2() {
    with_read(|answer| answer.length -= 1).breaks("F2");
}

#[test]
fn a_read_of_too_few_or_too_many_entries_breaks_r1() {
    with_read(|answer| answer.count -= 1).breaks("R1");
    with_read(|answer| answer.count += 1).breaks("R1");
}

#[test]
fn a_step_of_another_warp_breaks_w1() {
    let mut story = six();
    if let Event::Stepped { warp, .. } = story.event(1, is_stepped) {
        *warp = WarpId::FIRST;
    }
    story.breaks("W1");
}

#[test]
fn a_phase_that_comes_twice_breaks_w1() {
    let mut story = six();
    let again = story.history[story.place(0, is_stepped)].event.clone();
    let place = story.place(1, is_stepped);
    story.insert(place, again);
    story.breaks("W1");
}

#[test]
fn a_live_warp_that_is_passed_over_breaks_f4() {
    let mut story = Story::new("a a a", 1, 3, |_| {});
    story.all_join();
    story.append(1, "a");
    story.step();
    story.append(3, "a");
    story.pass();
    story.step();
    story.breaks("F4");
}

#[test]
fn a_step_with_nothing_to_execute_breaks_f4() {
    let mut story = Story::new("a a", 1, 1, |_| {});
    story.all_join();
    story.step();
    story.breaks("F4");
}

#[test]
fn a_step_that_does_not_wait_for_a_member_breaks_f3() {
    let mut story = Story::new("a a", 2, 1, |_| {});
    story.all_join();
    story.append(1, "a");
    story.step();
    story.breaks("F3");
}

#[test]
fn patience_that_is_spent_before_its_time_breaks_f3() {
    let tell = |waited: u64| {
        let mut story = Story::new("a a", 2, 1, |_| {});
        story.all_join();
        story.append(1, "a");
        story.now += waited;
        story.record(Event::PatienceSpent { process: id(2) });
        story.step();
        story.expected.late.insert(id(2));
        story.round_two_of_one();
        story
    };
    tell(999_999_999).breaks("F3");
    let verdict = tell(1_000_000_000).verdict();
    assert!(!verdict.reasons.iter().any(|reason| reason.contains("broken")), "{:?}", verdict.reasons);
}

impl Story {
    /// Process 1 reads in its second phase; no other access waits.
    fn round_two_of_one(&mut self) {
        self.read(1, 0);
        self.step();
    }
}

#[test]
fn a_step_while_processes_gather_breaks_f5() {
    let mut story = six();
    story.remove(0, |event| matches!(event, Event::GatheringEnded { .. }));
    story.breaks("F5");
}

#[test]
fn gathering_that_ends_before_its_time_breaks_f5() {
    let mut story = Story::new("a a", 1, 1, |_| {});
    story.join(1);
    story.record(Event::GatheringEnded { joined: 1 });
    story.breaks("F5");
}

#[test]
fn a_phase_while_an_absent_process_is_awaited_breaks_f5() {
    let mut story = Story::new("a a", 1, 1, |_| {});
    story.all_join_but(&[2]);
    story.append(1, "a");
    story.step();
    story.remove(0, |event| matches!(event, Event::PatienceSpent { .. }));
    story.breaks("F5");
}

#[test]
fn an_access_number_that_is_repeated_or_skipped_breaks_f8() {
    for wrong in [1, 3] {
        let mut story = six();
        if let Event::Accepted { number, .. } = story.event(6, is_accepted) {
            *number = AccessNumber::new(wrong).unwrap();
        }
        story.breaks("F8");
    }
}

#[test]
fn an_access_on_an_older_session_breaks_f8() {
    let mut story = Story::new("a", 1, 1, |_| {});
    story.join(1);
    story.session(1, 1, 7);
    story.session(1, 2, 7);
    let op = Op::Append(value("a"));
    let session = Some(SessionId::FIRST);
    story.record(Event::Accepted { process: id(1), number: AccessNumber::FIRST, session, op });
    story.breaks("F8");
}

#[test]
fn an_answer_to_an_access_that_is_not_the_first_breaks_f8() {
    let mut story = Story::new("a", 1, 1, |_| {});
    story.all_join();
    story.append(1, "a");
    story.read(1, 0);
    story.step();
    if let Event::Answered { number, .. } = story.event(0, is_append_answer) {
        *number = number.next();
    }
    story.breaks("F8");
}

#[test]
fn a_second_answer_in_one_phase_breaks_f1() {
    let mut story = six();
    let place = story.place(0, is_append_answer);
    let again = story.history[place].event.clone();
    story.insert(place + 1, again);
    story.breaks("F1");
}

#[test]
fn a_waiting_access_that_its_phase_forgets_breaks_f2() {
    let mut story = six();
    story.remove(1, is_append_answer);
    story.breaks("F2");
    let verdict = story.verdict();
    assert!(verdict.reasons.iter().any(|reason| reason.starts_with("V4: an access of process 2")));
}

#[test]
fn an_answer_to_a_withdrawn_access_breaks_f10() {
    let mut story = Story::new("a a", 2, 1, |_| {});
    story.all_join();
    story.append(1, "a");
    story.append(2, "a");
    story.step();
    story.read(1, 0);
    story.decides(1);
    story.read(2, 0);
    story.step();
    let answer = Answer::Read(ReadAnswer { start: Position::new(0), count: 1, length: 1, sealed: true });
    let number = AccessNumber::new(2).unwrap();
    story.record(Event::Answered { process: id(1), number, phase: phase(2), answer });
    story.breaks("F10");
}

#[test]
fn an_access_that_stays_when_its_process_leaves_breaks_f10() {
    let mut story = Story::new("a", 1, 1, |_| {});
    story.all_join();
    story.append(1, "a");
    story.step();
    story.read(1, 0);
    story.decides(1);
    story.remove(0, |event| matches!(event, Event::Withdrawn { .. }));
    story.breaks("F10");
}

#[test]
fn an_access_withdrawn_of_a_process_that_stays_breaks_f10() {
    let mut story = Story::new("a a", 2, 1, |_| {});
    story.all_join();
    story.append(1, "a");
    story.record(Event::Withdrawn { process: id(1), number: AccessNumber::FIRST });
    story.append(2, "a");
    story.breaks("F10");
}

#[test]
fn an_access_after_the_decision_breaks_f10() {
    let mut story = Story::full_run("a a", 1, 2);
    story.remove(0, |event| *event == Event::Finished);
    story.read(1, 0);
    story.breaks("F10");
}

#[test]
fn anything_after_the_close_breaks_f10() {
    let mut story = Story::new("a a", 1, 1, |_| {});
    story.all_join();
    story.append(2, "a");
    story.close();
    story.append(1, "a");
    story.breaks("F10");
}

#[test]
fn an_instance_that_finishes_before_all_have_left_breaks_f10() {
    let mut story = six();
    story.remove(5, |event| matches!(event, Event::Decided { .. }));
    story.breaks("F10");
}

#[test]
fn more_waiting_accesses_than_the_pipeline_takes_break_f7() {
    let mut story = Story::new("a", 1, 1, |spec| spec.pipeline = 2);
    story.join(1);
    story.append(1, "a");
    story.read(1, 0);
    story.read(1, 0);
    story.breaks("F7");
}

#[test]
fn a_value_above_the_limit_breaks_p3() {
    let mut story = Story::new("a", 1, 1, |spec| spec.max_value_bytes = 2);
    story.all_join();
    story.append(1, "abc");
    story.breaks("P3");
}

#[test]
fn a_process_that_does_not_exist_breaks_p1() {
    let mut story = six();
    story.insert(0, Event::Joined { process: ProcessId::new(7).unwrap() });
    story.breaks("P1");
}

#[test]
fn a_phase_that_opens_before_the_pace_is_over_breaks_f9() {
    let mut story = Story::new("a a", 1, 1, |spec| spec.pace = Duration::from_nanos(10));
    story.all_join();
    story.append(1, "a");
    story.append(2, "a");
    story.step();
    story.now += 9;
    story.step();
    story.breaks("F9");
    let place = story.place(1, is_stepped);
    story.history[place].at = Time::from_nanos(10);
    let broken = stickycas_model::invariants::check(&story.params, &story.history, false);
    assert_eq!(broken, Ok(()));
}

#[test]
fn the_event_that_breaks_a_rule_is_named() {
    let mut story = six();
    let place = story.place(0, is_added);
    if let Event::Added { value, .. } = &mut story.history[place].event {
        *value = Value::new(b"x").unwrap();
    }
    let broken = stickycas_model::invariants::check(&story.params, &story.history, true).unwrap_err();
    assert_eq!((broken.rule, broken.index), ("A1", place));
    assert_eq!(broken.to_string(), format!("A1 broken by event {place}: process 1 appended a; x was added"));
}
