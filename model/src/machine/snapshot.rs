//! A snapshot of the machine of an instance that has ended, in few bytes.
//!
//! Nothing waits at an ended instance and no phase opens any more (F10), so tallies, queues and patience are not
//! needed. A snapshot holds the list and, for each process, what it may still ask for: the answers that are kept
//! (F8b), its session (F8e), its decision, and the offences that it was accused of.
//!
//! # Why not a replay
//! A replay of the recorded events would need no snapshot, and saves a fifth of the bytes, but takes 4 to 6 times as
//! long at n = 8 and 32 and more at larger n (`cargo bench -p stickycas-model --bench machine -- --rebuild`). And the
//! record is not enough: a server keeps a bounded number of events; refusals and offences above their bounds are
//! counted without an event; a refused access leaves a mark (F8d) that no event shows.

use std::sync::Arc;

use crate::access::AppendAnswer;
use crate::compact_codec::{Decoder, Encoder};
use crate::history::{Offence, OffenceKind};
use crate::params::Params;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId};

use super::answer_cache::CachedAnswer;
use super::offences::OffenceCount;
use super::queues::{MAX_SESSIONS, OptionalSession};
use super::state::{Entry, Machine, State};

// Flags of a member.
const JOINED: u8 = 1;
const SPENT: u8 = 1 << 1;
const REFUSED: u8 = 1 << 2;
const LEFT: u8 = 1 << 3;
const FIRST_SESSION: u8 = 1 << 4;
const LATER_SESSION: u8 = 1 << 5;
const APPENDED: u8 = 1 << 6;
const WITHDRAWN: u8 = 1 << 7;

// Flag of an answer that is kept, beside those of sessions.
const APPEND: u8 = 1;

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn session_flag(session: OptionalSession) -> u8 {
    match session.get() {
        None => 0,
        Some(SessionId::FIRST) => FIRST_SESSION,
        Some(_) => LATER_SESSION,
    }
}

impl Machine {
    /// Writes a snapshot of the machine. The instance must have ended.
    pub fn write_snapshot(&self, out: &mut Encoder) {
        debug_assert!(self.has_ended(), "{:?} has not ended", self.state);
        let deadline = self.join_deadline.map_or(0, |deadline| deadline.as_nanos().saturating_add(1));
        let flags = u8::from(self.state == State::Closed)
            | u8::from(self.sealed.is_some()) << 1
            | u8::from(deadline > 0) << 2
            | u8::from(!self.offences.counts.is_empty()) << 3
            | u8::from(!self.offences.refusals.is_empty()) << 4;
        out.byte(flags);
        if deadline > 0 {
            out.number(deadline - 1);
        }
        out.number(self.phase.get());
        if let Some(sealed) = self.sealed {
            out.number(sealed.get());
        }
        out.number(self.list.len());
        for entry in self.list.iter() {
            out.value(&entry.value);
            out.number(entry.process.get());
            out.number(entry.phase.get());
        }
        ProcessId::all(self.params.processes()).for_each(|process| self.write_member(process, out));
        self.write_misbehaviour(out);
    }

    fn write_misbehaviour(&self, out: &mut Encoder) {
        if !self.offences.counts.is_empty() {
            out.number(self.offences.counts.len() as u64);
            for ((process, kind), OffenceCount { first, count }) in &self.offences.counts {
                out.number(process.get());
                out.byte(*kind as u8);
                out.number(*count);
                out.number(first.number.map_or(0, AccessNumber::get));
                out.number(first.phase.map_or(0, Phase::get));
                out.slice(first.detail.as_bytes());
            }
        }
        if !self.offences.refusals.is_empty() {
            out.number(self.offences.refusals.len() as u64);
            for (process, count) in &self.offences.refusals {
                out.number(process.get());
                out.number(*count);
            }
        }
    }

    /// The machine of which the snapshot was written; `None` if these bytes are no snapshot with these parameters.
    #[must_use]
    pub fn from_snapshot(params: Arc<Params>, bytes: &mut Decoder<'_>) -> Option<Self> {
        let mut machine = Self::new(params);
        let flags = bytes.byte()?;
        machine.state = if flags & 1 == 0 { State::Finished } else { State::Closed };
        if flags & 1 << 2 != 0 {
            machine.join_deadline = Some(bytes.time()?);
        }
        let phase = bytes.phase()?;
        machine.go_to(phase);
        if flags & 1 << 1 != 0 {
            machine.sealed = Some(bytes.phase()?);
        }
        for _ in 0..bytes.number()? {
            let (value, process, phase) = (bytes.value()?, bytes.process()?, bytes.phase()?);
            let AppendAnswer::Success(_) = machine.list.turn().append(Entry { value, process, phase }) else {
                return None;
            };
        }
        for process in ProcessId::all(machine.params.processes()) {
            machine.read_member(process, bytes)?;
        }
        machine.read_misbehaviour(flags, bytes)?;
        Some(machine)
    }

