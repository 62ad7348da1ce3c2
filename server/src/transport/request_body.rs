//! The body of a request: its size limit, how it ended, and which refusals mean that its message did not decode.
//!
//! tonic refuses a message that it cannot decode before a handler sees it, without details: with INTERNAL, which
//! would tell the caller of a bug of ours, or with OUT_OF_RANGE if it is too large. Where we decode ourselves we do
//! likewise ([`undecodable`], [`oversized`]). For both the rules demand INVALID_ARGUMENT (SPEC section 11) and an
//! offence (B2). A refusal by a handler carries details, which distinguish it from a refusal by tonic.
//!
//! A client that resets its stream in the middle of a message leaves just such a message behind, and that is no
//! offence. So the body keeps a [`BodyState`]: only a request that was sent to its end is judged by its content.
//!
//! tonic has one size limit for all methods of a service, and the largest message decides it. The limit of one call
//! is kept here, so that many calls at once hold little. `http_body_util::Limited` would report it as an error among
//! others and box every error; here the body ends, and the state tells why.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use stickycas_model::history::OffenceKind;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::futures::OwnedNotified;
use tonic::{Code, Status};

use crate::commit_log::CommitLog;
use crate::quota::Counter;

/// The status of a message whose bytes do not decode; the call layer makes a refusal of it.
pub(crate) fn undecodable(why: impl Into<String>) -> Status {
    Status::internal(why)
}

/// The status of a message that is too large; the call layer makes a refusal of it.
pub(crate) fn oversized(why: impl Into<String>) -> Status {
    Status::out_of_range(why)
}

/// Why a message cannot be decoded.
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

/// How the body of a request ended, if not because the client had sent all of it.
#[derive(Debug, Default)]
pub(crate) struct BodyState {
    broken: AtomicBool,
    too_long: AtomicBool,
}

impl BodyState {
    /// Whether the client reset the stream, or its connection broke.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether the body was longer than its limit, and the rest of it was not read.
    pub(crate) fn is_too_long(&self) -> bool {
        self.too_long.load(Ordering::Relaxed)
    }
}

/// The body of a request. It ends at its limit, and its state says how it ended. It is not read while as much waits for
/// its commit as may.
pub(crate) struct LimitedBody<B> {
    body: B,
    state: Arc<BodyState>,
    remaining: usize,
    log: Arc<dyn CommitLog>,
    /// Completes when the log has room again; `None`: it had room when it was asked last.
    room: Option<Pin<Box<OwnedNotified>>>,
}

impl<B> LimitedBody<B> {
    /// At most `limit` bytes of this body.
    pub(crate) fn new(body: B, state: Arc<BodyState>, limit: usize, log: Arc<dyn CommitLog>) -> Self {
        Self { body, state, remaining: limit, log, room: None }
    }

    /// Ready while the log has room.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(room) = &mut self.room {
                ready!(room.as_mut().poll(cx));
            }
            self.room = self.log.room().map(Box::pin);
            if self.room.is_none() {
                return Poll::Ready(());
            }
        }
    }
}

impl<B: Body + Unpin> Body for LimitedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if self.state.is_too_long() {
            return Poll::Ready(None);
        }
        ready!(self.poll_room(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                let Some(remaining) = self.remaining.checked_sub(length) else {
                    self.state.too_long.store(true, Ordering::Relaxed);
                    return Poll::Ready(None);
                };
                self.remaining = remaining;
            }
            // hyper reports a stream that was reset with NO_ERROR as one that has ended.
            None if self.body.is_end_stream() => {}
            Some(Err(_)) | None => self.state.broken.store(true, Ordering::Relaxed),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
