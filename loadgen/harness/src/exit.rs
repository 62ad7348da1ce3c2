//! How a program ends, as its exit code. The codes mean the same in stickycas-server, stickycas-client and
//! stickycas-loadgen, which all show them in their help.

use std::process::ExitCode;

use stickycas_model::judge::Outcome;
pub use stickycas_program::EXIT_CODES;
use stickycas_server::CredentialsError;

use crate::files::{FileError, SettingError};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done; of a run: its verdict is `valid` or `outside`, so that no promise was broken.
    Done,
    /// 1: failed: a promise broke, or an expectation or a condition was not kept.
    Failed,
    /// 2: flags or files are wrong.
    Usage,
    /// 3: it was not possible, or was interrupted.
    NotDone,
    /// 4: the run proves nothing.
    Unknown,
}

/// What is said of a run in which a property broke that was not promised, if nobody said which verdict is
/// expected: its exit code is 0.
pub const NOT_PROMISED: &str = "exit code 0: no promise was broken (--expect valid makes this fail)";

/// Flags or files are wrong; also the context of the error that told so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl Exit {
    /// The code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotDone => 3,
            Self::Unknown => 4,
        }
    }

    /// Of a run with this verdict. With an expectation: done if the verdict is that one, else failed.
    #[must_use]
    pub fn of(verdict: Outcome, expected: Option<Outcome>) -> Self {
        match (expected, verdict) {
            (Some(expected), verdict) if expected == verdict => Self::Done,
            (Some(_), _) | (None, Outcome::Violation) => Self::Failed,
            (None, Outcome::Valid | Outcome::Outside) => Self::Done,
            (None, Outcome::Unknown) => Self::Unknown,
        }
    }

    /// Of an error that ended the program: about flags or files, or something that was not possible.
    #[must_use]
    pub fn of_error(error: &anyhow::Error) -> Self {
        let is_usage = error.is::<UsageError>()
            || error.is::<FileError>()
            || error.is::<SettingError>()
            || error.downcast_ref().is_some_and(CredentialsError::is_final)
            || matches!(error.downcast_ref(), Some(stickycas_client::Error::InvalidArgument(_)));
        if is_usage { Self::Usage } else { Self::NotDone }
    }

    /// Whether nothing failed.
    #[must_use]
    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn an_expectation_turns_every_other_verdict_into_a_failure() {
        let all = [Outcome::Valid, Outcome::Outside, Outcome::Violation, Outcome::Unknown];
        assert_eq!(all.map(|verdict| Exit::of(verdict, None).code()), [0, 0, 1, 4]);
        assert_eq!(all.map(|verdict| Exit::of(verdict, Some(Outcome::Outside)).code()), [1, 0, 1, 1]);
        assert_eq!(all.map(|verdict| Exit::of(verdict, Some(Outcome::Unknown)).code()), [1, 1, 1, 0]);
    }

    #[test]
    fn wrong_flags_and_files_are_told_from_what_was_not_possible() {
        let usage = Err::<(), _>(UsageError("give --rate".to_owned())).context("load").unwrap_err();
        assert_eq!(Exit::of_error(&usage), Exit::Usage);
        let missing = std::fs::read("/nowhere").context(UsageError("cannot read it".to_owned())).unwrap_err();
        assert_eq!(Exit::of_error(&missing), Exit::Usage);
        assert_eq!(Exit::of_error(&anyhow::anyhow!("the port is taken")), Exit::NotDone);
        let folder = std::env::temp_dir();
        let unreadable = crate::dump::Dump::open(&folder).unwrap().next().unwrap().unwrap_err();
        assert!(unreadable.to_string().contains("cannot be read"), "{unreadable}");
        assert_eq!(Exit::of_error(&unreadable), Exit::NotDone);
        let missing = crate::dump::Dump::open(&folder.join("no-such-dump")).unwrap_err();
        assert_eq!(Exit::of_error(&missing), Exit::Usage);
    }

    #[test]
    fn the_help_has_every_code() {
        for exit in [Exit::Done, Exit::Failed, Exit::Usage, Exit::NotDone, Exit::Unknown] {
            assert!(EXIT_CODES.contains(&format!("\n  {}  ", exit.code())), "{exit:?}");
        }
    }
}
