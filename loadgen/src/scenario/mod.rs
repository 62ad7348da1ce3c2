//! Scenarios: whole runs as data.
//!
//! A scenario file says what instance there is, who proposes what, and who is Byzantine and how. It is read in
//! two steps: [`file`] holds it as written, [`Scenario`] as checked, with every default, draw and seed filled
//! in. Simulation and real processes start from the same [`Scenario`], and a run folder keeps it, written back
//! by [`Scenario::to_toml`], so that it can be repeated without drawing anything again.

pub(crate) mod check;
mod error;
pub(crate) mod file;
mod overrides;
mod template;
pub(crate) mod write;

use std::path::Path;
use std::sync::Arc;

use stickycas_model::cast::Cast;
use stickycas_model::judge::Outcome;
use stickycas_model::params::Params;
use stickycas_model::sim;

pub(crate) use self::error::{Fault, read_toml};
pub use self::error::{NeedsNetwork, Problem, ScenarioError};
pub use self::overrides::{OverrideError, Overrides};
pub use self::template::Template;

/// The largest seed: the largest integer of a TOML file.
pub const LARGEST_SEED: u64 = i64::MAX as u64;

/// A scenario that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name: letters, digits, `-` and `_`, at most 64. Run folders begin with it.
    pub name: String,
    /// What it shows, in one line; may be empty.
    pub about: String,
    /// The verdict that its author promises. A run does not look at it; scripts and tests do.
    pub expect: Option<Outcome>,
    /// Parameters of the instance.
    pub params: Arc<Params>,
    /// Who proposes what and plays which part.
    pub cast: Cast,
    /// From which everything is drawn that the file does not fix. Also the seed of the instance (W4).
    pub seed: u64,
}

impl Scenario {
    /// Reads and checks a scenario file. `seed` takes the place of the file's; if neither is given, one is
    /// drawn.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>) -> Result<Self, ScenarioError> {
        Self::load_with(path, seed, &Overrides::default())
    }

    /// The same with these values in the place of the file's.
    ///
    /// # Errors
    /// As for [`Scenario::load`]; what one of these values makes wrong is told by where it came from.
    pub fn load_with(path: &Path, seed: Option<u64>, overrides: &Overrides) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })?;
        Self::parse_with(&path.display().to_string(), &text, seed, overrides)
    }

    /// Checks a scenario given as the text of a file, named `file` in errors. `seed` as for [`Scenario::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<Self, ScenarioError> {
        Self::parse_with(file, text, seed, &Overrides::default())
    }

    /// The same with these values in the place of the text's.
    ///
    /// # Errors
    /// As for [`Scenario::parse`]; what one of these values makes wrong is told by where it came from.
    pub fn parse_with(
        file: &str,
        text: &str,
        seed: Option<u64>,
        overrides: &Overrides,
    ) -> Result<Self, ScenarioError> {
        let checked = read_toml::<file::File>(text).and_then(|mut written| {
            overrides.apply(&mut written, text.len())?;
            check::check(&written, seed)
        });
        checked.map_err(|fault| match overrides.blame(text.len(), &fault) {
            Some(error) => ScenarioError::Overridden(error),
            None => ScenarioError::Invalid(Problem::new(file, text, fault)),
        })
    }

    /// The same scenario as the text of a file in which nothing is left to defaults or draws.
    #[must_use]
    pub fn to_toml(&self) -> String {
        write::to_toml(self)
    }

    /// Whether the simulator can show what the scenario is about.
    ///
    /// # Errors
    /// It has wire attacks, which only the network can show.
    pub fn check_simulable(&self) -> Result<(), NeedsNetwork> {
        self.cast.attackers().next().map_or(Ok(()), |(_, attack)| Err(NeedsNetwork(attack)))
    }

    /// The scenario as the simulator takes it.
    #[must_use]
    pub fn plan(&self) -> sim::SimPlan {
        sim::SimPlan { params: Arc::clone(&self.params), cast: self.cast.clone(), seed: self.seed }
    }
}

/// A seed from the operating system, short enough to be typed.
#[must_use]
pub fn draw_seed() -> u64 {
    u64::from(rand::random::<u32>())
}
