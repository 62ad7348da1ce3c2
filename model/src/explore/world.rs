//! A state of the search: the real machine between two phases, with the real correct processes and the real
//! predicate over all that has happened.

use std::sync::Arc;

use super::setup::{ProcessKind, Space};
use super::steps::{Action, Transition};
use crate::access::{Access, Answer, Op};
use crate::history::{Event, Recorded};
use crate::invariants::Invariants;
use crate::machine::{Input, Machine};
use crate::process::{Act, Behaviour, Correct, View};
use crate::scheduler::ScriptedSchedule;
use crate::types::{AccessNumber, Position, ProcessId, Time, Value, WarpId};

/// A rule that a state breaks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RuleViolation {
    /// Its id in SPEC.
    pub rule: &'static str,
    /// What happened and what should have.
    pub what: String,
}

impl RuleViolation {
    pub(super) fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

/// What sits on the place of one process.
#[derive(Clone)]
pub(super) enum Slot {
    /// Its first phase has not come, so it makes no difference yet who it is.
    Empty,
    Byzantine {
        next: AccessNumber,
        spent: bool,
    },
    /// Shared between states until it acts.
    Correct(Arc<Actor>),
}

/// A correct process at play.
#[derive(Clone)]
pub(super) struct Actor {
    /// Index of the value that it proposes.
    pub(super) proposal: u8,
    behaviour: Correct,
    pub(super) view: View,
    /// What it does next.
    pub(super) next: Act,
    /// Its own phases, from the first on, in which it had nothing ready: D2's m. If any, it is late.
    pub(super) missed: u8,
}

impl Actor {
    fn new(ground: &Space, me: ProcessId, proposal: u8) -> Self {
        let mut behaviour = Correct::new(ground.values[usize::from(proposal)].clone());
        let view = View::new(me, Arc::clone(&ground.params));
        let next = behaviour.act(&view);
        Self { proposal, behaviour, view, next, missed: 0 }
    }

    /// Whether it has come to its end.
    pub(super) fn has_ended(&self) -> bool {
        self.decision().is_some() || self.next == Act::Silent
    }

    pub(super) fn decision(&self) -> Option<&Value> {
        match &self.next {
            Act::Decide(value) => Some(value),
            Act::Access { .. } | Act::Silent | Act::Crash => None,
        }
    }

    /// Whether it still has to append.
    pub(super) fn is_new(&self) -> bool {
        self.view.answered == 0
    }
}

/// What a warp has had of its phases.
#[derive(Clone, Copy, Default)]
pub(super) struct WarpProgress {
    pub(super) first: bool,
    pub(super) in_this_round: bool,
    /// It passed, and no phase has been executed since. Nothing passes while the instance is idle (F4), so somebody
    /// of another warp is waiting, and is next.
    pub(super) passed: bool,
}

/// A state. See the module.
#[derive(Clone)]
pub(super) struct SearchState {
    pub(super) machine: Machine<ScriptedSchedule>,
    invariants: Invariants<ScriptedSchedule>,
    pub(super) seats: Box<[Slot]>,
    pub(super) had: Box<[WarpProgress]>,
    /// Rounds that are over.
    pub(super) rounds: u32,
    /// Phases that were given.
    pub(super) phases: u64,
    now: Time,
}

impl SearchState {
    /// Everybody has joined, and no phase has come.
    pub(super) fn new(ground: &Space) -> Result<Self, RuleViolation> {
        let mut world = Self {
            machine: Machine::scripted(Arc::clone(&ground.params)),
            invariants: Invariants::scripted(Arc::clone(&ground.params)),
            seats: vec![Slot::Empty; ground.params.processes() as usize].into_boxed_slice(),
            had: vec![WarpProgress::default(); ground.warps.len()].into_boxed_slice(),
            rounds: 0,
            phases: 0,
            now: Time::ZERO,
        };
        for process in ProcessId::all(ground.params.processes()) {
            world.apply(Input::Hello { process, incarnation: 1 })?;
        }
        Ok(world)
    }

    /// One phase.
    pub(super) fn take(&mut self, ground: &Space, step: &Transition) -> Result<(), RuleViolation> {
        for &(process, role) in &step.seated {
            self.seats[process.index()] = match role {
                ProcessKind::Byzantine => Slot::Byzantine { next: AccessNumber::FIRST, spent: false },
                ProcessKind::Correct(proposal) => {
                    Slot::Correct(Arc::new(Actor::new(ground, process, proposal)))
                }
            };
        }
        self.book(ground, step);
        self.machine.schedule_next(step.warp);
        self.invariants.schedule_next(step.warp);
        for (process, doing) in &step.accesses {
            let access = self.access(ground, *process, *doing);
            self.apply(Input::Access(access))?;
        }
        self.let_the_phase_pass()?;
        for &(process, _) in &step.accesses {
            if let Slot::Correct(actor) = &self.seats[process.index()]
                && let Act::Decide(value) = &actor.next
            {
                let value = value.clone();
                self.apply(Input::Decide { process, value })?;
            }
        }
        Ok(())
    }

    /// Books the phase: whose it is, and who misses it.
    fn book(&mut self, ground: &Space, step: &Transition) {
        self.phases += 1;
        let passes = step.accesses.is_empty();
        if !passes {
            self.had.iter_mut().for_each(|had| had.passed = false);
        }
        self.had[step.warp.index()] = WarpProgress { first: true, in_this_round: true, passed: passes };
        if self.had.iter().all(|had| had.in_this_round) {
            self.had.iter_mut().for_each(|had| had.in_this_round = false);
            self.rounds += 1;
        }
        for process in ground.params.members(step.warp) {
            if let Slot::Correct(actor) = &mut self.seats[process.index()]
                && !actor.has_ended()
                && step.accesses.iter().all(|(present, _)| *present != process)
            {
                let actor = Arc::make_mut(actor);
                actor.missed = actor.missed.saturating_add(1);
            }
        }
    }

