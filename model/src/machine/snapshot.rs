//! A snapshot of the machine of an instance that has ended, in few bytes.
//!
//! Nothing waits at an ended instance and no phase opens any more (F10), so tallies, queues and patience are
//! not needed. A snapshot holds the list and, for each process, what it may still ask for: the answers that
//! are kept (F8b), its session (F8e), its decision, and the offences that it was accused of. Logs have
//! snapshots in checkpoints, so what was written once must be read for ever: a change of the encoding is a
//! new version of the log's rules.
//!
//! # Why not a replay
//! A replay of the recorded events would need no snapshot, and saves a fifth of the bytes, but takes 2 to 3
//! times as long at n = 8 and 32 and more at larger n (`cargo bench -p stickycas-model --bench machine --
//! --rebuild`). And the record is not enough: a server keeps a bounded number of events; refusals and
//! offences above their bounds are counted without an event; a refused access leaves a mark (F8d) that no
//! event shows.

use std::time::Duration;

use crate::compact_codec::{Decoder, Encoder};
use crate::history::{Offence, OffenceKind};
use crate::params::{Params, Patience};
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, SessionId, Time};

use super::checkpoint::{Checkpoint, KeptAnswer, MemberCheckpoint};
use super::offences::OffenceCount;
use super::queues::MAX_SESSIONS;
use super::{Entry, Machine, State};

// Flags of an instance.
const CLOSED: u8 = 1;
const SEALED: u8 = 1 << 1;
const JOIN_DEADLINE: u8 = 1 << 2;
const OFFENCES: u8 = 1 << 3;
const REFUSALS: u8 = 1 << 4;

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

fn session_flag(session: Option<SessionId>) -> u8 {
    match session {
        None => 0,
        Some(SessionId::FIRST) => FIRST_SESSION,
        Some(_) => LATER_SESSION,
    }
}

/// See [`Machine::write_snapshot`].
pub(super) fn write<S: PhaseOrder>(machine: &Machine<S>, out: &mut Encoder) {
    debug_assert!(machine.state.has_ended(), "{:?} has not ended", machine.state);
    let Machine { state, join_deadline, phases, list, members, offences, .. } = machine;
    let sealed = list.sealed();
    out.byte(
        flag(*state == State::Closed, CLOSED)
            | flag(sealed.is_some(), SEALED)
            | flag(join_deadline.is_some(), JOIN_DEADLINE)
            | flag(!offences.counts.is_empty(), OFFENCES)
            | flag(!offences.refusals.is_empty(), REFUSALS),
    );
    if let Some(deadline) = join_deadline {
        out.number(deadline.as_nanos());
    }
    out.number(phases.phase().get());
    if let Some(sealed) = sealed {
        out.number(sealed.get());
    }
    out.number(list.len());
    for entry in list.iter() {
        out.value(&entry.value);
        out.number(entry.process.get());
        out.number(entry.phase.get());
    }
    for (process, _) in members.iter() {
        write_member(&members.checkpoint(process, true), out);
    }
    if !offences.counts.is_empty() {
        out.number(offences.counts.len() as u64);
        for OffenceCount { first, count } in offences.counts() {
            out.number(first.process.get());
            out.byte(first.kind as u8);
            out.number(*count);
            out.number(first.number.map_or(0, AccessNumber::get));
            out.number(first.phase.map_or(0, Phase::get));
            out.slice(first.detail.as_bytes());
        }
    }
    if !offences.refusals.is_empty() {
        out.number(offences.refusals.len() as u64);
        for (process, count) in &offences.refusals {
            out.number(process.get());
            out.number(*count);
        }
    }
}

/// The checkpoint of the machine of which the snapshot was written, but for the time; `None` if these bytes
/// are no snapshot with these parameters.
pub(super) fn read(params: &Params, bytes: &mut Decoder<'_>) -> Option<Checkpoint> {
    let flags = bytes.byte()?;
    let join_deadline = optional(flags & JOIN_DEADLINE, || bytes.time())?;
    let phase = bytes.phase()?;
    let sealed = optional(flags & SEALED, || bytes.phase())?;
    let entries = many(bytes.number()?, || {
        Some(Entry { value: bytes.value()?, process: bytes.process()?, phase: bytes.phase()? })
    })?;
    let members = many(params.processes().into(), || read_member(params, bytes))?;
    let offences = if flags & OFFENCES == 0 { 0 } else { bytes.number()? };
    let offences = many(offences, || read_offence(bytes))?;
    let refusals = if flags & REFUSALS == 0 { 0 } else { bytes.number()? };
    let refusals = many(refusals, || Some((bytes.process()?, bytes.number()?)))?;
    (entries.len() <= params.list_limit() as usize).then(|| Checkpoint {
        time: Time::ZERO,
        state: if flags & CLOSED == 0 { State::Finished } else { State::Closed },
        join_deadline,
        phase,
        open_since: None,
        last_step: None,
        sealed,
        accepted: 0,
        rejoin_until: None,
        entries,
        members,
        ready: Vec::new(),
        early_reports: Vec::new(),
        offences,
        refusals,
    })
}

