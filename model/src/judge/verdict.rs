//! The verdict of a run, as it is written to `verdict.json` (SPEC V4). Its schema stands in
//! `docs/schema/verdict.schema.json` and is tested against this type.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::history::OffenceKind;
use crate::types::{Phase, ProcessId, Seed, Value};

/// Version of the form of a verdict. Raised when a field changes its meaning or goes away.
pub const VERDICT_VERSION: u32 = 1;

/// What a run shows as a whole (V4). The first of violation, outside, unknown and valid that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every rule and every promise was kept, and the run did what it was meant to do.
    Valid,
    /// A promised property or a rule of SPEC broke: a bug of ours.
    Violation,
    /// A property broke that nobody promised, since a premise was missing.
    Outside,
    /// The run proves nothing.
    Unknown,
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
    /// It did not.
    Violated,
    /// The run does not show it. Of termination alone: a correct process has not decided, and not because of an
    /// access that was never answered (V1).
    Unknown,
}

/// A property of consensus (V1, V2; paper, Definitions 1 to 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// All correct processes that decide, decide the same.
    Agreement,
    /// Every correct process decides within D2's bound.
    Termination,
    /// A decision was proposed by some process.
    WeakValidity,
    /// If all correct processes propose v, the decision is v.
    CommonValidity,
    /// A decision was proposed by a correct process.
    StrongValidity,
}

impl Property {
    /// All five.
    pub const ALL: [Self; 5] =
        [Self::Agreement, Self::Termination, Self::WeakValidity, Self::CommonValidity, Self::StrongValidity];
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agreement => "agreement",
            Self::Termination => "termination",
            Self::WeakValidity => "weak validity",
            Self::CommonValidity => "common-value validity",
            Self::StrongValidity => "strong validity",
        })
    }
}

/// What one correct process decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The value.
    pub value: Value,
    /// The phase of the answer after which it decided; `None` if it is not known.
    pub phase: Option<Phase>,
    /// The phase by which it had to decide: W*(1+c+m) (D2).
    pub bound: Phase,
    /// m: its own phases that it missed, and the reads whose answers an earlier life of it took along (D2).
    pub missed: u64,
}

/// The verdict of a run.
///
/// Of each property it says what was observed, whether it was promised, and where it was not, which premise
/// is missing. "Correct" means: correct in the cast, and not made faulty by the plan (V4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// [`VERDICT_VERSION`].
    pub version: u32,
    /// The verdict as a whole.
    pub verdict: Outcome,
    /// Why, in sentences: violations first, then what broke outside the promises, then what makes the run
    /// prove nothing.
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
    /// Correct processes that missed their first phase (F6).
    pub late: Vec<ProcessId>,
    /// |Vc|: different values proposed by correct processes.
    pub distinct_correct_proposals: u64,
    /// The values of the list.
    pub list: Vec<Value>,
    /// What all correct processes that decided have decided; `None` where they differ or none did.
    pub decision: Option<Value>,
    /// What each correct process decided.
    pub decisions: BTreeMap<ProcessId, Decision>,
    /// The phase of the last decision of a correct process.
    pub last_decision_phase: Option<Phase>,
    /// W*(1+c+m) for the largest m of a correct process (D2).
    pub phase_bound: Phase,
    /// The seed of the instance.
    pub seed: Seed,
    /// Offences on record, by process. What is above the machine's limits on records is not counted.
    pub blame: BTreeMap<ProcessId, BTreeMap<OffenceKind, u64>>,
    /// How often each attack was seen to fire (B3).
    pub fired: BTreeMap<String, u64>,
    /// The Byzantine processes, each with its strategy.
    pub byzantine: BTreeMap<ProcessId, String>,
    /// What shows the properties that broke: who decided what, from which list, and the counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witness: Vec<String>,
    /// Correct processes that were accused of an offence; must be empty (B3).
    pub accused_correct: Vec<ProcessId>,
    /// Byzantine processes that were seen to commit an offence of the closed list (B2).
    pub culprits: Vec<ProcessId>,
    /// Those of them for whom every such offence is on record.
    pub named: Vec<ProcessId>,
    /// The others; must be empty if the history is complete.
    pub unnamed: Vec<ProcessId>,
}

impl Verdict {
    /// What was observed of a property, and the premise that is missing where it was not promised.
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
