//! The time to reconnect after a restart of the server (F3): what it costs nobody, and when it ends.

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::invariants::check;
use stickycas_model::machine::{Input, Machine, State};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Time};

use super::apply;

const PATIENCE: u64 = 100;
const REJOIN: u64 = 50;

fn id(process: u32) -> ProcessId {
    ProcessId::new(process).unwrap()
}

/// Four processes in one warp; time is in nanoseconds.
struct Four {
    machine: Machine,
    now: u64,
    history: Vec<Recorded>,
}

impl Four {
    /// All have joined, and processes 1 to `waiting` have an access waiting in the open phase.
    fn waiting(waiting: u32) -> Self {
        let mut spec = ParamsSpec::new(4, 4, 1);
        spec.patience = Patience::Finite(Duration::from_nanos(PATIENCE));
        let machine = Machine::new(Arc::new(Params::try_new(spec).unwrap()));
        let mut four = Self { machine, now: 0, history: Vec::new() };
        (1..=4).for_each(|process| drop(four.hello(process)));
        (1..=waiting).for_each(|process| drop(four.read(process)));
        four
    }

    fn apply(&mut self, input: Input) -> Vec<Event> {
        let at = Time::from_nanos(self.now);
        let events = apply(&mut self.machine, at, input).0;
        self.history.extend(events.iter().map(|event| Recorded { at, event: event.clone() }));
        events
    }

    fn hello(&mut self, process: u32) -> Vec<Event> {
        self.apply(Input::Hello { process: id(process), incarnation: 1 })
    }

    fn read(&mut self, process: u32) -> Vec<Event> {
        let number = self.machine.member(id(process)).next;
        self.send(process, number)
    }

    fn send(&mut self, process: u32, number: AccessNumber) -> Vec<Event> {
        let op = Op::Read { start: Position::new(0) };
        self.apply(Input::Access(Access { process: id(process), session: None, number, op, no_wait: false }))
    }

    fn restart(&mut self) -> Vec<Event> {
        self.apply(Input::Restart { rejoin: Duration::from_nanos(REJOIN) })
    }

    fn due(&self) -> Option<u64> {
        self.machine.deadline().map(Time::as_nanos)
    }

    /// Who is awaited, and with how many nanoseconds of patience.
    fn awaited(&self) -> Vec<(u32, u128)> {
        let nanos = |patience| match patience {
            Patience::Finite(patience) => patience.as_nanos(),
            Patience::Endless => u128::MAX,
        };
        let status = self.machine.status(Time::from_nanos(self.now));
        status.awaited.iter().map(|member| (member.process.get(), nanos(member.patience))).collect()
    }
}

#[test]
fn patience_waits_until_the_last_process_is_back() {
    let mut four = Four::waiting(2);
    assert_eq!(four.due(), Some(100));
    four.now = 30;
    assert_eq!(four.restart(), [Event::Restarted { rejoin: Duration::from_nanos(REJOIN) }]);
    // What had drained before is gone, and nothing drains now.
    assert_eq!((four.awaited(), four.due()), (vec![(3, 70), (4, 70)], Some(30 + 50 + 70)));
    four.now = 40;
    (1..=3).for_each(|process| drop(four.hello(process)));
    assert_eq!(four.due(), Some(150));
    four.now = 60;
    four.hello(4);
    assert_eq!((four.awaited(), four.due()), (vec![(3, 70), (4, 70)], Some(60 + 70)));
}

#[test]
fn patience_drains_again_when_the_time_to_reconnect_is_over() {
    let mut four = Four::waiting(2);
    four.restart();
    four.now = 149;
    assert_eq!(four.apply(Input::Tick), []);
    assert_eq!(four.awaited(), [(3, 1), (4, 1)]);
    // One that comes back now brings nothing back.
    four.hello(3);
    assert_eq!(four.due(), Some(150));
    four.now = 150;
    let events = four.apply(Input::Tick);
    assert_eq!(events[..2], [3, 4].map(|process| Event::PatienceSpent { process: id(process) }));
    assert!(matches!(events[2], Event::Stepped { .. }));
}

#[test]
fn an_access_that_waits_already_brings_its_process_back() {
    let mut four = Four::waiting(3);
    four.restart();
    let first = AccessNumber::FIRST;
    assert_eq!(four.send(1, first), [Event::Rejoined { process: id(1) }]);
    assert_eq!(four.send(1, first), [], "it is back once");
    (2..=3).for_each(|process| drop(four.send(process, first)));
    four.now = 20;
    assert_eq!(four.due(), Some(150));
    let done = four
        .apply(Input::Decide { process: id(4), value: stickycas_model::types::Value::new(b"v").unwrap() });
    assert!(matches!(done[..2], [Event::Decided { .. }, Event::Stepped { .. }]));
}

