//! The judge: what a run proves (SPEC V1 to V5, B3, D2).
//!
//! [`judge`] holds the ground truth of a run (its [`Cast`] and [`Expectations`]) against what was seen of it: the history
//! of the instance, and what the correct processes report of themselves. What a Byzantine process says about
//! itself counts for nothing (V5).
//!
//! The whole verdict is the first that applies of
//! - **violation**: a promised property broke, or a rule of SPEC, or a correct process was accused, or missed
//!   a phase that it was in time for, or decided what Algorithm 1 does not decide, or a culprit got away: it was
//!   seen to commit an offence of the closed list, and that is not on record. A bug of ours.
//! - **outside**: a property broke that nobody promised. The witness shows how.
//! - **unknown**: the run proves nothing: something happened that the plan does not name, or did not
//!   happen that it names, or the history is incomplete.
//! - **valid**.
//!
//! A process that the plan kills, pauses or restarts without memory is faulty: it counts in f, and neither its
//! proposal nor its decision is judged. Whether a correct process that died or gave up would have decided
//! cannot be said; it makes the run prove nothing, and termination is judged without it, unless the history
//! shows that it had all the accesses that it needed.

mod evidence;
mod explain;
mod properties;
mod rules;
mod streaming;
mod summary;
mod table;
mod value_counts;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::byzantine::Detection;
use crate::cast::{Cast, Role};
use crate::history::{OffenceKind, Recorded};
use crate::params::Params;
use crate::process::{ProcessEnd, Report};
use crate::types::{Phase, ProcessId, Value};

pub use explain::{Breach, DecisionGroup, Explanation, FaultReason, FaultyProcess, WonEntry, explain};
pub use streaming::StreamingJudge;
pub use summary::{Finding, VerdictSummary};
pub use value_counts::{Margin, ValueCount, ValueCounts};
pub use verdict::{Decision, Observed, Outcome, Property, VERDICT_VERSION, Verdict};

use evidence::Evidence;
use properties::PropertyFinding;
use table::{SortedSet, Table};

/// What of a run was meant to happen, beyond its cast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expectations {
    /// Correct processes that are killed, paused or restarted without memory: they count as faulty (V4).
    pub faulty: BTreeSet<ProcessId>,
    /// Correct processes that are made to miss their first phase.
    pub late: BTreeSet<ProcessId>,
    /// Attacks that must be seen to fire (B3), by the names under which [`Case::fired`] counts them.
    pub attacks: BTreeSet<String>,
    /// Offences that Byzantine processes were seen to commit: each must be on record (B2). See
    /// [`Cast::offences`].
    pub offences: BTreeMap<ProcessId, BTreeSet<OffenceKind>>,
}

impl Expectations {
    /// What the cast of a run and the attacks that were detected in it lead to expect. `run_seed` as for
    /// [`detect`](crate::byzantine::detect).
    #[must_use]
    pub fn new(params: &Params, cast: &Cast, run_seed: u64, detection: &Detection) -> Self {
        Self {
            faulty: cast.faulty().clone(),
            late: cast.late().clone(),
            attacks: detection.fired.keys().cloned().collect(),
            offences: cast.offences(params, run_seed, &detection.attackers),
        }
    }
}

/// Everything that is known of a run.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// Who plays what. Must have a part for each of the n.
    pub cast: &'a Cast,
    /// What was meant to happen.
    pub expected: &'a Expectations,
    /// The history of the instance.
    pub history: &'a [Recorded],
    /// Whether it goes to the end of the run and lacks nothing.
    pub complete: bool,
    /// What processes report. Those of processes that are not correct are not looked at.
    pub reports: &'a [Report],
    /// How often each attack was seen to fire.
    pub fired: BTreeMap<String, u64>,
}

/// A case with what follows from it.
#[derive(Debug)]
struct Run<'a> {
    evidence: &'a Evidence,
    /// Correct in the cast and not made faulty by the plan.
    correct: SortedSet<ProcessId>,
    reports: Table<&'a Report>,
    /// Vc.
    proposals: SortedSet<&'a Value>,
    late: SortedSet<ProcessId>,
    f: u64,
    decisions: Table<Decision>,
    /// The different values that were decided.
    decided: SortedSet<&'a Value>,
}

