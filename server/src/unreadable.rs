//! Messages that are none, and how they are told from those that merely broke off.
//!
//! tonic refuses what it cannot decode before a handler sees it: with INTERNAL, which would tell the caller of
//! a bug of ours, or with OUT_OF_RANGE if it is too large, and without details. For either the rules know
//! INVALID_ARGUMENT (SPEC section 11), and an offence (B2). What our handlers refuse carries details, so the two are
//! told apart.
//!
//! A client that goes in the middle of a message leaves just such a message behind, and that is no offence. So the
//! request's body is watched: only what came to an end of its own accord is judged by its content.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use stickycas_model::history::OffenceKind;
use stickycas_proto::status::Refused;
use stickycas_proto::v1::RefusalReason;
use tonic::{Code, Status};

use crate::principals::Incident;

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Its bytes do not decode.
    Undecodable,
    /// It is above the size limit.
    Oversized,
}

impl Unreadable {
    /// What tonic's own refusal says of a message. `None`: the refusal is of another kind.
    pub(crate) fn of(status: &Status) -> Option<Self> {
        match status.code() {
            _ if !status.details().is_empty() => None,
            Code::Internal => Some(Self::Undecodable),
            Code::OutOfRange => Some(Self::Oversized),
            _ => None,
        }
    }

    pub(crate) fn incident(self) -> Incident {
        match self {
            Self::Undecodable => Incident::MessageUndecodable,
            Self::Oversized => Incident::MessageOversized,
        }
    }

    pub(crate) fn offence(self) -> OffenceKind {
        match self {
            Self::Undecodable => OffenceKind::Malformed,
            Self::Oversized => OffenceKind::Oversized,
        }
    }

    /// What the caller is told in place of that refusal.
    pub(crate) fn refused(status: &Status) -> Refused {
        Refused::new(RefusalReason::Malformed, status.message())
    }
}

/// Whether a request has broken off.
#[derive(Debug, Default)]
pub(crate) struct RequestEnd(AtomicBool);

impl RequestEnd {
    /// Whether the client's stream was reset or its connection is gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request that is watched for its end.
pub(crate) struct Watched<B> {
    body: B,
    end: Arc<RequestEnd>,
}

impl<B> Watched<B> {
    pub(crate) fn new(body: B, end: Arc<RequestEnd>) -> Self {
        Self { body, end }
    }
}

impl<B: Body + Unpin> Body for Watched<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Err(_))) = frame {
            self.end.0.store(true, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
