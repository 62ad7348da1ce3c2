//! Reading a profile: from a file or its text, with flags in the place of its keys.

use std::path::Path;
use std::time::Duration;

use super::Profile;
use super::check::check;
use super::file::File;
use super::flags::Flags;
use super::set::set;
use crate::scenario::{Fault, Problem, ScenarioError, read_toml};

/// The load without a file: a closed loop of small instances, for ten seconds.
pub const DEFAULT: &str = r#"name = "load"
about = "a closed loop of small instances"

[instance]
processes = 8
warp_size = 2
read_size = 4

[load]
in_flight = 16
duration = "10s"
"#;

/// The warm-up of [`DEFAULT`], unless a tenth of the duration is less. A profile of one's own has none by default.
const DEFAULT_WARM_UP: Duration = Duration::from_secs(1);

impl Profile {
    /// Reads and checks a profile, or [`DEFAULT`] without a file, with these flags in the place of its keys.
    ///
    /// # Errors
    /// The file cannot be read, or the first thing in it or in the flags that is wrong.
    pub fn load(path: Option<&Path>, flags: &Flags) -> Result<Self, ScenarioError> {
        let Some(path) = path else {
            return Self::parse_with("the default profile", DEFAULT, flags, DEFAULT_WARM_UP);
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&path.display().to_string(), &text, flags)
    }

    /// Checks a profile given as the text of a file, named `file` in errors.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str, flags: &Flags) -> Result<Self, ScenarioError> {
        Self::parse_with(file, text, flags, Duration::ZERO)
    }

    /// `warm_up`: the longest one if none is given.
    fn parse_with(file: &str, text: &str, flags: &Flags, warm_up: Duration) -> Result<Self, ScenarioError> {
        if !flags.set.is_empty() && read_toml::<File>(text).is_ok() {
            let text = set(text, &flags.set).map_err(|why| {
                ScenarioError::Invalid(Problem::new(
                    "command line",
                    &flags.set.join(" "),
                    Fault::new(0..0, why),
                ))
            })?;
            let flags = Flags { set: Vec::new(), ..flags.clone() };
            return Self::parse_with(&format!("{file} with --set"), &text, &flags, warm_up);
        }
        let invalid = |file: &str, text: &str, fault| ScenarioError::Invalid(Problem::new(file, text, fault));
        let mut written = read_toml::<File>(text).map_err(|fault| invalid(file, text, fault))?;
        // What flags give stands behind the file's text.
        let behind = text.len() + 1;
        let line = flags.apply(&mut written, behind);
        check(&written, warm_up).map_err(|Fault { span, reason }| {
            if span.start < behind {
                return invalid(file, text, Fault { span, reason });
            }
            invalid("command line", &line, Fault { span: span.start - behind..span.end - behind, reason })
        })
    }
}
