//! The encoding of events in an event log: few bytes for each.
//!
//! An event is one byte for its kind and flags, and then numbers of variable length
//! ([`stickycas_model::compact_codec`]). Values that follow from the events before it are left out: the same
//! moment, the process that has just joined, the phase of the last step, a value that was encoded before. So
//! an access of a correct process takes some ten bytes, where [`stickycas_model::history::Recorded`] takes
//! sixty.
//!
//! Checkpoints of ended instances have these bytes, so the encoding is that of a file: a change of it, and of
//! the order of `OffenceKind`, is a new version of the log's rules.
//!
//! A segment can be decoded from its beginning only, so a log consists of several; see [`super::segments`].

mod decode;
mod encode;

use stickycas_model::history::Event;
use stickycas_model::types::{Phase, ProcessId, Time};

pub(super) use decode::EventDecoder;
pub(super) use encode::EventEncoder;

/// The kind of an event: the lower half of its first byte.
mod kind {
    pub(super) const JOINED: u8 = 0;
    pub(super) const SESSION: u8 = 1;
    pub(super) const ACCEPTED_APPEND: u8 = 2;
    pub(super) const ACCEPTED_READ: u8 = 3;
    pub(super) const REFUSED: u8 = 4;
    pub(super) const GATHERING_ENDED: u8 = 5;
    /// With `A`: it has come back after a restart of the server.
    pub(super) const PATIENCE_SPENT: u8 = 6;
    pub(super) const STEPPED: u8 = 7;
    pub(super) const ADDED: u8 = 8;
    pub(super) const ANSWERED_APPEND: u8 = 9;
    pub(super) const ANSWERED_READ: u8 = 10;
    pub(super) const SEALED: u8 = 11;
    pub(super) const DECIDED: u8 = 12;
    pub(super) const WITHDRAWN: u8 = 13;
    pub(super) const OFFENCE: u8 = 14;
    /// Finished; with `A` closed, with `B` the server restarted.
    pub(super) const ENDED: u8 = 15;
    pub(super) const MASK: u8 = 15;
}

/// The moment differs from that of the event before it.
const LATER: u8 = 1 << 4;
// The meaning of the other three bits depends on the kind of the event.
const A: u8 = 1 << 5;
const B: u8 = 1 << 6;
const C: u8 = 1 << 7;

/// The state that events are encoded against: the values that the events before them in their segment tell.
#[derive(Clone, Debug)]
struct DeltaState {
    at: Time,
    process: Option<ProcessId>,
    /// The phase and length of the last step.
    phase: Phase,
    length: u32,
}

impl Default for DeltaState {
    fn default() -> Self {
        Self { at: Time::ZERO, process: None, phase: Phase::FIRST, length: 0 }
    }
}

impl DeltaState {
    /// Takes over the values of this event: the next one is encoded against them.
    fn note(&mut self, event: &Event) {
        self.process = event.process();
        if let Event::Stepped { phase, length, .. } = event {
            (self.phase, self.length) = (*phase, *length);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
    use stickycas_model::compact_codec::Encoder;
    use stickycas_model::history::{Offence, OffenceKind, Recorded};
    use stickycas_model::types::{AccessNumber, Position, SessionId, Value, WarpId};

    use super::*;

    fn process() -> impl Strategy<Value = ProcessId> {
        (1..300_u32).prop_map(|it| ProcessId::new(it).unwrap())
    }

    fn number() -> impl Strategy<Value = AccessNumber> {
        prop_oneof![1..4_u64, any::<u64>()].prop_map(|it| AccessNumber::new(it.max(1)).unwrap())
    }

    fn phase() -> impl Strategy<Value = Phase> {
        prop_oneof![1..4_u64, any::<u64>()].prop_map(|it| Phase::new(it.max(1)).unwrap())
    }

    fn session() -> impl Strategy<Value = SessionId> {
        prop_oneof![1..3_u32, any::<u32>()].prop_map(|it| SessionId::new(it.max(1)).unwrap())
    }

    fn size() -> impl Strategy<Value = u32> {
        prop_oneof![0..3_u32, any::<u32>()]
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof!["[a-d]", "[a-d]{60}"].prop_map(|text| Value::new(text.as_bytes()).unwrap())
    }

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            Just(Answer::Append(AppendAnswer::Failed)),
            Just(Answer::Append(AppendAnswer::LimitReached)),
            size().prop_map(|it| Answer::Append(AppendAnswer::Success(Position::new(it)))),
            (size(), size(), size(), any::<bool>()).prop_map(|(start, count, length, sealed)| {
                Answer::Read(ReadAnswer { start: Position::new(start), count, length, sealed })
            }),
        ]
    }

