//! A machine whose instance has ended, in few bytes: what it may still be asked for, and nothing of how phases go.
//!
//! Nothing waits at an ended instance and no phase opens any more (F10), so tallies, queues, patience and the
//! schedule's place are gone for good. What stays is the list, and of each process where it stands: its answers that
//! may be asked for again (F8b), its sessions (F8e), its decision, and what it was accused of.

use std::sync::Arc;

use super::member::{self, Kept, Member};
use super::{Entry, Machine, OffenceCount, State};
use crate::access::{Answer, AppendAnswer, ReadAnswer};
use crate::dense::{Reader, Writer};
use crate::history::{Offence, OffenceKind};
use crate::params::Params;
use crate::types::{AccessNumber, Phase, SessionId};

// Of a member.
const JOINED: u8 = 1;
const SPENT: u8 = 1 << 1;
const REFUSED_ON_STREAM: u8 = 1 << 2;
const DECIDED: u8 = 1 << 3;
const SESSION: u8 = 1 << 4;
/// The answer of its first append is the first one kept.
const APPEND_IS_KEPT: u8 = 1 << 5;
const APPEND: u8 = 1 << 6;
/// Its next access is the one behind the last that was executed.
const ALL_EXECUTED: u8 = 1 << 7;

// Of an answer that is kept. The lowest two bits say which; see `which`.
const KIND: u8 = 3;
const SEALED: u8 = 1 << 2;
/// A read got all that stood behind its start.
const WHOLE: u8 = 1 << 3;
const ON_SESSION: u8 = 1 << 4;
const ON_FIRST_SESSION: u8 = 1 << 5;

impl Machine {
    /// Writes it down. Its instance must have ended.
    pub fn pack(&self, out: &mut Writer) {
        debug_assert!(
            matches!(self.state, State::Finished | State::Closed),
            "{:?} has not ended",
            self.state
        );
        let deadline = self.join_deadline.map_or(0, |deadline| deadline.as_nanos().saturating_add(1));
        let flags = u8::from(self.state == State::Closed)
            | u8::from(self.sealed) << 1
            | u8::from(deadline > 0) << 2
            | u8::from(!self.offences.counts.is_empty()) << 3
            | u8::from(!self.offences.refusals.is_empty()) << 4;
        out.byte(flags);
        if deadline > 0 {
            out.number(deadline - 1);
        }
        out.number(self.phase.get());
        out.number(self.list.len());
        for entry in self.list.iter() {
            out.value(&entry.value);
            out.number(entry.process.get());
            out.number(entry.phase.get());
        }
        self.members.iter().for_each(|member| pack_member(member, out));
        self.pack_misbehaviour(out);
    }

