//! The end of a stream from outside: the server stops, or the proof of the stream's principal does not count
//! any more.

use std::pin::Pin;
use std::task::{Context, Poll};

use stickycas_proto::status::RpcRefusal;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Service;
use crate::auth::{Registration, RevocationReason, StreamProof};
use crate::call_layer::Caller;

/// See the module. Both reasons come by one signal, so that a poll of a stream asks once.
pub(super) struct StreamEnd {
    /// A signal of its own, so that streams share no lock when they are polled.
    signal: Pin<Box<WaitForCancellationFutureOwned>>,
    registration: Option<Registration>,
}

impl Service {
    /// The end of a stream of this caller. `as_observer`: it is open to the caller as an observer only.
    ///
    /// # Errors
    /// If what was proven for it does not count any more.
    pub(super) fn stream_end(&self, caller: &Caller, as_observer: bool) -> Result<StreamEnd, RpcRefusal> {
        let token = self.0.drain.child_token();
        let proof = || StreamProof {
            token: caller.token.clone(),
            observer: as_observer.then(|| caller.principal.clone()),
        };
        let registered =
            self.0.credentials.as_ref().map(|store| store.register_stream(&proof(), token.clone()));
        let registration =
            registered.transpose().map_err(|ended: RevocationReason| ended.refusal())?.flatten();
        Ok(StreamEnd { signal: Box::pin(token.cancelled_owned()), registration })
    }
}

impl StreamEnd {
    /// Completes with the reason when the stream has to end.
    pub(super) fn poll(&mut self, service: &Service, cx: &mut Context<'_>) -> Poll<RpcRefusal> {
        if self.signal.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let ended = self.registration.as_ref().and_then(Registration::why);
        Poll::Ready(ended.map_or_else(|| service.draining(), |ended| ended.refusal()))
    }
}
