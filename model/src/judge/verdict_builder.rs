//! The verdict, from what is found of the properties and rules, and the reasons why a run proves nothing
//! (SPEC V4, B3).

use crate::bounds;
use crate::ground_truth::{Assignment, Role};
use crate::process::ProcessEnd;
use crate::types::ProcessId;

use super::analysis::Analysis;
use super::case::Case;
use super::evidence::Evidence;
use super::properties::{self, PropertyFinding, few};
use super::rules::{self, RuleFindings, Violation};
use super::verdict::{Observed, Outcome, VERDICT_VERSION, Verdict};

/// Judges a run. See the module.
#[must_use]
pub fn judge(case: &Case<'_>) -> Verdict {
    let evidence = Evidence::gather(case);
    verdict(case, &Analysis::new(case, &evidence))
}

/// The verdict of a run from what follows from its case.
pub(super) fn verdict(case: &Case<'_>, run: &Analysis<'_>) -> Verdict {
    let findings = properties::find(case, run);
    let broken = || findings.iter().filter(|finding| finding.observed == Observed::Violated);
    let says = |promise: &str, finding: &PropertyFinding| {
        let shown = finding.witness.first().map_or("", String::as_str);
        match &finding.missing {
            None => format!("{} {promise} and broke: {shown}", finding.property),
            Some(premise) => format!("{} {promise} and broke: {shown} ({premise})", finding.property),
        }
    };
    let promised: Vec<String> = broken()
        .filter(|finding| finding.missing.is_none())
        .map(|finding| says("was promised", finding))
        .collect();
    let outside: Vec<String> = broken()
        .filter(|finding| finding.missing.is_some())
        .map(|finding| says("was not promised", finding))
        .collect();
    let unknown = unknown_reasons(case, run);

    let found = rules::find(case, run);
    let outcome = outcome(&found, !promised.is_empty(), !outside.is_empty(), !unknown.is_empty());
    let RuleFindings { violations, false_roles, deviated } = found;
    let says = |violations: Vec<Violation>| violations.into_iter().map(|violation| violation.says).collect();
    let (rules, roles): (Vec<String>, Vec<String>) = (says(violations), says(false_roles));
    let reasons = match roles.is_empty() {
        true => [promised, rules, outside, unknown].concat(),
        false => [rules, roles, promised, outside, unknown].concat(),
    };
    let mut witness: Vec<String> = Vec::new();
    for sentence in broken().flat_map(|finding| &finding.witness) {
        if !witness.contains(sentence) {
            witness.push(sentence.clone());
        }
    }
    let verdict = write(case, run, findings, outcome, reasons, witness);
    Verdict { deviated, ..verdict }
}

/// The outcome of a run in which these kinds of reasons were found: the first that applies (V4).
pub(super) fn outcome(
    rules: &RuleFindings,
    promised_broke: bool,
    other_broke: bool,
    unknown: bool,
) -> Outcome {
    match (promised_broke, other_broke, unknown) {
        _ if !rules.violations.is_empty() => Outcome::Violation,
        _ if !rules.false_roles.is_empty() => Outcome::Unknown,
        (true, _, _) => Outcome::Violation,
        (false, true, _) => Outcome::Outside,
        (false, false, true) => Outcome::Unknown,
        (false, false, false) => Outcome::Valid,
    }
}

/// Writes the verdict.
fn write(
    case: &Case<'_>,
    run: &Analysis<'_>,
    findings: [PropertyFinding; 5],
    verdict: Outcome,
    reasons: Vec<String>,
    witness: Vec<String>,
) -> Verdict {
    let [agreement, termination, weak, common, strong] = findings;
    let premise = |finding: &PropertyFinding| finding.missing.as_ref().map(ToString::to_string);
    let strategy = |(process, assignment): (ProcessId, &Assignment)| match &assignment.role {
        Role::Correct => None,
        role @ (Role::Byzantine(_) | Role::Attacker(_) | Role::External) => Some((process, role.to_string())),
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
        deviated: Vec::new(),
        accused_correct: run.accused().collect(),
        culprits: case.expected.offences.keys().copied().collect(),
        named,
        unnamed,
        fired: case.fired.clone(),
        byzantine: case.truth.assignments().filter_map(strategy).collect(),
        witness,
        blame: run.evidence.blame.clone(),
        decisions: run.decisions.iter().map(|(process, decision)| (process, decision.clone())).collect(),
    }
}

/// The reasons why the run proves nothing.
pub(super) fn unknown_reasons(case: &Case<'_>, run: &Analysis<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if !case.complete {
        found.push("the history is incomplete".to_owned());
    }
    let unfired =
        case.expected.attacks.iter().filter(|attack| case.fired.get(*attack).is_none_or(|&count| count == 0));
    found.extend(unfired.map(|attack| format!("the attack {attack} was planned and never seen to fire")));
    let late: Vec<ProcessId> =
        run.late.iter().copied().filter(|process| !case.expected.late.contains(process)).collect();
    // Where nothing was planned, whoever is late counts in f, and that is all.
    if !late.is_empty() && !case.expected.assumed {
        found.push(format!("late, which the plan does not name: {}", few(&late)));
    }
    let came_in_time = |process: &&ProcessId| !run.late.contains(process);
    let punctual: Vec<ProcessId> = case.expected.late.iter().filter(came_in_time).copied().collect();
    if !punctual.is_empty() {
        found.push(format!("planned to be late, and were not: {}", few(&punctual)));
    }
    let missing = run.correct.iter().filter(|process| !run.reports.contains(**process));
    let missing: Vec<&ProcessId> = missing.collect();
    if !missing.is_empty() {
        let what = if case.expected.assumed { "decision" } else { "report" };
        found.push(format!("no {what} came from correct processes: {}", few(missing)));
    }
    for (process, report) in run.reports.iter() {
        match (&report.ended, &report.decision) {
            (ProcessEnd::Failed(why), _) => {
                found.push(format!("process {process} is correct and failed: {why}"));
            }
            (ProcessEnd::Decided, None) => {
                found.push(format!("process {process} says that it decided, and not what"));
            }
            (ProcessEnd::Decided, Some(_)) | (ProcessEnd::NothingToDecide, _) => {}
        }
    }
    found
}
