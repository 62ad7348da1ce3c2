//! A machine whose instance has ended, in few bytes: what it may still be asked for, and nothing of how phases go.
//!
//! Nothing waits at an ended instance and no phase opens any more (F10), so tallies, queues, patience and the
//! schedule's place are gone for good. What stays is the list, and of each process where it stands: its answers that
//! may be asked for again (F8b), its sessions (F8e), its decision, and what it was accused of.

use std::sync::Arc;

use super::kept::Kept;
use super::member::Session;
use super::{Entry, Machine, OffenceCount, State};
use crate::access::AppendAnswer;
use crate::compact_codec::{Decoder, Encoder};
use crate::history::{Offence, OffenceKind};
use crate::params::Params;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId};

// Of a member.
const JOINED: u8 = 1;
const SPENT: u8 = 1 << 1;
const REFUSED: u8 = 1 << 2;
const LEFT: u8 = 1 << 3;
const FIRST_SESSION: u8 = 1 << 4;
const LATER_SESSION: u8 = 1 << 5;
const APPENDED: u8 = 1 << 6;
const WITHDRAWN: u8 = 1 << 7;

// Of an answer that is kept, beside those of sessions.
const APPEND: u8 = 1;

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn session_flag(session: Session) -> u8 {
    match session.get() {
        None => 0,
        Some(SessionId::FIRST) => FIRST_SESSION,
        Some(_) => LATER_SESSION,
    }
}

impl Machine {
    /// Writes it down. Its instance must have ended.
    pub fn write_snapshot(&self, out: &mut Encoder) {
        debug_assert!(
            matches!(self.state, State::Finished | State::Closed),
            "{:?} has not ended",
            self.state
        );
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
        ProcessId::all(self.params.processes()).for_each(|process| self.pack_member(process, out));
        self.pack_misbehaviour(out);
    }

