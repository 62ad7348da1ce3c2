//! A scenario file as it is written: every key that there is, and where in the text each value stands.

use serde::Deserialize;
use stickycas_model::judge::Outcome;
use toml::Spanned;

use crate::fault_plan::Placement;
use crate::files::instance::Instance;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    pub(super) expect: Option<Outcome>,
    /// From which everything is drawn. Files of before have it in `[instance]`.
    pub(super) seed: Option<Spanned<u64>>,
    /// Correct processes that come when their first phase has passed.
    #[serde(default)]
    pub(super) late: Vec<Spanned<u32>>,
    /// Correct processes that somebody kills, restarts without memory or the like in the course of the run.
    #[serde(default)]
    pub(super) faulty: Vec<Spanned<u32>>,
    pub(super) instance: Spanned<Instance>,
    pub(super) proposals: Spanned<Proposals>,
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Faults>>,
}

/// `[proposals]`: one value for each process, or so many values to draw from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposals {
    pub(super) values: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) distinct: Option<Spanned<u32>>,
    pub(super) seed: Option<Spanned<u64>>,
}

/// `[[faults]]`: these processes, or so many of them, play this strategy or carry out this wire attack.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Faults {
    pub(super) strategy: Option<Spanned<String>>,
    pub(super) attack: Option<Spanned<String>>,
    pub(super) processes: Option<Spanned<Vec<Spanned<u32>>>>,
    pub(super) count: Option<Spanned<u32>>,
    pub(super) placement: Option<Spanned<Placement>>,
    /// Each is correct at first, and corrupted in a phase that is drawn from these: the first and the last.
    pub(super) corrupted_in: Option<Spanned<[u64; 2]>>,
    pub(super) seed: Option<Spanned<u64>>,
}

impl File {
    /// Whether the scenario's seed has a say in who is Byzantine and how.
    pub(super) fn draws_parts(&self) -> bool {
        self.faults.iter().any(|group| !group.get_ref().is_settled())
    }

    /// Whether the scenario's seed has a say in who proposes what.
    pub(super) fn draws_proposals(&self) -> bool {
        let proposals = self.proposals.get_ref();
        proposals.distinct.is_some() && proposals.seed.is_none()
    }
}

impl Faults {
    /// Whether it is the same under every seed of the scenario.
    fn is_settled(&self) -> bool {
        let placement = self.placement.as_ref().map_or_else(Placement::default, |given| *given.get_ref());
        let is_placed = self.processes.is_some() || placement != Placement::Random;
        self.seed.is_some() || (is_placed && self.corrupted_in.is_none())
    }
}
