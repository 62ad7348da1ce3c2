//! The violations of a round.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationKind {
    /// The content of an answer to a client is lost, or a later answer shows less than an earlier one.
    Lost,
    /// The content of an answer to a client is another one now.
    Changed,
    /// An access was executed twice.
    Twice,
    /// An accepted access was neither answered nor withdrawn.
    Vanished,
    /// A closed instance is open again.
    Reopened,
    /// Time of an instance has passed while no server served it.
    Time,
    /// A correct process lost its patience, though its client was there.
    Impatient,
    /// A correct process did not come to its decision.
    Undecided,
    /// The judge's verdict is neither `valid` nor `outside`.
    Verdict,
    /// The history has gaps, lacks a restart, or does not follow from its own inputs.
    History,
    /// A creator or an observer did not get what it was entitled to.
    Refused,
    /// The server ended by itself, or did not serve again.
    Server,
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lost => "LOST",
            Self::Changed => "CHANGED",
            Self::Twice => "TWICE",
            Self::Vanished => "VANISHED",
            Self::Reopened => "REOPENED",
            Self::Time => "TIME",
            Self::Impatient => "IMPATIENT",
            Self::Undecided => "UNDECIDED",
            Self::Verdict => "VERDICT",
            Self::History => "HISTORY",
            Self::Refused => "REFUSED",
            Self::Server => "SERVER",
        })
    }
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Its kind.
    pub kind: ViolationKind,
    /// The instance: its number in the round, and its id. `None`: all of them.
    pub instance: Option<(usize, String)>,
    /// The known fact, and its contradiction.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.instance {
            Some((number, id)) => write!(f, "{}: instance {number} ({id}): {}", self.kind, self.what),
            None => write!(f, "{}: {}", self.kind, self.what),
        }
    }
}
