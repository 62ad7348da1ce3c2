//! A checkpoint: all that a machine is, in any state, as plain data.
//!
//! From a checkpoint and the inputs that came after it a restarted server builds the machine anew. What
//! follows from the rest is not in it: tallies, the moment at which to look again for patience that is spent,
//! the cached order of warps. Of an instance that has ended, in which no phase opens any more (F10), nothing
//! is in it that only phases need. So two machines that answer the same from now on have the same checkpoint,
//! but for the time.
//!
//! [`Machine::from_checkpoint`](super::Machine::from_checkpoint) reads it back and trusts nothing in it.
//! Ended instances have a compact [snapshot](super::Machine::write_snapshot), in memory and in the log.

use crate::access::Op;
use crate::params::Patience;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value};

use super::answer_cache::CachedAnswer;
use super::offences::OffenceCount;
use super::queues::{OptionalSession, WaitingAccess};
use super::{Entry, Machine, State};

/// A machine, as data. See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The latest moment of an input.
    pub time: Time,
    /// The state of the instance (F10).
    pub state: State,
    /// When gathering ends, or would have ended if the instance had not ended before; set by the first join
    /// (F5).
    pub join_deadline: Option<Time>,
    /// The phase that is open, or the first that has not passed.
    pub phase: Phase,
    /// If that phase is open, from when on it costs missing members their patience: later than
    /// [`Checkpoint::time`] if members are away (F3).
    pub open_since: Option<Time>,
    /// The moment of the last step (F9).
    pub last_step: Option<Time>,
    /// The phase that was open or next when the list was sealed, once it is (A2).
    pub sealed: Option<Phase>,
    /// Accesses accepted so far: the order in which `first_come` arbitrates (A4).
    pub accepted: u64,
    /// While members are away since a restart: from when on patience drains all the same (F3).
    pub rejoin_until: Option<Time>,
    /// The list.
    pub entries: Vec<Entry>,
    /// The processes, in order.
    pub members: Vec<MemberCheckpoint>,
    /// The processes with an access waiting, warp by warp. Those of one warp are in the order in which a step
    /// executes them, which is that of its events.
    pub ready: Vec<ProcessId>,
    /// The processes that reported a decision which is compared when the list is sealed, in the order of
    /// their reports (D3).
    pub early_reports: Vec<ProcessId>,
    /// Offences, in the order of processes and kinds (B2).
    pub offences: Vec<OffenceCount>,
    /// How many inputs of a process were refused, in the order of processes, without those of which none was.
    pub refusals: Vec<(ProcessId, u64)>,
}

/// One process of a [`Checkpoint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberCheckpoint {
    /// The number of its next new access.
    pub next: AccessNumber,
    /// The rest of its patience (F3). Nothing if it is spent or the instance has ended.
    pub patience: Patience,
    /// Whether it has joined (F5).
    pub joined: bool,
    /// Whether its patience is spent (F3).
    pub spent: bool,
    /// Whether an access on its session was refused and none accepted since (F8d).
    pub refused: bool,
    /// Whether it is awaited and has not been heard of since a restart of the server (F3).
    pub away: bool,
    /// The session that counts.
    pub session: Option<SessionId>,
    /// The accesses that wait, in order; the numbers of them and of those that were withdrawn are the last
    /// ones before `next`.
    pub waiting: Vec<WaitingCheckpoint>,
    /// The answers that are kept, in order (F8b): those to the last accesses that were executed, as many as
    /// the pipeline is long, or all if they were fewer.
    pub answers: Vec<KeptAnswer>,
    /// The phase of its append: of the one that won, or else of its last (K2).
    pub append: Option<Phase>,
    /// The value of its first append, if another one is accepted that has to be the same (B2). None for q =
    /// 1.
    pub first_append: Option<Value>,
    /// Its decision, once it has left (F10).
    pub decision: Option<Value>,
    /// How many of its accesses were withdrawn (F10).
    pub withdrawn: u16,
}

/// An access that waits, of a [`Checkpoint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCheckpoint {
    /// The session on which it came, if any.
    pub session: Option<SessionId>,
    /// Its operation.
    pub op: Op,
    /// Of an append its place in the order of acceptance, from 0; of a read 0.
    pub accepted: u64,
}

/// An answer that is kept, of a [`Checkpoint`]. The answer itself follows from the list (F8b).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// The phase in which the access was executed.
    pub phase: Phase,
    /// The session on which it came, if any.
    pub session: Option<SessionId>,
    /// Whether it was an append.
    pub append: bool,
    /// The fingerprint of the value that was appended, or the position from which was read.
    pub content: u32,
}

impl Checkpoint {
    /// See [`Machine::checkpoint`].
    pub(super) fn of<S: PhaseOrder>(machine: &Machine<S>) -> Self {
        let ended = machine.state.has_ended();
        let members = &machine.members;
        // A member that left is still in the queue.
        let ready = machine.warps.all_queued().filter(|process| members[*process].waiting() > 0);
        Self {
            time: machine.now,
            state: machine.state,
            join_deadline: machine.join_deadline,
            phase: machine.phases.phase(),
            open_since: machine.open_phase.map(|open_phase| open_phase.since),
            last_step: machine.last_step.filter(|_| !ended),
            sealed: machine.list.sealed(),
            accepted: if ended { 0 } else { machine.accepted },
            rejoin_until: machine.rejoin.map(|rejoin| rejoin.until),
            entries: machine.list.iter().cloned().collect(),
            members: members.iter().map(|(process, _)| members.checkpoint(process, ended)).collect(),
            ready: ready.collect(),
            early_reports: if ended { Vec::new() } else { members.early_reports().to_vec() },
            offences: machine.offences.counts().cloned().collect(),
            refusals: machine.offences.refusals.iter().map(|(process, count)| (*process, *count)).collect(),
        }
    }
}

impl From<WaitingAccess> for WaitingCheckpoint {
    fn from(waiting: WaitingAccess) -> Self {
        let WaitingAccess { op, session, accepted } = waiting;
        let accepted = if matches!(op, Op::Append(_)) { accepted } else { 0 };
        Self { session: session.get(), op, accepted }
    }
}

impl From<CachedAnswer> for KeptAnswer {
    fn from(cached: CachedAnswer) -> Self {
        let CachedAnswer { phase, content, session, append } = cached;
        Self { phase, session: session.get(), append, content }
    }
}

impl From<KeptAnswer> for CachedAnswer {
    /// The session must be one that may be opened.
    fn from(kept: KeptAnswer) -> Self {
        let KeptAnswer { phase, session, append, content } = kept;
        Self { phase, content, session: OptionalSession::new(session), append }
    }
}