    fn access(&mut self, ground: &Space, process: ProcessId, doing: Action) -> Access {
        let access = |number, op| Access { process, session: None, number, op, no_wait: false };
        match (&mut self.seats[process.index()], doing) {
            (Slot::Byzantine { next, .. }, doing) => {
                let number = *next;
                *next = number.next();
                access(
                    number,
                    match doing {
                        Action::Append(value) => Op::Append(ground.values[usize::from(value)].clone()),
                        Action::Read | Action::Follow => Op::Read { start: Position::new(0) },
                    },
                )
            }
            (Slot::Correct(actor), _) => {
                let number = AccessNumber::new(actor.view.answered + 1).expect("one more is not zero");
                let Act::Access { op, .. } = actor.next.clone() else {
                    unreachable!("only who has not ended is given an access")
                };
                access(number, op.checked(&ground.params).expect("values of the search are values"))
            }
            (Slot::Empty, _) => unreachable!("a process is seated before its first access"),
        }
    }

    /// Lets time pass until nothing waits any more: the phase opens, whoever is missing is given up, it is executed.
    /// Phases that were given before and for which nothing waited pass first (F4).
    fn let_the_phase_pass(&mut self) -> Result<(), RuleViolation> {
        /// Two for each phase given would do.
        const TICKS: u32 = 10_000;
        for _ in 0..TICKS {
            let Some(due) = self.machine.deadline() else { return Ok(()) };
            self.now = self.now.max(due);
            self.apply(Input::Tick)?;
        }
        Err(RuleViolation::new("F3", "the phase does not end, though nobody has patience left"))
    }

    fn apply(&mut self, input: Input) -> Result<(), RuleViolation> {
        let mut events = Vec::new();
        let applied = self.machine.apply(self.now, input, &mut events);
        for event in events {
            self.observe(event)?;
        }
        // Nothing that the search sends is out of place, Byzantine or not.
        applied.map_err(|refusal| RuleViolation::new("F8", format!("refused: {refusal}")))
    }

    fn observe(&mut self, event: Event) -> Result<(), RuleViolation> {
        let recorded = Recorded { at: self.now, event };
        self.invariants.observe(&recorded).map_err(|broken| RuleViolation::new(broken.rule, broken.what))?;
        match recorded.event {
            Event::Answered { process, phase, answer, .. } => {
                if let Slot::Correct(actor) = &mut self.seats[process.index()] {
                    let list = self.machine.list();
                    let returned = match answer {
                        Answer::Append(_) => list.range(Position::new(0), 0),
                        Answer::Read(read) => list.range(read.start, read.count),
                    };
                    let actor = Arc::make_mut(actor);
                    let entries = returned.map(|entry| entry.value.clone());
                    actor.view.learn(Some(phase), answer, entries);
                    actor.next = actor.behaviour.act(&actor.view);
                }
            }
            Event::PatienceSpent { process } => {
                if let Slot::Byzantine { spent, .. } = &mut self.seats[process.index()] {
                    *spent = true;
                }
            }
            Event::Offence(offence) if matches!(self.seats[offence.process.index()], Slot::Correct(_)) => {
                let (process, kind, detail) = (offence.process, offence.kind, offence.detail);
                return Err(RuleViolation::new(
                    "B3",
                    format!("{process} is correct, accused of {kind:?}: {detail}"),
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// The correct processes whose first phase has come.
    pub(super) fn actors(&self) -> impl Iterator<Item = &Actor> {
        self.seats.iter().filter_map(|seat| match seat {
            Slot::Correct(actor) => Some(&**actor),
            Slot::Empty | Slot::Byzantine { .. } => None,
        })
    }

    /// How many Byzantine processes have had their first phase.
    pub(super) fn byzantine(&self) -> u32 {
        self.seats.iter().map(|seat| u32::from(matches!(seat, Slot::Byzantine { .. }))).sum()
    }

    /// Whether the first phase of every warp has come.
    pub(super) fn all_began(&self) -> bool {
        self.had.iter().all(|had| had.first)
    }

    /// Whether nothing of interest can happen any more: everybody had its first phase, and every correct process
    /// has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.all_began() && self.actors().all(Actor::has_ended)
    }

    /// V_c so far, as a set of bits.
    pub(super) fn correct_values(&self) -> u32 {
        self.actors().fold(0, |values, actor| values | 1 << actor.proposal)
    }

    /// How many correct processes missed their first phase.
    pub(super) fn late(&self) -> u32 {
        self.actors().map(|actor| u32::from(actor.missed > 0)).sum()
    }

    /// The role of a process, once its first phase has come.
    pub(super) fn role(&self, process: ProcessId) -> Option<ProcessKind> {
        match &self.seats[process.index()] {
            Slot::Empty => None,
            Slot::Byzantine { .. } => Some(ProcessKind::Byzantine),
            Slot::Correct(actor) => Some(ProcessKind::Correct(actor.proposal)),
        }
    }

    /// Whether anybody of this warp, whose first phase has come, can still do anything.
    pub(super) fn can_act(&self, ground: &Space, warp: WarpId) -> bool {
        ground.params.members(warp).any(|process| match &self.seats[process.index()] {
            Slot::Empty => false,
            Slot::Byzantine { .. } => true,
            Slot::Correct(actor) => !actor.has_ended(),
        })
    }
}
