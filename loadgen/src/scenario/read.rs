//! Reading a scenario: from a file or its text, with overrides in the place of its values.

use std::path::Path;

use super::Scenario;
use super::check::check;
use super::error::{Problem, ScenarioError, read_toml};
use super::file::File;
use super::overrides::Overrides;

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
        let checked = read_toml::<File>(text).and_then(|mut written| {
            overrides.apply(&mut written, text.len())?;
            check(&written, seed)
        });
        checked.map_err(|fault| match overrides.blame(text.len(), &fault) {
            Some(error) => ScenarioError::Overridden(error),
            None => ScenarioError::Invalid(Problem::new(file, text, fault)),
        })
    }
}