    fn read_misbehaviour(&mut self, flags: u8, bytes: &mut Decoder<'_>) -> Option<()> {
        if flags & 1 << 3 != 0 {
            for _ in 0..bytes.number()? {
                let process = bytes.process()?;
                let kind = *OffenceKind::ALL.get(usize::from(bytes.byte()?))?;
                let count = bytes.number()?;
                let (number, phase) = (bytes.number()?, bytes.number()?);
                let first = Offence {
                    process,
                    kind,
                    number: AccessNumber::new(number),
                    phase: Phase::new(phase),
                    detail: bytes.text()?.to_owned(),
                };
                self.offences.counts.insert((process, kind), OffenceCount { first, count });
            }
        }
        if flags & 1 << 4 != 0 {
            for _ in 0..bytes.number()? {
                let (process, count) = (bytes.process()?, bytes.number()?);
                self.offences.refusals.insert(process, count);
            }
        }
        Some(())
    }

    fn write_member(&self, process: ProcessId, out: &mut Encoder) {
        let (member, cold) = (&self.members[process.index()], &self.cold_members[process.index()]);
        out.byte(
            flag(member.has_joined(), JOINED)
                | flag(member.is_spent(), SPENT)
                | flag(member.was_refused(), REFUSED)
                | flag(member.has_left(), LEFT)
                | session_flag(member.session)
                | flag(cold.append.is_some(), APPENDED)
                | flag(cold.withdrawn > 0, WITHDRAWN),
        );
        out.number(member.next.get());
        write_later_session(member.session, out);
        if let Some(phase) = cold.append {
            out.number(phase.get());
        }
        if cold.withdrawn > 0 {
            out.number(cold.withdrawn);
        }
        if let Some(decision) = self.decision(process) {
            out.value(decision);
        }
        let last = self.executed(process, member);
        for number in self.cached_numbers(last) {
            if let Some(cached) = self.answers.get(process, number, last) {
                write_cached(cached, out);
            }
        }
    }

    fn read_member(&mut self, process: ProcessId, bytes: &mut Decoder<'_>) -> Option<()> {
        let flags = bytes.byte()?;
        let (next, session) = (bytes.access_number()?, read_session(flags, bytes)?);
        let append = if flags & APPENDED != 0 { Some(bytes.phase()?) } else { None };
        let withdrawn = if flags & WITHDRAWN != 0 { bytes.small()?.try_into().ok()? } else { 0 };
        let member = &mut self.members[process.index()];
        (member.next, member.session) = (next, session);
        let cold = &mut self.cold_members[process.index()];
        (cold.append, cold.withdrawn) = (append, withdrawn);
        if flags & JOINED != 0 {
            member.join();
            self.joined += 1;
        }
        if flags & SPENT != 0 {
            member.give_up();
        }
        if flags & REFUSED != 0 {
            member.mark_refused();
        }
        if flags & LEFT != 0 {
            member.leave();
            cold.decision = u32::try_from(self.decisions.len()).ok()?;
            self.decisions.push(bytes.value()?);
        }
        let last = self.executed(process, &self.members[process.index()]);
        for number in self.cached_numbers(last) {
            self.answers.insert(process, number, read_cached(bytes)?);
        }
        Some(())
    }
}

fn write_later_session(session: OptionalSession, out: &mut Encoder) {
    if let Some(session) = session.get().filter(|session| *session != SessionId::FIRST) {
        out.number(session.get());
    }
}

fn read_session(flags: u8, bytes: &mut Decoder<'_>) -> Option<OptionalSession> {
    let session = match flags {
        _ if flags & FIRST_SESSION != 0 => Some(SessionId::FIRST),
        _ if flags & LATER_SESSION != 0 => Some(bytes.session()?),
        _ => None,
    };
    // A larger number is of no session that was opened.
    session.is_none_or(|session| session.get() <= MAX_SESSIONS).then(|| OptionalSession::new(session))
}

fn write_cached(cached: CachedAnswer, out: &mut Encoder) {
    out.byte(flag(cached.append, APPEND) | session_flag(cached.session));
    write_later_session(cached.session, out);
    out.number(cached.phase.get());
    if !cached.append {
        return out.number(cached.content);
    }
    // Most often it is the fingerprint of a value that the record has.
    match out.place_of(cached.content) {
        Some(place) => out.number(place + 1),
        None => {
            out.number(0_u64);
            out.number(cached.content);
        }
    }
}

fn read_cached(bytes: &mut Decoder<'_>) -> Option<CachedAnswer> {
    let flags = bytes.byte()?;
    let (session, phase) = (read_session(flags, bytes)?, bytes.phase()?);
    let append = flags & APPEND != 0;
    let content = match bytes.number()? {
        start if !append => start.try_into().ok()?,
        0 => bytes.small()?,
        place => bytes.fingerprint_at(place - 1)?,
    };
    Some(CachedAnswer { phase, content, session, append })
}
