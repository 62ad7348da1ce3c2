//! Messages that are none, and how they are told from those that merely broke off.
//!
//! tonic refuses what it cannot decode before a handler sees it: with INTERNAL, which would tell the caller of
//! a bug of ours, or with OUT_OF_RANGE if it is too large, and without details; where we decode ourselves we do
//! likewise ([`undecodable`], [`oversized`]). For either the rules know INVALID_ARGUMENT (SPEC section 11), and an
//! offence (B2). What our handlers refuse carries details, so the two are told apart.
//!
//! A client that goes in the middle of a message leaves just such a message behind, and that is no offence. So the
//! request's body is watched: only what came to an end of its own accord is judged by its content.
//!
//! tonic knows one size limit for all methods of a service, and the largest message decides it. What a call may send
//! without being large by nature is bounded here, so that many calls at once hold little.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use stickycas_model::history::OffenceKind;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::{Code, Status};

use crate::quota::Counter;

/// A message whose bytes do not decode, for the border to refuse.
pub(crate) fn undecodable(why: impl Into<String>) -> Status {
    Status::internal(why)
}

/// A message that is too large, for the border to refuse.
pub(crate) fn oversized(why: impl Into<String>) -> Status {
    Status::out_of_range(why)
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeFailure {
    /// Its bytes do not decode.
    Undecodable,
    /// It is above the size limit.
    Oversized,
}

impl DecodeFailure {
    /// What tonic's own refusal says of a message. `None`: the refusal is of another kind.
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

    /// What the caller is told in place of that refusal.
    pub(crate) fn refused(status: &Status, request: &BodyState) -> RpcRefusal {
        let why =
            if request.is_too_long() { "the message is too large for this call" } else { status.message() };
        RpcRefusal::new(RefusalReason::Malformed, why)
    }
}

/// How a request came to its end, if not of its own accord.
#[derive(Debug, Default)]
pub(crate) struct BodyState {
    broken: AtomicBool,
    too_long: AtomicBool,
}

impl BodyState {
    /// Whether the client's stream was reset or its connection is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether it was not read to its end because it was longer than it may be.
    pub(crate) fn is_too_long(&self) -> bool {
        self.too_long.load(Ordering::Relaxed)
    }
}

/// The body of a request that is watched for its end, and that ends early if it is too long.
pub(crate) struct LimitedBody<B> {
    body: B,
    end: Arc<BodyState>,
    /// Bytes that may still come.
    left: usize,
}

impl<B> LimitedBody<B> {
    /// At most `limit` bytes of this body.
    pub(crate) fn new(body: B, end: Arc<BodyState>, limit: usize) -> Self {
        Self { body, end, left: limit }
    }
}

impl<B: Body + Unpin> Body for LimitedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if self.end.is_too_long() {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                let Some(left) = self.left.checked_sub(length) else {
                    self.end.too_long.store(true, Ordering::Relaxed);
                    return Poll::Ready(None);
                };
                self.left = left;
            }
            // hyper takes a stream that was reset with NO_ERROR for one that is at its end.
            None if self.body.is_end_stream() => {}
            Some(Err(_)) | None => self.end.broken.store(true, Ordering::Relaxed),
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
