//! [`Error`]: the failures of an operation, by what a client can do about them (SPEC section 11).
//!
//! Two questions decide everything: does the same request again help ([`Error::may_retry`]), and may it have
//! happened ([`Error::may_have_happened`])? For a refusal its reason answers both. A connection that broke
//! answers yes to both, and that is no harm: access numbers make a repeated access the same access (F8b).

use std::error::Error as _;
use std::time::Duration;

use stickycas_certificates::Fault;
use stickycas_proto::convert::WireError;
/// The refusal of a request by the server (SPEC section 11). Its reason answers [`Error::may_have_happened`].
pub use stickycas_proto::status::RpcRefusal as Refusal;
use stickycas_proto::v1::RefusalReason;
use tonic::{Code, ConnectError, Status};

/// The cause of the failure of a try to which a peer has said nothing in time.
pub(crate) const NO_ANSWER: &str = "no answer in time";

/// The failure of an operation. A later version may have more variants.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused, and said why.
    #[error("refused ({}): {}", .0.reason.name(), .0.message)]
    Refused(Refusal),
    /// No connection, or it broke, or no answer came in time.
    #[error("no answer from {server}: {cause}")]
    Unreachable {
        /// The server's address as given.
        server: String,
        /// The failure, with its causes.
        cause: String,
        /// Whether the request may have left before that.
        sent: bool,
    },
    /// Retries did not help for as long as was allowed.
    #[error("gave up after {tries} {} in {after:.1?}: {last}", if *tries == 1 { "try" } else { "tries" })]
    GaveUp {
        /// Tries without success in a row.
        tries: u32,
        /// Time since the first of them began, or since the last progress.
        after: Duration,
        /// The error of the last one.
        last: Box<Self>,
        /// Whether one of the tries may have happened, or may still happen.
        sent: bool,
    },
    /// No try can succeed: the address is that of something else, or the credentials are not for this server.
    #[error("{server}: {why}")]
    WrongServer {
        /// The server's address as given.
        server: String,
        /// The cause, and what to do.
        why: String,
    },
    /// The peer does not speak this protocol: it is a proxy, or another service.
    #[error("{server} does not answer like a StickyCAS server: {code}: {message}")]
    UnexpectedPeer {
        /// The server's address as given.
        server: String,
        /// The gRPC code of the answer, for example `Unimplemented`.
        code: String,
        /// Its message.
        message: String,
    },
    /// The server's answer does not follow the protocol: another version, or its bug.
    #[error("the server's answer breaks the protocol: {0}")]
    Protocol(String),
    /// The server tells less than it has told this client before, or something else: its log was put back to
    /// an earlier state, or it is another server. Nothing that it says can be relied on (SPEC A3, R2, F8b).
    #[error("LOST: the server does not stand by what it has told: {0}")]
    Lost(String),
    /// An argument is not well formed, and nothing was sent: an address, a principal, an instance, a value or
    /// a parameter.
    #[error("{0}")]
    InvalidArgument(String),
    /// The process came to its end without a decision (D1).
    #[error("no decision: {0}")]
    Undecided(String),
}

impl Error {
    /// The reason of the server's refusal, also of the last one before giving up; `None` if it was none.
    #[must_use]
    pub fn reason(&self) -> Option<RefusalReason> {
        match self {
            Self::Refused(refused) => Some(refused.reason),
            Self::GaveUp { last, .. } => last.reason(),
            _ => None,
        }
    }

