//! The order of phases and the steps: rules W1, F1 to F5 and F9.

use std::time::Duration;

use stickycas_model::history::Event;
use stickycas_model::types::{Time, WarpId};

use super::{is_append_answer, is_stepped, six};
use crate::story::{Story, id};

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
