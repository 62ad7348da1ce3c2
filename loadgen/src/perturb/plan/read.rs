//! Reading a plan: from a file or its text.

use std::path::Path;

use super::Plan;
use super::check::check;
use super::file::File;
use crate::scenario::{Problem, ScenarioError, read_toml};

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Checks a plan given as the text of a file, named `file` in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        read_toml::<File>(text)
            .and_then(|written| check(written, file, text))
            .map_err(|fault| ScenarioError::Invalid(Problem::new(file, text, fault)))
    }
}
