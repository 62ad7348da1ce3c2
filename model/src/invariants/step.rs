//! The step of a phase and the answers of its accesses (SPEC W1, F1 to F5, F9, A1 to A5, R1, R2).

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::params::{AppendWindow, Arbiter};
use crate::predicates;
use crate::scheduler::{PhaseOrder, arbiter_hash};
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time, Value, WarpId};

use super::state::{CheckResult, ensure, fault};
use super::state::{ExecutedStep, Invariants, UnansweredAccess};

impl<S: PhaseOrder> Invariants<S> {
    pub(super) fn stepped(&mut self, at: Time, phase: Phase, warp: WarpId, length: u32) -> CheckResult {
        ensure(self.gathering.ended.is_some(), "F5", || {
            format!("phase {phase} opened before gathering ended")
        })?;
        ensure(self.gathering.absent == 0, "F5", || {
            format!("phase {phase} opened, and processes that had not joined have patience left")
        })?;
        if let Some((last, _)) = self.last_step {
            ensure(predicates::comes_after(phase, last), "W1", || {
                format!("phase {phase} came after phase {last}")
            })?;
        }
        let scheduled = self.oracle.warp_of(phase);
        ensure(predicates::is_phase_of(scheduled, warp), "W1", || {
            format!("phase {phase} was given to warp {warp}; it belongs to warp {scheduled}")
        })?;
        self.check_reached(phase, warp)?;
        ensure(length == self.length, "A1", || {
            format!("phase {phase} began at length {length}; the list has {} entries", self.length)
        })?;
        ensure(self.sealed || !self.is_sealed_in(phase), "A2", || {
            format!("phase {phase} found the list sealed, and this was not recorded before")
        })?;
        self.execute(phase, warp, length);
        self.oracle.executed(phase);
        self.check_pace(at, phase)
    }

    /// A step is not before its accesses were accepted, nor before the pace was over (F9).
    fn check_pace(&mut self, at: Time, phase: Phase) -> CheckResult {
        let executed = self.step.iter().flat_map(|step| &step.executed);
        let accesses = executed.filter_map(|process| self.members[process.index()].executing.as_ref());
        let ready = accesses.map(|waiting| waiting.at).max().unwrap_or_default();
        let open = self.last_step.map_or(Time::ZERO, |(_, last)| last.after(self.params.spec().pace));
        self.last_step = Some((phase, ready.max(open)));
        ensure(at >= open, "F9", || format!("phase {phase} opened before the pace was over"))
    }

    /// No live warp was passed over (F4), and this one may step (F3).
    fn check_reached(&mut self, phase: Phase, warp: WarpId) -> CheckResult {
        let reached = self.oracle.reached();
        ensure(phase <= reached, "F4", || {
            format!(
                "phase {phase} came, and phase {reached} was passed over though a member of warp {} was \
                 awaited or had an access waiting",
                self.oracle.warp_of(reached)
            )
        })?;
        ensure(self.oracle.ready_in(warp) > 0, "F4", || {
            format!("phase {phase} came; nothing waits in warp {warp}")
        })?;
        ensure(self.oracle.missing_in(warp) == 0, "F3", || {
            let missing = |process: &ProcessId| {
                let member = &self.members[process.index()];
                member.is_awaited() && member.waiting.is_empty()
            };
            let missing: Vec<ProcessId> = self.params.members(warp).filter(missing).collect();
            format!("phase {phase} of warp {warp} did not wait for {missing:?}, who are awaited")
        })
    }

    /// Takes the first access of each member that has one waiting, and finds the winner.
    fn execute(&mut self, phase: Phase, warp: WarpId, length: u32) {
        let mut executed = self.oracle.take_queue(warp);
        executed.retain(|&process| {
            let member = &mut self.members[process.index()];
            member.queued = false;
            member.executing = member.waiting.pop_front();
            if member.executing.is_some() && member.waiting.is_empty() {
                self.oracle.not_ready(warp, member.is_awaited());
            } else if member.executing.is_some() {
                member.queued = true;
                self.oracle.enqueue(warp, process);
            }
            member.executing.is_some()
        });
        let window = self.window_is_open(phase, length);
        let winner = if window { self.winner(phase, &executed) } else { None };
        let unanswered = executed.len();
        self.step = Some(ExecutedStep { phase, length, window, executed, winner, added: false, unanswered });
    }

