//! Why HTTP/2 gave a connection up, as the connection's error tells it.

use std::error::Error;
use std::iter::successors;

use h2::Reason;

/// Whether the connection ended because its client did too much of something: h2 then sends a GOAWAY with
/// ENHANCE_YOUR_CALM (RFC 9113, section 7) and fails with it. h2 does so for streams that the client resets before they are
/// accepted, for streams that it has the server reset, for CONTINUATION frames and for empty DATA frames without end.
///
/// The error does not tell it, and so it is not counted, if the client has sent a GOAWAY with an error before (h2 then reports
/// the client's error) or has closed the socket before our GOAWAY was written (the error is then one of I/O).
pub(super) fn is_flood(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    let error: &(dyn Error + 'static) = error;
    successors(Some(error), |error| Error::source(*error))
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(|error| {
            error.is_go_away() && error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
        })
}
