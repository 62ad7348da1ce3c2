//! Scenarios: whole runs as data.
//!
//! A scenario file describes an instance, the proposals and the Byzantine processes. It is read in two steps:
//! [`file`] holds it as written, [`Scenario`] as checked, with every default, draw and seed filled in.
//! Simulation and real processes start from the same [`Scenario`], and a run folder keeps it, written back by
//! [`Scenario::to_toml`], so that it can be repeated without drawing anything again.

pub(crate) mod check;
pub(crate) mod file;
mod read;
mod template;
pub(crate) mod write;

use std::sync::Arc;

use stickycas_model::byzantine::WireAttack;
use stickycas_model::ground_truth::GroundTruth;
use stickycas_model::judge::Outcome;
use stickycas_model::params::Params;
use stickycas_model::sim;

pub use self::template::Template;
use crate::files::schema_of;
pub use crate::files::{FileError, LARGEST_SEED, Problem, SettingError, Settings, draw_seed};

/// Why the simulator has nothing to show of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wire attacks need the network, and the scenario has {0}: use run")]
pub struct NeedsNetwork(pub WireAttack);

/// A scenario that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name: letters, digits, `-` and `_`, at most 64. Run folders begin with it.
    pub name: String,
    /// Its subject, in one line; may be empty.
    pub about: String,
    /// The verdict that its author promises. A run does not look at it; scripts and tests do.
    pub expect: Option<Outcome>,
    /// Parameters of the instance.
    pub params: Arc<Params>,
    /// The proposal and the part of each process.
    pub truth: GroundTruth,
    /// From which everything is drawn that the file does not fix. Also the seed of the instance (W4).
    pub seed: u64,
}

impl Scenario {
    /// Whether the simulator can show what the scenario is about.
    ///
    /// # Errors
    /// It has wire attacks, which only the network can show.
    pub fn check_simulable(&self) -> Result<(), NeedsNetwork> {
        self.truth.attackers().next().map_or(Ok(()), |(_, attack)| Err(NeedsNetwork(attack)))
    }

    /// The scenario as the simulator takes it.
    #[must_use]
    pub fn plan(&self) -> sim::SimPlan {
        sim::SimPlan { params: Arc::clone(&self.params), truth: self.truth.clone(), seed: self.seed }
    }
}

/// The JSON Schema of a scenario file.
#[must_use]
pub fn schema() -> schemars::Schema {
    schema_of::<file::File>()
}