#[test]
fn a_phase_that_opens_meanwhile_counts_as_opened_at_the_end() {
    let mut four = Four::waiting(0);
    four.restart();
    four.now = 10;
    four.read(1);
    assert_eq!(four.due(), Some(50 + 100));
    // A phase that nobody has to wait for is executed as usual (F2).
    (2..=3).for_each(|process| drop(four.read(process)));
    let executed = four.read(4);
    assert!(matches!(executed[1], Event::Stepped { .. }), "{executed:?}");
    four.now = 20;
    four.read(1);
    assert_eq!(four.due(), Some(20 + 100), "all are back");
}

#[test]
fn a_second_restart_begins_the_time_to_reconnect_anew() {
    let mut four = Four::waiting(2);
    four.restart();
    (1..=3).for_each(|process| drop(four.hello(process)));
    four.now = 40;
    four.restart();
    assert_eq!((four.awaited(), four.due()), (vec![(3, 100), (4, 100)], Some(90 + 100)));
    four.hello(4);
    assert_eq!(four.due(), Some(190), "the others are away again");
}

#[test]
fn patience_that_is_spent_just_then_is_spent() {
    let mut four = Four::waiting(3);
    four.now = 100;
    let events = four.restart();
    assert_eq!(events[1], Event::PatienceSpent { process: id(4) });
    assert!(matches!(events[2], Event::Stepped { .. }), "{events:?}");
}

#[test]
fn the_join_timeout_does_not_end_before_the_time_to_reconnect() {
    let mut spec = ParamsSpec::new(4, 4, 1);
    spec.join_timeout = Duration::from_nanos(60);
    let machine = Machine::new(Arc::new(Params::try_new(spec).unwrap()));
    let mut four = Four { machine, now: 0, history: Vec::new() };
    four.restart();
    assert_eq!(four.due(), None, "nobody has joined");
    four.hello(1);
    assert_eq!(four.due(), Some(60));
    four.now = 59;
    four.restart();
    assert_eq!(four.due(), Some(59 + 50));
    four.now = 109;
    four.hello(2);
    assert_eq!(four.machine.state(), State::Gathering);
    four.apply(Input::Tick);
    assert_eq!(four.machine.state(), State::Running);
}

#[test]
fn a_join_timeout_that_starts_meanwhile_ends_with_the_later_of_the_two() {
    for (join_timeout, ends) in [(20, 50), (49, 59), (60, 70)] {
        let mut spec = ParamsSpec::new(4, 4, 1);
        spec.join_timeout = Duration::from_nanos(join_timeout);
        let machine = Machine::new(Arc::new(Params::try_new(spec).unwrap()));
        let mut four = Four { machine, now: 0, history: Vec::new() };
        four.restart();
        four.now = 10;
        four.hello(1);
        assert_eq!(four.due(), Some(ends), "{join_timeout}");
    }
}

#[test]
fn without_patience_a_missing_process_has_the_time_to_reconnect() {
    let mut spec = ParamsSpec::new(4, 4, 1);
    spec.patience = Patience::Finite(Duration::ZERO);
    let of = |spec: &ParamsSpec| Machine::new(Arc::new(Params::try_new(spec.clone()).unwrap()));
    let mut four = Four { machine: of(&spec), now: 0, history: Vec::new() };
    (1..=4).for_each(|process| drop(four.hello(process)));
    four.restart();
    four.now = 10;
    (1..=3).for_each(|process| drop(four.read(process)));
    assert_eq!((four.awaited(), four.due()), (vec![(4, 0)], Some(REJOIN)));
    let mut back = Four { machine: four.machine.clone(), now: 20, history: Vec::new() };
    // A hello alone is no access: all are back, and it is missing.
    back.hello(4);
    assert_eq!(back.due(), Some(20));
    assert_eq!(back.apply(Input::Tick)[0], Event::PatienceSpent { process: id(4) });
    four.now = REJOIN;
    let executed = four.read(4);
    let is_own = |event: &Event| matches!(event, Event::Answered { process, .. } if *process == id(4));
    assert!(executed.iter().any(is_own), "at the last moment: {executed:?}");

    // A phase that was open before the restart costs it at once, as without a restart.
    let mut four = Four { machine: of(&spec), now: 0, history: Vec::new() };
    (1..=4).for_each(|process| drop(four.hello(process)));
    (1..=3).for_each(|process| drop(four.read(process)));
    assert_eq!(four.restart()[1], Event::PatienceSpent { process: id(4) });
}

