//! The changes of an instance, in the pieces in which they are sent: events with the state after them.
//!
//! The form of an event is that of a line of `history.ndjson`, with its index added, and for those that
//! people should be told of with a sentence.

use serde::Serialize;
use stickycas_model::describe;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::{State, Status};
use stickycas_model::params::{Params, Patience};
use stickycas_model::scheduler::Schedule;
use stickycas_model::types::{Phase, ProcessId, Time, WarpId};

use crate::basis::DecisionBasis;
use crate::lateness::Lateness;

/// The most awaited processes that are sent one by one.
pub const AWAITED: usize = 256;

/// Some events, and the state after them.
#[derive(Clone, Debug, Serialize)]
pub struct Frame<'a> {
    /// The events, in order.
    pub events: Vec<NumberedEvent<'a>>,
    /// The processes that these events show to be late.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<ProcessId>,
    /// The state after them; `None` if it cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
}

/// An event with its index.
#[derive(Clone, Debug, Serialize)]
pub struct NumberedEvent<'a> {
    /// Its index in the history of the instance, from 0.
    pub index: u64,
    /// The event as `history.ndjson` has it.
    #[serde(flatten)]
    pub recorded: &'a Recorded,
    /// The event in words, if people are to be told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
    /// Of a decision: the entries that the process had read, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The state of an instance at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Now {
    /// The moment, in nanoseconds since the instance was created.
    pub at: Time,
    /// Its state.
    pub state: &'static str,
    /// The phase that is open or comes next; `None` while processes gather.
    pub phase: Option<u64>,
    /// Its warp.
    pub warp: Option<u32>,
    /// Its round.
    pub round: Option<u64>,
    /// Whether it is open and waits for members of its warp.
    pub open: bool,
    /// How many processes are awaited.
    pub awaited_count: usize,
    /// The first [`AWAITED`] of them.
    pub awaited: Vec<Awaited>,
    /// How many processes have joined.
    pub joined: u32,
}

/// A process that is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Awaited {
    /// The process.
    pub process: ProcessId,
    /// The rest of its patience, in nanoseconds; `None`: without end.
    pub left_nanos: Option<u64>,
}

impl Now {
    /// The state that a status shows.
    #[must_use]
    pub fn new(params: &Params, status: &Status, at: Time) -> Self {
        let schedule = Schedule::new(params);
        let awaited = status.awaited.iter().take(AWAITED).map(|member| Awaited {
            process: member.process,
            left_nanos: match member.patience {
                Patience::Finite(left) => Some(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
                Patience::Endless => None,
            },
        });
        Self {
            at,
            state: state_name(status.state),
            phase: status.phase.map(Phase::get),
            warp: status.warp.map(WarpId::get),
            round: status.phase.map(|phase| schedule.round_of(phase).get()),
            open: status.open,
            awaited_count: status.awaited.len() + status.left_out.awaited as usize,
            awaited: awaited.collect(),
            joined: status.joined,
        }
    }
}

/// The name of a state.
#[must_use]
pub const fn state_name(state: State) -> &'static str {
    match state {
        State::Gathering => "gathering",
        State::Running => "running",
        State::Finished => "finished",
        State::Closed => "closed",
    }
}

/// Makes frames of the events of one instance.
#[derive(Clone, Debug)]
pub struct Framer {
    /// `None`: the first events are not known, so no process can be shown to be late.
    lateness: Option<Lateness>,
    /// `None`: the first entries are not known, so the reads behind a decision are not either.
    basis: Option<DecisionBasis>,
    next: u64,
}

impl Framer {
    /// For the events from this index on.
    #[must_use]
    pub fn new(params: &Params, first: u64) -> Self {
        Self {
            lateness: (first == 0).then(|| Lateness::new(params)),
            basis: (first == 0).then(DecisionBasis::default),
            next: first,
        }
    }

    /// The index of the next event.
    #[must_use]
    pub const fn next_index(&self) -> u64 {
        self.next
    }

    /// The next events as a frame.
    pub fn frame<'a>(&mut self, params: &Params, events: &'a [Recorded], now: Option<Now>) -> Frame<'a> {
        let mut late = Vec::new();
        let mut numbered = Vec::with_capacity(events.len());
        for recorded in events {
            if let Some(lateness) = &mut self.lateness {
                late.extend(lateness.observe(params, &recorded.event));
            }
            let says = is_told(&recorded.event).then(|| describe::event(&recorded.event));
            let from = self.basis.as_mut().and_then(|basis| basis.observe(&recorded.event));
            numbered.push(NumberedEvent { index: self.next, recorded, says, from });
            self.next += 1;
        }
        Frame { events: numbered, late, now }
    }
}

/// Whether people are to be told of the event in words: of what is seldom, and of what decides.
fn is_told(event: &Event) -> bool {
    match event {
        Event::Refused { .. }
        | Event::GatheringEnded { .. }
        | Event::PatienceSpent { .. }
        | Event::Added { .. }
        | Event::Sealed { .. }
        | Event::Decided { .. }
        | Event::Offence(_)
        | Event::Finished
        | Event::Closed
        | Event::Restarted { .. } => true,
        Event::Joined { .. }
        | Event::Session { .. }
        | Event::Accepted { .. }
        | Event::Stepped { .. }
        | Event::Answered { .. }
        | Event::Withdrawn { .. }
        | Event::Rejoined { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use serde_json::json;
    use stickycas_model::access::{Access, Op};
    use stickycas_model::machine::Machine;
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::{AccessNumber, Position};

    #[test]
    fn an_event_is_a_line_of_the_history_with_its_index() {
        let params = Params::try_new(ParamsSpec::new(4, 2, 2)).unwrap();
        let events = [Recorded {
            at: Time::ZERO,
            event: Event::Stepped { phase: Phase::FIRST, warp: WarpId::from_index(0).unwrap(), length: 0 },
        }];
        let mut framer = Framer::new(&params, 7);
        let frame = serde_json::to_value(framer.frame(&params, &events, None)).unwrap();
        let mut line = serde_json::to_value(&events[0]).unwrap();
        line["index"] = json!(7);
        assert_eq!(frame, json!({ "events": [line] }));
        assert_eq!(framer.next_index(), 8);
    }

    #[test]
    fn those_who_are_awaited_are_counted_though_not_all_are_sent() {
        let processes = u32::try_from(AWAITED).unwrap() + 3;
        let params = Arc::new(Params::try_new(ParamsSpec::new(processes, processes, 2)).unwrap());
        let mut machine = Machine::new(params.clone());
        for process in ProcessId::all(processes) {
            machine.hello(Time::ZERO, process, 1, &mut Vec::new()).unwrap();
        }
        // It waits for all others.
        let (process, number) = (ProcessId::new(1).unwrap(), AccessNumber::FIRST);
        let op = Op::Read { start: Position::new(0) };
        let access = Access { process, session: None, number, op, no_wait: false };
        machine.access(Time::ZERO, access, &mut Vec::new()).unwrap();
        let now = Now::new(&params, &machine.status_rows(Time::ZERO, AWAITED), Time::ZERO);
        assert_eq!((now.awaited.len(), now.awaited_count), (AWAITED, AWAITED + 2));
        assert_eq!(now, Now::new(&params, &machine.status(Time::ZERO), Time::ZERO));
    }
}
