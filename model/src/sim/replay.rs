//! A recorded history, run again: whether a machine, given the same inputs at the same times, does what the
//! record says.
//!
//! The inputs are in the record as they were accepted: sessions, accesses, decisions, the close, restarts,
//! and the offences that the server filed before the machine. All other events happened by time alone, and a
//! tick at their time reproduces them.
//!
//! A refused input changes nothing and is not recorded in full, so it is not repeated: [`Event::Refused`] is
//! passed over. An offence that came with a refusal is repeated as if the border had filed it; it is
//! compared, but nothing shows whether it was deserved.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
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

/// Feeds the inputs of a recorded history to a fresh machine and compares every event. The machine as it is
/// at the end.
///
/// # Errors
/// The first event that differs.
pub fn replay(params: &Arc<Params>, events: &[Recorded]) -> Result<Machine, Difference> {
    replay_observed(params, events, &mut |_, _, _| {})
}

/// The same, and shows the machine after each input: with the index of the event that comes next, and the
/// time.
///
/// # Errors
/// As for [`replay`].
pub fn replay_observed(
    params: &Arc<Params>,
    events: &[Recorded],
    observe: &mut dyn FnMut(usize, &Machine, Time),
) -> Result<Machine, Difference> {
    let mut follower = Follower::new(params);
    follower.take(events, true, observe)?;
    match follower.ahead.pop_front() {
        Some(got) => Err(Difference { index: events.len(), expected: None, got: Some(Box::new(got)) }),
        None => Ok(follower.machine),
    }
}

/// A machine that follows a record while it is written: it takes the events as they become known.
#[derive(Clone, Debug)]
pub struct Follower {
    machine: Machine,
    /// How many events of the record it has taken.
    taken: usize,
    /// The events that have happened in the machine and come next in the record.
    ahead: VecDeque<Recorded>,
    /// The last access of each process that was accepted.
    accesses: BTreeMap<ProcessId, Input>,
}

impl Follower {
    /// Before the first event.
    #[must_use]
    pub fn new(params: &Arc<Params>) -> Self {
        let machine = Machine::new(Arc::clone(params));
        Self { machine, taken: 0, ahead: VecDeque::new(), accesses: BTreeMap::new() }
    }

    /// The machine as it is behind the events that were taken. `None`: the record does not have all yet that
    /// has happened in it.
    #[must_use]
    pub fn machine(&self) -> Option<&Machine> {
        self.ahead.is_empty().then_some(&self.machine)
    }

    /// The machine at this moment, at which no further event is known.
    #[must_use]
    pub fn machine_at(&self, now: Time) -> Option<Cow<'_, Machine>> {
        let machine = self.machine()?;
        if machine.deadline().is_none_or(|due| due >= now) {
            return Some(Cow::Borrowed(machine));
        }
        let mut machine = machine.clone();
        tick_silently(&mut machine, now);
        Some(Cow::Owned(machine))
    }

    /// Takes the next events of the record, and shows the machine as [`replay_observed`] does. How many it
    /// has taken: with the others it waits for those that come behind them. `is_whole`: none comes in the
    /// same moment any more, and all are taken.
    ///
    /// # Errors
    /// The first event that differs. It must not be given any further events then.
    pub fn take(
        &mut self,
        events: &[Recorded],
        is_whole: bool,
        observe: &mut dyn FnMut(usize, &Machine, Time),
    ) -> Result<usize, Difference> {
        let first = self.taken;
        let mut at = 0;
        loop {
            at += events[at..].iter().take_while(|next| matches!(next.event, Event::Refused { .. })).count();
            self.taken = first + at;
            let Some(next) = events.get(at) else { return Ok(at) };
            if let Some(got) = self.ahead.pop_front() {
                if got != *next {
                    return Err(self.difference(next, Some(got)));
                }
                if matches!(next.event, Event::Accepted { .. })
                    && let (Some(process), Some(input)) = (next.event.process(), input_of(&next.event))
                {
                    self.accesses.insert(process, input);
                }
                at += 1;
                self.taken = first + at;
                if self.ahead.is_empty() {
                    observe(self.taken, &self.machine, next.at);
                }
                continue;
            }
            tick_silently(&mut self.machine, next.at);
            let Some(input) = self.input(&events[at..], is_whole) else { return Ok(at) };
            let mut happened = Vec::new();
            if named(&input).is_none_or(|process| self.machine.params().contains(process)) {
                // Whether it was refused shows in what happened.
                let _ = self.machine.apply(next.at, input, &mut happened);
            }
            if happened.is_empty() {
                return Err(self.difference(next, None));
            }
            self.ahead.extend(happened.into_iter().map(|event| Recorded { at: next.at, event }));
        }
    }

    /// The input that reproduces the first of these events. `None`: the events behind them may tell.
    ///
    /// An event by time alone came with a tick, or with the next input of the same moment. They differ in the
    /// events that are due exactly then: only a tick lets them happen.
    fn input(&self, events: &[Recorded], is_whole: bool) -> Option<Input> {
        let next = events.first()?;
        // Joining is part of the input that is recorded next, and so is what a close withdraws.
        let part = matches!(next.event, Event::Joined { .. } | Event::Withdrawn { .. });
        let comes_now = part || self.input_of(next).is_some();
        if !comes_now && self.machine.deadline() == Some(next.at) {
            return Some(Input::Tick);
        }
        let mut same_moment = events.iter().take_while(|recorded| recorded.at == next.at);
        let input = same_moment.find_map(|recorded| self.input_of(recorded));
        let may_come = !is_whole && events.last().is_some_and(|last| last.at == next.at);
        input.or_else(|| (!may_come).then_some(Input::Tick))
    }

    /// The input of which this event is the record.
    fn input_of(&self, recorded: &Recorded) -> Option<Input> {
        match recorded.event {
            // Any access that is found would do: the last one that was accepted is.
            Event::Rejoined { process } => self.accesses.get(&process).cloned().map(without_session),
            ref event => input_of(event),
        }
    }

    fn difference(&self, expected: &Recorded, got: Option<Recorded>) -> Difference {
        let expected = Some(Box::new(expected.clone()));
        Difference { index: self.taken, expected, got: got.map(Box::new) }
    }
}

/// Some things happen by time alone, without an event: with a pace phases open, and a timer that was set for
/// the least patience of a warp is set anew for that of the missing members. Ticks at each deadline before
/// `until`, as long as the tick causes no event, since the record has none there.
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
        // The machine's own finding: it follows from the decision or from the seal, which may come by time
        // alone.
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
