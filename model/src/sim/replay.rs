//! A recorded history, run again: whether a machine, given the same inputs at the same times, does what the
//! record says.
//!
//! The inputs are in the record as they were accepted: sessions, accesses, decisions, the close, restarts, and the
//! offences that the server filed before the machine. All other events happened by time alone, and a tick at their time
//! reproduces them.
//!
//! A refused input changes nothing and is not recorded in full, so it is not repeated: [`Event::Refused`] is
//! passed over. An offence that came with a refusal is repeated as if the border had filed it; it is compared,
//! but nothing shows whether it was deserved.

use std::fmt;
use std::sync::Arc;

use crate::access::Access;
use crate::history::{Event, OffenceKind, Recorded};
use crate::machine::{Input, Machine};
use crate::params::Params;
use crate::types::{ProcessId, Time};

/// The first place where a replay differs from the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the event in the record.
    pub index: usize,
    /// The event of the record; `None` if it is at its end.
    pub expected: Option<Box<Recorded>>,
    /// The event of the machine; `None` if there was none.
    pub got: Option<Box<Recorded>>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |recorded: &Option<Box<Recorded>>| match recorded {
            Some(recorded) => format!("{:?} at {} ns", recorded.event, recorded.at.as_nanos()),
            None => "nothing".to_owned(),
        };
        write!(f, "event {}: recorded {}, replayed {}", self.index, say(&self.expected), say(&self.got))
    }
}

impl std::error::Error for Difference {}

/// Feeds the inputs of a recorded history to a fresh machine and compares every event. The machine as it is at
/// the end.
///
/// # Errors
/// The first event that differs.
pub fn replay(params: &Arc<Params>, events: &[Recorded]) -> Result<Machine, Difference> {
    replay_observed(params, events, &mut |_, _, _| {})
}

/// The same, and shows the machine after each input: with the index of the event that comes next, and the time.
///
/// # Errors
/// As for [`replay`].
pub fn replay_observed(
    params: &Arc<Params>,
    events: &[Recorded],
    observe: &mut dyn FnMut(usize, &Machine, Time),
) -> Result<Machine, Difference> {
    let mut machine = Machine::new(Arc::clone(params));
    let mut record = Record { events, index: 0 };
    while let Some(next) = record.peek() {
        tick_silently(&mut machine, next.at);
        let input = record.input(machine.deadline());
        let mut happened = Vec::new();
        if named(&input).is_none_or(|process| params.contains(process)) {
            // Whether it was refused shows in what happened.
            let _ = machine.apply(next.at, input, &mut happened);
        }
        let before = record.index;
        for event in happened {
            record.compare(&Recorded { at: next.at, event })?;
        }
        if record.index == before {
            return Err(record.difference(None));
        }
        observe(record.index, &machine, next.at);
    }
    Ok(machine)
}

/// Some things happen by time alone, without an event: with a pace phases open, and a timer that was set for the least
/// patience of a warp is set anew for that of the missing members. Ticks at each deadline before `until`, as long as
/// the tick causes no event, since the record has none there.
fn tick_silently(machine: &mut Machine, until: Time) {
    while let Some(due) = machine.deadline().filter(|due| *due < until) {
        let mut ticked = machine.clone();
        let mut happened = Vec::new();
        let refused = ticked.apply(due, Input::Tick, &mut happened).is_err();
        if refused || !happened.is_empty() || ticked.deadline() == Some(due) {
            return;
        }
        *machine = ticked;
    }
}

/// The process that an input names; the machine relies on it to exist.
fn named(input: &Input) -> Option<ProcessId> {
    match input {
        Input::Hello { process, .. } | Input::Decide { process, .. } => Some(*process),
        Input::Access(access) => Some(access.process),
        Input::Offence(offence) => Some(offence.process),
        Input::Close | Input::Tick | Input::Restart { .. } | Input::Counts(_) => None,
    }
}