impl<'a> Run<'a> {
    fn new(case: &Case<'a>, evidence: &'a Evidence) -> Self {
        let faulty = &case.expected.faulty;
        let correct: SortedSet<ProcessId> = case
            .cast
            .correct()
            .filter(|process| !faulty.contains(process) && case.params.contains(*process))
            .collect();
        let mut reports = Table::empty(case.params.processes());
        for report in case.reports.iter().filter(|report| correct.contains(&report.process)) {
            reports.insert(report.process, report);
        }
        let late: SortedSet<ProcessId> = correct
            .iter()
            .copied()
            .filter(|&process| !evidence.of(process).punctual)
            // Whose first phase has not come has not missed it.
            .filter(|&process| evidence.own_phases(process, None) > 0)
            .collect();
        let not_correct = u64::from(case.params.processes()) - correct.len() as u64;
        let part = |process: &ProcessId| case.cast.part(*process);
        let decided = |&process: &ProcessId| Some((process, decided(process, &reports, evidence)?));
        let mut decisions = Table::empty(case.params.processes());
        for (process, (value, phase)) in correct.iter().filter_map(decided) {
            let missed = evidence.missed(process, phase);
            let bound = bounds::phase_bound(&case.params, missed);
            decisions.insert(process, Decision { value: value.clone(), phase, bound, missed });
        }
        Self {
            proposals: correct.iter().filter_map(part).map(|part| &part.proposal).collect(),
            decided: correct.iter().filter_map(decided).map(|(_, (value, _))| value).collect(),
            decisions,
            f: not_correct + late.len() as u64,
            evidence,
            correct,
            reports,
            late,
        }
    }

    /// How a correct process says that it ended.
    fn ended(&self, process: ProcessId) -> Option<&'a ProcessEnd> {
        self.reports.get(process).map(|report| &report.ended)
    }

    /// Who decided what.
    fn deciders(&self) -> BTreeMap<&Value, Vec<ProcessId>> {
        let mut deciders: BTreeMap<&Value, Vec<ProcessId>> = BTreeMap::new();
        for (process, decision) in self.decisions.iter() {
            deciders.entry(&decision.value).or_default().push(process);
        }
        deciders
    }

    /// Offences that this process was seen to commit and that are not on record (B2).
    fn unnamed(&self, case: &Case<'_>, process: ProcessId) -> Vec<OffenceKind> {
        let committed = case.expected.offences.get(&process).into_iter().flatten();
        let on_record = self.evidence.blame.get(&process);
        let missing = |kind: &&OffenceKind| on_record.is_none_or(|kinds| !kinds.contains_key(kind));
        committed.filter(missing).copied().collect()
    }

    /// Correct processes with an offence on record (B3).
    fn accused(&self) -> impl Iterator<Item = ProcessId> {
        self.evidence.blame.keys().copied().filter(|process| self.correct.contains(process))
    }

    /// The largest m of a correct process (D2).
    fn most_missed(&self) -> u64 {
        let missed = |&process: &ProcessId| match self.decisions.get(process) {
            Some(decision) => decision.missed,
            None => self.evidence.missed(process, None),
        };
        self.correct.iter().map(missed).max().unwrap_or(0)
    }
}

/// What a process decided and in which phase: by its own report, or if there is none, by what it told the server.
fn decided<'a>(
    process: ProcessId,
    reports: &Table<&'a Report>,
    evidence: &'a Evidence,
) -> Option<(&'a Value, Option<Phase>)> {
    let seen = evidence.of(process);
    match reports.get(process) {
        Some(report) => Some((report.decision.as_ref()?, report.phase.or(seen.last_answer))),
        None => Some((seen.decided.as_ref()?, seen.last_answer)),
    }
}

