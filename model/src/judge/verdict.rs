//! The verdict of a run, as it is written to `verdict.json` (SPEC V4). Its schema stands in
//! `docs/schema/verdict.schema.json` and is tested against this type.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounds::Property;
use crate::history::OffenceKind;
use crate::types::{Phase, ProcessId, Seed, Value};

/// Version of the form of a verdict. Raised when a field changes its meaning or goes away.
///
/// - 1: termination was `held` if no correct process was seen to be overdue, also where one had not decided.
/// - 2: termination is `unknown` there, or `violated` (V1); a process that waits for a first phase that never
///   came is punctual, so that more runs promise termination.
/// - 3: correct processes are judged by what the record shows that they did and were given (D1), not by what
///   they report to have read; `deviated` names those that differ. A false assignment of roles is `unknown`
///   before a property that broke. Offences of nested strategies count, whether or not the whole strategy
///   shows.
pub const VERDICT_VERSION: u32 = 3;

/// The outcome of a run as a whole (V4). The first of violation, outside, unknown and valid that applies; but
/// where the ground truth is false, a run that shows no breach of a rule by the server is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every rule and every promise was kept, and the run went as planned.
    Valid,
    /// A promised property or a rule of SPEC broke: a bug of ours.
    Violation,
    /// A property broke that was not promised, since a premise was missing.
    Outside,
    /// The run proves nothing.
    Unknown,
}

impl Outcome {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Valid, Self::Outside, Self::Unknown, Self::Violation];

    /// What a person reads for it: `VALID`, `BROKEN`, `PROVES NOTHING` or `VIOLATION`. What it stands for in
    /// JSON is its `Display`.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Valid => "VALID",
            Self::Violation => "VIOLATION",
            Self::Outside => "BROKEN",
            Self::Unknown => "PROVES NOTHING",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "valid",
            Self::Violation => "violation",
            Self::Outside => "outside",
            Self::Unknown => "unknown",
        })
    }
}

/// Whether a property held in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observed {
    /// It held.
    Held,
    /// It broke.
    Violated,
    /// The run does not show whether it would have held. Only termination can be unknown: a correct process
    /// has not decided, and the server did not owe it an answer (V1).
    Unknown,
}

/// The decision of one correct process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The value.
    pub value: Value,
    /// The phase of the answer after which it decided; `None` if it is not known.
    pub phase: Option<Phase>,
    /// The phase by which it had to decide: W*(q+c+m) (D2, K2).
    pub bound: Phase,
    /// m: its own phases that it missed, and the reads whose answers were lost with an earlier life of it
    /// (D2).
    pub missed: u64,
}

