//! The streams of Attach and Watch: those of Attach that are open, and the end of either from outside.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use stickycas_proto::status::RpcRefusal;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Service;
use crate::auth::{Registration, RevocationReason, StreamProof};
use crate::call_layer::Caller;
use crate::instances::Outbox;

/// The outboxes of the Attach streams that are open, for metrics. One that is gone is forgotten when room is
/// needed, or when the others are looked at.
#[derive(Debug, Default)]
pub(super) struct OpenStreams(Mutex<Vec<Weak<Outbox>>>);

impl OpenStreams {
    /// Adds a new stream.
    pub(super) fn add(&self, outbox: &Arc<Outbox>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == open.capacity() {
            open.retain(|outbox| outbox.strong_count() > 0);
            // So that as many come as there are, before all are looked at again.
            let more = open.len();
            open.reserve(more);
        }
        open.push(Arc::downgrade(outbox));
    }

    /// Frames that wait on all streams for their clients, and on the stream with the most.
    pub(super) fn unread(&self) -> (usize, usize) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|outbox| outbox.strong_count() > 0);
        let lengths = open.iter().filter_map(|outbox| Some(outbox.upgrade()?.len()));
        lengths.fold((0, 0), |(all, most), length| (all + length, most.max(length)))
    }
}

/// The end of a stream from outside: the server stops, or the proof for the stream does not count any more.
/// Both come by one signal, so that a poll of a stream asks once.
pub(super) struct StreamEnd {
    /// A signal of its own, so that streams share no lock when they are polled.
    signal: Pin<Box<WaitForCancellationFutureOwned>>,
    registration: Option<Registration>,
}

impl StreamEnd {
    /// Of a stream of this caller. `as_observer`: it is open to the caller as an observer only.
    ///
    /// # Errors
    /// If what was proven for it does not count any more.
    pub(super) fn new(service: &Service, caller: &Caller, as_observer: bool) -> Result<Self, RpcRefusal> {
        let token = service.0.drain.child_token();
        let proof = || StreamProof {
            token: caller.token.clone(),
            observer: as_observer.then(|| caller.principal.clone()),
        };
        let registered =
            service.0.credentials.as_ref().map(|store| store.register_stream(&proof(), token.clone()));
        let registration =
            registered.transpose().map_err(|ended: RevocationReason| ended.refusal())?.flatten();
        Ok(Self { signal: Box::pin(token.cancelled_owned()), registration })
    }

    /// Completes with the reason when the stream has to end.
    pub(super) fn poll(&mut self, service: &Service, cx: &mut Context<'_>) -> Poll<RpcRefusal> {
        if self.signal.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let ended = self.registration.as_ref().and_then(Registration::why);
        Poll::Ready(ended.map_or_else(|| service.draining(), |ended| ended.refusal()))
    }
}
