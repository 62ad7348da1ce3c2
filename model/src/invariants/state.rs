//! The state of the check, as it follows from the events so far, and how it takes in one event after another:
//! each goes to the rules of its kind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::access::Op;
use crate::history::{Event, Recorded};
use crate::params::{Arbiter, Params};
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule, ScriptedSchedule};
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value, WarpId};

use super::phase_oracle::PhaseOracle;

/// A streaming check of one instance's history. See the module.
///
/// After the first [`BrokenRule`](super::BrokenRule) its state is undefined: its findings on later events
/// mean nothing.
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
    observed: usize,
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
    /// An append of it won (K1).
    pub(super) won: bool,
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
        let schedule = ScriptedSchedule::new(&params);
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

/// The restarts so far, and the last one's time to reconnect.
#[derive(Clone, Debug, Default)]
pub(super) struct RejoinState {
    /// Processes that have not been heard of since the last restart and are awaited.
    pub(super) away: u32,
    /// From when to when the last restart keeps patience from draining, if they stay away.
    pub(super) since: Time,
    pub(super) until: Time,
    /// For how long no patience drained because of restarts that are over.
    pub(super) spared: Duration,
    /// No event but the patience that the restart found spent has come since the restart.
    pub(super) just_now: bool,
}

impl RejoinState {
    /// When the time to reconnect ends, if processes are away.
    pub(super) fn until(&self) -> Option<Time> {
        (self.away > 0).then_some(self.until)
    }

    /// For how long no patience has drained up to `at`.
    pub(super) fn spared_until(&self, at: Time) -> Duration {
        let last = if self.away > 0 { at.min(self.until).since(self.since) } else { Duration::ZERO };
        self.spared + last
    }

    /// The last one is over: a new one begins, or nobody is away any more.
    pub(super) fn end(&mut self, at: Time) {
        self.spared = self.spared_until(at);
        self.away = 0;
    }

    /// Phases may open now: before, there was no patience to drain.
    pub(super) fn gathering_ended(&mut self, at: Time) {
        self.since = self.since.max(at);
        self.spared = Duration::ZERO;
    }
}

/// A rule that a history breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} broken by event {index}: {what}")]
pub struct BrokenRule {
    /// Its id in SPEC.
    pub rule: &'static str,
    /// The fault, in words.
    pub what: String,
    /// The index of the event that shows it, from 0; the number of events if the end of the history shows it.
    pub index: usize,
}

/// A broken rule, before the event is known that shows it.
#[derive(Debug)]
pub(super) struct RuleFault {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

pub(super) type CheckResult = Result<(), RuleFault>;

/// The fault of this rule, unless the condition holds.
pub(super) fn ensure(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { fault(rule, what()) }
}

/// The fault of this rule.
pub(super) fn fault(rule: &'static str, what: String) -> CheckResult {
    Err(RuleFault { rule, what })
}

impl<S: PhaseOrder> Invariants<S> {
    /// Takes in the next event of the history.
    ///
    /// # Errors
    /// The rule that it breaks, or that earlier events left unfulfilled.
    pub fn observe(&mut self, recorded: &Recorded) -> Result<(), BrokenRule> {
        let index = self.observed;
        self.observed += 1;
        self.take_in(recorded.at, &recorded.event).map_err(|RuleFault { rule, what }| BrokenRule {
            rule,
            what,
            index,
        })
    }

    /// Takes in that the history ends here, without a gap.
    ///
    /// # Errors
    /// The rule that is left unfulfilled.
    pub fn finish(&mut self) -> Result<(), BrokenRule> {
        let index = self.observed;
        self.end().map_err(|RuleFault { rule, what }| BrokenRule { rule, what, index })
    }

    fn take_in(&mut self, at: Time, event: &Event) -> CheckResult {
        use Event::{Accepted, Decided, PatienceSpent, Rejoined, Session};
        self.settle_before(event)?;
        if !matches!(event, PatienceSpent { .. }) {
            self.go_on_after_restart();
        }
        self.take_in_kind(at, event)?;
        if let &(Session { process, .. }
        | Accepted { process, .. }
        | Decided { process, .. }
        | PatienceSpent { process }
        | Rejoined { process }) = event
        {
            self.heard_of(at, process);
        }
        Ok(())
    }

    fn take_in_kind(&mut self, at: Time, event: &Event) -> CheckResult {
        use Event::{Accepted, Added, Answered, Closed, Decided, Finished, GatheringEnded, Joined};
        use Event::{
            Offence, PatienceSpent, Refused, Rejoined, Restarted, Sealed, Session, Stepped, Withdrawn,
        };
        match event {
            &Joined { process } => self.joined(at, process),
            &Session { process, session, .. } => self.session(process, session),
            &Accepted { process, number, session, ref op } => self.accepted(at, process, number, session, op),
            &GatheringEnded { joined } => self.gathering_ended(at, joined),
            &PatienceSpent { process } => self.patience_spent(at, process),
            &Stepped { phase, warp, length } => self.stepped(at, phase, warp, length),
            &Added { position, process, phase, ref value } => self.added(position, process, phase, value),
            &Answered { process, number, phase, answer } => self.answered(process, number, phase, answer),
            &Sealed { phase, length } => self.sealed(phase, length),
            &Decided { process, .. } => self.decided(process),
            &Withdrawn { process, number } => self.withdrawn(process, number),
            &Refused { process, .. } => self.known(process),
            Offence(offence) => self.known(offence.process),
            Finished => self.finished(),
            Closed => self.closed(),
            &Restarted { rejoin } => self.restarted(at, rejoin),
            &Rejoined { process } => self.rejoined(process),
        }
    }

    /// The consequences of earlier events are complete, unless this event is still one of them.
    fn settle_before(&mut self, event: &Event) -> CheckResult {
        use Event::{Added, Answered, Closed, Joined, Offence, Refused, Session, Withdrawn};
        if matches!(event, Offence(_) | Refused { .. }) {
            return Ok(());
        }
        if !matches!(event, Added { .. } | Answered { .. }) {
            self.end_step()?;
        }
        if !matches!(event, Withdrawn { .. }) {
            self.end_leaving()?;
            if *event != Closed {
                self.end_closing()?;
            }
            // Only now: the accesses of a process that leaves are withdrawn before any phase passes.
            if self.gathering.ended.is_some() && !self.closed && !self.finished {
                self.oracle.advance();
            }
        }
        let nothing_changes = matches!(event, Withdrawn { .. } | Session { .. } | Joined { .. });
        ensure(!self.closed || nothing_changes, "F10", || format!("after the close: {event:?}"))
    }

    fn end(&mut self) -> CheckResult {
        self.end_step()?;
        self.end_leaving()?;
        self.end_closing()?;
        let over = self.closed || self.finished;
        ensure(!over || self.oracle.ready() == 0, "F10", || {
            "the instance is over, and accesses were neither answered nor withdrawn".to_owned()
        })?;
        let all_left = self.left == self.params.processes();
        ensure(!all_left || self.finished, "F10", || {
            "every process left, and the instance did not finish".to_owned()
        })
    }
}
