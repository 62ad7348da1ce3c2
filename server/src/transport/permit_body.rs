//! Answers that are on their way: a call's permit is taken until its answer has left the server.
//!
//! With its headers a call looks answered, but what follows them waits for the client: in the body while the client
//! opens no window, then in the transport until the socket takes it. A client that reads nothing could so have any
//! number of answers lie here. So the body owns the permit, and every piece of it shares it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::quota::Permit;

/// The body of an answer, and the permit that it takes.
pub(crate) struct PermitBody {
    body: Body,
    permit: Arc<Permit>,
}

/// Bytes of an answer, and the permit that they take.
struct Piece {
    bytes: Bytes,
    _permit: Arc<Permit>,
}

impl PermitBody {
    /// This body, which takes the permit until nothing of it is left.
    pub(crate) fn new(body: Body, permit: Permit) -> Self {
        Self { body, permit: Arc::new(permit) }
    }

    fn piece(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Piece { bytes, _permit: self.permit.clone() })
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for PermitBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| Ok(frame?.map_data(|bytes| self.piece(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
