//! Reading a campaign: from a file or its text.

use std::path::Path;

use super::check::check;
use super::file::File;
use super::plan::{Campaign, Wishes};
use crate::scenario::{Problem, ScenarioError, read_toml};

impl Campaign {
    /// Reads and checks a campaign file. `seed` takes the place of the file's; if neither is given, one is drawn.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>) -> Result<(Self, Wishes), ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&path.display().to_string(), &text, seed)
    }

    /// Checks a campaign given as the text of a file, named `file` in errors. `seed` as for [`Campaign::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<(Self, Wishes), ScenarioError> {
        read_toml::<File>(text)
            .and_then(|written| check(written, seed))
            .map_err(|fault| ScenarioError::Invalid(Problem::new(file, text, fault)))
    }
}
