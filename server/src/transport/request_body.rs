//! The body of a request: its size limit, how it ended, and which refusals mean that its message did not
//! decode.
//!
//! tonic refuses a message that it cannot decode before a handler sees it, without details: with INTERNAL,
//! which would tell the caller of a bug of ours, or with OUT_OF_RANGE if it is too large. Where we decode
//! ourselves we do likewise ([`oversized`]). For both the rules demand INVALID_ARGUMENT (SPEC section 11) and
//! an offence (B2). A refusal by a handler carries details, which distinguish it from a refusal by tonic.
//!
//! A client that resets its stream in the middle of a message leaves just such a message behind, and that is
//! no offence. So the body keeps a [`BodyState`]: only a request that was sent to its end is judged by its
//! content.
//!
//! tonic has one size limit for all methods of a service, and the largest message decides it. The limit of
//! one call is kept here, so that many calls at once hold little. `http_body_util::Limited` would report it
//! as an error among others and box every error; here the body ends, and the state tells why.
//!
//! A decoder gets whole messages only. The bytes of a message that has come in part are kept here: they are
//! charged to the share of all requests that are not complete ([`Buffer::Requests`]), and there is a time for
//! the message to become complete. (tonic would reserve the memory that the first five bytes announce, and
//! wait for ever.) A message that comes in one piece, as nearly all do, passes without any of this. tonic
//! keeps the buffer of the longest message of a stream as long as the stream is open: that counts like an
//! answer that is not read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use stickycas_model::history::OffenceKind;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::futures::OwnedNotified;
use tokio::time::Sleep;
use tonic::{Code, Status};

use super::message_framing::{Announced, MessageFraming, Scanned};
use crate::gate::Gates;
use crate::quota::{Account, Buffer, BufferedBytes, Counter};

/// The status of a message that is too large; the call layer makes a refusal of it.
pub(crate) fn oversized(why: impl Into<String>) -> Status {
    Status::out_of_range(why)
}

/// The reason for which a message cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeFailure {
    /// Its bytes do not decode.
    Undecodable,
    /// It is above the size limit.
    Oversized,
}

impl DecodeFailure {
    /// The failure that a status without details stands for. `None`: the status is a refusal of another kind.
    pub(crate) fn of(status: &Status, request: &BodyState) -> Option<Self> {
        match status.code() {
            _ if request.is_too_long() => Some(Self::Oversized),
            _ if !status.details().is_empty() => None,
            Code::Internal => Some(Self::Undecodable),
            Code::OutOfRange => Some(Self::Oversized),
            _ => None,
        }
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Undecodable => Counter::MessageUndecodable,
            Self::Oversized => Counter::MessageOversized,
        }
    }

    pub(crate) fn offence(self) -> OffenceKind {
        match self {
            Self::Undecodable => OffenceKind::Malformed,
            Self::Oversized => OffenceKind::Oversized,
        }
    }

    /// The refusal that the caller gets in place of that status.
    pub(crate) fn refusal(status: &Status, request: &BodyState) -> RpcRefusal {
        let why =
            if request.is_too_long() { "the message is too large for this call" } else { status.message() };
        RpcRefusal::new(RefusalReason::Malformed, why)
    }
}

/// The end of the body of a request, if it ended before the client had sent all of it.
#[derive(Debug, Default)]
pub(crate) struct BodyState(AtomicU8);

/// See [`BodyState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum End {
    /// The client reset the stream, or its connection broke.
    Broken = 1,
    /// It was longer than its limit.
    TooLong,
    /// It was not complete in time.
    TooSlow,
    /// There was no room for a message that had not come in whole.
    NoRoom,
    /// A second message came for a call that takes one.
    SecondMessage,
}

impl BodyState {
    /// Whether the client reset the stream, or its connection broke.
    pub(crate) fn is_broken(&self) -> bool {
        self.is(End::Broken)
    }

    /// Whether the body was longer than its limit, and the rest of it was not read.
    pub(crate) fn is_too_long(&self) -> bool {
        self.is(End::TooLong)
    }

    /// The status of a request that had more than the one message that the call takes: the one of gRPC for a
    /// violated cardinality (doc/statuscodes.md).
    pub(crate) fn second_message(&self) -> Option<Status> {
        let why = "the call takes one message, and a second one came: end the request behind the first";
        self.is(End::SecondMessage).then(|| Status::unimplemented(why))
    }

