//! The confirmation that this server still owned a shard after a request had come.
//!
//! What is told without a transaction tells something that another server may have changed since, if it owns the shard by
//! now: such an answer leaves only when the ownership was confirmed by a read that was begun after the request came
//! ([`CommitLog::confirm`](super::CommitLog::confirm)). One read serves all that wait. Logs in memory and on disk have one
//! owner, and confirm nothing. The places:
//!
//! | what is told | where it waits |
//! | --- | --- |
//! | Get, and the snapshot of Watch | `Instance::look` |
//! | List, and a Create that finds its instance | `Instance::state` |
//! | a page of List, and the live page's table: that there are no others | `Instances::confirmed`, in `service::instances`, `page::table` |
//! | the closing of an instance that was closed before | `Instance::close` |
//! | a refusal by an instance on a stream, without an input to be logged | `Instance::commit`, `Inner::tell`; it waits in the stream's outbox |
//! | a refusal of a frame before an instance is asked, `INSTANCE_UNKNOWN` for one | `service::stream_refusals` |
//! | a refusal of a unary call, also by an instance | `call_layer::call` |
//!
//! Only refusals that say something of an instance wait: see
//! `depends_on_instances` in [`super::logs`]. Exempt are committed entries and events, and the kept
//! answers of accesses, which never change; also counters, which are those of this server.

use std::pin::Pin;
use std::task::{Context, Poll};

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::oneshot;

/// Resolves when the ownership is confirmed, or with the reason why it is not. Without a sender the log is gone.
#[derive(Debug)]
pub(crate) struct Confirmation(oneshot::Receiver<Result<(), Box<RpcRefusal>>>);

/// Tells the outcome of a [`Confirmation`].
#[derive(Debug)]
pub(crate) struct Confirms(oneshot::Sender<Result<(), Box<RpcRefusal>>>);

impl Confirmation {
    /// A confirmation, and what tells its outcome.
    #[cfg_attr(
        not(any(test, feature = "cluster")),
        expect(dead_code, reason = "no log is shared by servers")
    )]
    pub(crate) fn new() -> (Confirms, Self) {
        let (sender, receiver) = oneshot::channel();
        (Confirms(sender), Self(receiver))
    }
}

impl Confirms {
    /// The server owned the shard when this was asked, or it did not for this reason.
    #[cfg_attr(
        not(any(test, feature = "cluster")),
        expect(dead_code, reason = "no log is shared by servers")
    )]
    pub(crate) fn tell(self, outcome: Result<(), RpcRefusal>) {
        // Who waited may be gone.
        let _ = self.0.send(outcome.map_err(Box::new));
    }
}

impl Future for Confirmation {
    type Output = Result<(), RpcRefusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|outcome| match outcome {
            Ok(outcome) => outcome.map_err(|refused| *refused),
            Err(_) => Err(RpcRefusal::new(RefusalReason::OwnerLost, "the server has lost the shard")),
        })
    }
}
