//! The commit point: a step of an instance is shown and told to nobody before it is committed.
//!
//! An instance hands every step to the [`CommitLog`] under its own lock, in the order in which its machine
//! took them, and keeps the step's effects until the log says that the step is committed. Then the effects
//! leave, in that same order: the events go into the [event log](crate::event_log), and after that the
//! deliveries go to sessions, waiting calls and watchers.
//!
//! [`MemoryLog`] commits at once: it keeps nothing, and the instances are gone with the process (SPEC F11
//! makes that a definite answer for every client). [`DurableLog`] commits when the inputs are on disk. A log
//! that several servers share may refuse, because another server owns the instance by now. These answer
//! [`Submission::Later`] and resolve the step afterwards; neither concerns machine, service or outbox.
//!
//! A server has a log for each shard that it owns ([`Logs`]); one that is no part of a cluster has one shard.
//! Its logs share one [`LogState`].
//!
//! The log has the inputs and not the events: a machine is deterministic, so [recovery](crate::instances)
//! replays them.

mod access;
mod data_dir;
mod durable;
pub(crate) mod engine;
mod held_phases;
mod logs;
mod served_clock;

use std::fmt;
use std::sync::Arc;

use stickycas_model::history::Event;
use stickycas_model::types::Time;
use stickycas_proto::log::v1::Record;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use tokio::sync::oneshot;

use crate::gate::Confirmation;
use crate::quota::LogBytes;

pub(crate) use data_dir::{DataDir, DataDirError, log_bytes};
#[cfg(feature = "cluster")]
pub(crate) use durable::expired;
pub(crate) use durable::{Dirty, DurableLog};
pub use engine::EngineError;
pub(crate) use held_phases::{HeldPhase, HeldPhases};
pub(crate) use logs::{LogState, Logs};
pub(crate) use served_clock::ServedClock;

/// The version of the rules by which machines take inputs and checkpoints are made. A log of a later version
/// may not be replayed. Version 2 has archives in checkpoints, and is as version 1 otherwise.
pub(crate) const RULES: u32 = 2;

/// The log that commits the steps of all instances of a shard. See the module.
pub(crate) trait CommitLog: fmt::Debug + Send + Sync {
    /// Whether the log keeps the inputs of steps; else [`Step::record`] is never looked at.
    fn keeps_inputs(&self) -> bool;

    /// Takes the next step of an instance. The steps of one instance are committed in the order of these
    /// calls; the caller holds the lock of the instance.
    fn submit(&self, step: Step<'_>) -> Submission;

    /// Sets the function that resolves steps for which [`CommitLog::submit`] answered [`Submission::Later`].
    /// The log calls it from outside `submit`, in the order of the steps; one call may resolve several steps.
    /// Called once, before the first step.
    fn on_commit(&self, resolve: OnCommit);

    /// So many bytes of effects wait for this place beside those of the steps that stand there, since their
    /// inputs are not logged. They count as uncommitted until the effects have left.
    fn hold(&self, _place: LogIndex, _bytes: usize) {}

    /// The reason for which nothing of the shard may be told any more; `None` while the log works.
    fn failure(&self) -> Option<&RpcRefusal> {
        None
    }

    /// The state that the logs of the server share, the same at each call.
    fn state(&self) -> &Arc<LogState>;

    /// The server owns the shard no more: nothing is written from now on, and steps that wait for their
    /// commit are refused for this reason.
    fn depose(&self, _why: &RpcRefusal) {}

    /// Bytes that wait: records and checkpoints that are not committed, refusals that wait for them, and
    /// effects that have not left, also if they are committed.
    fn uncommitted_bytes(&self) -> usize {
        0
    }

    /// Resolves when everything that was written so far is committed, or the log has failed; `None` if it is.
    /// Instances may be resolved later. So many bytes wait for that, beside those of the steps.
    fn barrier(&self, _bytes: usize) -> Option<oneshot::Receiver<()>> {
        None
    }

    /// These bytes wait until everything is committed that was written so far.
    fn charge(&self, _bytes: LogBytes) {}

    /// Begins to confirm that this server owns the shard, before something is told without a transaction: see
    /// [`Confirmation`]. `None`: nobody else can own it.
    fn confirm(&self) -> Option<Confirmation> {
        None
    }

    /// Whether another server may own the shard.
    fn is_shared(&self) -> bool {
        false
    }

    /// The counter of instances that hold a phase open, or gather; `None`: the log does not tell the time.
    fn held_phases(&self) -> Option<&Arc<HeldPhases>> {
        None
    }

    /// Bytes of the largest record that it takes; `None`: any that a Create can bring.
    fn largest_record(&self) -> Option<usize> {
        None
    }
}

/// Commits every step at once, and keeps nothing of it: the instances are the only copy.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    state: Arc<LogState>,
}

impl MemoryLog {
    /// The log of a shard, with this state, which the logs of its server share.
    #[cfg(test)]
    pub(crate) fn with_state(state: Arc<LogState>) -> Self {
        Self { state }
    }
}

impl CommitLog for MemoryLog {
    fn keeps_inputs(&self) -> bool {
        false
    }

    fn submit(&self, _: Step<'_>) -> Submission {
        Submission::Committed
    }

    fn on_commit(&self, _: OnCommit) {}

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }
}

/// The bounds of one batch; a larger one is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Bytes of its records, and of its checkpoints. A record or checkpoint that is larger stands alone.
    pub(crate) bytes: usize,
    /// Checkpoints and names together.
    pub(crate) changes: usize,
}

impl BatchLimits {
    pub(crate) const NONE: Self = Self { bytes: usize::MAX, changes: usize::MAX };
}

/// One step of one instance.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// The instance.
    pub(crate) instance: InstanceId,
    /// Its name, which a log that several servers share claims with its creation and releases at its end.
    pub(crate) name: Option<&'a InstanceName>,
    /// The place of the instance's step before this one.
    pub(crate) last: LogIndex,
    /// The time of the instance at which its machine took the step.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests look at it; the record has it too"))]
    pub(crate) at: Time,
    /// The events of the step, in order.
    pub(crate) events: &'a [Event],
    /// The input, if the log keeps inputs.
    pub(crate) record: Option<&'a Record>,
}

/// The place of a step in the log: the number of its batch, from 1. The committed steps are a prefix of the
/// log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogIndex(u64);

impl LogIndex {
    /// Before everything that is logged.
    pub(crate) const START: Self = Self(0);
    /// Behind everything that is logged.
    pub(crate) const END: Self = Self(u64::MAX);

    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The answer of a log to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submission {
    /// The step is committed, and so are all steps of the instance before it.
    Committed,
    /// The step has this place and will be resolved later.
    Later(LogIndex),
}

/// The outcome of steps that were not committed at once.
#[derive(Clone, Debug)]
pub(crate) enum CommitOutcome {
    /// All steps of the instance up to this place are committed.
    Committed(LogIndex),
    /// No step that is not committed yet will be, and the instance is lost to this server; the refusal tells
    /// the callers why.
    Refused(Box<RpcRefusal>),
}

/// Resolves steps of an instance.
pub(crate) type OnCommit = Box<dyn Fn(InstanceId, CommitOutcome) + Send + Sync>;
