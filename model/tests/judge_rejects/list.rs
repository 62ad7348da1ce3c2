//! The list, its appends and its reads: rules A1 to A5, R1, R2, F2 and P3.

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::history::Event;
use stickycas_model::params::Arbiter;
use stickycas_model::types::Position;

use super::{is_added, is_append_answer, is_read_answer, is_stepped, six};
use crate::story::{Story, id, phase, value};

/// Changes the first read's answer.
fn with_read(change: impl Fn(&mut ReadAnswer)) -> Story {
    let mut story = six();
    if let Event::Answered { answer: Answer::Read(answer), .. } = story.event(0, is_read_answer) {
        change(answer);
    }
    story
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
fn a_value_above_the_limit_breaks_p3() {
    let mut story = Story::new("a", 1, 1, |spec| spec.max_value_bytes = 2);
    story.all_join();
    story.append(1, "abc");
    story.breaks("P3");
}
