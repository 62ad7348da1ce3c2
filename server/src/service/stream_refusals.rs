//! What one Attach stream refuses before an instance is asked, until it may be told.
//!
//! Most of it is an offence (B2), filed at one instance or at several. So these refusals wait until everything is committed
//! that was logged before them. What an instance refuses waits there.

use std::pin::Pin;
use std::task::{Context, Poll};

use stickycas_proto::v1::Refusal;
use tokio::sync::oneshot;
use tonic::Status;

use crate::instances::{Instances, Outbox};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct StreamRefusals {
    /// Resolves when the `leaving` ones may be told.
    committed: Option<oneshot::Receiver<()>>,
    leaving: Vec<StreamRefusal>,
    /// Those that came later.
    waiting: Vec<StreamRefusal>,
}

/// What is refused.
#[derive(Debug)]
pub(super) enum StreamRefusal {
    /// One frame.
    Frame(Refusal),
    /// The rest of the stream.
    Stream(Status),
}

impl StreamRefusals {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.leaving.len() + self.waiting.len()
    }

    /// Adds one, which is told when everything is committed that was logged so far: at once, if it is.
    pub(super) fn push(&mut self, refusal: StreamRefusal, instances: &Instances, outbox: &Outbox) {
        if self.len() > 0 {
            return self.waiting.push(refusal);
        }
        self.committed = instances.barrier();
        match refusal {
            StreamRefusal::Frame(refusal) if self.committed.is_none() => outbox.push(refusal),
            refusal => self.leaving.push(refusal),
        }
    }

    /// Tells those that may be told. Ready when the stream ends, with its status.
    pub(super) fn poll(
        &mut self,
        instances: &Instances,
        outbox: &Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Status> {
        loop {
            if let Some(committed) = &mut self.committed
                && Pin::new(committed).poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            self.committed = None;
            if let Some(failure) = instances.log_failure() {
                return Poll::Ready(failure.into());
            }
            for refusal in self.leaving.drain(..) {
                match refusal {
                    StreamRefusal::Frame(refusal) => outbox.push(refusal),
                    StreamRefusal::Stream(status) => return Poll::Ready(status),
                }
            }
            if self.waiting.is_empty() {
                return Poll::Pending;
            }
            std::mem::swap(&mut self.leaving, &mut self.waiting);
            self.committed = instances.barrier();
        }
    }
}
