//! The commit point: a step of an instance is shown and told to nobody before it is committed.
//!
//! An instance hands every step to the [`CommitLog`] under its own lock, in the order in which its machine took them,
//! and keeps the step's effects until the log says that the step is committed. Then the effects leave, in that same
//! order: the events go into the [event log](crate::event_log), and after that the deliveries go to sessions, waiting
//! calls and watchers.
//!
//! [`MemoryLog`] commits at once: what it holds is gone with the process, and the instances with it (SPEC F11 makes
//! that a definite answer for every client). A durable log commits when the step is on disk; a log that several servers
//! share may refuse, because another server owns the instance by now. Both answer [`Append::Later`] and settle the step
//! afterwards; neither concerns machine, service or outbox.

mod memory;

use std::fmt;

use stickycas_model::history::Event;
use stickycas_model::types::Time;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;

pub(crate) use memory::MemoryLog;

/// Where the steps of all instances are committed. See the module.
pub(crate) trait CommitLog: fmt::Debug + Send + Sync {
    /// Takes the next step of an instance. The steps of one instance are committed in the order of these calls; the
    /// caller holds the lock of the instance.
    fn append(&self, step: Step<'_>) -> Append;

    /// Sets the function that settles steps for which [`CommitLog::append`] answered [`Append::Later`]. The log calls
    /// it from outside `append`, in the order of the steps; one call may settle several steps. Called once, before the
    /// first step.
    fn on_settled(&self, settle: Settle);
}

/// One step of one instance.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a log in memory keeps nothing of a step"))]
pub(crate) struct Step<'a> {
    /// The instance.
    pub(crate) instance: InstanceId,
    /// The number of the step: the steps of an instance are numbered from 0 on, without gaps.
    pub(crate) number: u64,
    /// The time of the instance at which its machine took the step.
    pub(crate) at: Time,
    /// What happened, in order.
    pub(crate) events: &'a [Event],
}

/// What a log answers to a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Append {
    /// The step is committed, and so are all steps of the instance before it.
    Committed,
    /// The step will be settled later.
    #[cfg_attr(not(test), expect(dead_code, reason = "a log in memory commits at once"))]
    Later,
}

/// How a step is settled that was not committed at once.
#[derive(Clone, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a log in memory commits at once"))]
pub(crate) enum Settled {
    /// The step with this number is committed, and so are all steps of the instance before it.
    Committed(u64),
    /// No step that is not committed yet will be, and the instance is lost to this server; the refusal tells the callers
    /// why.
    Refused(Box<RpcRefusal>),
}

/// Settles steps of an instance.
pub(crate) type Settle = Box<dyn Fn(InstanceId, Settled) + Send + Sync>;
