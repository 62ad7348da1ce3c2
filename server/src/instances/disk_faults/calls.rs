//! Single calls of an instance, for clients and for the check of what they were told.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use stickycas_model::access::{Access, Op};
use stickycas_model::types::{AccessNumber, ProcessId, SessionId};

/// The output of a future that is ready at once; `None` if it has to wait.
pub(super) fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

pub(super) fn access(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
    Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
}
