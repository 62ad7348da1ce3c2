//! What a browser is told in place of an error of the client.

use http::StatusCode;
use stickycas_client::{Error, RefusalReason};
use stickycas_page::source::Refused;

/// The same in the terms of HTTP.
pub(crate) fn refusal(error: &Error) -> Refused {
    let status = match error {
        Error::Refused(refused) => status_of(refused.reason),
        Error::Unreachable { .. } | Error::GaveUp { .. } => StatusCode::SERVICE_UNAVAILABLE,
        // The server has another history now: whoever has the old one begins again.
        Error::Lost(_) => StatusCode::CONFLICT,
        Error::InvalidArgument(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::BAD_GATEWAY,
    };
    let why = match error {
        Error::Refused(refused) => refused.message.clone(),
        other => other.to_string(),
    };
    let why = match status {
        StatusCode::FORBIDDEN => format!("the server does not show this to the principal of `view`: {why}"),
        _ => why,
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
