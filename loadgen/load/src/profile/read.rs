//! Reading a profile: from a file or its text, with flags in the place of its keys.

use std::path::Path;
use std::time::Duration;

use stickycas_harness::files::{FileError, Source};

use super::Profile;
use super::check::check;
use super::file::File;
use super::flags::Flags;

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
        source.check(|written: File| check(&written, warm_up))
    }

    /// Checks a profile given as the text of a file, named `file` in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line or its flag.
    pub fn parse(file: &str, text: &str, flags: &Flags) -> Result<Self, FileError> {
        let settings = flags.settings().map_err(FileError::Setting)?;
        Source::new(file, text, &settings).check(|written: File| check(&written, Duration::ZERO))
    }
}
