//! The encoding of events in an event log: few bytes for each.
//!
//! An event is one byte for its kind and flags, and then numbers of variable length
//! ([`stickycas_model::compact_codec`]). Whatever follows from the events before it is left out: the same moment, the
//! process that has just joined, the phase of the last step, a value that was encoded before. So an access of a
//! correct process takes some ten bytes, where [`Recorded`] takes sixty.
//!
//! A segment can be decoded from its beginning only, so a log consists of several; see [`super::segments`].

use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::compact_codec::{Decoder, Encoder};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time};

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
// What the other three bits mean depends on the kind of the event.
const A: u8 = 1 << 5;
const B: u8 = 1 << 6;
const C: u8 = 1 << 7;

/// A duration in nanoseconds; five centuries at most.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

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

/// Encodes events, one after the other.
#[derive(Debug, Default)]
pub(super) struct EventEncoder(DeltaState);

impl EventEncoder {
    pub(super) fn write(&mut self, at: Time, event: &Event, out: &mut Encoder) {
        let before = &mut self.0;
        let (kind, flags) = before.head(event);
        let later = at != before.at;
        out.byte(kind | flags | flag(later, LATER));
        if later {
            // Time never goes back; should it ever, it would be decoded correctly all the same.
            out.number(at.as_nanos().wrapping_sub(before.at.as_nanos()));
            before.at = at;
        }
        before.body(event, flags, out);
        before.note(event);
    }
}

impl DeltaState {
    /// The kind of an event, and the flags for what need not be encoded.
    fn head(&self, event: &Event) -> (u8, u8) {
        let on_session = |session: Option<SessionId>| match session {
            None => 0,
            Some(SessionId::FIRST) => A,
            Some(_) => B,
        };
        match event {
            Event::Joined { .. } => (kind::JOINED, 0),
            Event::Session { process, session, incarnation } => {
                let same = self.process == Some(*process);
                let first = *session == SessionId::FIRST;
                (kind::SESSION, flag(same, A) | flag(first, B) | flag(*incarnation == 0, C))
            }
            Event::Accepted { number, session, op, .. } => {
                let first = flag(*number == AccessNumber::FIRST, C);
                let kind = match op {
                    Op::Append(_) => kind::ACCEPTED_APPEND,
                    Op::Read { .. } => kind::ACCEPTED_READ,
                };
                (kind, on_session(*session) | first)
            }
            Event::Refused { number, .. } => (kind::REFUSED, flag(number.is_some(), A)),
            Event::GatheringEnded { .. } => (kind::GATHERING_ENDED, 0),
            Event::PatienceSpent { .. } => (kind::PATIENCE_SPENT, 0),
            Event::Stepped { .. } => (kind::STEPPED, 0),
            Event::Added { position, phase, .. } => {
                (kind::ADDED, flag(*phase == self.phase && position.get() == self.length, C))
            }
            Event::Answered { phase, answer: Answer::Append(answer), .. } => {
                let here = *phase == self.phase;
                let won_here = *answer == AppendAnswer::Success(Position::new(self.length));
                let flags = match answer {
                    AppendAnswer::Failed => 0,
                    AppendAnswer::Success(_) if here && won_here => A | B,
                    AppendAnswer::Success(_) => A,
                    AppendAnswer::LimitReached => B,
                };
                (kind::ANSWERED_APPEND, flags | flag(here, C))
            }
            Event::Answered { phase, answer: Answer::Read(read), .. } => {
                let whole = read.start.get().checked_add(read.count) == Some(read.length);
                let here = *phase == self.phase && read.length == self.length;
                (kind::ANSWERED_READ, flag(read.sealed, A) | flag(whole, B) | flag(here, C))
            }
            Event::Sealed { .. } => (kind::SEALED, 0),
            Event::Decided { .. } => (kind::DECIDED, 0),
            Event::Withdrawn { .. } => (kind::WITHDRAWN, 0),
            Event::Offence(offence) => {
                (kind::OFFENCE, flag(offence.number.is_some(), A) | flag(offence.phase.is_some(), B))
            }
            Event::Finished => (kind::ENDED, 0),
            Event::Closed => (kind::ENDED, A),
            Event::Restarted { .. } => (kind::ENDED, B),
            Event::Rejoined { .. } => (kind::PATIENCE_SPENT, A),
        }
    }