/// Reads so many items, of which damaged bytes may promise any number.
fn many<T>(count: u64, mut read: impl FnMut() -> Option<T>) -> Option<Vec<T>> {
    const ALLOCATED: u64 = 4_096;
    let mut items = Vec::with_capacity(count.min(ALLOCATED) as usize);
    for _ in 0..count {
        items.push(read()?);
    }
    Some(items)
}

/// Reads what is there if the flag is set.
fn optional<T>(flag: u8, read: impl FnOnce() -> Option<T>) -> Option<Option<T>> {
    if flag == 0 { Some(None) } else { read().map(Some) }
}

fn read_offence(bytes: &mut Decoder<'_>) -> Option<OffenceCount> {
    let process = bytes.process()?;
    let kind = *OffenceKind::ALL.get(usize::from(bytes.byte()?))?;
    let count = bytes.number()?;
    let (number, phase) = (AccessNumber::new(bytes.number()?), Phase::new(bytes.number()?));
    let detail = bytes.text()?.to_owned();
    Some(OffenceCount { first: Offence { process, kind, number, phase, detail }, count })
}

fn write_member(member: &MemberCheckpoint, out: &mut Encoder) {
    out.byte(
        flag(member.joined, JOINED)
            | flag(member.spent, SPENT)
            | flag(member.refused, REFUSED)
            | flag(member.decision.is_some(), LEFT)
            | session_flag(member.session)
            | flag(member.append.is_some(), APPENDED)
            | flag(member.withdrawn > 0, WITHDRAWN),
    );
    out.number(member.next.get());
    write_later_session(member.session, out);
    if let Some(phase) = member.append {
        out.number(phase.get());
    }
    if member.withdrawn > 0 {
        out.number(member.withdrawn);
    }
    if let Some(decision) = &member.decision {
        out.value(decision);
    }
    member.answers.iter().for_each(|kept| write_kept(kept, out));
}

fn read_member(params: &Params, bytes: &mut Decoder<'_>) -> Option<MemberCheckpoint> {
    let flags = bytes.byte()?;
    let (next, session) = (bytes.access_number()?, read_session(flags, bytes)?);
    let append = optional(flags & APPENDED, || bytes.phase())?;
    let withdrawn = optional(flags & WITHDRAWN, || bytes.small()?.try_into().ok())?.unwrap_or(0);
    let decision = optional(flags & LEFT, || bytes.value())?;
    let executed = (next.get() - 1).checked_sub(withdrawn.into())?;
    let kept = executed.min(params.spec().pipeline.into());
    Some(MemberCheckpoint {
        next,
        patience: Patience::Finite(Duration::ZERO),
        joined: flags & JOINED != 0,
        spent: flags & SPENT != 0,
        refused: flags & REFUSED != 0,
        away: false,
        session,
        waiting: Vec::new(),
        answers: many(kept, || read_kept(bytes))?,
        append,
        first_append: None,
        decision,
        withdrawn,
    })
}

fn write_later_session(session: Option<SessionId>, out: &mut Encoder) {
    if let Some(session) = session.filter(|session| *session != SessionId::FIRST) {
        out.number(session.get());
    }
}

fn read_session(flags: u8, bytes: &mut Decoder<'_>) -> Option<Option<SessionId>> {
    if flags & FIRST_SESSION != 0 {
        return Some(Some(SessionId::FIRST));
    }
    let later = optional(flags & LATER_SESSION, || bytes.session())?;
    // A larger number is of no session that was opened.
    later.is_none_or(|session| session.get() <= MAX_SESSIONS).then_some(later)
}

fn write_kept(kept: &KeptAnswer, out: &mut Encoder) {
    out.byte(flag(kept.append, APPEND) | session_flag(kept.session));
    write_later_session(kept.session, out);
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

fn read_kept(bytes: &mut Decoder<'_>) -> Option<KeptAnswer> {
    let flags = bytes.byte()?;
    let (session, phase) = (read_session(flags, bytes)?, bytes.phase()?);
    let append = flags & APPEND != 0;
    let content = match bytes.number()? {
        start if !append => start.try_into().ok()?,
        0 => bytes.small()?,
        place => bytes.fingerprint_at(place - 1)?,
    };
    Some(KeptAnswer { phase, content, session, append })
}
