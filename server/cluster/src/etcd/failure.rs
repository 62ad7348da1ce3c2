//! The meaning of a failure of etcd: whether the request has taken effect.
//!
//! etcd answers with a gRPC code and a description. Only the description is looked at, as etcd's own client
//! does: some errors travel with another code than they are declared with ("too many requests" as UNKNOWN).
//! The descriptions are those of `etcdserver/api/v3rpc/rpctypes/error.go` of 3.4.23, and those that 3.5 and
//! 3.6 add; where they are raised was read in `etcdserver/v3_server.go`, `apply.go`, `apply_auth.go`,
//! `api/v3rpc/` and `raft/raft.go` of 3.4.23.
//!
//! Unless the request was surely refused before it was applied, its outcome is unknown.

use std::error::Error as _;

use tonic::{ConnectError, Status};

use super::endpoints::with_causes;
use crate::store::{Revision, StoreError};

/// The kind of a request, by its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It changes nothing.
    Read,
    /// It goes through the log of etcd.
    Write,
    /// It keeps a lease alive: the leader does that without the log, and every failure may come after it.
    KeepAlive,
}

/// The meaning of a failure for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It was refused before it was applied, and may be sent again.
    NotDone,
    /// As `NotDone`: the token is missing, unknown or old.
    Token,
    /// As `NotDone`: etcd has no users, so there is no token.
    NoAuth,
    /// It was refused before it was applied, and would be again.
    Refused,
    /// There is no such lease; nothing was applied.
    NoLease,
    /// It is about a revision that is compacted away; nothing was applied.
    Compacted,
    /// The quota is reached; it may have been applied.
    NoSpace,
    /// It may have been applied.
    Unknown,
}

use Meaning::{Compacted, NoAuth, NoLease, NoSpace, NotDone, Refused, Token, Unknown};

/// The descriptions of errors that are raised before anything is applied, and of a full store, in the order
/// of the source. All others are `Unknown`: those of requests that were proposed and wait to be applied (a
/// stopped server, a timeout, another leader), and those of changes of members and users, which this client
/// does not ask for.
const DESCRIPTIONS: &[(&str, Meaning)] = &[
    // Checked before it is proposed, or for a transaction before its first operation (`checkRequests`).
    ("etcdserver: key is not provided", Refused),
    ("etcdserver: key not found", Refused),
    ("etcdserver: value is provided", Refused),
    ("etcdserver: lease is provided", Refused),
    ("etcdserver: too many operations in txn request", Refused),
    ("etcdserver: duplicate key given in txn request", Refused),
    ("etcdserver: mvcc: required revision has been compacted", Compacted),
    ("etcdserver: mvcc: required revision is a future revision", Refused),
    // `quotaApplierV3` applies the request that is the first to cross the quota, and answers with the same
    // error as those do that refuse (`quotaKVServer`, `applierV3Capped`). With several requests in flight
    // that happens.
    ("etcdserver: mvcc: database space exceeded", NoSpace),
    ("etcdserver: requested lease not found", NoLease),
    // This client lets etcd choose the id of a lease.
    ("etcdserver: lease already exists", NotDone),
    ("etcdserver: too large lease TTL", Refused),
    // Checked before it is proposed.
    ("etcdserver: request is too large", Refused),
    ("etcdserver: too many requests", NotDone),
    // A request without a token, where there should be one; checked when it is applied, before its first
    // operation.
    ("etcdserver: user name is empty", Token),
    ("etcdserver: authentication failed, invalid user ID or password", Refused),
    ("etcdserver: permission denied", Refused),
    ("etcdserver: authentication is not enabled", NoAuth),
    ("etcdserver: invalid auth token", Token),
    ("etcdserver: revision of auth store is old", Token),
    // Of the interceptors, before anything else; and of a member that looks for the leader to keep a lease
    // alive.
    ("etcdserver: no leader", NotDone),
    ("etcdserver: not capable", NotDone),
    // A cluster that has raised the alarm CORRUPT applies nothing.
    ("etcdserver: corrupt cluster", NotDone),
    ("etcdserver: rpc not supported for learner", NotDone),
    // Errors without a description of their own, as 3.4 passes them on: raft drops a proposal before it is
    // appended.
    ("raft proposal dropped", NotDone),
    // The reason of a watch that is not created.
    ("mvcc: watcher range is empty", Refused),
    // Since 3.5 or 3.6.
    ("etcdserver: invalid client api version", Refused),
    ("etcdserver: invalid sort option", Refused),
];

/// How gRPC of Go refuses a message that is larger than etcd takes (`--max-request-bytes` and 512 KiB),
/// before etcd sees it.
const MESSAGE_TOO_LARGE: &str = "grpc: received message larger than max";

/// The meaning of a description.
pub(super) fn meaning_of(description: &str) -> Meaning {
    if description.starts_with(MESSAGE_TOO_LARGE) {
        return Refused;
    }
    DESCRIPTIONS.iter().find(|(known, _)| *known == description).map_or(Unknown, |(_, meaning)| *meaning)
}

