//! The encoder: the head of an event says which values are omitted, and the body has the others.

use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer, Op};
use stickycas_model::compact_codec::Encoder;
use stickycas_model::history::{Event, Offence};
use stickycas_model::types::{AccessNumber, Phase, Position, SessionId, Time};

use super::{A, B, C, DeltaState, LATER, kind};

/// Encodes events, one after the other.
#[derive(Debug, Default)]
pub(in super::super) struct EventEncoder(DeltaState);

impl EventEncoder {
    pub(in super::super) fn write(&mut self, at: Time, event: &Event, out: &mut Encoder) {
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
    /// The kind of an event, and the flags for values that need not be encoded.
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
}

/// A duration in nanoseconds; five centuries at most.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}