struct Record<'a> {
    events: &'a [Recorded],
    /// The events before it are reproduced.
    index: usize,
}

impl<'a> Record<'a> {
    /// The next event that a replay can reproduce.
    fn peek(&mut self) -> Option<&'a Recorded> {
        while let Some(recorded) = self.events.get(self.index) {
            if !matches!(recorded.event, Event::Refused { .. }) {
                return Some(recorded);
            }
            self.index += 1;
        }
        None
    }

    /// The input that reproduces the next event.
    ///
    /// An event by time alone came with a tick, or with the next input of the same moment. They differ in what is due
    /// exactly then: only a tick lets it happen.
    fn input(&self, deadline: Option<Time>) -> Input {
        let Some(next) = self.events.get(self.index) else { return Input::Tick };
        // Joining is part of the input that is recorded next, and so is what a close withdraws.
        let part = matches!(next.event, Event::Joined { .. } | Event::Withdrawn { .. });
        let comes_now = part || self.input_of(next).is_some();
        if !comes_now && deadline == Some(next.at) {
            return Input::Tick;
        }
        let mut same_moment = self.events[self.index..].iter().take_while(|recorded| recorded.at == next.at);
        same_moment.find_map(|recorded| self.input_of(recorded)).unwrap_or(Input::Tick)
    }

    /// The input of which this event is the record.
    fn input_of(&self, recorded: &Recorded) -> Option<Input> {
        match recorded.event {
            // Any access that is found would do: the last one that was accepted is.
            Event::Rejoined { process } => {
                let mut before = self.events[..self.index].iter().rev().map(|recorded| &recorded.event);
                let is_access = |event: &&Event| {
                    matches!(event, Event::Accepted { .. }) && event.process() == Some(process)
                };
                before.find(is_access).and_then(input_of).map(without_session)
            }
            ref event => input_of(event),
        }
    }

    fn compare(&mut self, got: &Recorded) -> Result<(), Difference> {
        if self.peek() != Some(got) {
            return Err(self.difference(Some(got)));
        }
        self.index += 1;
        Ok(())
    }

    fn difference(&self, got: Option<&Recorded>) -> Difference {
        let boxed = |recorded: &Recorded| Box::new(recorded.clone());
        Difference {
            index: self.index,
            expected: self.events.get(self.index).map(boxed),
            got: got.map(boxed),
        }
    }
}

/// The input of which this event alone is the record.
fn input_of(event: &Event) -> Option<Input> {
    match event {
        Event::Session { process, incarnation, .. } => {
            Some(Input::Hello { process: *process, incarnation: *incarnation })
        }
        Event::Accepted { process, number, session, op } => Some(Input::Access(Access {
            process: *process,
            session: *session,
            number: *number,
            op: op.clone(),
            no_wait: false,
        })),
        Event::Decided { process, value } => Some(Input::Decide { process: *process, value: value.clone() }),
        // The machine's own finding: it follows from the decision or from the seal, which may come by time alone.
        Event::Offence(offence) if offence.kind == OffenceKind::FalseDecision => None,
        Event::Offence(offence) => Some(Input::Offence(offence.clone())),
        Event::Closed => Some(Input::Close),
        Event::Restarted { rejoin } => Some(Input::Restart { rejoin: *rejoin }),
        Event::Joined { .. }
        | Event::Refused { .. }
        | Event::GatheringEnded { .. }
        | Event::PatienceSpent { .. }
        | Event::Stepped { .. }
        | Event::Added { .. }
        | Event::Answered { .. }
        | Event::Sealed { .. }
        | Event::Withdrawn { .. }
        | Event::Finished
        | Event::Rejoined { .. } => None,
    }
}

/// The same access as a unary call makes it: its session may have been replaced.
fn without_session(input: Input) -> Input {
    match input {
        Input::Access(access) => Input::Access(Access { session: None, ..access }),
        other => other,
    }
}
