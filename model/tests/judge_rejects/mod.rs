//! The rules of SPEC, each broken once in an otherwise correct history: the judge must say which.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod accesses;
mod list;
mod phases;

use stickycas_model::access::Answer;
use stickycas_model::history::Event;
use stickycas_model::types::Value;

use crate::story::{Story, phase, value};

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

#[test]
fn a_correct_history_is_accepted() {
    let verdict = six().is_valid();
    assert_eq!(verdict.list, crate::story::values("a b b"));
    assert_eq!(verdict.decision, Some(value("b")));
    assert_eq!((verdict.last_decision_phase, verdict.phase_bound), (Some(phase(9)), phase(9)));
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
