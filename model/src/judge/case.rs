//! The case of the judge: the ground truth of a run, and the evidence of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::detection::Detection;
use crate::ground_truth::GroundTruth;
use crate::history::{OffenceKind, Recorded};
use crate::params::Params;
use crate::process::Report;
use crate::types::ProcessId;

/// The expectations of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Expectations {
    /// Correct processes that are killed, paused or restarted without memory: they count as faulty (V4).
    pub faulty: BTreeSet<ProcessId>,
    /// Correct processes that are made to be late (F6, K3).
    pub late: BTreeSet<ProcessId>,
    /// Attacks that must be observed (B3), by the names under which [`Case::fired`] counts them.
    pub attacks: BTreeSet<String>,
    /// Offences that Byzantine processes were observed to commit: each must be on record (B2).
    pub offences: BTreeMap<ProcessId, BTreeSet<OffenceKind>>,
    /// Whether the ground truth is assumed, for a history of a server: nothing was planned, and nobody
    /// reports but to the server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
    /// Whether others started the processes, and not the program that judges: one that does not act as its
    /// part in the ground truth has it shows then that the assignment of roles is false, and no bug of ours
    /// (V4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub started_elsewhere: bool,
    /// Further evidence that correct processes played other roles than the ground truth gives them, in
    /// sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub role_mismatches: Vec<String>,
}

impl Expectations {
    /// The expectations that follow from the ground truth of a run and the attacks that were detected in it.
    #[must_use]
    pub fn new(truth: &GroundTruth, detection: &Detection) -> Self {
        Self {
            faulty: truth.faulty().clone(),
            late: truth.late().clone(),
            attacks: detection.fired.keys().cloned().collect(),
            offences: detection.offences.clone(),
            ..Self::default()
        }
    }

    /// Whether a server's history is judged, or that of a run whose processes others started.
    pub(super) fn are_started_elsewhere(&self) -> bool {
        self.assumed || self.started_elsewhere
    }
}

/// A run with its ground truth and its evidence.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// The role of each process. Must have an assignment for each of the n.
    pub truth: &'a GroundTruth,
    /// The expectations.
    pub expected: &'a Expectations,
    /// The history of the instance.
    pub history: &'a [Recorded],
    /// Whether the history goes to the end of the run without a gap.
    pub complete: bool,
    /// The reports of processes. Only those of correct ones are used.
    pub reports: &'a [Report],
    /// By the name of each attack, the number of processes that were observed to carry it out.
    pub fired: BTreeMap<String, u64>,
}
