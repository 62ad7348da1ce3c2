//! How a command ends: its results, text for people or one line of JSON each for programs; and its exit code,
//! by which a shell or a supervisor learns the rest without reading anything.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use stickycas_client::Error;
use stickycas_log::LogError;
use stickycas_model::printable::printable;
use stickycas_proto::v1::RefusalReason;

/// The output of one command.
pub(super) struct Output<'a> {
    out: &'a mut (dyn Write + Send),
    json: bool,
}

impl<'a> Output<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send), json: bool) -> Self {
        Self { out, json }
    }

    /// Whether results are for programs.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Takes what is no result of a call, whatever form results have.
    pub(super) fn writer(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// One result: `record` for programs, `text` for people.
    pub(super) fn result(
        &mut self,
        record: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut *self.out, record)?;
            self.out.write_all(b"\n")?;
        } else {
            // Servers are not believed either: they pass on what others say.
            let text = text();
            let text = printable(&text);
            self.out.write_all(text.as_bytes())?;
            if !text.ends_with('\n') {
                self.out.write_all(b"\n")?;
            }
        }
        // Somebody may be reading along.
        self.out.flush()
    }
}

/// The reason why a subcommand ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Client(#[from] Error),
    #[error(transparent)]
    Series(LogError),
    #[error("{0}")]
    Unanswered(String),
    #[error("cannot read standard input: {0}")]
    Input(io::Error),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Client(error) => Self::Client(error),
            other => Self::Series(other),
        }
    }
}

impl Failure {
    /// What to do, if that does not follow from the failure.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::Client(Error::GaveUp { last, sent: false, .. }) if matches!(&**last, Error::Unreachable { cause, .. } if cause.contains("refused")) => {
                "; is there a server? `stickycas-server serve` starts one, and --server URL names another"
            }
            _ => "",
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: decided, or done.
    Done,
    /// 1: the instance has ended, or the process cannot decide.
    Ended,
    /// 2: bad usage.
    Usage,
    /// 3: refused by the server, or none was reached; definite: it did not happen.
    Refused,
    /// 4: no answer; indefinite: it may have happened.
    Unreachable,
}

impl Exit {
    /// The code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Ended => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
        }
    }

    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::Refused(refused) => match refused.reason {
                RefusalReason::InstanceClosed => Self::Ended,
                reason if reason.may_have_happened() => Self::Unreachable,
                _ => Self::Refused,
            },
            // Nothing was sent, or to another service.
            Error::UnexpectedPeer { .. }
            | Error::WrongServer { .. }
            | Error::Unreachable { sent: false, .. }
            | Error::GaveUp { sent: false, .. } => Self::Refused,
            Error::InvalidArgument(_) => Self::Usage,
            Error::Undecided(_) | Error::Lost(_) => Self::Ended,
            // The others of `Unreachable` and `GaveUp`, `Protocol`, and what a later client may add: it may
            // have happened.
            _ => Self::Unreachable,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stickycas_proto::status::RpcRefusal;

    use super::*;

    #[test]
    fn text_for_people_holds_nothing_that_a_terminal_obeys() {
        let mut out = Vec::new();
        let text = || "by \u{1b}[31m\u{202e}evil\u{200b}\nsecond line".to_owned();
        Output::new(&mut out, false).result(&(), text).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "by \\u{1b}[31m\\u{202e}evil\\u{200b}\nsecond line\n");
    }

    fn exit(reason: RefusalReason) -> Exit {
        Exit::of(&RpcRefusal::new(reason, "").into())
    }

    #[test]
    fn definite_and_indefinite_failures_differ() {
        assert_eq!(exit(RefusalReason::InstanceUnknown), Exit::Refused);
        assert_eq!(exit(RefusalReason::SessionReplaced), Exit::Refused);
        assert_eq!(exit(RefusalReason::InstanceClosed), Exit::Ended);
        assert_eq!(exit(RefusalReason::Internal), Exit::Unreachable);
        assert_eq!(exit(RefusalReason::Draining), Exit::Unreachable, "an accepted access waits on");
        let last = Box::new(Error::from(RpcRefusal::new(RefusalReason::Draining, "")));
        let gave_up = |sent| Error::GaveUp { tries: 1, after: Duration::ZERO, last: last.clone(), sent };
        assert_eq!([true, false].map(|sent| Exit::of(&gave_up(sent))), [Exit::Unreachable, Exit::Refused]);
    }
}
