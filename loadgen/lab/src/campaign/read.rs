//! Reading a campaign: from a file or its text.

use std::path::Path;

use stickycas_harness::files::{FileError, FileKind, Settings, Source};

use super::check::check;
use super::file::File;
use super::plan::{Campaign, Limits};

impl Campaign {
    /// Reads and checks a campaign file with these settings. `seed` takes the place of the file's; if neither
    /// is given, one is drawn.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it that is wrong.
    pub fn load(path: &Path, seed: Option<u64>, settings: &Settings) -> Result<(Self, Limits), FileError> {
        read(&Source::load(path, &of_campaigns(settings))?, seed)
    }

    /// Checks a campaign given as the text of a file, named `file` in errors. `seed` as for
    /// [`Campaign::load`].
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, seed: Option<u64>) -> Result<(Self, Limits), FileError> {
        Self::parse_with(file, text, seed, &Settings::default())
    }

    /// As [`Campaign::parse`], with these settings in the place of the file's keys.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line or its setting.
    pub fn parse_with(
        file: &str,
        text: &str,
        seed: Option<u64>,
        settings: &Settings,
    ) -> Result<(Self, Limits), FileError> {
        read(&Source::new(file, text, &of_campaigns(settings)), seed)
    }
}

fn read(source: &Source, seed: Option<u64>) -> Result<(Campaign, Limits), FileError> {
    let checked = source.check(|written: File| check(written, seed));
    FileKind::Campaign.or_another(source, checked)
}

/// The settings of a campaign: each setting of an axis sets the axis, by whichever of its names.
fn of_campaigns(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    for (axis, alias) in [
        ("processes", Some("n")),
        ("warp_size", Some("p")),
        ("read_size", Some("r")),
        ("byzantine", Some("f")),
        ("append_window", Some("window")),
        ("append_rounds", Some("q")),
        ("arbiter", None),
        ("order", None),
    ] {
        let axis_key = format!("axes.{axis}");
        settings.rename(&format!("instance.{axis}"), &axis_key);
        if let Some(alias) = alias {
            settings.rename(&format!("axes.{alias}"), &axis_key);
            settings.rename(&format!("instance.{alias}"), &axis_key);
            if settings.has(&axis_key) {
                settings.remove(&format!("axes.{alias}"));
            }
        }
    }
    settings
}
