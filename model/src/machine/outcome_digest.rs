//! A digest of what inputs led to, by which a replay is compared with what was told.
//!
//! A server that replays its log must come to the same events as before: clients have been told of them. The
//! log holds digests of the outcome beside the inputs, so that a difference (a damaged log, another version
//! of the rules, a mistake of ours) is noticed instead of being told as a second, different history. It is no
//! protection against an adversary, who could compute a log with the same digests: whoever can write to the
//! log can forge it.
//!
//! # Pinned
//! The digest is the same on all platforms, in all versions and with all releases of Rust. FNV-1a over words
//! of 64 bits, folded after each word (`hash ^= hash >> 32`). For each input: its moment; twice the number of
//! its events, plus 1 if it was refused; then each event as the number of its kind and its fields, as
//! `OutcomeDigest::event` has them. An optional number is 0 if it is missing; an offence's kind is its place
//! in the closed list, from 1. Bytes and texts are their length and then words of eight bytes, little-endian,
//! the last one filled up with zeros. The tests have vectors. A kind of event keeps its number; a new one
//! gets a new number.

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::{Event, Offence};
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value};

/// The digest of an outcome. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeDigest(u64);

impl Default for OutcomeDigest {
    /// Of nothing.
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl OutcomeDigest {
    /// Goes on from a digest with this value.
    #[must_use]
    pub const fn from_value(value: u64) -> Self {
        Self(value)
    }

    /// The digest so far.
    #[must_use]
    pub const fn value(&self) -> u64 {
        self.0
    }

    /// Adds what an input led to at this moment.
    pub fn add(&mut self, at: Time, refused: bool, events: &[Event]) {
        self.word(at.as_nanos());
        self.word(u64::from(refused) | (events.len() as u64) << 1);
        events.iter().for_each(|event| self.event(event));
    }

    #[inline]
    fn word(&mut self, word: u64) {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        self.0 = (self.0 ^ word).wrapping_mul(PRIME);
        self.0 ^= self.0 >> 32;
    }

    fn words<const N: usize>(&mut self, words: [u64; N]) {
        words.into_iter().for_each(|word| self.word(word));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn value_of(&mut self, value: &Value) {
        self.bytes(value.as_bytes());
    }

    fn event(&mut self, event: &Event) {
        let process = |process: ProcessId| u64::from(process.get());
        let optional = |number: Option<AccessNumber>| number.map_or(0, AccessNumber::get);
        match event {
            Event::Joined { process: who } => self.words([1, process(*who)]),
            Event::Session { process: who, session, incarnation } => {
                self.words([2, process(*who), session.get().into(), *incarnation]);
            }
            Event::Accepted { process: who, number, session, op } => {
                let session = session.map_or(0, SessionId::get);
                self.words([3, process(*who), number.get(), session.into()]);
                self.op(op);
            }
            Event::Refused { process: who, number, why } => {
                self.words([4, process(*who), optional(*number)]);
                self.bytes(why.as_bytes());
            }
            Event::GatheringEnded { joined } => self.words([5, (*joined).into()]),
            Event::PatienceSpent { process: who } => self.words([6, process(*who)]),
            Event::Stepped { phase, warp, length } => {
                self.words([7, phase.get(), warp.get().into(), (*length).into()]);
            }
            Event::Added { position, process: who, phase, value } => {
                self.words([8, position.get().into(), process(*who), phase.get()]);
                self.value_of(value);
            }
            Event::Answered { process: who, number, phase, answer } => {
                self.words([9, process(*who), number.get(), phase.get()]);
                self.answer(answer);
            }
            Event::Sealed { phase, length } => self.words([10, phase.get(), (*length).into()]),
            Event::Decided { process: who, value } => {
                self.words([11, process(*who)]);
                self.value_of(value);
            }
            Event::Withdrawn { process: who, number } => self.words([12, process(*who), number.get()]),
            Event::Offence(Offence { process: who, kind, number, phase, detail }) => {
                let phase = phase.map_or(0, Phase::get);
                self.words([13, process(*who), *kind as u64 + 1, optional(*number), phase]);
                self.bytes(detail.as_bytes());
            }
            Event::Finished => self.word(14),
            Event::Closed => self.word(15),
            Event::Restarted { rejoin } => {
                self.words([16, u64::try_from(rejoin.as_nanos()).unwrap_or(u64::MAX)]);
            }
            Event::Rejoined { process: who } => self.words([17, process(*who)]),
        }
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Append(value) => {
                self.word(1);
                self.value_of(value);
            }
            Op::Read { start } => self.words([2, start.get().into()]),
        }
    }

    fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Append(AppendAnswer::Success(position)) => self.words([1, position.get().into()]),
            Answer::Append(AppendAnswer::Failed) => self.word(2),
            Answer::Append(AppendAnswer::LimitReached) => self.word(3),
            Answer::Read(ReadAnswer { start, count, length, sealed }) => {
                let [start, count, length] = [start.get(), *count, *length].map(u64::from);
                self.words([4, start, count, length, (*sealed).into()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::OffenceKind;
    use crate::types::{Position, WarpId};

    fn id(process: u32) -> ProcessId {
        ProcessId::new(process).unwrap()
    }

    fn number(number: u64) -> AccessNumber {
        AccessNumber::new(number).unwrap()
    }

    fn phase(phase: u64) -> Phase {
        Phase::new(phase).unwrap()
    }

    fn value(text: &str) -> Value {
        Value::parse(text).unwrap()
    }

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn inputs() -> [Event; 6] {
        let session = SessionId::new(1);
        let (process, append) = (id(1), Op::Append(value("apple pie")));
        let read = Op::Read { start: Position::new(4) };
        let kind = OffenceKind::Oversized;
        let why = "why".to_owned();
        [
            Event::Joined { process },
            Event::Session { process, session: session.unwrap(), incarnation: 9 },
            Event::Accepted { process, number: number(1), session, op: append },
            Event::Accepted { process: id(2), number: number(1), session: None, op: read },
            Event::Refused { process: id(2), number: None, why },
            Event::Offence(Offence {
                process: id(2),
                kind,
                number: Some(number(5)),
                phase: None,
                detail: String::new(),
            }),
        ]
    }

    fn outcomes() -> [Event; 15] {
        let answered = |process, of, executed, answer| Event::Answered {
            process: id(process),
            number: number(of),
            phase: phase(executed),
            answer,
        };
        let read = ReadAnswer { start: Position::new(0), count: 1, length: 1, sealed: true };
        let (position, process) = (Position::new(0), id(1));
        [
            Event::GatheringEnded { joined: 2 },
            Event::PatienceSpent { process: id(3) },
            Event::Stepped { phase: phase(1), warp: WarpId::FIRST, length: 0 },
            Event::Added { position, process, phase: phase(1), value: value("a") },
            answered(1, 1, 1, Answer::Append(AppendAnswer::Success(position))),
            answered(2, 1, 1, Answer::Append(AppendAnswer::Failed)),
            answered(3, 1, 1, Answer::Append(AppendAnswer::LimitReached)),
            answered(2, 2, 3, Answer::Read(read)),
            Event::Sealed { phase: phase(3), length: 1 },
            Event::Decided { process, value: value("a") },
            Event::Withdrawn { process: id(2), number: number(4) },
            Event::Finished,
            Event::Closed,
            Event::Restarted { rejoin: Duration::from_secs(5) },
            Event::Rejoined { process: id(2) },
        ]
    }

    /// Computed by another program, from the words of the module.
    #[test]
    fn the_digest_is_pinned_for_every_kind_of_event() {
        let mut digest = OutcomeDigest::default();
        digest.add(at(0), false, &[]);
        assert_eq!(digest.value(), 0x6885_3b6a_3912_cca3);
        let mut digest = OutcomeDigest::default();
        digest.add(at(7), false, &inputs()[..4]);
        assert_eq!(digest.value(), 0xc7d3_1105_ac9b_8fe3);
        digest.add(at(8), true, &inputs()[4..]);
        assert_eq!(digest.value(), 0xcb1a_cce4_4d31_7f6b);
        digest.add(at(9), false, &outcomes());
        assert_eq!(digest.value(), 0x4b7e_2129_14ca_0287);
        assert_eq!(OutcomeDigest::from_value(digest.value()), digest);
    }

    #[test]
    fn each_event_and_each_input_counts() {
        let all = inputs().into_iter().chain(outcomes());
        let of = |at, refused, events: &[Event]| {
            let mut digest = OutcomeDigest::default();
            digest.add(at, refused, events);
            digest.value()
        };
        let mut digests: Vec<u64> = all.map(|event| of(at(1), false, &[event])).collect();
        digests.extend([of(at(1), true, &[]), of(at(1), false, &[]), of(at(2), false, &[])]);
        let count = digests.len();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }
}