    /// Whether a phase may append (A1, A2, K1).
    fn window_is_open(&self, phase: Phase, length: u32) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.oracle.schedule().is_append_phase(phase),
            AppendWindow::Open => predicates::has_room(&self.params, length + 1),
        }
    }

    /// Whether a list of the present length is sealed when a phase begins (A2).
    fn is_sealed_in(&self, phase: Phase) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.oracle.schedule().append_phases_ended_before(phase),
            AppendWindow::Open => !predicates::has_room(&self.params, self.length + 1),
        }
    }

    /// The winner among the appends of a phase, and its value (A4). Under `first_access` no process wins
    /// twice (K1).
    fn winner(&self, phase: Phase, executed: &[ProcessId]) -> Option<(ProcessId, Value)> {
        let wins_once = self.params.spec().append_window == AppendWindow::FirstAccess;
        let append = |process: ProcessId| {
            let member = &self.members[process.index()];
            match &member.executing {
                Some(UnansweredAccess { op: Op::Append(value), place, .. }) if !(wins_once && member.won) => {
                    Some((process, value, *place))
                }
                _ => None,
            }
        };
        let rank = |process: ProcessId, place: u64| match self.params.spec().arbiter {
            Arbiter::FirstCome => place,
            Arbiter::Uniform => arbiter_hash(self.params.spec().seed, phase, process),
            Arbiter::Priority(_) => u64::from(self.ranks[process.index()]),
        };
        let appends = executed.iter().filter_map(|&process| append(process));
        let first = appends.min_by_key(|&(process, _, place)| (rank(process, place), process));
        first.map(|(process, value, _)| (process, value.clone()))
    }

    pub(super) fn added(
        &mut self,
        position: Position,
        process: ProcessId,
        phase: Phase,
        value: &Value,
    ) -> CheckResult {
        self.known(process)?;
        let length = self.length;
        let Some(step) = self.step.as_mut().filter(|step| step.phase == phase) else {
            return fault("A5", format!("an entry was added outside the step of phase {phase}"));
        };
        ensure(!predicates::has_entry(length, position), "A3", || {
            format!("position {position} was written again")
        })?;
        ensure(!step.added, "A5", || format!("a second entry was added in phase {phase}"))?;
        ensure(predicates::has_entry(length + 1, position), "A3", || {
            format!("position {position} was written, which leaves a hole at {length}")
        })?;
        ensure(step.window, "A2", || {
            format!("an entry was added in phase {phase}, outside the append window")
        })?;
        let Some((winner, theirs)) = &step.winner else {
            return fault("A1", format!("an entry was added in phase {phase}; no append could win"));
        };
        ensure(process == *winner, "A4", || {
            format!("process {process} won phase {phase}; the arbiter's winner is process {winner}")
        })?;
        ensure(value == theirs, "A1", || format!("process {process} appended {theirs}; {value} was added"))?;
        ensure(predicates::has_room(&self.params, length + 1), "A2", || {
            format!("an entry was added to a list of {length}, which is full")
        })?;
        step.added = true;
        self.members[process.index()].won = true;
        self.length += 1;
        Ok(())
    }

    pub(super) fn answered(
        &mut self,
        process: ProcessId,
        number: AccessNumber,
        phase: Phase,
        answer: Answer,
    ) -> CheckResult {
        self.known(process)?;
        let Some(step) = self.step.as_mut().filter(|step| step.phase == phase) else {
            return fault("F2", format!("process {process} was answered outside the step of phase {phase}"));
        };
        let member = &mut self.members[process.index()];
        let Some(waiting) = member.executing.take() else {
            return self.unexpected(process, number, phase);
        };
        ensure(number == waiting.number, "F8", || {
            format!("process {process} was answered access {number}; access {} comes first", waiting.number)
        })?;
        member.executed_in = Some(phase);
        step.unanswered -= 1;
        match (&waiting.op, answer) {
            (Op::Append(_), Answer::Append(answer)) => self.check_append(process, answer),
            (&Op::Read { start }, Answer::Read(answer)) => self.check_read(process, start, answer),
            (op, answer) => fault(
                "F8",
                format!("access {number} of process {process} is {op:?} and was answered {answer:?}"),
            ),
        }
    }

    /// Why an access that the step does not execute should not have been answered.
    fn unexpected(&self, process: ProcessId, number: AccessNumber, phase: Phase) -> CheckResult {
        let member = &self.members[process.index()];
        let access = format!("access {number} of process {process}");
        if member.left || self.closed {
            fault("F10", format!("{access} was answered after it was withdrawn"))
        } else if number.get() <= member.accepted && member.executed_in == Some(phase) {
            fault(
                "F1",
                format!("process {process} was answered access {number}, its second in phase {phase}"),
            )
        } else {
            fault("F8", format!("{access} was answered in phase {phase}; it did not wait"))
        }
    }

    fn check_append(&self, process: ProcessId, answer: AppendAnswer) -> CheckResult {
        let Some(step) = &self.step else { return Ok(()) };
        let expected = match &step.winner {
            Some((winner, _)) if *winner == process => AppendAnswer::Success(Position::new(step.length)),
            _ if step.window => AppendAnswer::Failed,
            _ => AppendAnswer::LimitReached,
        };
        ensure(answer == expected, if step.window { "A1" } else { "A2" }, || {
            format!(
                "the append of process {process} in phase {} was answered {answer:?}, not {expected:?}",
                step.phase
            )
        })
    }

    fn check_read(&self, process: ProcessId, start: Position, answer: ReadAnswer) -> CheckResult {
        let Some(step) = &self.step else { return Ok(()) };
        let (phase, length) = (step.phase, step.length);
        let read = || format!("the read of process {process} in phase {phase}");
        ensure(answer.start == start, "F8", || {
            format!("{} asked from {start} and was answered from {}", read(), answer.start)
        })?;
        ensure(answer.length <= length, "R2", || {
            format!("{} saw {} entries; {length} stood when it began", read(), answer.length)
        })?;
        ensure(answer.length == length, "F2", || {
            format!("{} saw a stale list of {}; {length} stood when it began", read(), answer.length)
        })?;
        let count = predicates::entries_read(&self.params, start, length);
        ensure(answer.count == count, "R1", || {
            format!("{} returned {} entries from {start}, not {count}", read(), answer.count)
        })?;
        let sealed = match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.is_sealed_in(phase),
            AppendWindow::Open => !predicates::has_room(&self.params, length + 1),
        };
        ensure(answer.sealed == sealed, "A2", || {
            format!("{} was told sealed = {}; it was {sealed}", read(), answer.sealed)
        })
    }

    /// Every access of the phase was answered, and its winner's entry added (F2, A1).
    pub(super) fn end_step(&mut self) -> CheckResult {
        let Some(step) = self.step.take() else { return Ok(()) };
        let ExecutedStep { phase, executed, winner, .. } = &step;
        ensure(step.unanswered == 0, "F2", || {
            let forgotten = |process: &&ProcessId| self.members[process.index()].executing.is_some();
            let forgotten: Vec<&ProcessId> = executed.iter().filter(forgotten).collect();
            format!("phase {phase} passed, and accesses of {forgotten:?} that waited were not answered")
        })?;
        ensure(step.added == winner.is_some(), "A1", || {
            format!("phase {phase} was won, and no entry was added")
        })
    }

    pub(super) fn sealed(&mut self, phase: Phase, length: u32) -> CheckResult {
        ensure(!self.sealed, "A2", || "the list was sealed twice".to_owned())?;
        ensure(length == self.length, "A2", || {
            format!("the list was sealed at length {length}; it has {} entries", self.length)
        })?;
        ensure(self.is_sealed_in(phase), "A2", || {
            format!("the list was sealed in phase {phase}, which is too early")
        })?;
        let stepped = self.last_step.is_some_and(|(last, _)| last >= phase);
        ensure(phase <= self.oracle.reached() && !stepped, "A2", || {
            format!("the list was sealed for phase {phase}; phase {} comes next", self.oracle.reached())
        })?;
        self.sealed = true;
        Ok(())
    }
}