    fn pack_misbehaviour(&self, out: &mut Writer) {
        if !self.offences.counts.is_empty() {
            out.number(self.offences.counts.len() as u64);
            for ((process, kind), OffenceCount { first, count }) in &self.offences.counts {
                out.number(process.get());
                out.byte(*kind as u8);
                out.number(*count);
                out.number(first.number.map_or(0, |number| number.get()));
                out.number(first.phase.map_or(0, |phase| phase.get()));
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
    pub fn unpack(params: Arc<Params>, packed: &mut Reader<'_>) -> Option<Self> {
        let mut machine = Self::new(params);
        let flags = packed.byte()?;
        machine.state = if flags & 1 == 0 { State::Finished } else { State::Closed };
        machine.sealed = flags & 1 << 1 != 0;
        if flags & 1 << 2 != 0 {
            machine.join_deadline = Some(packed.time()?);
        }
        let phase = packed.phase()?;
        machine.go_to(phase);
        for _ in 0..packed.number()? {
            let (value, process, phase) = (packed.value()?, packed.process()?, packed.phase()?);
            let AppendAnswer::Success(_) = machine.list.turn().append(Entry { value, process, phase }) else {
                return None;
            };
        }
        for member in &mut machine.members {
            unpack_member(member, packed)?;
            machine.joined += u32::from(member.joined);
            machine.left += u32::from(member.decided.is_some());
        }
        machine.unpack_misbehaviour(flags, packed)?;
        Some(machine)
    }

    fn unpack_misbehaviour(&mut self, flags: u8, packed: &mut Reader<'_>) -> Option<()> {
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
}

fn pack_member(member: &Member, out: &mut Writer) {
    let kept = member.kept.front().map(|kept| (kept.phase, kept.answer));
    let append = member.append.map(|(phase, answer)| (phase, Answer::Append(answer)));
    let append_is_kept = append.is_some() && append == kept;
    let all_executed = member.next.get() == member.answered + 1;
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.byte(
        flag(member.joined, JOINED)
            | flag(member.spent, SPENT)
            | flag(member.refused_on_stream, REFUSED_ON_STREAM)
            | flag(member.decided.is_some(), DECIDED)
            | flag(member.session.is_some(), SESSION)
            | flag(append_is_kept, APPEND_IS_KEPT)
            | flag(append.is_some() && !append_is_kept, APPEND)
            | flag(all_executed, ALL_EXECUTED),
    );
    out.number(member.answered);
    if !all_executed {
        out.number(member.next.get());
    }
    if let Some(session) = member.session {
        out.number(session.get());
    }
    if let Some(decided) = &member.decided {
        out.value(decided);
    }
    if let (Some((phase, answer)), false) = (member.append, append_is_kept) {
        out.number(phase.get());
        let (kind, position) = which(answer);
        out.byte(kind);
        position.inspect(|position| out.number(*position));
    }
    out.number(member.kept.len() as u64);
    member.kept.iter().for_each(|kept| pack_kept(kept, out));
}

fn unpack_member(member: &mut Member, packed: &mut Reader<'_>) -> Option<()> {
    let flags = packed.byte()?;
    let has = |flag: u8| flags & flag != 0;
    member.joined = has(JOINED);
    member.spent = has(SPENT);
    member.refused_on_stream = has(REFUSED_ON_STREAM);
    member.answered = packed.number()?;
    member.next = match has(ALL_EXECUTED) {
        true => AccessNumber::new(member.answered + 1)?,
        false => packed.access_number()?,
    };
    if has(SESSION) {
        member.session = Some(packed.session()?);
    }
    if has(DECIDED) {
        member.decided = Some(Box::new(packed.value()?));
    }
    if has(APPEND) {
        let phase = packed.phase()?;
        let kind = packed.byte()?;
        member.append = Some((phase, append_answer(kind, packed)?));
    }
    for _ in 0..packed.number()? {
        member.kept.push_back(unpack_kept(packed)?);
    }
    if has(APPEND_IS_KEPT)
        && let Some(Kept { phase, answer: Answer::Append(answer), .. }) = member.kept.front()
    {
        member.append = Some((*phase, *answer));
    }
    Some(())
}

/// The kind of an append's answer, and its position.
fn which(answer: AppendAnswer) -> (u8, Option<u32>) {
    match answer {
        AppendAnswer::Failed => (0, None),
        AppendAnswer::Success(position) => (1, Some(position.get())),
        AppendAnswer::LimitReached => (2, None),
    }
}

const READ: u8 = 3;

fn append_answer(kind: u8, packed: &mut Reader<'_>) -> Option<AppendAnswer> {
    match kind {
        0 => Some(AppendAnswer::Failed),
        1 => Some(AppendAnswer::Success(packed.position()?)),
        2 => Some(AppendAnswer::LimitReached),
        _ => None,
    }
}

fn pack_kept(kept: &Kept, out: &mut Writer) {
    let session = match kept.session {
        None => 0,
        Some(SessionId::FIRST) => ON_FIRST_SESSION,
        Some(_) => ON_SESSION,
    };
    match kept.answer {
        Answer::Append(answer) => {
            let (kind, position) = which(answer);
            out.byte(kind | session);
            position.inspect(|position| out.number(*position));
            // Most often it is the fingerprint of a value that the record has.
            match out.remembered().iter().position(|value| member::fingerprint(value) == kept.fingerprint) {
                Some(place) => out.number(place as u64 + 1),
                None => {
                    out.number(0_u64);
                    out.number(kept.fingerprint);
                }
            }
        }
        Answer::Read(ReadAnswer { start, count, length, sealed }) => {
            let whole = start.get().checked_add(count) == Some(length);
            let flags = if sealed { SEALED } else { 0 } | if whole { WHOLE } else { 0 };
            out.byte(READ | session | flags);
            out.number(start.get());
            out.number(length);
            if !whole {
                out.number(count);
            }
        }
    }
    out.number(kept.phase.get());
    if session == ON_SESSION {
        out.number(kept.session.map_or(0, SessionId::get));
    }
}

fn unpack_kept(packed: &mut Reader<'_>) -> Option<Kept> {
    let flags = packed.byte()?;
    let (answer, fingerprint) = match flags & KIND {
        READ => {
            let (start, length) = (packed.position()?, packed.small()?);
            let count = if flags & WHOLE == 0 { packed.small()? } else { length.checked_sub(start.get())? };
            (Answer::Read(ReadAnswer { start, count, length, sealed: flags & SEALED != 0 }), 0)
        }
        kind => {
            let answer = append_answer(kind, packed)?;
            let fingerprint = match packed.number()?.checked_sub(1) {
                Some(place) => member::fingerprint(packed.remembered(place)?),
                None => packed.small()?,
            };
            (Answer::Append(answer), fingerprint)
        }
    };
    let phase = packed.phase()?;
    let session = match flags {
        _ if flags & ON_FIRST_SESSION != 0 => Some(SessionId::FIRST),
        _ if flags & ON_SESSION != 0 => Some(packed.session()?),
        _ => None,
    };
    Some(Kept { phase, answer, session, fingerprint })
}