    /// The rest of an event, as its head says.
    fn body(&self, event: &Event, flags: u8, out: &mut Encoder) {
        let has = |flag: u8| flags & flag != 0;
        match event {
            Event::Joined { process } | Event::PatienceSpent { process } | Event::Rejoined { process } => {
                out.number(process.get());
            }
            Event::Session { process, session, incarnation } => {
                if !has(A) {
                    out.number(process.get());
                }
                if !has(B) {
                    out.number(session.get());
                }
                if !has(C) {
                    out.number(*incarnation);
                }
            }
            Event::Accepted { process, number, session, op } => {
                out.number(process.get());
                self.access(*number, *session, op, flags, out);
            }
            Event::Refused { process, number, why } => {
                out.number(process.get());
                number.inspect(|number| out.number(number.get()));
                out.slice(why.as_bytes());
            }
            Event::GatheringEnded { joined } => out.number(*joined),
            Event::Stepped { phase: stepped, warp, length } => {
                self.phase(*stepped, out);
                out.number(warp.get());
                out.number(*length);
            }
            Event::Added { position, process, phase: added, value } => {
                out.number(process.get());
                if !has(C) {
                    self.phase(*added, out);
                    out.number(position.get());
                }
                out.value(value);
            }
            Event::Answered { process, number, phase: executed, answer } => {
                out.number(process.get());
                out.number(number.get());
                self.answer(*executed, answer, flags, out);
            }
            Event::Sealed { phase: sealed, length } => {
                self.phase(*sealed, out);
                out.number(*length);
            }
            Event::Decided { process, value } => {
                out.number(process.get());
                out.value(value);
            }
            Event::Withdrawn { process, number } => {
                out.number(process.get());
                out.number(number.get());
            }
            Event::Offence(offence) => self.offence(offence, out),
            Event::Restarted { rejoin } => out.number(nanos(*rejoin)),
            Event::Finished | Event::Closed => {}
        }
    }

    /// A phase, as the difference from the phase of the last step.
    fn phase(&self, phase: Phase, out: &mut Encoder) {
        out.number(phase.get().wrapping_sub(self.phase.get()));
    }

    /// An access that was accepted.
    fn access(
        &self,
        number: AccessNumber,
        session: Option<SessionId>,
        op: &Op,
        flags: u8,
        out: &mut Encoder,
    ) {
        if flags & C == 0 {
            out.number(number.get());
        }
        if flags & B != 0 {
            session.inspect(|session| out.number(session.get()));
        }
        out.op(op);
    }

    /// The answer to an access, and the phase that executed it.
    fn answer(&self, executed: Phase, answer: &Answer, flags: u8, out: &mut Encoder) {
        if flags & C == 0 {
            self.phase(executed, out);
        }
        match answer {
            Answer::Append(AppendAnswer::Success(position)) if flags & B == 0 => out.number(position.get()),
            Answer::Append(_) => {}
            Answer::Read(read) => {
                out.number(read.start.get());
                if flags & C == 0 {
                    out.number(read.length);
                }
                if flags & B == 0 {
                    out.number(read.count);
                }
            }
        }
    }

    fn offence(&self, offence: &Offence, out: &mut Encoder) {
        out.number(offence.process.get());
        out.byte(offence.kind as u8);
        offence.number.inspect(|number| out.number(number.get()));
        offence.phase.inspect(|at| out.number(at.get()));
        out.slice(offence.detail.as_bytes());
    }

    fn note(&mut self, event: &Event) {
        self.process = event.process();
        if let Event::Stepped { phase, length, .. } = event {
            (self.phase, self.length) = (*phase, *length);
        }
    }
}

/// Decodes events in the order in which they were encoded.
#[derive(Debug)]
pub(super) struct EventDecoder<'a> {
    bytes: Decoder<'a>,
    before: DeltaState,
}