#[test]
fn who_comes_back_after_the_time_to_reconnect_is_recorded_all_the_same() {
    let mut four = Four::waiting(3);
    four.restart();
    four.now = REJOIN + 1;
    assert_eq!(four.apply(Input::Tick), []);
    let rejoined = (1..=3).flat_map(|process| four.send(process, AccessNumber::FIRST));
    let expected = (1..=3).map(|process| Event::Rejoined { process: id(process) });
    assert_eq!(rejoined.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(four.due(), Some(REJOIN + PATIENCE), "it brings nothing back");
    let params = Arc::clone(four.machine.params());
    assert_eq!(check(&params, &four.history, false), Ok(()));
}

/// A server writes the time while it drains, and passes it to the next one while it is awaited (F3, F4).
#[test]
fn time_counts_while_patience_or_the_join_timeout_drains_or_a_pace_passes() {
    let mut spec = ParamsSpec::new(4, 4, 1);
    spec.pace = Duration::from_nanos(40);
    let mut four =
        Four { machine: Machine::new(Arc::new(Params::try_new(spec).unwrap())), now: 0, history: Vec::new() };
    let time = |four: &Four| (four.machine.drains(), four.machine.awaits_time());
    assert_eq!(time(&four), (false, false), "nobody has joined");
    four.hello(1);
    assert_eq!(time(&four), (true, true));
    (2..=4).for_each(|process| drop(four.hello(process)));
    assert_eq!(time(&four), (false, false), "nothing waits");
    (1..=3).for_each(|process| drop(four.read(process)));
    assert_eq!(time(&four), (true, true));
    four.restart();
    assert_eq!(time(&four), (true, true), "the phase is open");
    four.read(4);
    assert_eq!(time(&four), (false, true), "the next one opens after the pace");
    four.now = 40;
    four.hello(1);
    assert_eq!(time(&four), (false, false));
    four.apply(Input::Close);
    assert_eq!(time(&four), (false, false));
    assert!(!Four::waiting(0).machine.drains());
}

#[test]
fn a_restart_changes_nothing_once_the_instance_is_closed() {
    let mut four = Four::waiting(2);
    four.restart();
    four.apply(Input::Close);
    let before = four.machine.checkpoint();
    assert!(before.members.iter().all(|member| !member.away) && before.rejoin_until.is_none());
    assert_eq!((four.restart(), four.machine.checkpoint()), (vec![], before));
}

#[test]
fn endless_patience_needs_no_timer_after_a_restart() {
    let mut spec = ParamsSpec::new(4, 4, 1);
    spec.patience = Patience::Endless;
    let mut four =
        Four { machine: Machine::new(Arc::new(Params::try_new(spec).unwrap())), now: 0, history: Vec::new() };
    (1..=4).for_each(|process| drop(four.hello(process)));
    four.read(1);
    four.restart();
    assert_eq!(four.due(), None);
    assert!(!four.machine.awaits_time(), "it costs nobody anything");
}

/// V4: a record in which processes lose patience over a restart is a violation.
#[test]
fn patience_that_drained_while_processes_were_away_is_noticed() {
    let mut four = Four::waiting(2);
    four.now = 10;
    four.restart();
    four.hello(1);
    four.now = 10 + REJOIN + PATIENCE;
    four.apply(Input::Tick);
    let params = Arc::clone(four.machine.params());
    assert_eq!(check(&params, &four.history, true), Ok(()));
    let spent = |recorded: &Recorded| matches!(recorded.event, Event::PatienceSpent { .. });
    let place = four.history.iter().position(spent).unwrap();
    let at_once = |nanos| {
        let mut history = four.history.clone();
        history[place..].iter_mut().for_each(|recorded| recorded.at = Time::from_nanos(nanos));
        check(&params, &history, true).map_err(|broken| (broken.rule, broken.index))
    };
    assert_eq!(at_once(10 + REJOIN - 1), Err(("F3", place)), "they were away");
    assert_eq!(at_once(REJOIN + PATIENCE - 1), Err(("F3", place)), "not that long was open");
    assert_eq!(at_once(REJOIN + PATIENCE), Ok(()), "what had drained before the restart counts");
}

#[test]
fn a_process_that_was_not_away_cannot_come_back() {
    let mut four = Four::waiting(2);
    four.restart();
    four.hello(1);
    let params = Arc::clone(four.machine.params());
    let back = |process| {
        let mut history = four.history.clone();
        history.push(Recorded { at: Time::ZERO, event: Event::Rejoined { process: id(process) } });
        check(&params, &history, false).map_err(|broken| broken.rule)
    };
    assert_eq!([back(1), back(2), back(3)], [Err("F3"), Ok(()), Err("F3")], "3 has sent nothing");
}
