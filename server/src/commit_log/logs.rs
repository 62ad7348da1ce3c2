//! The logs of all shards of a server, for what concerns no single shard: requests wait for room, and refusals for what was
//! logged before them.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll, ready};

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::{CommitLog, Confirmation, LogState, NoSpace};

/// See the module.
#[derive(Debug)]
pub(crate) struct Logs {
    state: Arc<LogState>,
    logs: RwLock<Vec<Arc<dyn CommitLog>>>,
    /// How many were removed. It changes with them.
    removals: AtomicU64,
}

/// How many logs had been removed at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removals(u64);

/// Resolves when everything is committed that was appended to any log so far, or the log has failed.
#[derive(Debug)]
pub(crate) struct Barrier(Vec<oneshot::Receiver<()>>);

/// Resolves when this server is confirmed to own what it tells of, or with the reason why it is not.
#[derive(Debug)]
pub(crate) struct Confirmations {
    confirmations: Vec<Confirmation>,
    /// Whether what is told may be of a log that was removed since.
    is_lost: bool,
}

impl Logs {
    /// No logs yet; those that come share this.
    pub(crate) fn new(state: Arc<LogState>) -> Self {
        Self { state, logs: RwLock::default(), removals: AtomicU64::new(0) }
    }

    /// The log of a shard that the server owns from now on.
    pub(crate) fn add(&self, log: Arc<dyn CommitLog>) {
        debug_assert!(Arc::ptr_eq(log.state(), &self.state), "the logs of a server have one state");
        self.logs.write().unwrap_or_else(PoisonError::into_inner).push(log);
    }

    /// The server owns its shard no more.
    pub(crate) fn remove(&self, log: &Arc<dyn CommitLog>) {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|it| !Arc::ptr_eq(it, log));
        self.removals.fetch_add(1, Ordering::SeqCst);
    }

    /// How many have been removed. To be asked when a call comes: see [`Self::confirm_refusal`].
    pub(crate) fn removals(&self) -> Removals {
        Removals(self.removals.load(Ordering::SeqCst))
    }

    /// See [`LogState::room`].
    pub(crate) fn room(&self) -> Option<OwnedNotified> {
        self.state.room()
    }

    /// See [`LogState::stop_clock`].
    pub(crate) fn stop_clock(&self) {
        self.state.stop_clock();
    }

    /// See [`LogState::failure`].
    pub(crate) fn failure(&self) -> Option<&RpcRefusal> {
        self.state.failure()
    }

    /// See [`LogState::no_space`].
    pub(crate) fn no_space(&self) -> Option<NoSpace> {
        self.state.no_space()
    }

    /// See [`CommitLog::uncommitted_bytes`].
    pub(crate) fn uncommitted_bytes(&self) -> usize {
        self.collect(|log| Some(log.uncommitted_bytes())).into_iter().sum()
    }

    /// See [`CommitLog::barrier`]. The bytes are counted at each log that has something to commit.
    pub(crate) fn barrier(&self, bytes: usize) -> Option<Barrier> {
        let barriers = self.collect(|log| log.barrier(bytes));
        (!barriers.is_empty()).then_some(Barrier(barriers))
    }

    /// What may be told without a transaction, and of which the shard is not known: see [`CommitLog::confirm`].
    pub(crate) fn confirm(&self) -> Option<Confirmations> {
        let confirmations = self.collect(|log| log.confirm());
        (!confirmations.is_empty()).then_some(Confirmations { confirmations, is_lost: false })
    }

    /// The same before a refusal for this reason is told of a call that had come before these removals: a log that was removed
    /// since cannot be asked, and the refusal may be of an instance of its shard.
    pub(crate) fn confirm_refusal(&self, reason: RefusalReason, before: Removals) -> Option<Confirmations> {
        if !depends_on_instances(reason) {
            return None;
        }
        let confirmed = self.confirm();
        // Looked at behind the logs: all that are not among them are counted.
        let is_lost = self.removals() != before;
        if is_lost { Some(Confirmations { confirmations: Vec::new(), is_lost }) } else { confirmed }
    }

    fn collect<T>(&self, of: impl FnMut(&Arc<dyn CommitLog>) -> Option<T>) -> Vec<T> {
        // Nothing is allocated if there is nothing to wait for.
        self.logs.read().unwrap_or_else(PoisonError::into_inner).iter().filter_map(of).collect()
    }
}

impl Future for Barrier {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(last) = self.0.last_mut() {
            // Without a sender its log has failed.
            let _ = ready!(Pin::new(last).poll(cx));
            self.0.pop();
        }
        Poll::Ready(())
    }
}

impl Future for Confirmations {
    type Output = Result<(), RpcRefusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_lost {
            let why = "the server has lost a shard meanwhile, and it may be that of the instance: ask again with the same number";
            return Poll::Ready(Err(RpcRefusal::new(RefusalReason::OwnerLost, why)));
        }
        while let Some(last) = self.confirmations.last_mut() {
            ready!(Pin::new(last).poll(cx))?;
            self.confirmations.pop();
        }
        Poll::Ready(Ok(()))
    }
}

/// Whether a refusal for this reason says something of an instance that another server may know better: that there is none, or
/// how far it is. What was fixed with the creation of an instance never changes, so a refusal that follows from that
/// alone needs no confirmation; nor does one that is about the caller, its request or this server.
pub(crate) fn depends_on_instances(reason: RefusalReason) -> bool {
    match reason {
        RefusalReason::InstanceUnknown
        | RefusalReason::NameTaken
        | RefusalReason::AccessNumberOutOfOrder
        | RefusalReason::AccessContentDiffers
        | RefusalReason::NotYourPhase
        | RefusalReason::InstanceClosed
        | RefusalReason::ProcessLeft
        | RefusalReason::DecisionDiffers
        | RefusalReason::SessionReplaced
        | RefusalReason::PhaseNotKept
        | RefusalReason::TooManyWaiting
        | RefusalReason::TooManySessions => true,
        RefusalReason::Unspecified
        | RefusalReason::ValueEmpty
        | RefusalReason::ValueTooLarge
        | RefusalReason::Malformed
        | RefusalReason::BadParameters
        | RefusalReason::NoIdentity
        | RefusalReason::NotAMember
        | RefusalReason::NotCoordinator
        | RefusalReason::NotCreator
        | RefusalReason::NotObserver
        | RefusalReason::TooManyInstances
        | RefusalReason::TooManyConnections
        | RefusalReason::TooManyStreams
        | RefusalReason::RateExceeded
        | RefusalReason::WatcherTooSlow
        | RefusalReason::ReaderTooSlow
        | RefusalReason::RequestTooSlow
        | RefusalReason::TooManyBytes
        | RefusalReason::Draining
        | RefusalReason::Deadline
        | RefusalReason::Internal
        | RefusalReason::Recovering
        | RefusalReason::LogFailed
        | RefusalReason::NoPage
        | RefusalReason::NotOwner
        | RefusalReason::OwnerLost
        | RefusalReason::ReadTooLarge => false,
    }
}