/// Judges a run. See the module.
#[must_use]
pub fn judge(case: &Case<'_>) -> Verdict {
    let evidence = Evidence::gather(case);
    let run = Run::new(case, &evidence);
    let findings = properties::find(case, &run);
    let broken = || findings.iter().filter(|finding| finding.observed == Observed::Violated);
    let says = |promise: &str, finding: &PropertyFinding| {
        let shown = finding.witness.first().map_or("", String::as_str);
        match &finding.missing {
            None => format!("{} {promise} and broke: {shown}", finding.property),
            Some(premise) => format!("{} {promise} and broke: {shown} ({premise})", finding.property),
        }
    };
    let mut violations: Vec<String> = broken()
        .filter(|finding| finding.missing.is_none())
        .map(|finding| says("was promised", finding))
        .collect();
    violations.extend(rules::violations(case, &run).into_iter().map(|violation| violation.says));
    let outside: Vec<String> = broken()
        .filter(|finding| finding.missing.is_some())
        .map(|finding| says("was not promised", finding))
        .collect();
    let unknown = rules::unknowns(case, &run);

    let outcome = outcome(!violations.is_empty(), !outside.is_empty(), !unknown.is_empty());
    let reasons = [violations, outside, unknown].concat();
    let mut witness: Vec<String> = Vec::new();
    for sentence in broken().flat_map(|finding| &finding.witness) {
        if !witness.contains(sentence) {
            witness.push(sentence.clone());
        }
    }
    write(case, &run, findings, outcome, reasons, witness)
}

/// What a run shows as a whole (V4): the first that applies of what was found, by kind.
fn outcome(violation: bool, outside: bool, unknown: bool) -> Outcome {
    match (violation, outside, unknown) {
        (true, _, _) => Outcome::Violation,
        (false, true, _) => Outcome::Outside,
        (false, false, true) => Outcome::Unknown,
        (false, false, false) => Outcome::Valid,
    }
}

/// Writes the verdict.
fn write(
    case: &Case<'_>,
    run: &Run<'_>,
    findings: [PropertyFinding; 5],
    verdict: Outcome,
    reasons: Vec<String>,
    witness: Vec<String>,
) -> Verdict {
    let [agreement, termination, weak, common, strong] = findings;
    let premise = |finding: &PropertyFinding| finding.missing.as_ref().map(ToString::to_string);
    let strategy = |(process, part): (ProcessId, &crate::cast::Part)| match &part.role {
        Role::Correct => None,
        role @ (Role::Byzantine(_) | Role::Attacker(_)) => Some((process, role.to_string())),
    };
    let deciders = run.deciders();
    let decision =
        if deciders.len() == 1 { deciders.keys().next().map(|&value| value.clone()) } else { None };
    let (unnamed, named) =
        case.expected.offences.keys().partition(|process| !run.unnamed(case, **process).is_empty());
    Verdict {
        version: VERDICT_VERSION,
        verdict,
        reasons,
        agreement: agreement.observed,
        agreement_promised: agreement.missing.is_none(),
        agreement_missing_premise: premise(&agreement),
        termination: termination.observed,
        termination_promised: termination.missing.is_none(),
        termination_missing_premise: premise(&termination),
        weak_validity: weak.observed,
        weak_validity_promised: weak.missing.is_none(),
        weak_validity_missing_premise: premise(&weak),
        common_validity: common.observed,
        common_validity_promised: common.missing.is_none(),
        common_validity_missing_premise: premise(&common),
        strong_validity: strong.observed,
        strong_validity_promised: strong.missing.is_none(),
        strong_validity_missing_premise: premise(&strong),
        n: case.params.processes(),
        p: case.params.warp_size(),
        r: case.params.read_size(),
        warps: case.params.warps(),
        f: run.f,
        late: run.late.iter().copied().collect(),
        distinct_correct_proposals: run.proposals.len() as u64,
        list: run.evidence.values().cloned().collect(),
        decision,
        last_decision_phase: run.decisions.values().filter_map(|decision| decision.phase).max(),
        phase_bound: bounds::phase_bound(&case.params, run.most_missed()),
        seed: case.params.spec().seed,
        accused_correct: run.accused().collect(),
        culprits: case.expected.offences.keys().copied().collect(),
        named,
        unnamed,
        fired: case.fired.clone(),
        byzantine: case.cast.parts().filter_map(strategy).collect(),
        witness,
        blame: run.evidence.blame.clone(),
        decisions: run.decisions.iter().map(|(process, decision)| (process, decision.clone())).collect(),
    }
}
