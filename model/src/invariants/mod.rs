//! The rules of SPEC as predicates over a history, each under its id.
//!
//! [`Invariants`] is told one event after another and says at the first one that breaks a rule which rule it
//! is and why. Tests of the machine, the simulation and the judge all use this one predicate.
//!
//! It is written from the rules and not from [`crate::machine`]: from what was accepted it works out for itself
//! who is awaited, what waits, which phase may come next, who wins it and what each access must be told. So a
//! mistake of the machine is not repeated here. It costs a constant number of operations per event, plus what
//! the [`CachedSchedule`](crate::scheduler::CachedSchedule) asks for a jump over dead warps.
//!
//! An event that is due by time alone is recorded when somebody notices, which may be later. So the time of such
//! an event says only that it was not before its due time; the time of an acceptance is exact.
//!
//! What is not checked here, because it takes the time between events to do so: that a step happens as soon
//! as it may (F3) and how much of a patience has drained. [`crate::sim`] compares a whole replay for that.

mod admission;
mod phase_oracle;
mod step;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::access::Op;
use crate::history::{Event, Recorded};
use crate::params::{Arbiter, Params};
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule, ScriptedSchedule};
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, WarpId};

use phase_oracle::PhaseOracle;
use step::Step;

/// A rule that a history breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} broken by event {index}: {what}")]
pub struct BrokenRule {
    /// Its id in SPEC.
    pub rule: &'static str,
    /// What happened and what should have.
    pub what: String,
    /// Which event shows it, from 0; the number of events if it is the end of the history that does.
    pub index: usize,
}

/// Checks a whole history. A history that is not complete may stop anywhere.
///
/// # Errors
/// The first rule broken.
pub fn check(params: &Arc<Params>, history: &[Recorded], complete: bool) -> Result<(), BrokenRule> {
    let mut invariants = Invariants::new(Arc::clone(params));
    history.iter().try_for_each(|recorded| invariants.observe(recorded))?;
    if complete { invariants.finish() } else { Ok(()) }
}

/// What a rule says is broken, before it is known by which event.
#[derive(Debug)]
struct Fault {
    rule: &'static str,
    what: String,
}

type Checked = Result<(), Fault>;

fn ensure(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Fault { rule, what: what() }) }
}

/// A streaming check of one instance's history. See the module.
///
/// After the first [`BrokenRule`] it knows no more what should be: what it says of later events means nothing.
#[derive(Clone, Debug)]
pub struct Invariants<S = CachedSchedule> {
    params: Arc<Params>,
    members: Vec<Member>,
    oracle: PhaseOracle<S>,
    /// Rank of each process under a `priority` arbiter (A4), else empty.
    ranks: Vec<u32>,
    gathering: Gathering,
    /// The step whose answers are being told.
    step: Option<Step>,
    /// The last step, and the earliest moment at which it can have been (F9).
    last_step: Option<(Phase, Time)>,
    /// Length of the list.
    length: u32,
    sealed: bool,
    /// Accesses accepted so far (A4, `first_come`).
    accepted: u64,
    left: u32,
    finished: bool,
    closed: bool,
    /// Who left with the last event; what waits of it must be withdrawn next (F10).
    leaver: Option<ProcessId>,
    /// An access withdrawn of a process that has not left: the close must follow (F10).
    closing: Option<(ProcessId, AccessNumber)>,
    observed: usize,
}

/// Gathering (F5).
#[derive(Clone, Debug, Default)]
struct Gathering {
    joined: u32,
    first_join: Option<Time>,
    /// The earliest moment at which it can have ended, once it has.
    ended: Option<Time>,
    /// Processes that had not joined when it ended and are still awaited.
    absent: u32,
}

/// What must be known of one process.
#[derive(Clone, Debug, Default)]
struct Member {
    joined: bool,
    /// Its patience is spent (F3).
    spent: bool,
    /// It decided (F10).
    left: bool,
    session: Option<SessionId>,
    /// Accesses accepted of it, which is the number of the last one (F8).
    accepted: u64,
    waiting: VecDeque<Waiting>,
    /// Whether it stands in its warp's queue.
    queued: bool,
    /// The access that the step executes and that is not answered yet.
    executing: Option<Waiting>,
    executed_in: Option<Phase>,
}

impl Member {
    fn is_awaited(&self) -> bool {
        !self.spent && !self.left
    }
}

/// An access that was accepted and not answered.
#[derive(Clone, Debug)]
struct Waiting {
    number: AccessNumber,
    op: Op,
    /// When it was accepted.
    at: Time,
    /// Its place in the order of acceptance over the whole instance.
    place: u64,
}

impl Invariants {
    /// Of an instance with these parameters, before anything has happened.
    #[must_use]
    pub fn new(params: Arc<Params>) -> Self {
        let schedule = CachedSchedule::new(Schedule::new(&params));
        Self::with_order(params, schedule)
    }
}

impl Invariants<ScriptedSchedule> {
    /// Of an instance in which [`Invariants::schedule_next`] says which warp comes next (see [`crate::explore`]).
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
            members: vec![Member::default(); params.processes() as usize],
            oracle: PhaseOracle::new(&params, schedule),
            ranks: ranks(&params),
            gathering: Gathering::default(),
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

    /// Takes in the next event of the history.
    ///
    /// # Errors
    /// The rule that it breaks, or that what came before it left unfulfilled.
    pub fn observe(&mut self, recorded: &Recorded) -> Result<(), BrokenRule> {
        let index = self.observed;
        self.observed += 1;
        self.take_in(recorded.at, &recorded.event).map_err(|Fault { rule, what }| BrokenRule {
            rule,
            what,
            index,
        })
    }

    /// Takes in that the history ends here and lacks nothing.
    ///
    /// # Errors
    /// The rule that is left unfulfilled.
    pub fn finish(&mut self) -> Result<(), BrokenRule> {
        let index = self.observed;
        self.end().map_err(|Fault { rule, what }| BrokenRule { rule, what, index })
    }

    fn take_in(&mut self, at: Time, event: &Event) -> Checked {
        use Event::{Accepted, Added, Answered, Closed, Decided, Finished, GatheringEnded, Joined};
        use Event::{Offence, PatienceSpent, Refused, Sealed, Session, Stepped, Withdrawn};
        self.settle_before(event)?;
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
        }
    }

    /// What earlier events call for has happened, unless this event is still part of it.
    fn settle_before(&mut self, event: &Event) -> Checked {
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
            // Only now: what leaves is withdrawn before any phase passes.
            if self.gathering.ended.is_some() && !self.closed && !self.finished {
                self.oracle.advance();
            }
        }
        let nothing_changes = matches!(event, Withdrawn { .. } | Session { .. } | Joined { .. });
        ensure(!self.closed || nothing_changes, "F10", || format!("after the close: {event:?}"))
    }

    fn end(&mut self) -> Checked {
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

    /// The process is one of the n.
    fn known(&self, process: ProcessId) -> Checked {
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
