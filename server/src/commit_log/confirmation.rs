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
//! | a refusal of a frame before an instance is asked: that there is none, by the shard of its id | `Instances::absence`, `service::stream_refusals` |
//! | a refusal of a unary call, also by an instance, whose shard is not known there: all shards | `call_layer::call` |
//!
//! Only refusals that say something of an instance wait: see
//! `depends_on_instances` in [`super::logs`]. Exempt are committed entries and events, and the kept
//! answers of accesses, which never change; also counters, which are those of this server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use stickycas_proto::status::RpcRefusal;
use tokio::sync::futures::OwnedNotified;

use super::Lost;

/// What a log has that several servers share: it belongs to one of them at a time.
pub(crate) trait Ownership: fmt::Debug + Send + Sync {
    /// Asks whether this server owns the log. All who ask before a read begins share it: returns the number of the next one
    /// that begins, or of one behind it.
    fn ask(&self) -> u64;

    /// What a read of this number or a later one has shown; `None`: nothing yet. If the server does not own the log, or nobody
    /// can say so in time, it owns it no more.
    fn outcome(&self, read: u64) -> Option<Result<(), RpcRefusal>>;

    /// Completes when a read has shown something since this was called.
    fn told(&self) -> OwnedNotified;

    /// This is to be told why the log is lost, before anybody else is.
    fn on_lost(&self, lost: Lost);
}

/// Resolves when the ownership is confirmed, or with the reason why it is not. Until it is polled it is a number and no more.
pub(crate) struct Confirmation {
    ownership: Arc<dyn Ownership>,
    read: u64,
    told: Option<Pin<Box<OwnedNotified>>>,
}

impl Confirmation {
    /// Begins to confirm this ownership.
    pub(crate) fn of(ownership: &Arc<dyn Ownership>) -> Self {
        Self { ownership: ownership.clone(), read: ownership.ask(), told: None }
    }
}

impl fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ownership, read, .. } = self;
        f.debug_struct("Confirmation")
            .field("ownership", ownership)
            .field("read", read)
            .finish_non_exhaustive()
    }
}

impl Future for Confirmation {
    type Output = Result<(), RpcRefusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let Self { ownership, read, told } = &mut *self;
            // What is told between the two is seen by the second look.
            if let Some(outcome) = ownership.outcome(*read) {
                return Poll::Ready(outcome);
            }
            let waits = told.get_or_insert_with(|| Box::pin(ownership.told()));
            if let Some(outcome) = ownership.outcome(*read) {
                return Poll::Ready(outcome);
            }
            ready!(waits.as_mut().poll(cx));
            *told = None;
        }
    }
}
