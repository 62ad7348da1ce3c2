//! What one Attach stream refuses before an instance is asked, until it may be told.
//!
//! Most of it is an offence (B2), filed at one instance or at several. So these refusals wait until everything is committed
//! that was logged before them. What an instance refuses waits there.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use stickycas_model::types::AccessNumber;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::Refusal;
use tonic::Status;

use crate::gate::{Gate, Gates, Uncommitted, depends_on_instances};
use crate::instances::Outbox;

/// See the module. In the order in which they are told.
#[derive(Debug, Default)]
pub(super) struct StreamRefusals(VecDeque<Waiting>);

#[derive(Debug)]
struct Waiting {
    gate: Gate,
    refusal: StreamRefusal,
}

/// Why a frame is refused before an instance is asked. Of one that says something of an instance the gate is made where
/// that was found out, at the shard of the instance alone.
#[derive(Debug)]
pub(super) struct FrameRefusal(pub(super) Uncommitted<RpcRefusal>);

/// Of one that says nothing of an instance.
impl From<RpcRefusal> for FrameRefusal {
    fn from(why: RpcRefusal) -> Self {
        debug_assert!(!depends_on_instances(why.reason), "it is to be confirmed: {why:?}");
        Self(Uncommitted::new(why, Gate::OPEN))
    }
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

    /// Adds one, which is told when its gate is open and everything is committed that was logged so far: at once, if it is.
    pub(super) fn push(&mut self, refusal: StreamRefusal, gate: Gate, gates: &Gates, outbox: &Outbox) {
        let gate = gates.everything_committed().and(gate);
        if gates.failure().is_some() {
            // With this the stream ends at the next poll.
            return;
        }
        match refusal {
            StreamRefusal::Frame(refusal) if gate.is_open() && self.0.is_empty() => outbox.push(refusal),
            refusal => self.0.push_back(Waiting { gate, refusal }),
        }
    }

    /// Tells those that may be told. Ready when the stream ends, with its status.
    pub(super) fn poll(&mut self, gates: &Gates, outbox: &Outbox, cx: &mut Context<'_>) -> Poll<Status> {
        // Also if nothing waits: what is left unsaid is not told later.
        if let Some(failure) = gates.failure() {
            return Poll::Ready(failure.clone().into());
        }
        while let Some(first) = self.0.front_mut() {
            let opened = ready!(Pin::new(&mut first.gate).poll(cx));
            if let Some(failure) = gates.failure() {
                return Poll::Ready(failure.clone().into());
            }
            let Some(Waiting { refusal, .. }) = self.0.pop_front() else { break };
            match (refusal, opened) {
                (StreamRefusal::Frame(refusal), Err(why)) => {
                    outbox.push(why.to_frame(refusal.channel, AccessNumber::new(refusal.access_number)));
                }
                (StreamRefusal::Frame(refusal), Ok(())) => outbox.push(refusal),
                (StreamRefusal::Stream(status), _) => return Poll::Ready(status),
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use stickycas_proto::v1::RefusalReason;

    use super::*;
    use crate::commit_log::engine::{EngineError, ManualEngine, Outcome};
    use crate::limits::Limits;
    use crate::quota::KnownPrincipals;
    use crate::storage::Storage;

    /// The end of the stream, if it comes.
    fn poll(refusals: &mut StreamRefusals, gates: &Gates, outbox: &Outbox) -> Option<RefusalReason> {
        match refusals.poll(gates, outbox, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(status) => Some(RpcRefusal::from_status(&status).expect("it is ours").reason),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn nothing_is_told_after_the_log_has_failed() {
        let malformed = || RpcRefusal::new(RefusalReason::Malformed, "channel 7 is not open");
        let frame = || StreamRefusal::Frame(malformed().to_frame(7, None));
        let engine = Arc::new(ManualEngine::new(1));
        let storage = Storage::durable(engine.clone(), None, &Limits::default()).unwrap();
        let instances = storage.instances(Limits::default(), KnownPrincipals::default());
        let (gates, outbox) = (instances.gates(), Outbox::new(10));
        let mut refusals = StreamRefusals::default();
        refusals.push(frame(), Gate::OPEN, gates, &outbox);
        assert_eq!(
            (poll(&mut refusals, gates, &outbox), outbox.len()),
            (None, 1),
            "nothing is to be committed"
        );

        storage.durable_log().unwrap().checkpoint(1, None);
        let (_, done) = engine.next();
        done(Outcome::Unknown(EngineError::failed("the disk is gone")));
        assert!(instances.log_failure().is_some());
        assert_eq!(poll(&mut refusals, gates, &outbox), Some(RefusalReason::LogFailed));
        refusals.push(frame(), Gate::OPEN, gates, &outbox);
        assert_eq!(outbox.len(), 1);
        refusals.push(StreamRefusal::Stream(malformed().into()), Gate::OPEN, gates, &outbox);
        assert_eq!(poll(&mut refusals, gates, &outbox), Some(RefusalReason::LogFailed));
    }
}
