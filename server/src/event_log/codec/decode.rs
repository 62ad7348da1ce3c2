//! The decoder: takes the events in the order in which they were encoded, for omitted values follow from
//! those before.

use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::compact_codec::Decoder;
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time};

use super::{A, B, C, DeltaState, LATER, kind};

/// Decodes events in the order in which they were encoded.
#[derive(Debug)]
pub(in super::super) struct EventDecoder<'a> {
    bytes: Decoder<'a>,
    before: DeltaState,
}

impl<'a> EventDecoder<'a> {
    pub(in super::super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: Decoder::new(bytes), before: DeltaState::default() }
    }

    /// The bytes behind the events that were read: the trailer that was written with the same [`Encoder`].
    pub(in super::super) fn into_rest(self) -> Decoder<'a> {
        self.bytes
    }

    /// The next event; `None` if there is none.
    pub(in super::super) fn read(&mut self) -> Option<Recorded> {
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
