//! The runs that tell the story of the project, in this order. Each is a scenario file of the repository.

use serde::Serialize;

use crate::scenario::{FileError, Scenario};

/// A run that is offered.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Preset {
    /// The name of its scenario.
    pub(super) name: &'static str,
    /// What to look at, in a few sentences.
    pub(super) story: &'static str,
    #[serde(skip)]
    file: &'static str,
}

macro_rules! preset {
    ($name:literal, $story:literal) => {
        Preset {
            name: $name,
            story: $story,
            file: include_str!(concat!("../../../../scenarios/", $name, ".toml")),
        }
    };
}

const PRESETS: [Preset; 6] = [
    preset!("all-correct", "Nobody is Byzantine. Each warp adds one entry, everybody reads them, everybody decides alike."),
    preset!("at-the-bound", "Two Byzantine processes collude and win their warps. The theorem still bears, by one entry."),
    preset!("over-the-bound", "One correct process fewer, and the theorem does not bear any more: the value of the colluders is decided, which no correct process proposed. All still decide alike."),
    preset!("late-append-open", "The hole in Algorithm 1 as printed. Process 3 reads first and appends in the second round, between the reads of others: some decide without its entry, some with it. Step from phase 5 on."),
    preset!("late-append", "The same with the append window closed: the late append is refused, and all decide alike."),
    preset!("silent-minority", "Two processes join and say nothing. Their warp is awaited until their patience is spent, once, and never again."),
];

/// All of them.
pub(super) fn all() -> Vec<Preset> {
    PRESETS.to_vec()
}

/// The scenario of a preset.
pub(super) fn scenario(name: &str) -> Result<Scenario, Unknown> {
    let preset = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| Unknown::Name(name.to_owned()))?;
    // The seed of the golden runs.
    Ok(Scenario::parse(preset.name, preset.file, Some(3))?)
}

/// Why there is no such preset.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unknown {
    #[error("there is no preset {0:?}")]
    Name(String),
    #[error(transparent)]
    File(#[from] FileError),
}