impl<'a> EventDecoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: Decoder::new(bytes), before: DeltaState::default() }
    }

    /// The bytes behind the events that were read: the trailer that was written with the same [`Encoder`].
    pub(super) fn into_rest(self) -> Decoder<'a> {
        self.bytes
    }

    /// The next event; `None` if there is none.
    pub(super) fn read(&mut self) -> Option<Recorded> {
        let head = self.bytes.byte()?;
        if head & LATER != 0 {
            let nanos = self.before.at.as_nanos().wrapping_add(self.bytes.number()?);
            self.before.at = Time::from_nanos(nanos);
        }
        let event = self.event(head)?;
        self.before.note(&event);
        Some(Recorded { at: self.before.at, event })
    }

    fn phase(&mut self) -> Option<Phase> {
        Phase::new(self.before.phase.get().wrapping_add(self.bytes.number()?))
    }

    fn event(&mut self, head: u8) -> Option<Event> {
        let has = |flag: u8| head & flag != 0;
        if head & kind::MASK == kind::SESSION {
            return self.session(head);
        }
        let process = match head & kind::MASK {
            kind::GATHERING_ENDED => return Some(Event::GatheringEnded { joined: self.bytes.small()? }),
            kind::STEPPED => {
                let (phase, warp, length) = (self.phase()?, self.bytes.warp()?, self.bytes.small()?);
                return Some(Event::Stepped { phase, warp, length });
            }
            kind::SEALED => {
                return Some(Event::Sealed { phase: self.phase()?, length: self.bytes.small()? });
            }
            kind::ENDED if has(A) => return Some(Event::Closed),
            kind::ENDED if has(B) => {
                return Some(Event::Restarted { rejoin: Duration::from_nanos(self.bytes.number()?) });
            }
            kind::ENDED => return Some(Event::Finished),
            _ => self.bytes.process()?,
        };
        Some(match head & kind::MASK {
            kind::JOINED => Event::Joined { process },
            kind::ACCEPTED_APPEND | kind::ACCEPTED_READ => return self.accepted(head, process),
            kind::REFUSED => {
                let number = if has(A) { Some(self.bytes.access_number()?) } else { None };
                Event::Refused { process, number, why: self.bytes.text()?.to_owned() }
            }
            kind::PATIENCE_SPENT if has(A) => Event::Rejoined { process },
            kind::PATIENCE_SPENT => Event::PatienceSpent { process },
            kind::ADDED => {
                let (phase, position) = match has(C) {
                    true => (self.before.phase, Position::new(self.before.length)),
                    false => (self.phase()?, self.bytes.position()?),
                };
                Event::Added { position, process, phase, value: self.bytes.value()? }
            }
            kind::ANSWERED_APPEND | kind::ANSWERED_READ => {
                let number = self.bytes.access_number()?;
                let phase = if has(C) { self.before.phase } else { self.phase()? };
                Event::Answered { process, number, phase, answer: self.answer(head)? }
            }
            kind::DECIDED => Event::Decided { process, value: self.bytes.value()? },
            kind::WITHDRAWN => Event::Withdrawn { process, number: self.bytes.access_number()? },
            _ => {
                let kind = *OffenceKind::ALL.get(usize::from(self.bytes.byte()?))?;
                let number = if has(A) { Some(self.bytes.access_number()?) } else { None };
                let phase = if has(B) { Some(self.bytes.phase()?) } else { None };
                let detail = self.bytes.text()?.to_owned();
                Event::Offence(Offence { process, kind, number, phase, detail })
            }
        })
    }

    fn session(&mut self, head: u8) -> Option<Event> {
        let process = if head & A != 0 { self.before.process? } else { self.bytes.process()? };
        let session = if head & B != 0 { SessionId::FIRST } else { self.bytes.session()? };
        let incarnation = if head & C != 0 { 0 } else { self.bytes.number()? };
        Some(Event::Session { process, session, incarnation })
    }

    fn accepted(&mut self, head: u8, process: ProcessId) -> Option<Event> {
        let number = if head & C != 0 { AccessNumber::FIRST } else { self.bytes.access_number()? };
        let session = match head {
            _ if head & A != 0 => Some(SessionId::FIRST),
            _ if head & B != 0 => Some(self.bytes.session()?),
            _ => None,
        };
        let op = match head & kind::MASK {
            kind::ACCEPTED_APPEND => Op::Append(self.bytes.value()?),
            _ => Op::Read { start: self.bytes.position()? },
        };
        Some(Event::Accepted { process, number, session, op })
    }

    fn answer(&mut self, head: u8) -> Option<Answer> {
        let has = |flag: u8| head & flag != 0;
        if head & kind::MASK == kind::ANSWERED_APPEND {
            return Some(Answer::Append(match (has(A), has(B)) {
                (false, false) => AppendAnswer::Failed,
                (true, true) => AppendAnswer::Success(Position::new(self.before.length)),
                (true, false) => AppendAnswer::Success(self.bytes.position()?),
                (false, true) => AppendAnswer::LimitReached,
            }));
        }
        let start = self.bytes.position()?;
        let length = if has(C) { self.before.length } else { self.bytes.small()? };
        let count = if has(B) { length.checked_sub(start.get())? } else { self.bytes.small()? };
        Some(Answer::Read(ReadAnswer { start, count, length, sealed: has(A) }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use stickycas_model::types::{Value, WarpId};

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