    /// The refusal of a request that was too slow, or for which there was no room. `None`: it was neither.
    pub(crate) fn overload(&self) -> Option<RpcRefusal> {
        if self.is(End::TooSlow) {
            let why = "the request was not complete in time: send a message without pauses, and end a unary call with it";
            return Some(RpcRefusal::new(RefusalReason::RequestTooSlow, why));
        }
        self.is(End::NoRoom).then(|| {
            let why = "the server has no room for a request of this length now: send a message without pauses, or less at once";
            RpcRefusal::new(RefusalReason::TooManyBytes, why)
        })
    }

    fn is(&self, end: End) -> bool {
        self.0.load(Ordering::Relaxed) == end as u8
    }

    fn set(&self, end: End) {
        self.0.store(end as u8, Ordering::Relaxed);
    }

    /// Whether nothing more of the body is read.
    fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed) > End::Broken as u8
    }
}

/// The limits of the request of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// Bytes of the whole body.
    pub(crate) bytes: usize,
    /// Bytes of a message: a longer one is refused by its prefix.
    pub(crate) message_bytes: usize,
    /// The time that a message may take from its first byte to its last, and the request of a unary call to
    /// its end.
    pub(crate) timeout: Duration,
    /// Whether the client may pause between messages for as long as it wants.
    pub(crate) may_pause: bool,
    /// Whether it has one message.
    pub(crate) is_single: bool,
}

/// The body of a request. It ends at its limits, and its state says how it ended. It is not read while as
/// much waits for its commit as may.
pub(crate) struct LimitedBody<B> {
    body: B,
    state: Arc<BodyState>,
    limits: RequestLimits,
    remaining: usize,
    /// Of a call that changes nothing: those that never wait for the log.
    gates: Gates,
    /// Completes when the log has room again; `None`: it had room when it was asked last.
    room: Option<Pin<Box<OwnedNotified>>>,
    account: Arc<Account>,
    framing: MessageFraming,
    /// The bytes of a message that is not complete; or all of the one message, until it is known that no
    /// other follows.
    partial: Option<Box<Partial>>,
    /// The deadline of the awaited bytes.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The charge for the buffer that the decoder of a stream keeps because of a long message, and its bytes.
    kept: Option<(BufferedBytes, usize)>,
    /// Whether the decoder gets the bytes as they come, because they say that they are compressed: it refuses
    /// them.
    refused: bool,
}

/// The beginning of a message.
struct Partial {
    bytes: BytesMut,
    charge: BufferedBytes,
}

impl<B> LimitedBody<B> {
    /// This body within these limits, charged to this account.
    pub(crate) fn new(
        body: B,
        state: Arc<BodyState>,
        limits: RequestLimits,
        account: Arc<Account>,
        gates: Gates,
    ) -> Self {
        Self {
            body,
            state,
            limits,
            remaining: limits.bytes,
            gates,
            room: None,
            account,
            framing: MessageFraming::default(),
            partial: None,
            deadline: None,
            kept: None,
            refused: false,
        }
    }

