//! Accesses, sessions and the end of an instance: rules F7, F8, F10 and P1.

use stickycas_model::access::{Answer, Op, ReadAnswer};
use stickycas_model::history::Event;
use stickycas_model::types::{AccessNumber, Position, ProcessId, SessionId};

use super::{is_accepted, is_append_answer, six};
use crate::story::{Story, id, phase, value};

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
fn a_process_that_does_not_exist_breaks_p1() {
    let mut story = six();
    story.insert(0, Event::Joined { process: ProcessId::new(7).unwrap() });
    story.breaks("P1");
}
