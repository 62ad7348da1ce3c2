//! Profiles: the load to put on a server, as data.
//!
//! A profile describes the instances, as scenarios do, their Byzantine processes, and how many instances
//! begin when. Flags of the command line take the place of single keys. Like a scenario it is read in two
//! steps, as written and as checked, and written back with nothing left to defaults or draws, so that every
//! result shows its whole profile. Its keys: `docs/use/files.md`.

mod check;
mod file;
mod flags;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stickycas_harness::fault_plan::FaultPlan;
use stickycas_harness::files::{FileError, FileKind, Source, schema_of};
use stickycas_model::params::Params;

pub use self::file::{Load, Prefix};
pub use self::flags::Flags;
use super::arrivals::{Arrivals, Piece, Spacing};
use super::fail_if::FailIf;

/// A load that can be put on a server.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Its name: letters, digits, `-` and `_`, at most 64. Result folders begin with it.
    pub name: String,
    /// Its purpose, in one line; may be empty.
    pub about: String,
    /// From which everything is drawn: seeds of instances, proposals, arrivals.
    pub seed: u64,
    /// Parameters of every instance, but for its seed.
    pub params: Arc<Params>,
    /// Different values that correct processes of an instance propose.
    pub distinct: u32,
    /// Bytes of each value.
    pub value_bytes: u32,
    /// How the load is put on, as the file has it; what follows is checked.
    pub load: Load,
    /// When instances begin.
    pub pacing: Pacing,
    /// For how long instances begin, the warm-up included; `None`: until there are enough.
    pub duration: Option<Duration>,
    /// An instance that begins in this time from the start counts in no figure; it is judged all the same.
    pub warm_up: Duration,
    /// The largest share of instances that may fail or be refused; above it, the run has failed.
    pub max_errors: f64,
    /// The conditions that fail the run.
    pub fail_if: Vec<FailIf>,
    /// Which process of an instance is Byzantine: the same in each.
    pub(super) faults: FaultPlan,
}

/// When instances begin.
#[derive(Clone, Debug, PartialEq)]
pub enum Pacing {
    /// So many are under way at any time: the next begins when one has ended.
    Closed {
        /// How many.
        in_flight: u32,
    },
    /// When the schedule says, whether or not earlier ones have ended.
    Open(Open),
}

/// An open loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    /// The rate over time.
    pub pieces: Vec<Piece>,
    /// How regularly instances begin.
    pub spacing: Spacing,
    /// An instance that would be one more under way does not begin, and its start is missed: a bound on
    /// memory.
    pub max_in_flight: u32,
    /// A start so late after its planned moment is missed.
    pub late_after: Duration,
    /// The largest share of starts that may be missed; above it, the run has failed.
    pub max_missed: f64,
}

/// How processes speak to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// One Attach stream for each principal, with all its instances on it
    #[default]
    Attach,
    /// A unary call for each access and each decision
    Unary,
}

impl Profile {
    /// How many connections its principals have.
    #[must_use]
    pub fn connections(&self) -> u64 {
        let of_a_group = self.params.processes().div_ceil(self.load.principals_per_connection.get());
        u64::from(self.load.rosters.get()) * u64::from(of_a_group)
    }

    /// For how long instances begin that count in figures; `None` if that depends on how many there are.
    #[must_use]
    pub fn measured(&self) -> Option<Duration> {
        self.duration.map(|duration| duration.saturating_sub(self.warm_up))
    }

    /// The starts of an open loop; `None` for a closed one.
    #[must_use]
    pub fn arrivals(&self) -> Option<Arrivals> {
        match &self.pacing {
            Pacing::Closed { .. } => None,
            Pacing::Open(open) => Some(Arrivals::new(open.pieces.clone(), open.spacing, self.seed)),
        }
    }
}

/// The load without a file: small instances, for ten seconds.
pub const DEFAULT: &str = r#"name = "load"
about = "small instances"

[instance]
processes = 8
warp_size = 2
read_size = 4

[load]
in_flight = 16
duration = "10s"
"#;

/// The warm-up of [`DEFAULT`], unless a tenth of the duration is less. A profile of one's own has none by
/// default.
const DEFAULT_WARM_UP: Duration = Duration::from_secs(1);

impl Profile {
    /// Reads and checks a profile, or [`DEFAULT`] without a file, with these flags in the place of its keys.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it or in the flags that is wrong.
    pub fn load(path: Option<&Path>, flags: &Flags) -> Result<Self, FileError> {
        let settings = flags.settings().map_err(FileError::Setting)?;
        let (source, warm_up) = match path {
            Some(path) => (Source::load(path, &settings)?, Duration::ZERO),
            None => (Source::new("the default profile", DEFAULT, &settings), DEFAULT_WARM_UP),
        };
        let checked = source.check(|written: file::File| check::check(written, warm_up));
        FileKind::Profile.or_another(&source, checked)
    }

    /// Checks a profile given as the text of a file, named `file` in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line or its flag.
    pub fn parse(file: &str, text: &str, flags: &Flags) -> Result<Self, FileError> {
        let settings = flags.settings().map_err(FileError::Setting)?;
        Source::new(file, text, &settings).check(|written: file::File| check::check(written, Duration::ZERO))
    }
}

/// The JSON Schema of a load profile file.
#[must_use]
pub fn schema() -> schemars::Schema {
    schema_of::<file::File>()
}

#[cfg(test)]
mod tests;
