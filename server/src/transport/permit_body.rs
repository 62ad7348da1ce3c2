//! A call's permit is held until its response has left the server.
//!
//! With its headers a call looks answered, but its data waits for the client: in the body while the client opens no
//! window, then in the transport until the socket takes it. A client that reads nothing could so have any number of
//! responses wait here. So every chunk of the body shares the permit.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tonic::body::Body;

use crate::quota::Permit;

/// Bytes of a response, and the permit of its call.
struct HeldBytes {
    bytes: Bytes,
    _permit: Arc<Permit>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// This body; it holds the permit, and so does each of its chunks.
pub(crate) fn permit_body(body: Body, permit: Permit) -> Body {
    let permit = Arc::new(permit);
    Body::new(body.map_frame(move |frame| {
        frame.map_data(|bytes| Bytes::from_owner(HeldBytes { bytes, _permit: permit.clone() }))
    }))
}
