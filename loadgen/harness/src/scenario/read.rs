//! Reading a scenario: from a file or its text, with settings in the place of its values.

use std::path::Path;

use super::Scenario;
use super::check::check;
use super::file::File;
use crate::files::{FileError, Settings, Source};

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
        source.check(|written: File| check(&written, seed))
    }
}
