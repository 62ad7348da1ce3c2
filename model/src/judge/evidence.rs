//! The evidence that a history gives, gathered in one pass.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::algorithm::AlgorithmRecord;
use super::case::Case;
use crate::access::Answer;
use crate::history::{Event, Offence, OffenceKind};
use crate::invariants::{BrokenRule, Invariants};
use crate::params::Params;
use crate::predicates::{is_append_phase, is_late, missed_phases};
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule};
use crate::types::{AccessNumber, Phase, ProcessId, Value};

/// The evidence of a history.
#[derive(Debug)]
pub(super) struct Evidence {
    params: Arc<Params>,
    /// The first rule that the history breaks.
    pub(super) broken: Option<BrokenRule>,
    pub(super) list: Vec<AppendedValue>,
    sealed: bool,
    /// The last phase that was executed.
    last: Option<Phase>,
    seen: Vec<ProcessEvidence>,
    /// Which warps had a phase in the last round, up to the last phase.
    in_last_round: Vec<bool>,
    pub(super) blame: BTreeMap<ProcessId, BTreeMap<OffenceKind, u64>>,
    /// The first offence on record of each process, and the index of its event.
    pub(super) first_offences: BTreeMap<ProcessId, (usize, Offence)>,
}

/// An entry of the list and the process that appended it.
#[derive(Clone, Debug)]
pub(super) struct AppendedValue {
    pub(super) value: Value,
    pub(super) process: ProcessId,
}

/// The evidence of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessEvidence {
    pub(super) joined: bool,
    /// The decision on record.
    pub(super) decided: Option<Value>,
    /// The index of its event.
    pub(super) decided_at: Option<usize>,
    /// The phase in which it decided, by its report: accesses executed later do not count.
    until: Option<Phase>,
    accepted: u64,
    answered: u64,
    /// Accesses executed, up to the phase in which it decided.
    pub(super) executed: u64,
    /// How many accesses of it were executed in the first q phases of its warp (K1).
    pub(super) in_window: u64,
    /// It won an append.
    won: bool,
    /// The first of these phases that was executed while an access of it was waiting, and did not execute it;
    /// and the index of the event.
    pub(super) denied: Option<(usize, Phase)>,
    /// Phase of its last answer.
    pub(super) last_answer: Option<Phase>,
    incarnation: Option<u64>,
    /// Beside Algorithm 1 (D1).
    pub(super) algorithm: AlgorithmRecord,
    reads_in_this_life: u64,
    /// Reads whose answers were lost with an earlier life of the process (D2).
    pub(super) reads_lost: u64,
}

impl ProcessEvidence {
    /// Whether an access of it waits, and not only to be withdrawn because the process has left.
    fn waits(&self) -> bool {
        self.decided.is_none() && self.acts()
    }

    /// The first access that was accepted and never answered. It may have been withdrawn by the close.
    pub(super) fn unanswered(&self) -> Option<AccessNumber> {
        self.acts().then(|| AccessNumber::new(self.answered + 1)).flatten()
    }

    /// Whether an access of it is unanswered at the end, or was until the close.
    pub(super) fn acts(&self) -> bool {
        self.accepted > self.answered
    }
}

impl Evidence {
    /// The evidence of an empty history.
    pub(super) fn new(params: &Arc<Params>) -> Self {
        Self::within(params, Vec::new(), Vec::new())
    }

    /// Starts another run, in the memory of this one.
    pub(super) fn begin_again(&mut self, params: &Arc<Params>) {
        *self = Self::within(params, std::mem::take(&mut self.list), std::mem::take(&mut self.seen));
    }

    fn within(params: &Arc<Params>, mut list: Vec<AppendedValue>, mut seen: Vec<ProcessEvidence>) -> Self {
        list.clear();
        seen.clear();
        seen.resize(params.processes() as usize, ProcessEvidence::default());
        Self {
            params: Arc::clone(params),
            broken: None,
            list,
            sealed: false,
            last: None,
            seen,
            in_last_round: Vec::new(),
            blame: BTreeMap::new(),
            first_offences: BTreeMap::new(),
        }
    }

    /// Gathers the evidence of a case.
    pub(super) fn gather(case: &Case<'_>) -> Self {
        let mut invariants = Invariants::new(Arc::clone(&case.params));
        let mut evidence = Self::new(&case.params);
        for report in case.reports.iter().filter(|report| report.decision.is_some()) {
            evidence.change(report.process, |seen| seen.until = report.phase);
        }
        for (index, recorded) in case.history.iter().enumerate() {
            if evidence.broken.is_none() {
                evidence.broken = invariants.observe(recorded).err();
            }
            evidence.take_in(index, &recorded.event);
        }
        if case.complete && evidence.broken.is_none() {
            evidence.broken = invariants.finish().err();
        }
        evidence.end();
        evidence
    }

    /// The history ends here.
    pub(super) fn end(&mut self) {
        self.in_last_round = self.warps_of_last_round();
    }

    /// The evidence of a process.
    pub(super) fn of(&self, process: ProcessId) -> &ProcessEvidence {
        &self.seen[process.index()]
    }

    /// Every process, in order.
    pub(super) fn processes(&self) -> impl Iterator<Item = (ProcessId, &ProcessEvidence)> {
        ProcessId::all(self.params.processes()).zip(&self.seen)
    }

    /// The values of the list.
    pub(super) fn values(&self) -> impl Iterator<Item = &Value> + Clone {
        self.list.iter().map(|entry| &entry.value)
    }

