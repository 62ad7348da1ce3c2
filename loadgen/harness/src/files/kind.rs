//! The kinds of files, told apart by the tables that only one of them has: whoever gives a file to the wrong
//! subcommand is told the right one.

use std::ops::Range;

use stickycas_program::files::parse;

use super::{Fault, FileError, Problem, Source};
use crate::command_line::word_of;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// One run.
    Scenario,
    /// A load.
    Profile,
    /// Many runs over axes.
    Campaign,
    /// Steps on containers or servers.
    Plan,
}

/// The tables by which a file is known, the first that it has. Profiles may have proposals as well.
const KNOWN_BY: [(&str, FileKind); 4] = [
    ("sweep", FileKind::Campaign),
    ("load", FileKind::Profile),
    ("steps", FileKind::Plan),
    ("proposals", FileKind::Scenario),
];

impl FileKind {
    /// The same result; but an error of a file of another kind says what it is, and which command takes it.
    ///
    /// # Errors
    /// That of the result, or the kind of the file.
    pub fn or_another<T>(self, source: &Source, result: Result<T, FileError>) -> Result<T, FileError> {
        result.map_err(|error| self.mistaken(source).unwrap_or(error))
    }

    fn mistaken(self, source: &Source) -> Option<FileError> {
        let (kind, place) = kind_of(&source.text)?;
        if kind == self {
            return None;
        }
        let file = word_of(&source.file);
        let reason = match kind {
            // That has nothing else by which a profile would be known.
            Self::Scenario if self == Self::Profile => {
                format!("this is a scenario: stickycas-loadgen run {file}; a load profile has [load]")
            }
            Self::Scenario => format!("this is a scenario: stickycas-loadgen run {file}"),
            Self::Profile => format!("this is a load profile: stickycas-loadgen load --profile {file}"),
            Self::Campaign => format!("this is a campaign: stickycas-loadgen campaign {file}"),
            Self::Plan => format!("this is a plan of faults: stickycas-loadgen perturb {file}"),
        };
        Some(FileError::Invalid(Problem::new(&source.file, &source.text, Fault::new(place, reason))))
    }
}

/// The kind of a file with this text, and the place that shows it.
fn kind_of(text: &str) -> Option<(FileKind, Range<usize>)> {
    let table = parse(text).ok()?;
    KNOWN_BY.into_iter().find_map(|(name, kind)| {
        let (key, _) = table.get_ref().iter().find(|(key, _)| key.get_ref() == name)?;
        Some((kind, key.span()))
    })
}
