//! Reading a campaign: from a file or its text.

use std::path::Path;

use stickycas_harness::files::{FileError, Settings, Source};

use super::check::check;
use super::file::File;
use super::plan::{Campaign, Limits};

impl Campaign {
    /// Reads and checks a campaign file with these settings. `seed` takes the place of the file's; if neither is given, one is drawn.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>, settings: &Settings) -> Result<(Self, Limits), FileError> {
        Source::load(path, settings)?.check(|written: File| check(written, seed))
    }

    /// Checks a campaign given as the text of a file, named `file` in errors. `seed` as for [`Campaign::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<(Self, Limits), FileError> {
        Source::new(file, text, &Settings::default()).check(|written: File| check(written, seed))
    }
}
