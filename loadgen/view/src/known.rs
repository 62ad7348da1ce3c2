//! The knowledge of an instance from its events: the machine that follows them, and the events themselves as
//! far as they are kept.

use std::sync::Arc;

use http::StatusCode;
use stickycas_model::access::Op;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::State;
use stickycas_model::sim::Follower;
use stickycas_model::types::Time;
use stickycas_page::frame::{AWAITED, Now};
use stickycas_page::source::Refused;

use crate::instances::InstanceFacts;

/// The most events that are kept for explanations, and the most bytes of the values in them.
const EVENTS: usize = 131_072;
const VALUE_BYTES: usize = 16 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Known {
    /// `None`: the first events are not known, or the machine has done something else.
    follower: Option<Follower>,
    /// Events that the machine cannot take yet: it needs those behind them.
    waiting: Vec<Recorded>,
    /// The index of the first event.
    first: u64,
    /// The time of the last event.
    pub(crate) last: Time,
    kept: Vec<Arc<[Recorded]>>,
    events: usize,
    bytes: usize,
    /// The state, as far as events tell it.
    pub(crate) ended: Option<State>,
}

impl Known {
    /// Of an instance of which the first event that comes is this one.
    pub(crate) fn new(facts: &InstanceFacts, first: u64) -> Self {
        Self {
            follower: (first == 0).then(|| Follower::new(&facts.params)),
            waiting: Vec::new(),
            first,
            last: Time::ZERO,
            kept: Vec::new(),
            events: 0,
            bytes: 0,
            ended: None,
        }
    }

    /// Takes the next events; none: nothing more has come for a while.
    pub(crate) fn take(&mut self, events: &[Recorded]) {
        for recorded in events {
            self.last = recorded.at;
            match recorded.event {
                Event::Finished => self.ended = Some(State::Finished),
                Event::Closed => self.ended = Some(State::Closed),
                _ => {}
            }
        }
        if let Some(follower) = &mut self.follower {
            self.waiting.extend_from_slice(events);
            // The first events of an input whose own event is still to come, however long that takes.
            let is_part = |event: &Event| matches!(event, Event::Joined { .. } | Event::Withdrawn { .. });
            let is_whole = events.is_empty() && !self.waiting.iter().any(|it| is_part(&it.event));
            match follower.take(&self.waiting, is_whole, &mut |_, _, _| {}) {
                Ok(taken) => drop(self.waiting.drain(..taken)),
                Err(difference) => {
                    tracing::warn!(%difference, "the machine does not follow the events of the instance");
                    (self.follower, self.waiting) = (None, Vec::new());
                }
            }
        }
        self.events += events.len();
        self.bytes += events.iter().map(|recorded| value_bytes(&recorded.event)).sum::<usize>();
        if self.is_too_much() {
            self.kept.clear();
        } else if !events.is_empty() {
            self.kept.push(events.into());
        }
    }

    /// Whether the state of the instance follows from its events.
    pub(crate) const fn is_followed(&self) -> bool {
        self.follower.is_some()
    }

    /// The machine behind all events that were taken, if it is known.
    pub(crate) fn follower(&self) -> Option<&Follower> {
        self.follower.as_ref().filter(|follower| self.waiting.is_empty() && follower.machine().is_some())
    }

    /// The state at this moment, if it is known.
    pub(crate) fn now(&self, facts: &InstanceFacts) -> Option<Now> {
        let at = facts.now(self.last);
        let machine = self.follower()?.machine_at(at)?;
        Some(Now::new(&facts.params, &machine.status_rows(at, AWAITED), at))
    }

    fn is_too_much(&self) -> bool {
        self.events > EVENTS || self.bytes > VALUE_BYTES
    }

    /// All events that are known.
    ///
    /// # Errors
    /// If they are too many, or of too many bytes.
    pub(crate) fn events(&self) -> Result<KeptEvents, Refused> {
        if self.is_too_much() {
            let why = format!(
                "{} events of {} bytes have happened, and at most {EVENTS} of {VALUE_BYTES} are looked through",
                self.events, self.bytes
            );
            return Err(Refused { status: StatusCode::UNPROCESSABLE_ENTITY, why });
        }
        Ok(KeptEvents { first: self.first, parts: self.kept.clone() })
    }
}

/// Events of an instance, without gaps.
#[derive(Debug, Default)]
pub(crate) struct KeptEvents {
    /// The index of the first one.
    pub(crate) first: u64,
    pub(crate) parts: Vec<Arc<[Recorded]>>,
}

/// Bytes of the values of clients in an event.
pub(crate) fn value_bytes(event: &Event) -> usize {
    match event {
        Event::Accepted { op: Op::Append(value), .. }
        | Event::Added { value, .. }
        | Event::Decided { value, .. } => value.as_bytes().len(),
        Event::Offence(offence) => offence.detail.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::machine::Machine;
    use stickycas_model::types::ProcessId;

    use super::*;
    use crate::instances::tests::facts;

    #[test]
    fn a_pause_within_the_events_of_an_input_is_endured() {
        let facts = facts(1);
        let mut machine = Machine::new(facts.params.clone());
        let mut events = Vec::new();
        for process in ProcessId::all(2) {
            machine.hello(Time::ZERO, process, 1, &mut events).unwrap();
        }
        let events: Vec<_> = events.into_iter().map(|event| Recorded { at: Time::ZERO, event }).collect();
        assert!(events.iter().filter(|it| matches!(it.event, Event::Joined { .. })).count() == 2);
        for cut in 1..events.len() {
            let mut known = Known::new(&facts, 0);
            for part in [&events[..cut], &[], &events[cut..], &[]] {
                known.take(part);
                assert!(known.is_followed(), "cut at {cut} of {events:?}");
            }
            assert!(known.follower().is_some_and(|it| it.machine().is_some()), "cut at {cut}");
        }
    }
}
