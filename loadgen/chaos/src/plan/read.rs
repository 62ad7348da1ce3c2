//! Reading a plan: from a file or its text.

use std::path::Path;

use stickycas_harness::files::{FileError, Settings, Source};

use super::Plan;
use super::check::check;
use super::file::{File, InstanceOf};

impl Plan {
    /// Reads and checks a plan.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path) -> Result<Self, FileError> {
        Self::read(&Source::load(path, &Settings::default())?)
    }

    /// Checks a plan given as the text of a file, named `file` in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        Self::read(&Source::new(file, text, &Settings::default()))
    }

    fn read(source: &Source) -> Result<Self, FileError> {
        // The keys of the instance are those of scenarios.
        source.check(|InstanceOf { instance: _ }| Ok(()))?;
        source.check(|written: File| check(written, &source.file, &source.text))
    }
}
