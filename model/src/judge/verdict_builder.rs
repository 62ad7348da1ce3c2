//! The verdict, from what is found of the properties and rules.

use crate::bounds;
use crate::cast::{Part, Role};
use crate::types::ProcessId;

use super::analysis::Analysis;
use super::case::Case;
use super::evidence::Evidence;
use super::properties::{self, PropertyFinding};
use super::rules::{self, RuleFindings, Violation};
use super::unknown::unknown_reasons;
use super::verdict::{Observed, Outcome, VERDICT_VERSION, Verdict};

/// Judges a run. See the module.
#[must_use]
pub fn judge(case: &Case<'_>) -> Verdict {
    let evidence = Evidence::gather(case);
    let run = Analysis::new(case, &evidence);
    let findings = properties::find(case, &run);
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
    let unknown = unknown_reasons(case, &run);

    let found = rules::find(case, &run);
    let outcome = Outcome::of(&found, !promised.is_empty(), !outside.is_empty(), !unknown.is_empty());
    let RuleFindings { violations, false_cast, deviated } = found;
    let says = |violations: Vec<Violation>| violations.into_iter().map(|violation| violation.says).collect();
    let (rules, cast): (Vec<String>, Vec<String>) = (says(violations), says(false_cast));
    let reasons = match cast.is_empty() {
        true => [promised, rules, outside, unknown].concat(),
        false => [rules, cast, promised, outside, unknown].concat(),
    };
    let mut witness: Vec<String> = Vec::new();
    for sentence in broken().flat_map(|finding| &finding.witness) {
        if !witness.contains(sentence) {
            witness.push(sentence.clone());
        }
    }
    let verdict = write(case, &run, findings, outcome, reasons, witness);
    Verdict { deviated, ..verdict }
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
    let strategy = |(process, part): (ProcessId, &Part)| match &part.role {
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
        deviated: Vec::new(),
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
