//! The refusal that a browser gets in place of an error of the client.

use http::StatusCode;
use stickycas_client::{Error, RefusalReason};
use stickycas_page::source::Refused;

/// The same in the terms of HTTP. Viewers are told what the server says to its clients about them and their
/// instances. Other errors may name servers and files: they are told in general terms, and the log has the
/// rest.
pub(crate) fn refusal(error: &Error) -> Refused {
    let status = match (error, error.reason()) {
        (_, Some(reason)) => status_of(reason),
        (Error::Unreachable { .. } | Error::GaveUp { .. }, None) => StatusCode::SERVICE_UNAVAILABLE,
        // The server has another history now: a viewer that has the old one begins again.
        (Error::Lost(_), None) => StatusCode::CONFLICT,
        (Error::InvalidArgument(_), None) => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    let said = match error {
        Error::Refused(refused) if status.is_client_error() => Some(refused.message.as_str()),
        _ => None,
    };
    if said.is_none() {
        tracing::warn!(%error, "a viewer is not shown what it asked for");
    }
    let why = match (status, said) {
        (StatusCode::FORBIDDEN, Some(said)) => {
            format!("the server does not show this to the principal of `view`: {said}")
        }
        (_, Some(said)) => said.to_owned(),
        (StatusCode::SERVICE_UNAVAILABLE, None) => "the server does not answer for now: try again".to_owned(),
        (StatusCode::TOO_MANY_REQUESTS, None) => {
            "the server has too much to do for now: try again".to_owned()
        }
        (StatusCode::CONFLICT, None) => {
            "the server tells another history than before: begin again".to_owned()
        }
        (StatusCode::FORBIDDEN, None) => {
            "the server does not show this to the principal of `view`".to_owned()
        }
        (StatusCode::NOT_FOUND, None) => "the server does not know this instance".to_owned(),
        (StatusCode::BAD_REQUEST, None) => "that cannot be asked for".to_owned(),
        _ => "the server did not tell it: whoever runs `view` finds the reason in its log".to_owned(),
    };
    Refused { status, why }
}

fn status_of(reason: RefusalReason) -> StatusCode {
    match reason {
        // To the page the credential of `view` is one; the viewer's own link is another matter.
        RefusalReason::NoIdentity | RefusalReason::NotAMember | RefusalReason::NotObserver => {
            StatusCode::FORBIDDEN
        }
        RefusalReason::InstanceUnknown => StatusCode::NOT_FOUND,
        RefusalReason::Malformed => StatusCode::BAD_REQUEST,
        RefusalReason::RateExceeded
        | RefusalReason::TooManyStreams
        | RefusalReason::WatcherTooSlow
        | RefusalReason::PhaseNotKept
        | RefusalReason::TooManyBytes
        | RefusalReason::TooManyConnections => StatusCode::TOO_MANY_REQUESTS,
        RefusalReason::Draining
        | RefusalReason::Recovering
        | RefusalReason::LogFailed
        | RefusalReason::NotOwner
        | RefusalReason::OwnerLost => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn viewers_are_told_no_addresses() {
        let server = "http://10.0.0.7:7420".to_owned();
        let unreachable =
            || Error::Unreachable { server: server.clone(), cause: "at 10.0.0.7".to_owned(), sent: false };
        let gave_up =
            Error::GaveUp { tries: 2, after: Duration::ZERO, last: Box::new(unreachable()), sent: true };
        let foreign = Error::UnexpectedPeer {
            server: server.clone(),
            code: "Internal".to_owned(),
            message: "from 10.0.0.7".to_owned(),
        };
        let lost = Error::Lost("of 10.0.0.7".to_owned());
        let wrong = Error::InvalidArgument("/etc/10.0.0.7: no token".to_owned());
        for (error, status) in
            [(unreachable(), 503), (gave_up, 503), (foreign, 502), (lost, 409), (wrong, 400)]
        {
            let refused = refusal(&error);
            assert_eq!(refused.status.as_u16(), status, "{error}");
            assert!(!refused.why.contains("10.0.0.7"), "{}", refused.why);
        }
    }
}