    /// Ready while the log has room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(room) = &mut self.room {
                ready!(room.as_mut().poll(cx));
            }
            self.room = self.gates.room().map(Box::pin);
            if self.room.is_none() {
                return Poll::Ready(());
            }
        }
    }

    /// Nothing has come. Ready if it should have by now.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.limits.may_pause && self.partial.is_none() {
            return Poll::Pending;
        }
        let timeout = self.limits.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(deadline.as_mut().poll(cx));
        self.state.set(End::TooSlow);
        Poll::Ready(())
    }

    /// The messages that are complete with this chunk, if any. The rest of it is kept. `is_end`: it is the
    /// last one.
    ///
    /// # Errors
    /// The reason for which no more of the body is read.
    fn take_chunk(&mut self, mut chunk: Bytes, is_end: bool) -> Result<Option<Bytes>, End> {
        if chunk.is_empty() {
            return Ok(None);
        }
        self.remaining = self.remaining.checked_sub(chunk.len()).ok_or(End::TooLong)?;
        if self.refused {
            return Ok(Some(chunk));
        }
        let complete = match self.framing.scan(&chunk, self.limits.message_bytes) {
            Scanned::Complete(complete) => complete,
            Scanned::Refused(Announced::TooLong) => return Err(End::TooLong),
            Scanned::Refused(Announced::Compressed) => {
                self.refused = true;
                chunk.len()
            }
        };
        if self.limits.is_single && self.framing.begun() > 1 {
            return Err(End::SecondMessage);
        }
        let may_end = !self.limits.is_single || self.refused || is_end;
        if complete == 0 || !may_end {
            return self.keep(&chunk).map(|()| None);
        }
        let rest = chunk.split_off(complete);
        let messages = match self.partial.take() {
            None => chunk,
            Some(mut partial) => {
                partial.bytes.extend_from_slice(&chunk);
                partial.bytes.freeze()
            }
        };
        if self.limits.may_pause {
            self.deadline = None;
            self.keep_buffer(messages.len())?;
        }
        if !rest.is_empty() {
            self.keep(&rest)?;
        }
        Ok(Some(messages))
    }

    /// The decoder keeps a buffer of so many bytes at least from now on.
    fn keep_buffer(&mut self, bytes: usize) -> Result<(), End> {
        /// The bytes that each stream may keep uncharged.
        const USUAL: usize = 8 * 1024;
        if bytes > self.kept.as_ref().map_or(USUAL, |(_, kept)| *kept) {
            let new = || (BufferedBytes::new(self.account.clone(), Buffer::Answers), 0);
            let (charge, kept) = self.kept.get_or_insert_with(new);
            if !charge.grow(bytes - *kept) {
                return Err(End::NoRoom);
            }
            *kept = bytes;
        }
        Ok(())
    }

    /// Keeps more of the message that is not complete.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), End> {
        let partial = self.partial.get_or_insert_with(|| {
            let charge = BufferedBytes::new(self.account.clone(), Buffer::Requests);
            Box::new(Partial { bytes: BytesMut::new(), charge })
        });
        if !partial.charge.grow(bytes.len()) {
            return Err(End::NoRoom);
        }
        partial.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The client has sent all. The rest is the one message, or no message, as the decoder will find.
    fn rest(&mut self) -> Option<Bytes> {
        self.partial.take().map(|partial| partial.bytes.freeze())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LimitedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.state.is_cut() {
            return Poll::Ready(None);
        }
        ready!(this.poll_room(cx));
        loop {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                return this.poll_deadline(cx).map(|()| None);
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                // hyper reports a stream that was reset with NO_ERROR as one that has ended.
                None if this.body.is_end_stream() => {
                    return Poll::Ready(this.rest().map(|rest| Ok(Frame::data(rest))));
                }
                None => {
                    this.state.set(End::Broken);
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    this.state.set(End::Broken);
                    return Poll::Ready(Some(Err(error)));
                }
            };
            let chunk = match frame.into_data() {
                Ok(chunk) => chunk,
                // Trailers. A message that has begun will not be complete any more.
                Err(trailers) => {
                    let rest = this.rest().map(Frame::data);
                    return Poll::Ready(Some(Ok(rest.unwrap_or(trailers))));
                }
            };
            match this.take_chunk(chunk, this.body.is_end_stream()) {
                Ok(Some(messages)) => return Poll::Ready(Some(Ok(Frame::data(messages)))),
                Ok(None) => {}
                Err(end) => {
                    this.partial = None;
                    this.state.set(end);
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.partial.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use bytes::BufMut as _;
    use proptest::prelude::*;

    use super::*;
    use crate::limits::Limits;
    use crate::quota::Principals;

    /// A body of these chunks that goes on for ever, or ends.
    struct Chunks {
        chunks: VecDeque<Bytes>,
        ends: bool,
    }

    impl Body for Chunks {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            match self.chunks.pop_front() {
                Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                None if self.ends => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn is_end_stream(&self) -> bool {
            self.ends && self.chunks.is_empty()
        }
    }

    fn body(
        limits: &Limits,
        chunks: impl IntoIterator<Item = Bytes>,
        ends: bool,
    ) -> (LimitedBody<Chunks>, Principals) {
        let principals = Principals::new(limits);
        let request = RequestLimits {
            bytes: usize::MAX,
            message_bytes: limits.message_bytes,
            timeout: limits.request_timeout,
            may_pause: true,
            is_single: false,
        };
        let chunks = Chunks { chunks: chunks.into_iter().collect(), ends };
        let account = principals.anonymous().clone();
        (LimitedBody::new(chunks, Arc::default(), request, account, Gates::NONE), principals)
    }

    fn poll(body: &mut LimitedBody<Chunks>) -> Poll<Option<Bytes>> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        polled.map(|frame| frame.map(|frame| frame.unwrap().into_data().unwrap()))
    }

    /// The decoder of tonic would reserve what a prefix announces.
    #[tokio::test]
    async fn the_beginning_of_a_message_is_kept_from_the_decoder() {
        let limits = Limits::default();
        let prefix = Bytes::from_static(&[0, 0, 0x3f, 0xff, 0xff]);
        let (mut body, principals) = body(&limits, [prefix, Bytes::from_static(&[1; 100])], false);
        assert_eq!(poll(&mut body), Poll::Pending);
        assert_eq!(principals.buffered(Buffer::Requests).0, 105, "it is charged with what has come");
        drop(body);
        assert_eq!(principals.buffered(Buffer::Requests).0, 0);
    }

    #[tokio::test]
    async fn more_than_may_be_buffered_is_refused() {
        let limits = Limits { incomplete_request_bytes: 100, ..Limits::default() };
        let (mut body, principals) =
            body(&limits, [Bytes::from_static(&[0, 0, 0, 1, 0]), Bytes::from_static(&[1; 60])], false);
        assert_eq!(poll(&mut body), Poll::Ready(None));
        assert_eq!(body.state.overload().unwrap().reason, RefusalReason::TooManyBytes);
        assert_eq!(principals.buffered(Buffer::Requests).0, 0);
    }

    #[tokio::test]
    async fn what_the_decoder_keeps_of_a_long_message_is_charged() {
        const LONG: usize = 100_000;
        let long = || {
            let mut message = BytesMut::new();
            message.put_u8(0);
            message.put_u32(u32::try_from(LONG).unwrap());
            message.put_bytes(1, LONG);
            message.freeze()
        };
        let (mut sent, principals) = body(&Limits::default(), [long(), long()], false);
        for _ in 0..2 {
            assert!(matches!(poll(&mut sent), Poll::Ready(Some(_))));
            assert_eq!(principals.buffered(Buffer::Answers).0, 5 + LONG, "as long as the stream is open");
        }
        drop(sent);
        assert_eq!(principals.buffered(Buffer::Answers).0, 0);
        let limits = Limits { unread_answer_bytes: LONG, ..Limits::default() };
        let (mut sent, _principals) = body(&limits, [long()], false);
        assert_eq!(poll(&mut sent), Poll::Ready(None));
        assert_eq!(sent.state.overload().unwrap().reason, RefusalReason::TooManyBytes);
    }

    proptest! {
        /// However messages are cut, the decoder gets all of them and nothing else, each in one piece.
        #[test]
        fn messages_are_handed_on_whole(
            lengths in prop::collection::vec(0_usize..60, 1..12),
            cuts in prop::collection::vec(1_usize..40, 1..100),
            rest in 0_usize..5,
        ) {
            let (mut bytes, mut ends) = (Vec::new(), vec![0]);
            for (number, length) in (1..).zip(&lengths) {
                bytes.put_u8(0);
                bytes.put_u32(u32::try_from(*length).unwrap());
                bytes.put_bytes(number, *length);
                ends.push(bytes.len());
            }
            bytes.put_bytes(0, rest);
            let (mut chunks, mut at) = (Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                if at == bytes.len() {
                    break;
                }
                let to = (at + cut).min(bytes.len());
                chunks.push(Bytes::copy_from_slice(&bytes[at..to]));
                at = to;
            }
            let (mut body, principals) = body(&Limits::default(), chunks, true);
            let mut got = Vec::new();
            while let Poll::Ready(Some(part)) = poll(&mut body) {
                got.extend_from_slice(&part);
                prop_assert!(ends.contains(&got.len()) || got.len() == bytes.len());
            }
            prop_assert_eq!(got, bytes);
            prop_assert_eq!(principals.buffered(Buffer::Requests).0, 0);
        }
    }
}
