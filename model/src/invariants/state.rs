//! The state of the check, as it follows from the events so far.

use std::collections::VecDeque;
use std::sync::Arc;

use super::fault::{CheckResult, ensure};
use super::phase_oracle::PhaseOracle;
use super::rejoin::RejoinState;
use crate::access::Op;
use crate::params::{Arbiter, Params};
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule, ScriptedSchedule};
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value, WarpId};

/// A streaming check of one instance's history. See the module.
///
/// After the first [`BrokenRule`](super::BrokenRule) its state is undefined: its findings on later events mean
/// nothing.
#[derive(Clone, Debug)]
pub struct Invariants<S = CachedSchedule> {
    pub(super) params: Arc<Params>,
    pub(super) members: Vec<MemberState>,
    pub(super) oracle: PhaseOracle<S>,
    /// Rank of each process under a `priority` arbiter (A4), else empty.
    pub(super) ranks: Vec<u32>,
    pub(super) gathering: Gathering,
    pub(super) rejoin: RejoinState,
    /// The step whose answers are being checked.
    pub(super) step: Option<ExecutedStep>,
    /// The last step, and the earliest moment at which it can have been (F9).
    pub(super) last_step: Option<(Phase, Time)>,
    /// Length of the list.
    pub(super) length: u32,
    pub(super) sealed: bool,
    /// Accesses accepted so far (A4, `first_come`).
    pub(super) accepted: u64,
    pub(super) left: u32,
    pub(super) finished: bool,
    pub(super) closed: bool,
    /// The process that left with the last event; its waiting accesses must be withdrawn next (F10).
    pub(super) leaver: Option<ProcessId>,
    /// An access withdrawn of a process that has not left: the close must follow (F10).
    pub(super) closing: Option<(ProcessId, AccessNumber)>,
    pub(super) observed: usize,
}

/// Gathering (F5).
#[derive(Clone, Debug, Default)]
pub(super) struct Gathering {
    pub(super) joined: u32,
    pub(super) first_join: Option<Time>,
    /// The earliest moment at which it can have ended, once it has.
    pub(super) ended: Option<Time>,
    /// Processes that had not joined when it ended and are still awaited.
    pub(super) absent: u32,
}

/// The state of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberState {
    pub(super) joined: bool,
    /// Its patience is spent (F3).
    pub(super) spent: bool,
    /// It decided (F10).
    pub(super) left: bool,
    /// It was awaited at the last restart and has not been heard of since (F3).
    pub(super) away: bool,
    pub(super) session: Option<SessionId>,
    /// Accesses accepted of it, which is the number of the last one (F8).
    pub(super) accepted: u64,
    pub(super) waiting: VecDeque<UnansweredAccess>,
    /// Whether it stands in its warp's queue.
    pub(super) queued: bool,
    /// The access that the step executes and that is not answered yet.
    pub(super) executing: Option<UnansweredAccess>,
    pub(super) executed_in: Option<Phase>,
}

impl MemberState {
    pub(super) fn is_awaited(&self) -> bool {
        !self.spent && !self.left
    }
}

/// An access that was accepted and not answered.
#[derive(Clone, Debug)]
pub(super) struct UnansweredAccess {
    pub(super) number: AccessNumber,
    pub(super) op: Op,
    /// When it was accepted.
    pub(super) at: Time,
    /// Its place in the order of acceptance over the whole instance.
    pub(super) place: u64,
}

/// A phase whose accesses are being answered.
#[derive(Clone, Debug)]
pub(super) struct ExecutedStep {
    pub(super) phase: Phase,
    /// Length of the list when it began.
    pub(super) length: u32,
    /// Whether appends of this phase count (A1, A2).
    pub(super) window: bool,
    /// The processes whose accesses it executes.
    pub(super) executed: Vec<ProcessId>,
    /// The process that must win, and its value (A4).
    pub(super) winner: Option<(ProcessId, Value)>,
    pub(super) added: bool,
    pub(super) unanswered: usize,
}

impl Invariants {
    /// A check of an instance with these parameters, before the first event.
    #[must_use]
    pub fn new(params: Arc<Params>) -> Self {
        let schedule = CachedSchedule::new(Schedule::new(&params));
        Self::with_order(params, schedule)
    }
}

impl Invariants<ScriptedSchedule> {
    /// A check of an instance in which [`Invariants::schedule_next`] says which warp comes next (see
    /// [`crate::explore`]).
    pub(crate) fn scripted(params: Arc<Params>) -> Self {
        let schedule = ScriptedSchedule::new(params.warps());
        Self::with_order(params, schedule)
    }

    /// Schedules this warp for the first phase that has none.
    pub(crate) fn schedule_next(&mut self, warp: WarpId) {
        self.oracle.schedule_mut().push(warp);
    }
}

impl<S: PhaseOrder> Invariants<S> {
    fn with_order(params: Arc<Params>, schedule: S) -> Self {
        Self {
            members: vec![MemberState::default(); params.processes() as usize],
            oracle: PhaseOracle::new(&params, schedule),
            ranks: ranks(&params),
            gathering: Gathering::default(),
            rejoin: RejoinState::default(),
            step: None,
            last_step: None,
            length: 0,
            sealed: false,
            accepted: 0,
            left: 0,
            finished: false,
            closed: false,
            leaver: None,
            closing: None,
            observed: 0,
            params,
        }
    }

    /// The process is one of the n.
    pub(super) fn known(&self, process: ProcessId) -> CheckResult {
        ensure(self.params.contains(process), "P1", || {
            format!("process {process} is none of the {}", self.params.processes())
        })
    }
}

/// Rank of each process under a `priority` arbiter: those named in their order, the others behind (A4).
fn ranks(params: &Params) -> Vec<u32> {
    let Arbiter::Priority(order) = &params.spec().arbiter else { return Vec::new() };
    let named = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let mut ranks: Vec<u32> = (0..params.processes()).map(|index| named.saturating_add(index)).collect();
    for (rank, process) in (0..).zip(order) {
        ranks[process.index()] = rank;
    }
    ranks
}