    /// How many phases a process had, up to the one in which it decided, or to the end (D2). Phases that
    /// passed without a step count (F4).
    pub(super) fn own_phases(&self, process: ProcessId, decided: Option<Phase>) -> u64 {
        match (decided, self.last) {
            (Some(phase), _) => self.round(phase),
            (None, None) => 0,
            (None, Some(last)) => {
                let warp = self.params.warp_of(process);
                self.round(last) - 1 + u64::from(self.in_last_round[warp.index()])
            }
        }
    }

    /// Whether a correct process is late (F6, K3). A process has not missed a phase that has not come.
    pub(super) fn is_late(&self, process: ProcessId) -> bool {
        let seen = self.of(process);
        is_late(&self.params, seen.won, self.own_phases(process, None), seen.in_window)
    }

    /// m of a process: its own phases in which it had no access executed, and the reads that were lost with
    /// an earlier life (D2).
    pub(super) fn missed(&self, process: ProcessId, decided: Option<Phase>) -> u64 {
        let seen = self.of(process);
        missed_phases(self.own_phases(process, decided), seen.executed) + seen.reads_lost
    }

    /// Every order has each warp once in W phases.
    pub(super) fn round(&self, phase: Phase) -> u64 {
        phase.get().div_ceil(u64::from(self.params.warps()))
    }

    fn warps_of_last_round(&self) -> Vec<bool> {
        let warps = u64::from(self.params.warps());
        let mut had_phase = vec![false; self.params.warps() as usize];
        if let Some(last) = self.last {
            let mut schedule = CachedSchedule::new(Schedule::new(&self.params));
            let first = (self.round(last) - 1) * warps + 1;
            for phase in (first..=last.get()).filter_map(Phase::new) {
                had_phase[schedule.warp_of(phase).index()] = true;
            }
        }
        had_phase
    }

    /// Takes in the next event, which has this index.
    pub(super) fn take_in(&mut self, index: usize, event: &Event) {
        match event {
            Event::Joined { process } => self.change(*process, |seen| seen.joined = true),
            Event::Session { process, incarnation, .. } => {
                self.change(*process, |seen| seen.begin_life(*incarnation));
            }
            Event::Accepted { process, number, op, .. } => {
                if let Some(seen) = self.seen.get_mut(process.index()) {
                    seen.accepted += 1;
                    seen.algorithm.accepted(&self.params, index, *number, op);
                }
            }
            Event::Stepped { phase, warp, .. } => {
                self.last = self.last.max(Some(*phase));
                // A broken history may name a warp that does not exist.
                let exists = warp.get() <= self.params.warps();
                if exists && is_append_phase(&self.params, *phase) {
                    for process in self.params.members(*warp) {
                        self.change(process, |seen| {
                            seen.denied = seen.denied.or(seen.waits().then_some((index, *phase)));
                        });
                    }
                }
            }
            Event::Added { value, process, .. } => {
                self.list.push(AppendedValue { value: value.clone(), process: *process });
                self.change(*process, |seen| seen.won = true);
            }
            Event::Answered { process, number, phase, answer } => {
                let in_window = is_append_phase(&self.params, *phase);
                if let Some(seen) = self.seen.get_mut(process.index()) {
                    seen.answered += 1;
                    seen.executed += u64::from(seen.until.is_none_or(|until| *phase <= until));
                    seen.in_window += u64::from(in_window);
                    seen.denied = seen.denied.filter(|(_, denied)| denied != phase);
                    seen.last_answer = seen.last_answer.max(Some(*phase));
                    match answer {
                        Answer::Append(answer) => {
                            seen.algorithm.append_answered(&self.params, *phase, *answer);
                        }
                        Answer::Read(answer) => {
                            seen.reads_in_this_life += 1;
                            seen.algorithm.read_answered(&self.params, index, *number, answer);
                        }
                    }
                }
            }
            Event::Sealed { .. } => self.sealed = true,
            Event::Decided { process, value } => {
                self.change(*process, |seen| {
                    (seen.decided, seen.decided_at) = (Some(value.clone()), Some(index));
                });
            }
            Event::Offence(offence) => {
                let kinds = self.blame.entry(offence.process).or_default();
                *kinds.entry(offence.kind).or_default() += 1;
                self.first_offences.entry(offence.process).or_insert_with(|| (index, offence.clone()));
            }
            Event::Refused { .. }
            | Event::GatheringEnded { .. }
            | Event::PatienceSpent { .. }
            | Event::Withdrawn { .. }
            | Event::Finished
            | Event::Closed
            | Event::Restarted { .. }
            | Event::Rejoined { .. } => {}
        }
    }

    /// Changes the evidence of a process; a broken history may name one that does not exist.
    fn change(&mut self, process: ProcessId, change: impl FnOnce(&mut ProcessEvidence)) {
        if let Some(seen) = self.seen.get_mut(process.index()) {
            change(seen);
        }
    }
}

impl ProcessEvidence {
    /// A session opens. Another incarnation, or an unknown one, is another life: it has lost the entries that
    /// were read before, unless the process has decided and needs them no more.
    fn begin_life(&mut self, incarnation: u64) {
        if self.decided.is_some() {
            return;
        }
        self.algorithm.session(self.incarnation, incarnation);
        if incarnation == 0 || self.incarnation != Some(incarnation) {
            self.reads_lost += std::mem::take(&mut self.reads_in_this_life);
        }
        self.incarnation = Some(incarnation);
    }
}

impl Evidence {
    /// The entries at these positions. A broken history may lack some.
    pub(super) fn entries(
        &self,
        positions: impl Iterator<Item = usize> + Clone,
    ) -> impl Iterator<Item = &Value> + Clone {
        positions.filter_map(|position| Some(&self.list.get(position)?.value))
    }

    /// Whether the list begins with these values.
    pub(super) fn begins_with(&self, values: &[Value]) -> bool {
        values.len() <= self.list.len() && self.values().zip(values).all(|(entry, value)| entry == value)
    }
}
