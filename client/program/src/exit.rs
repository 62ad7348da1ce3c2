//! Exit codes: what a shell or a supervisor learns without reading anything.

use std::process::ExitCode;

use stickycas_client::Error;
use stickycas_proto::v1::RefusalReason;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: decided, or done.
    Done,
    /// 1: the instance has ended, or the process cannot decide.
    Ended,
    /// 2: bad usage.
    Usage,
    /// 3: refused by the server; definite: it did not happen.
    Refused,
    /// 4: unreachable, or gave up; indefinite: it may have happened.
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
            Error::UnexpectedPeer { .. } => Self::Refused,
            Error::InvalidArgument(_) => Self::Usage,
            Error::Undecided(_) | Error::Lost(_) => Self::Ended,
            // `Unreachable`, `GaveUp`, `Protocol`, and what a later client may add: it may have happened.
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
        assert_eq!(Exit::of(&Error::GaveUp { tries: 1, after: Duration::ZERO, last }), Exit::Unreachable);
    }
}
