//! Scenarios: whole runs as data.
//!
//! A scenario file describes an instance, the proposals and the Byzantine processes. It is read in two steps:
//! [`file`] holds it as written, [`Scenario`] as checked, with every default, draw and seed filled in.
//! Simulation and real processes start from the same [`Scenario`], and a run folder keeps it, written back by
//! [`Scenario::to_toml`], so that it can be repeated without drawing anything again.

mod check;
mod file;
mod template;

use std::path::Path;
use std::sync::Arc;

use stickycas_model::byzantine::WireAttack;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::judge::Outcome;
use stickycas_model::params::Params;
use stickycas_model::sim;
use stickycas_model::types::ProcessId;

pub use self::file::{File, Proposals};
pub use self::template::Template;
pub use crate::files::{FileError, LARGEST_SEED, Problem, SettingError, Settings, draw_seed};
use crate::files::{FileKind, Source, schema_of};

/// Why a scenario cannot be run in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRunnable {
    /// The simulator has nothing to show of it.
    #[error("wire attacks need the network, and the scenario has {0}: use run")]
    NeedsNetwork(WireAttack),
    /// We do not start all of its processes.
    #[error("external is played by a program of yours: use stickycas-loadgen judge")]
    External,
}

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
    /// Reads and checks a scenario file. `seed` takes the place of the file's; if neither is given, one is
    /// drawn.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>) -> Result<Self, FileError> {
        Self::load_with(path, seed, &Settings::default())
    }

    /// The same with these values in the place of the file's.
    ///
    /// # Errors
    /// As for [`Scenario::load`]; an error in one of these values names where it came from.
    pub fn load_with(path: &Path, seed: Option<u64>, settings: &Settings) -> Result<Self, FileError> {
        Self::read(&Source::load(path, settings)?, seed)
    }

    /// Checks a scenario given as the text of a file, named `file` in errors. `seed` as for
    /// [`Scenario::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<Self, FileError> {
        Self::parse_with(file, text, seed, &Settings::default())
    }

    /// The same with these values in the place of the text's.
    ///
    /// # Errors
    /// As for [`Scenario::parse`]; an error in one of these values names where it came from.
    pub fn parse_with(
        file: &str,
        text: &str,
        seed: Option<u64>,
        settings: &Settings,
    ) -> Result<Self, FileError> {
        Self::read(&Source::new(file, text, settings), seed)
    }

    fn read(source: &Source, seed: Option<u64>) -> Result<Self, FileError> {
        let checked = source.check(|written: File| check::check(&written, seed));
        FileKind::Scenario.or_another(source, checked)
    }

    /// Whether the simulator can show what the scenario is about.
    ///
    /// # Errors
    /// It has wire attacks, which only the network can show, or a process that is a program of others.
    pub fn check_simulable(&self) -> Result<(), NotRunnable> {
        self.check_runnable()?;
        self.truth.attackers().next().map_or(Ok(()), |(_, attack)| Err(NotRunnable::NeedsNetwork(attack)))
    }

    /// Whether all processes of the scenario can be started from here.
    ///
    /// # Errors
    /// It has a process that is a program of others.
    pub fn check_runnable(&self) -> Result<(), NotRunnable> {
        let is_external = |(_, assignment): (ProcessId, &Assignment)| assignment.role == Role::External;
        if self.truth.assignments().any(is_external) { Err(NotRunnable::External) } else { Ok(()) }
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
    schema_of::<File>()
}
