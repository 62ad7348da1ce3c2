//! The facts of an instance that do not change: its parameters, its processes, and the words for both.

use std::collections::BTreeMap;

use serde::Serialize;
use stickycas_model::ground_truth::{GroundTruth, Role};
use stickycas_model::params::{Params, Patience};
use stickycas_model::types::ProcessId;

use crate::explanation;

/// Above this number of processes their names are not sent.
const NAMES: usize = 1_024;

/// The setting of an instance.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Its id, or the name of the run.
    pub id: String,
    /// Its name, or the subject of the run; may be empty. Clients choose it.
    pub title: String,
    /// n.
    pub processes: u32,
    /// p.
    pub warp_size: u32,
    /// r.
    pub read_size: u32,
    /// W.
    pub warps: u32,
    /// q.
    pub append_rounds: u32,
    /// T, the most entries that the append rounds may add.
    pub counted_entries: u32,
    /// The patience of each process, in nanoseconds; `None`: without end (F3).
    pub patience_nanos: Option<u64>,
    /// The parameters in words, each a sentence.
    pub words: Vec<String>,
    /// The names of the processes, in order; empty if there are too many.
    pub names: Vec<String>,
    /// The index of the oldest event that is kept.
    pub first_event: u64,
    /// Whether more may happen.
    pub live: bool,
    /// The parts of the processes, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cast: Option<CastShown>,
    /// Hints for viewers, in the order of the phases, if the run has any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub story: Vec<StoryStep>,
}

/// A hint for viewers of a run, for one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StoryStep {
    /// The phase; 0 is before the first.
    pub phase: u64,
    /// A few sentences.
    pub says: &'static str,
}

/// The parts of the processes, as the scenario of a run gives them. A server does not know them.
#[derive(Clone, Debug, Serialize)]
pub struct CastShown {
    /// Byzantine processes, and what they play.
    pub byzantine: BTreeMap<u32, String>,
    /// Processes that the plan makes faulty: they are not judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faulty: Vec<ProcessId>,
    /// The proposals of correct processes, in the order of all processes; those of others are `None`.
    pub proposals: Vec<Option<String>>,
    /// |Vc|: how many different values correct processes propose.
    pub values: u64,
    /// f, as the judge counts it.
    pub f: u64,
}

impl Setting {
    /// The setting of an instance with these parameters, of which every event is kept.
    #[must_use]
    pub fn new(id: String, title: String, params: &Params, names: &[&str], live: bool) -> Self {
        let spec = params.spec();
        let names = if names.len() <= NAMES { names } else { &[] };
        Self {
            id,
            title,
            processes: params.processes(),
            warp_size: params.warp_size(),
            read_size: params.read_size(),
            warps: params.warps(),
            append_rounds: params.append_rounds(),
            counted_entries: params.counted_entries(),
            patience_nanos: match spec.patience {
                Patience::Finite(patience) => Some(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)),
                Patience::Endless => None,
            },
            words: vec![
                format!("Warps take turns {}.", explanation::order(params)),
                format!("Of the appends of a phase one wins, {}.", explanation::arbiter(params)),
                format!("{}.", explanation::append_window(params)),
            ],
            names: names.iter().map(|&name| name.to_owned()).collect(),
            first_event: 0,
            live,
            cast: None,
            story: Vec::new(),
        }
    }
}

impl CastShown {
    /// The ground truth of a run with the f that its judge counts.
    #[must_use]
    pub fn new(truth: &GroundTruth, f: u64) -> Self {
        let mut byzantine = BTreeMap::new();
        let mut proposals = Vec::new();
        let mut values = std::collections::BTreeSet::new();
        for (process, assignment) in truth.assignments() {
            let is_correct = matches!(assignment.role, Role::Correct);
            if !is_correct {
                byzantine.insert(ProcessId::get(process), assignment.role.to_string());
            } else {
                values.insert(&assignment.proposal);
            }
            proposals.push(is_correct.then(|| assignment.proposal.to_string()));
        }
        let faulty = truth.faulty().iter().copied().collect();
        Self { byzantine, faulty, proposals, values: values.len() as u64, f }
    }
}
