//! The body of a response, until it has left the server.
//!
//! With its headers a call looks answered, but its data waits for the client: in the body while the client
//! opens no window, then in the transport until the socket takes it. A client that reads nothing could so
//! have any number of responses wait here. So every chunk of the body shares the permit of the call, a long
//! chunk is charged to the share of all answers that have not been read ([`Buffer::Answers`]), and each piece
//! counts as unread on its connection until it has left.
//!
//! Attach and Watch have permits of their own, and what they hand over is mostly short: only their long
//! chunks are held. A short one counts as unread until the transport asks for the next: it does so while the
//! client opens its window.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::Status;
use tonic::body::Body;

use super::connection::{Connection, UnreadPiece};
use crate::quota::{Account, Buffer, BufferedBytes, Permit};

/// From how many bytes on a chunk is long.
const LONG: usize = 4 * 1024;
/// The pieces in which a long chunk is handed over: a client that reads slowly takes one after the other.
const PIECE: usize = 64 * 1024;

/// The permit and the charges that are held while a response has not left.
#[derive(Debug)]
pub(crate) struct ResponseHold {
    pub(crate) account: Arc<Account>,
    /// The permit of the call. `None`: its stream has one of its own.
    pub(crate) permit: Option<Permit>,
    /// The connection of the call.
    pub(crate) connection: Option<Connection>,
    /// The charge for its message from before the message was made.
    pub(crate) answer: Option<HeldAnswer>,
}

/// The bytes of an answer that are charged before it is made, in the extensions of its response. Without it a
/// client could have the server make any number of answers before one of them is refused.
#[derive(Clone, Debug)]
pub(crate) struct HeldAnswer(Option<Arc<BufferedBytes>>);

impl HeldAnswer {
    /// Of an answer with so many bytes; short ones are not charged.
    ///
    /// # Errors
    /// If there is no room for them.
    pub(crate) fn new(account: Arc<Account>, bytes: usize) -> Result<Self, RpcRefusal> {
        if bytes < LONG {
            return Ok(Self(None));
        }
        let mut held = BufferedBytes::new(account, Buffer::Answers);
        if held.grow(bytes) { Ok(Self(Some(Arc::new(held)))) } else { Err(too_many_unread()) }
    }
}

/// This body; it holds what is to be held, and so does each of its pieces.
pub(crate) fn held_body(body: Body, hold: ResponseHold) -> Body {
    let ResponseHold { account, permit, connection, answer } = hold;
    let answer = answer.and_then(|answer| answer.0);
    let permit = permit.map(Arc::new);
    Body::new(HeldBody {
        body,
        account,
        permit,
        connection,
        last: None,
        answer,
        rest: Bytes::new(),
        charge: None,
        over: false,
    })
}

/// There is no room for an answer.
pub(crate) fn too_many_unread() -> RpcRefusal {
    let why = "the server holds as much of answers that their clients have not read as it may: read what was sent, and \
               ask again";
    RpcRefusal::new(RefusalReason::TooManyBytes, why)
}

struct HeldBody {
    body: Body,
    account: Arc<Account>,
    permit: Option<Arc<Permit>>,
    connection: Option<Connection>,
    /// The short chunk of a stream that was handed over last.
    last: Option<UnreadPiece>,
    answer: Option<Arc<BufferedBytes>>,
    /// The rest of the present chunk, which has not been handed over, and its charge.
    rest: Bytes,
    charge: Option<Arc<BufferedBytes>>,
    /// Whether it was ended before its end.
    over: bool,
}

/// A piece, with the permit and the charges that it holds.
struct HeldBytes {
    bytes: Bytes,
    _permit: Option<Arc<Permit>>,
    _charge: Option<Arc<BufferedBytes>>,
    _unread: Option<UnreadPiece>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HeldBody {
    /// The next chunk, or its first piece.
    fn hold(&mut self, chunk: Bytes) -> Frame<Bytes> {
        if chunk.len() < LONG && self.permit.is_none() {
            self.last = self.unread_piece();
            return Frame::data(chunk);
        }
        if let Some(answer) = self.answer.take() {
            self.charge = Some(answer);
        } else if chunk.len() >= LONG {
            let mut charge = BufferedBytes::new(self.account.clone(), Buffer::Answers);
            if !charge.grow(chunk.len()) {
                return self.end_early();
            }
            self.charge = Some(Arc::new(charge));
        }
        self.rest = chunk;
        self.next_piece()
    }

    fn next_piece(&mut self) -> Frame<Bytes> {
        let bytes = self.rest.split_to(PIECE.min(self.rest.len()));
        let charge = if self.rest.is_empty() { self.charge.take() } else { self.charge.clone() };
        let (permit, unread) = (self.permit.clone(), self.unread_piece());
        let held = HeldBytes { bytes, _permit: permit, _charge: charge, _unread: unread };
        Frame::data(Bytes::from_owner(held))
    }

    fn unread_piece(&self) -> Option<UnreadPiece> {
        self.connection.as_ref().map(Connection::unread_piece)
    }

    /// There is no room for the answer: the trailers that say so.
    fn end_early(&mut self) -> Frame<Bytes> {
        self.over = true;
        self.body = Body::empty();
        let refused = too_many_unread();
        self.account.count_refusal(refused.reason);
        let mut trailers = HeaderMap::new();
        // Fails for no status of ours: its parts are text and base64.
        let _ = refused.to_status().add_header(&mut trailers);
        Frame::trailers(trailers)
    }
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.last = None;
        if self.over {
            return Poll::Ready(None);
        }
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.next_piece())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            end => return Poll::Ready(end),
        };
        Poll::Ready(Some(Ok(match frame.into_data() {
            Ok(chunk) => self.hold(chunk),
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.over || (self.rest.is_empty() && self.body.is_end_stream())
    }
}