/// The meaning of a failure.
pub(super) fn meaning(status: &Status) -> Meaning {
    if never_connected(status) { NotDone } else { meaning_of(status.message()) }
}

/// The error of a request that has failed.
pub(super) fn error(status: &Status, kind: Kind) -> StoreError {
    if never_connected(status) {
        return StoreError::NotDone(describe(status));
    }
    error_of(meaning_of(status.message()), kind, describe(status))
}

/// The error of a request that has failed with this meaning.
///
/// The oldest revision that is kept is not known from it: a [`StoreError::Compacted`] has revision 0.
pub(super) fn error_of(meaning: Meaning, kind: Kind, description: String) -> StoreError {
    match (meaning, kind) {
        (Refused, _) => StoreError::Refused(description),
        (NoLease, _) => StoreError::NoLease,
        (Compacted, _) => StoreError::Compacted(Revision(0)),
        (NoSpace, _) => StoreError::NoSpace,
        (Token, _) | (NotDone | NoAuth, Kind::Read | Kind::Write) | (Unknown, Kind::Read) => {
            StoreError::NotDone(description)
        }
        (NotDone | NoAuth, Kind::KeepAlive) | (Unknown, Kind::Write | Kind::KeepAlive) => {
            StoreError::Unknown(description)
        }
    }
}

/// The failure in one line.
pub(super) fn describe(status: &Status) -> String {
    let mut text = match status.message() {
        "" => status.code().description().to_owned(),
        message => message.to_owned(),
    };
    if let Some(cause) = status.source() {
        let causes = with_causes(cause);
        if !text.contains(&causes) {
            text = format!("{text}: {causes}");
        }
    }
    text
}

/// Whether there was no connection to send it on.
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
    use std::collections::HashSet;

    use tonic::Code;

    use super::*;

    /// What a write may be told if etcd answers this.
    fn write(description: &str) -> StoreError {
        error(&Status::new(Code::Unavailable, description), Kind::Write)
    }

    #[test]
    fn every_description_stands_once_in_the_table() {
        let known: HashSet<&str> = DESCRIPTIONS.iter().map(|(known, _)| *known).collect();
        assert_eq!(known.len(), DESCRIPTIONS.len());
        assert!(DESCRIPTIONS.iter().all(|(_, meaning)| *meaning != Unknown), "that is what all others mean");
    }

    #[test]
    fn a_write_is_not_done_only_where_etcd_refuses_before_it_applies() {
        let not_done: Vec<&str> = DESCRIPTIONS
            .iter()
            .map(|(known, _)| *known)
            .filter(|known| matches!(write(known), StoreError::NotDone(_)))
            .collect();
        assert_eq!(
            not_done,
            [
                "etcdserver: lease already exists",
                "etcdserver: too many requests",
                "etcdserver: user name is empty",
                "etcdserver: authentication is not enabled",
                "etcdserver: invalid auth token",
                "etcdserver: revision of auth store is old",
                "etcdserver: no leader",
                "etcdserver: not capable",
                "etcdserver: corrupt cluster",
                "etcdserver: rpc not supported for learner",
                "raft proposal dropped",
            ]
        );
    }

    #[test]
    fn what_may_have_been_applied_is_unknown() {
        for description in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: request timed out, possibly due to connection lost",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "raft: stopped",
            "transport is closing",
            "etcdserver: something new",
            "",
        ] {
            assert!(matches!(write(description), StoreError::Unknown(_)), "{description}");
        }
        assert!(write("etcdserver: mvcc: database space exceeded").may_have_happened());
    }

    #[test]
    fn the_other_errors_have_their_own_meaning() {
        assert_eq!(write("etcdserver: requested lease not found"), StoreError::NoLease);
        assert_eq!(write("etcdserver: mvcc: database space exceeded"), StoreError::NoSpace);
        assert!(matches!(write("etcdserver: request is too large"), StoreError::Refused(_)));
        assert!(matches!(
            write("grpc: received message larger than max (2621440 vs. 2097152)"),
            StoreError::Refused(_)
        ));
        assert!(matches!(
            write("etcdserver: mvcc: required revision has been compacted"),
            StoreError::Compacted(_)
        ));
    }

    #[test]
    fn a_read_is_never_unknown_and_what_keeps_a_lease_alive_may_always_have_happened() {
        for (description, _) in DESCRIPTIONS {
            let status = Status::new(Code::Unknown, *description);
            assert!(!matches!(error(&status, Kind::Read), StoreError::Unknown(_)), "{description}");
        }
        let status = Status::unavailable("etcdserver: no leader");
        assert!(matches!(error(&status, Kind::KeepAlive), StoreError::Unknown(_)));
    }

    #[test]
    fn a_connection_that_was_never_made_has_sent_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        assert!(matches!(error(&status, Kind::Write), StoreError::NotDone(_)));
        assert!(matches!(error(&status, Kind::KeepAlive), StoreError::NotDone(_)));
    }
}