    fn pack_misbehaviour(&self, out: &mut Encoder) {
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

    /// The machine that was written down; `None` if this is none with these parameters.
    #[must_use]
    pub fn from_snapshot(params: Arc<Params>, packed: &mut Decoder<'_>) -> Option<Self> {
        let mut machine = Self::new(params);
        let flags = packed.byte()?;
        machine.state = if flags & 1 == 0 { State::Finished } else { State::Closed };
        if flags & 1 << 2 != 0 {
            machine.join_deadline = Some(packed.time()?);
        }
        let phase = packed.phase()?;
        machine.go_to(phase);
        if flags & 1 << 1 != 0 {
            machine.sealed = Some(packed.phase()?);
        }
        for _ in 0..packed.number()? {
            let (value, process, phase) = (packed.value()?, packed.process()?, packed.phase()?);
            let AppendAnswer::Success(_) = machine.list.turn().append(Entry { value, process, phase }) else {
                return None;
            };
        }
        for process in ProcessId::all(machine.params.processes()) {
            machine.unpack_member(process, packed)?;
        }
        machine.unpack_misbehaviour(flags, packed)?;
        Some(machine)
    }

    fn unpack_misbehaviour(&mut self, flags: u8, packed: &mut Decoder<'_>) -> Option<()> {
        if flags & 1 << 3 != 0 {
            for _ in 0..packed.number()? {
                let process = packed.process()?;
                let kind = *OffenceKind::ALL.get(usize::from(packed.byte()?))?;
                let count = packed.number()?;
                let (number, phase) = (packed.number()?, packed.number()?);
                let first = Offence {
                    process,
                    kind,
                    number: AccessNumber::new(number),
                    phase: Phase::new(phase),
                    detail: packed.text()?.to_owned(),
                };
                self.offences.counts.insert((process, kind), OffenceCount { first, count });
            }
        }
        if flags & 1 << 4 != 0 {
            for _ in 0..packed.number()? {
                let (process, count) = (packed.process()?, packed.number()?);
                self.offences.refusals.insert(process, count);
            }
        }
        Some(())
    }

    fn pack_member(&self, process: ProcessId, out: &mut Encoder) {
        let (member, rare) = (&self.members[process.index()], &self.rare[process.index()]);
        out.byte(
            flag(member.has_joined(), JOINED)
                | flag(member.is_spent(), SPENT)
                | flag(member.was_refused(), REFUSED)
                | flag(member.has_left(), LEFT)
                | session_flag(member.session)
                | flag(rare.append.is_some(), APPENDED)
                | flag(rare.withdrawn > 0, WITHDRAWN),
        );
        out.number(member.next.get());
        pack_later_session(member.session, out);
        if let Some(phase) = rare.append {
            out.number(phase.get());
        }
        if rare.withdrawn > 0 {
            out.number(rare.withdrawn);
        }
        if let Some(decision) = self.decision(process) {
            out.value(decision);
        }
        let last = self.executed(process, member);
        for number in self.numbers_kept(last) {
            if let Some(kept) = self.answers.get(process, number, last) {
                pack_kept(kept, out);
            }
        }
    }

    fn unpack_member(&mut self, process: ProcessId, packed: &mut Decoder<'_>) -> Option<()> {
        let flags = packed.byte()?;
        let (next, session) = (packed.access_number()?, unpack_session(flags, packed)?);
        let append = if flags & APPENDED != 0 { Some(packed.phase()?) } else { None };
        let withdrawn = if flags & WITHDRAWN != 0 { packed.small()?.try_into().ok()? } else { 0 };
        let member = &mut self.members[process.index()];
        (member.next, member.session) = (next, session);
        let rare = &mut self.rare[process.index()];
        (rare.append, rare.withdrawn) = (append, withdrawn);
        if flags & JOINED != 0 {
            member.join();
            self.joined += 1;
        }
        if flags & SPENT != 0 {
            member.give_up();
        }
        if flags & REFUSED != 0 {
            member.note_refusal();
        }
        if flags & LEFT != 0 {
            member.leave();
            rare.decision = u32::try_from(self.decisions.len()).ok()?;
            self.decisions.push(packed.value()?);
        }
        let last = self.executed(process, &self.members[process.index()]);
        for number in self.numbers_kept(last) {
            self.answers.keep(process, number, unpack_kept(packed)?);
        }
        Some(())
    }

    /// The numbers of the answers that are kept of a process whose last executed access is `last`.
    fn numbers_kept(&self, last: u64) -> impl Iterator<Item = AccessNumber> + use<> {
        let first = last.saturating_sub(self.params.spec().pipeline.into()) + 1;
        (first..=last).filter_map(AccessNumber::new)
    }
}

fn pack_later_session(session: Session, out: &mut Encoder) {
    if let Some(session) = session.get().filter(|session| *session != SessionId::FIRST) {
        out.number(session.get());
    }
}

fn unpack_session(flags: u8, packed: &mut Decoder<'_>) -> Option<Session> {
    let session = match flags {
        _ if flags & FIRST_SESSION != 0 => Some(SessionId::FIRST),
        _ if flags & LATER_SESSION != 0 => Some(packed.session()?),
        _ => None,
    };
    // Whatever else stands there is none that was opened.
    session.is_none_or(|session| session.get() <= super::MAX_SESSIONS).then(|| Session::new(session))
}

fn pack_kept(kept: Kept, out: &mut Encoder) {
    out.byte(flag(kept.append, APPEND) | session_flag(kept.session));
    pack_later_session(kept.session, out);
    out.number(kept.phase.get());
    if !kept.append {
        return out.number(kept.content);
    }
    // Most often it is the fingerprint of a value that the record has.
    match out.place_of(kept.content) {
        Some(place) => out.number(place + 1),
        None => {
            out.number(0_u64);
            out.number(kept.content);
        }
    }
}

fn unpack_kept(packed: &mut Decoder<'_>) -> Option<Kept> {
    let flags = packed.byte()?;
    let (session, phase) = (unpack_session(flags, packed)?, packed.phase()?);
    let append = flags & APPEND != 0;
    let content = match packed.number()? {
        start if !append => start.try_into().ok()?,
        0 => packed.small()?,
        place => packed.fingerprint_at(place - 1)?,
    };
    Some(Kept { phase, content, session, append })
}
