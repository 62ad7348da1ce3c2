//! What one Attach stream refuses before an instance is asked, until it may be told.
//!
//! Most of it is an offence (B2), filed at one instance or at several. So these refusals wait until everything is committed
//! that was logged before them. What an instance refuses waits there.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use stickycas_proto::v1::Refusal;
use tokio::sync::oneshot;
use tonic::Status;

use crate::instances::{Instances, Outbox};

/// See the module. In the order in which they are told.
#[derive(Debug, Default)]
pub(super) struct StreamRefusals(VecDeque<Waiting>);

#[derive(Debug)]
struct Waiting {
    /// Resolves when it may be told; `None`: when those before it are.
    committed: Option<oneshot::Receiver<()>>,
    refusal: StreamRefusal,
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
        self.0.len()
    }

    /// Adds one, which is told when everything is committed that was logged so far: at once, if it is.
    pub(super) fn push(&mut self, refusal: StreamRefusal, instances: &Instances, outbox: &Outbox) {
        let committed = instances.refusal_barrier();
        match refusal {
            StreamRefusal::Frame(refusal) if committed.is_none() && self.0.is_empty() => outbox.push(refusal),
            refusal => self.0.push_back(Waiting { committed, refusal }),
        }
    }

    /// Tells those that may be told. Ready when the stream ends, with its status.
    pub(super) fn poll(
        &mut self,
        instances: &Instances,
        outbox: &Outbox,
        cx: &mut Context<'_>,
    ) -> Poll<Status> {
        while let Some(first) = self.0.front_mut() {
            if let Some(committed) = &mut first.committed {
                // Without a sender the log has failed.
                let _ = ready!(Pin::new(committed).poll(cx));
                first.committed = None;
            }
            if let Some(failure) = instances.log_failure() {
                return Poll::Ready(failure.into());
            }
            let Some(Waiting { refusal, .. }) = self.0.pop_front() else { break };
            match refusal {
                StreamRefusal::Frame(refusal) => outbox.push(refusal),
                StreamRefusal::Stream(status) => return Poll::Ready(status),
            }
        }
        Poll::Pending
    }
}