    /// Whether the same request again (an access: with the same number) is safe and may succeed. The client
    /// has retried already, as its [`RetryPolicy`](crate::RetryPolicy) says, so [`Error::GaveUp`] answers no.
    #[must_use]
    pub fn may_retry(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.may_retry,
            Self::Unreachable { .. } => true,
            Self::GaveUp { .. }
            | Self::WrongServer { .. }
            | Self::UnexpectedPeer { .. }
            | Self::Protocol(_)
            | Self::Lost(_)
            | Self::InvalidArgument(_)
            | Self::Undecided(_) => false,
        }
    }

    /// Whether the request may have happened, or may still happen. If not, nothing has changed at the server.
    /// If so, the same access with the same number tells: it is never executed twice (F8b).
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.reason.may_have_happened(),
            // An earlier try may have gone through, whatever the last one says.
            Self::Unreachable { sent, .. } | Self::GaveUp { sent, .. } => *sent,
            Self::Protocol(_) | Self::Lost(_) => true,
            Self::WrongServer { .. }
            | Self::UnexpectedPeer { .. }
            | Self::InvalidArgument(_)
            | Self::Undecided(_) => false,
        }
    }

    /// The kind as one word, for programs; `refused`, `unreachable`, `gave_up`, `foreign`, `protocol`,
    /// `lost`, `usage` or `undecided`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::GaveUp { .. } => "gave_up",
            Self::WrongServer { .. } | Self::UnexpectedPeer { .. } => "foreign",
            Self::Protocol(_) => "protocol",
            Self::Lost(_) => "lost",
            Self::InvalidArgument(_) => "usage",
            Self::Undecided(_) => "undecided",
        }
    }

    /// The server's advice on when to try again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refused) => refused.retry_after,
            _ => None,
        }
    }

    /// The error of a call that failed with this status.
    pub(crate) fn from_status(server: &str, status: &Status) -> Self {
        if let Some(refused) = Refusal::from_status(status) {
            return refused.into();
        }
        match status.code() {
            // Codes by which tonic, hyper and proxies report a connection that was refused or broken off.
            Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Cancelled
            | Code::Aborted
            | Code::DataLoss
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Ok => Self::Unreachable {
                server: server.to_owned(),
                cause: causes(status),
                sent: !never_connected(status),
            },
            code @ (Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Unauthenticated) => Self::UnexpectedPeer {
                server: server.to_owned(),
                code: format!("{code:?}"),
                message: status.message().to_owned(),
            },
        }
    }

    /// The same error without the server's advice on when to try again: another server is asked next.
    pub(crate) fn without_advice(self) -> Self {
        match self {
            Self::Refused(refused) => Self::Refused(Refusal { retry_after: None, ..refused }),
            other => other,
        }
    }

    /// The same error of a call that never left.
    pub(crate) fn before_anything_was_sent(self) -> Self {
        match self {
            Self::Unreachable { server, cause, sent: _ } => Self::Unreachable { server, cause, sent: false },
            other => other,
        }
    }

    /// The error of a server that has this fault. `names_come`: a host that nobody knows yet may come.
    pub(crate) fn faulty(server: &str, fault: Fault, names_come: bool) -> Self {
        match fault {
            Fault::UnknownHost(why) if names_come => Self::unreachable(server, why, false),
            Fault::UnknownHost(why) | Fault::WrongServer(why) => {
                Self::WrongServer { server: server.to_owned(), why }
            }
        }
    }

    /// The same error, where another server may answer.
    pub(crate) fn of_one_of_several(self) -> Self {
        match self {
            Self::WrongServer { server, why } => Self::Unreachable { server, cause: why, sent: false },
            other => other,
        }
    }

    pub(crate) fn unreachable(server: &str, cause: impl Into<String>, sent: bool) -> Self {
        Self::Unreachable { server: server.to_owned(), cause: cause.into(), sent }
    }
}

#[doc(hidden)]
impl From<Refusal> for Error {
    fn from(refused: Refusal) -> Self {
        Self::Refused(refused)
    }
}

#[doc(hidden)]
impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// Texts of libraries that say where a failure was met, and not what failed.
const PLACES: [&str; 5] =
    ["transport error", "tcp connect error", "dns error", "connection error", "operation was canceled"];

/// tonic's own text is often only "transport error": the failure stands in the chain of its sources.
fn causes(status: &Status) -> String {
    let mut parts = vec![status.message().to_owned()];
    let mut next = status.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        // Numbers of the operating system tell people nothing.
        let text = text.split(" (os error").next().unwrap_or(&text).to_owned();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = cause.source();
    }
    parts.retain(|part| !part.is_empty());
    if parts.iter().any(|part| !PLACES.contains(&&**part)) {
        parts.retain(|part| !PLACES.contains(&&**part));
    }
    parts.join(": ")
}

fn never_connected(status: &Status) -> bool {
    let mut next = status.source();
    while let Some(cause) = next {
        if cause.is::<ConnectError>() {
            return true;
        }
        next = cause.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "http://server:7420";

    #[test]
    fn a_lost_instance_is_a_definite_and_final_refusal() {
        let refused = Refusal::new(RefusalReason::InstanceUnknown, "no such instance");
        let error = Error::from_status(SERVER, &refused.to_status());
        assert_eq!(error.reason(), Some(RefusalReason::InstanceUnknown));
        assert!(!error.may_retry() && !error.may_have_happened());
        assert_eq!(error.to_string(), "refused (INSTANCE_UNKNOWN): no such instance");
    }

    #[test]
    fn a_call_on_a_broken_connection_may_have_happened() {
        let error = Error::from_status(SERVER, &Status::unknown("transport error"));
        assert!(error.may_retry() && error.may_have_happened());
        assert_eq!(error.to_string(), "no answer from http://server:7420: transport error");
    }

    #[test]
    fn an_unexpected_peer_is_not_asked_again() {
        let error = Error::from_status(SERVER, &Status::unimplemented("no such service"));
        assert!(matches!(error, Error::UnexpectedPeer { .. }) && !error.may_retry());
    }

    #[test]
    fn giving_up_keeps_the_last_refusal() {
        let draining = Refusal::new(RefusalReason::Draining, "shutting down");
        let after = Duration::from_secs(30);
        let error = Error::GaveUp { tries: 3, after, last: Box::new(draining.into()), sent: true };
        assert_eq!(error.reason(), Some(RefusalReason::Draining));
        assert_eq!(error.to_string(), "gave up after 3 tries in 30.0s: refused (DRAINING): shutting down");
    }
}