    fn offence() -> impl Strategy<Value = Offence> {
        let kind = proptest::sample::select(OffenceKind::ALL.to_vec());
        (process(), kind, option::of(number()), option::of(phase()), ".{0,9}").prop_map(
            |(process, kind, number, phase, detail)| Offence { process, kind, number, phase, detail },
        )
    }

    /// Every kind of event, sensible or not.
    fn event() -> impl Strategy<Value = Event> {
        let op = prop_oneof![
            value().prop_map(Op::Append),
            size().prop_map(|start| Op::Read { start: Position::new(start) }),
        ];
        prop_oneof![
            process().prop_map(|process| Event::Joined { process }),
            (process(), session(), prop_oneof![Just(0), any::<u64>()])
                .prop_map(|(process, session, incarnation)| Event::Session { process, session, incarnation }),
            (process(), number(), option::of(session()), op)
                .prop_map(|(process, number, session, op)| Event::Accepted { process, number, session, op }),
            (process(), option::of(number()), ".{0,9}").prop_map(|(process, number, why)| Event::Refused {
                process,
                number,
                why
            }),
            size().prop_map(|joined| Event::GatheringEnded { joined }),
            process().prop_map(|process| Event::PatienceSpent { process }),
            (phase(), 1..9_u32, size()).prop_map(|(phase, warp, length)| Event::Stepped {
                phase,
                warp: WarpId::new(warp).unwrap(),
                length
            }),
            (size(), process(), phase(), value()).prop_map(|(position, process, phase, value)| {
                Event::Added { position: Position::new(position), process, phase, value }
            }),
            (process(), number(), phase(), answer()).prop_map(|(process, number, phase, answer)| {
                Event::Answered { process, number, phase, answer }
            }),
            (phase(), size()).prop_map(|(phase, length)| Event::Sealed { phase, length }),
            (process(), value()).prop_map(|(process, value)| Event::Decided { process, value }),
            (process(), number()).prop_map(|(process, number)| Event::Withdrawn { process, number }),
            offence().prop_map(Event::Offence),
            Just(Event::Finished),
            Just(Event::Closed),
            any::<u64>().prop_map(|nanos| Event::Restarted { rejoin: Duration::from_nanos(nanos) }),
            process().prop_map(|process| Event::Rejoined { process }),
        ]
    }

    fn recorded() -> impl Strategy<Value = Recorded> {
        (prop_oneof![0..2_u64, any::<u64>()], event())
            .prop_map(|(at, event)| Recorded { at: Time::from_nanos(at), event })
    }

    proptest! {
        #[test]
        fn what_was_written_down_reads_back(events in vec(recorded(), 0..200)) {
            let (mut events_out, mut out) = (EventEncoder::default(), Encoder::default());
            events.iter().for_each(|it| events_out.write(it.at, &it.event, &mut out));
            let mut reader = EventDecoder::new(out.bytes());
            let read: Vec<Recorded> = std::iter::from_fn(|| reader.read()).collect();
            prop_assert_eq!(read, events);
            prop_assert!(reader.into_rest().rest().is_empty());
        }

        #[test]
        fn bytes_that_are_no_events_are_read_to_some_end(bytes in vec(any::<u8>(), 0..200)) {
            let mut reader = EventDecoder::new(&bytes);
            while reader.read().is_some() {}
        }
    }
}