/// The verdict of a run.
///
/// For each property: the observation, whether the property was promised, and the premise that is missing
/// where it was not. "Correct" means: correct in the ground truth, and not made faulty by the plan (V4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// [`VERDICT_VERSION`].
    pub version: u32,
    /// The verdict as a whole.
    pub verdict: Outcome,
    /// The reasons, in sentences: violations first, then properties that broke outside the promises, then the
    /// reasons why the run proves nothing. Where the assignment of roles is false, why it is comes before the
    /// properties.
    pub reasons: Vec<String>,
    /// Observed: agreement.
    pub agreement: Observed,
    /// Whether agreement was promised.
    pub agreement_promised: bool,
    /// The premise of agreement that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreement_missing_premise: Option<String>,
    /// Observed: termination.
    pub termination: Observed,
    /// Whether termination was promised.
    pub termination_promised: bool,
    /// The premise of termination that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_missing_premise: Option<String>,
    /// Observed: weak validity, of every decision.
    pub weak_validity: Observed,
    /// Whether weak validity was promised.
    pub weak_validity_promised: bool,
    /// The premise of weak validity that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak_validity_missing_premise: Option<String>,
    /// Observed: common-value validity, of every decision.
    pub common_validity: Observed,
    /// Whether common-value validity was promised.
    pub common_validity_promised: bool,
    /// The premise of common-value validity that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_validity_missing_premise: Option<String>,
    /// Observed: strong validity, of every decision.
    pub strong_validity: Observed,
    /// Whether strong validity was promised.
    pub strong_validity_promised: bool,
    /// The premise of strong validity that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strong_validity_missing_premise: Option<String>,
    /// Processes.
    pub n: u32,
    /// Processes in a warp.
    pub p: u32,
    /// Entries that one read returns.
    pub r: u32,
    /// W, the number of warps.
    pub warps: u32,
    /// f: Byzantine processes, processes that the plan made faulty, and late correct ones (V3).
    pub f: u64,
    /// Correct processes that were late (F6, K3).
    pub late: Vec<ProcessId>,
    /// |Vc|: different values proposed by correct processes.
    pub distinct_correct_proposals: u64,
    /// The values of the list.
    pub list: Vec<Value>,
    /// The decision of all correct processes that decided; `None` where they differ or none decided.
    pub decision: Option<Value>,
    /// The decision of each correct process.
    pub decisions: BTreeMap<ProcessId, Decision>,
    /// The phase of the last decision of a correct process.
    pub last_decision_phase: Option<Phase>,
    /// W*(q+c+m) for the largest m of a correct process (D2, K2).
    pub phase_bound: Phase,
    /// The seed of the instance.
    pub seed: Seed,
    /// Offences on record, by process and kind. The machine records the first
    /// [`OFFENCES_RECORDED`](crate::machine::OFFENCES_RECORDED) of each process and kind, so a number stops
    /// there: 16 means 16 or more.
    pub blame: BTreeMap<ProcessId, BTreeMap<OffenceKind, u64>>,
    /// By the name of each attack, the number of processes that were observed to carry it out (B3).
    pub fired: BTreeMap<String, u64>,
    /// The Byzantine processes, each with its strategy.
    pub byzantine: BTreeMap<ProcessId, String>,
    /// Sentences that show how properties broke: the decisions, the lists that they came from, the counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witness: Vec<String>,
    /// Correct processes that did not act as Algorithm 1 says, by the record (D1).
    pub deviated: Vec<ProcessId>,
    /// Correct processes that were accused of an offence; must be empty (B3).
    pub accused_correct: Vec<ProcessId>,
    /// Byzantine processes that were observed to commit an offence of the closed list (B2).
    pub culprits: Vec<ProcessId>,
    /// Those of them for whom every such offence is on record.
    pub named: Vec<ProcessId>,
    /// The others; must be empty if the history is complete.
    pub unnamed: Vec<ProcessId>,
}

impl Verdict {
    /// The verdict in one line, the same wherever a person reads it: `VALID`, `BROKEN: agreement (not
    /// promised: append window open)`, `VIOLATION: ...` or `PROVES NOTHING: ...`.
    #[must_use]
    pub fn headline(&self) -> String {
        let broken: Vec<String> = Property::ALL
            .into_iter()
            .filter_map(|property| match self.finding(property) {
                (Observed::Violated, None) => Some(format!("{property} (promised)")),
                (Observed::Violated, Some(premise)) => Some(format!("{property} (not promised: {premise})")),
                (Observed::Held | Observed::Unknown, _) => None,
            })
            .collect();
        let promises = match self.verdict {
            Outcome::Valid | Outcome::Unknown => None,
            Outcome::Outside => Some(broken.join(", ")),
            Outcome::Violation => broken.into_iter().find(|property| property.ends_with("(promised)")),
        };
        match promises.as_ref().or(self.reasons.first()) {
            None => self.verdict.title().to_owned(),
            Some(what) => format!("{}: {what}", self.verdict.title()),
        }
    }

    /// The observation of a property, and the premise that is missing where it was not promised.
    #[must_use]
    pub fn finding(&self, property: Property) -> (Observed, Option<&str>) {
        let (observed, missing) = match property {
            Property::Agreement => (self.agreement, &self.agreement_missing_premise),
            Property::Termination => (self.termination, &self.termination_missing_premise),
            Property::WeakValidity => (self.weak_validity, &self.weak_validity_missing_premise),
            Property::CommonValidity => (self.common_validity, &self.common_validity_missing_premise),
            Property::StrongValidity => (self.strong_validity, &self.strong_validity_missing_premise),
        };
        (observed, missing.as_deref())
    }
}
