//! A state of the search: the real machine between two phases, with the real correct processes and the real
//! invariants over all that has happened.

use std::sync::Arc;

use super::setup::{Action, Transition};
use super::setup::{ProcessKind, REJOIN, Space};
use crate::access::{Access, Answer, AppendAnswer, Op};
use crate::history::{Event, Recorded};
use crate::invariants::Invariants;
use crate::machine::{Input, Machine};
use crate::params::AppendWindow;
use crate::process::{Act, Behaviour, Correct, View, is_to_append};
use crate::scheduler::ScriptedSchedule;
use crate::types::{AccessNumber, Position, ProcessId, Time, Value, WarpId};

/// A rule that a state breaks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RuleViolation {
    /// Its id in SPEC.
    pub rule: &'static str,
    /// The breach, and the requirement of the rule.
    pub what: String,
}

impl RuleViolation {
    pub(super) fn new(rule: &'static str, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

/// One process of the state.
#[derive(Clone)]
pub(super) enum Slot {
    /// Its first phase has not come, so its kind makes no difference yet.
    Empty,
    Byzantine {
        next: AccessNumber,
        spent: bool,
        won: bool,
    },
    /// Shared between states until it acts.
    Correct(Arc<CorrectProcess>),
}

/// A correct process.
#[derive(Clone)]
pub(super) struct CorrectProcess {
    /// Index of the value that it proposes.
    pub(super) proposal: u8,
    behaviour: Correct,
    pub(super) view: View,
    /// Its next act.
    pub(super) next: Act,
    /// Its own phases, from the first on, in which it had nothing ready: D2's m.
    pub(super) missed: u8,
}

impl CorrectProcess {
    fn new(space: &Space, me: ProcessId, proposal: u8) -> Self {
        let mut behaviour = Correct::new(space.values[usize::from(proposal)].clone());
        let view = View::new(me, Arc::clone(&space.params));
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

    /// Whether its next access appends.
    pub(super) fn appends(&self) -> bool {
        is_to_append(&self.view)
    }

    /// Whether an append of it has won under `first_access`, so that it is not late (K3).
    pub(super) fn has_won(&self) -> bool {
        self.view.params.spec().append_window == AppendWindow::FirstAccess
            && matches!(self.view.append, Some((_, AppendAnswer::Success(_))))
    }

    /// Whether it is late (F6, K3): it misses phases only as long as it appends, so the first of them is one
    /// of its warp's first q.
    pub(super) fn is_late(&self) -> bool {
        self.missed > 0 && !self.has_won()
    }
}

/// Which phases a warp has had.
#[derive(Clone, Copy, Default)]
pub(super) struct WarpProgress {
    /// How many, up to q.
    pub(super) phases: u32,
    pub(super) in_this_round: bool,
    /// It passed, and no phase has been executed since. No phase passes while the instance is idle (F4), so a
    /// member of another warp is waiting, and that warp is next.
    pub(super) passed: bool,
}

impl WarpProgress {
    /// Whether its first phase has come.
    pub(super) fn began(self) -> bool {
        self.phases > 0
    }
}

/// A state. See the module.
#[derive(Clone)]
pub(super) struct SearchState {
    pub(super) machine: Machine<ScriptedSchedule>,
    invariants: Invariants<ScriptedSchedule>,
    pub(super) slots: Box<[Slot]>,
    pub(super) progress: Box<[WarpProgress]>,
    /// Rounds that are over.
    pub(super) rounds: u32,
    /// Phases that were scheduled.
    pub(super) phases: u64,
    now: Time,
}

impl SearchState {
    /// All processes have joined, and no phase has come.
    pub(super) fn new(space: &Space) -> Result<Self, RuleViolation> {
        let mut state = Self {
            machine: Machine::scripted(Arc::clone(&space.params)),
            invariants: Invariants::scripted(Arc::clone(&space.params)),
            slots: vec![Slot::Empty; space.params.processes() as usize].into_boxed_slice(),
            progress: vec![WarpProgress::default(); space.warps.len()].into_boxed_slice(),
            rounds: 0,
            phases: 0,
            now: Time::ZERO,
        };
        for process in ProcessId::all(space.params.processes()) {
            state.apply(Input::Hello { process, incarnation: 1 })?;
        }
        Ok(state)
    }

    /// Executes one phase.
    pub(super) fn execute(&mut self, space: &Space, transition: &Transition) -> Result<(), RuleViolation> {
        for &(process, kind) in &transition.kinds {
            self.slots[process.index()] = match kind {
                ProcessKind::Byzantine => {
                    Slot::Byzantine { next: AccessNumber::FIRST, spent: false, won: false }
                }
                ProcessKind::Correct(proposal) => {
                    Slot::Correct(Arc::new(CorrectProcess::new(space, process, proposal)))
                }
            };
        }
        self.record_phase(space, transition);
        self.machine.schedule_next(transition.warp);
        self.invariants.schedule_next(transition.warp);
        for (accepted, (process, action)) in transition.accesses.iter().enumerate() {
            self.restart_after(accepted, transition)?;
            let access = self.access(space, *process, *action);
            self.apply(Input::Access(access))?;
        }
        self.restart_after(transition.accesses.len(), transition)?;
        self.let_time_pass()?;
        for &(process, _) in &transition.accesses {
            if let Slot::Correct(correct) = &self.slots[process.index()]
                && let Act::Decide(value) = &correct.next
            {
                let value = value.clone();
                self.apply(Input::Decide { process, value })?;
            }
        }
        Ok(())
    }

    /// The server restarts if it is due now. Processes come back with their next access or not at all.
    fn restart_after(&mut self, accepted: usize, transition: &Transition) -> Result<(), RuleViolation> {
        if transition.restart != Some(accepted) {
            return Ok(());
        }
        self.apply(Input::Restart { rejoin: REJOIN })
    }

    /// Records which warp has the phase, and which correct processes miss it.
    fn record_phase(&mut self, space: &Space, transition: &Transition) {
        self.phases += 1;
        let passes = transition.accesses.is_empty();
        if !passes {
            self.progress.iter_mut().for_each(|progress| progress.passed = false);
        }
        let progress = &mut self.progress[transition.warp.index()];
        let phases = space.params.append_rounds().min(progress.phases + 1);
        *progress = WarpProgress { phases, in_this_round: true, passed: passes };
        if self.progress.iter().all(|progress| progress.in_this_round) {
            self.progress.iter_mut().for_each(|progress| progress.in_this_round = false);
            self.rounds += 1;
        }
        for process in space.params.members(transition.warp) {
            if let Slot::Correct(correct) = &mut self.slots[process.index()]
                && !correct.has_ended()
                && transition.accesses.iter().all(|(present, _)| *present != process)
            {
                let correct = Arc::make_mut(correct);
                correct.missed = correct.missed.saturating_add(1);
            }
        }
    }

    fn access(&mut self, space: &Space, process: ProcessId, action: Action) -> Access {
        let access = |number, op| Access { process, session: None, number, op, no_wait: false };
        match (&mut self.slots[process.index()], action) {
            (Slot::Byzantine { next, .. }, action) => {
                let number = *next;
                *next = number.next();
                access(
                    number,
                    match action {
                        Action::Append(value) => Op::Append(space.values[usize::from(value)].clone()),
                        Action::Read | Action::Follow => Op::Read { start: Position::new(0) },
                    },
                )
            }
            (Slot::Correct(correct), _) => {
                let number = AccessNumber::new(correct.view.answered + 1).expect("one more is not zero");
                let Act::Access { op, .. } = correct.next.clone() else {
                    unreachable!("a process that has ended has no access")
                };
                access(number, op.checked(&space.params).expect("values of the search are values"))
            }
            (Slot::Empty, _) => unreachable!("a process has its kind before its first access"),
        }
    }

    /// Lets time pass until no access waits: the phase opens, the patience of missing members ends, the phase
    /// is executed. Phases that were scheduled before and for which no access waited pass first (F4).
    fn let_time_pass(&mut self) -> Result<(), RuleViolation> {
        /// More than the two that each scheduled phase takes.
        const TICKS: u32 = 10_000;
        for _ in 0..TICKS {
            let Some(due) = self.machine.deadline() else { return Ok(()) };
            self.now = self.now.max(due);
            self.apply(Input::Tick)?;
        }
        Err(RuleViolation::new("F3", "the phase does not end, though no patience is left"))
    }

    fn apply(&mut self, input: Input) -> Result<(), RuleViolation> {
        let mut events = Vec::new();
        let applied = self.machine.apply(self.now, input, &mut events);
        for event in events {
            self.observe(event)?;
        }
        // The search sends no access that may be refused, not even of a Byzantine process.
        applied.map_err(|refusal| RuleViolation::new("F8", format!("refused: {refusal}")))
    }

    fn observe(&mut self, event: Event) -> Result<(), RuleViolation> {
        let recorded = Recorded { at: self.now, event };
        self.invariants.observe(&recorded).map_err(|broken| RuleViolation::new(broken.rule, broken.what))?;
        match recorded.event {
            Event::Answered { process, phase, answer, .. } => match &mut self.slots[process.index()] {
                Slot::Correct(correct) => {
                    let list = self.machine.list();
                    let returned = match answer {
                        Answer::Append(_) => list.range(Position::new(0), 0),
                        Answer::Read(read) => list.range(read.start, read.count),
                    };
                    let correct = Arc::make_mut(correct);
                    let entries = returned.map(|entry| entry.value.clone());
                    correct.view.learn(Some(phase), answer, entries);
                    correct.next = correct.behaviour.act(&correct.view);
                }
                Slot::Byzantine { won, .. } => {
                    *won |= matches!(answer, Answer::Append(AppendAnswer::Success(_)));
                }
                Slot::Empty => {}
            },
            Event::PatienceSpent { process } => {
                if let Slot::Byzantine { spent, .. } = &mut self.slots[process.index()] {
                    *spent = true;
                }
            }
            Event::Offence(offence) if matches!(self.slots[offence.process.index()], Slot::Correct(_)) => {
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
    pub(super) fn correct_processes(&self) -> impl Iterator<Item = &CorrectProcess> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Correct(correct) => Some(&**correct),
            Slot::Empty | Slot::Byzantine { .. } => None,
        })
    }

    /// How many Byzantine processes have had their first phase.
    pub(super) fn byzantine(&self) -> u32 {
        self.slots.iter().map(|slot| u32::from(matches!(slot, Slot::Byzantine { .. }))).sum()
    }

    /// Whether the first phase of every warp has come.
    fn all_began(&self) -> bool {
        self.progress.iter().all(|progress| progress.began())
    }

    /// Whether the run is over: every warp had its first phase, and every correct process has come to its
    /// end.
    pub(super) fn is_over(&self) -> bool {
        self.all_began() && self.correct_processes().all(CorrectProcess::has_ended)
    }

    /// V_c so far, as a set of bits.
    pub(super) fn correct_values(&self) -> u32 {
        self.correct_processes().fold(0, |values, correct| values | 1 << correct.proposal)
    }

    /// How many correct processes are late.
    pub(super) fn late(&self) -> u32 {
        self.correct_processes().map(|correct| u32::from(correct.is_late())).sum()
    }

    /// The kind of a process, once its first phase has come.
    pub(super) fn kind(&self, process: ProcessId) -> Option<ProcessKind> {
        match &self.slots[process.index()] {
            Slot::Empty => None,
            Slot::Byzantine { .. } => Some(ProcessKind::Byzantine),
            Slot::Correct(correct) => Some(ProcessKind::Correct(correct.proposal)),
        }
    }

    /// Whether a member of this warp, whose first phase has come, can still act.
    pub(super) fn can_act(&self, space: &Space, warp: WarpId) -> bool {
        space.params.members(warp).any(|process| match &self.slots[process.index()] {
            Slot::Empty => false,
            Slot::Byzantine { .. } => true,
            Slot::Correct(correct) => !correct.has_ended(),
        })
    }
}
