//! Gates: the one place that decides when a client may be told something.
//!
//! An answer may follow from steps that are not committed yet, and in a cluster another server may know
//! better by now. So each answer, event or refusal for a client waits behind a [`Gate`], which opens when
//!
//! 1. the log is committed: up to the step that the answer follows from, or all that any log had to commit;
//! 2. a read that began after the request came has confirmed that this server still owns the shard, if the
//!    answer says something that another owner may know better ([`depends_on_instances`]); one read serves
//!    all that wait;
//! 3. no log has failed meanwhile.
//!
//! If it does not open, the client is told the reason in place of the answer. An [`Uncommitted`] value cannot
//! be read before its gate is open. Committed entries and events, and the kept answers of accesses, never
//! change and wait for no confirmation; counters are those of this server and wait for nothing. Logs in
//! memory and on disk have one owner, and confirm nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

/// Opens when something may be told; resolves with the reason if it may not. One that is open takes no memory
/// beside it.
#[derive(Debug, Default)]
#[must_use = "what it guards may be told when it is open"]
pub(crate) struct Gate(Option<Box<Conditions>>);

/// The conditions of a gate, in the order in which it waits for them.
#[derive(Default)]
struct Conditions {
    commits: Option<Confirmation>,
    /// The outcome while nothing can be committed for want of space, in the place of the commits.
    without_space: Option<(NoSpace, Result<(), RpcRefusal>)>,
    ownership: Option<Confirmation>,
    /// After a failure of these nothing else is told.
    logs: Option<Arc<dyn LogSource>>,
    /// The reason for which it did not open.
    refused: Option<RpcRefusal>,
}

/// Resolves when something is confirmed, or with the reason why it is not.
pub(crate) type Confirmation = Pin<Box<dyn Future<Output = Result<(), RpcRefusal>> + Send>>;

/// Resolves when a step is committed, or refused by the log.
pub(crate) type CommitReceiver = oneshot::Receiver<Result<(), Box<RpcRefusal>>>;

/// Completes when nothing can be committed for want of space.
pub(crate) type NoSpace = Pin<Box<dyn Future<Output = ()> + Send>>;

/// About the bytes of memory of a refusal that waits for a commit: its text, and the call that waits for it.
pub(crate) const REFUSAL_BYTES: usize = 512;

impl Gate {
    /// Nothing is waited for.
    pub(crate) const OPEN: Self = Self(None);

    fn new(conditions: Conditions) -> Self {
        Self(Some(Box::new(conditions)))
    }

    /// Opens when this step is committed; `None`: it is.
    pub(crate) fn of_step(step: Option<CommitReceiver>) -> Self {
        let Some(step) = step else { return Self::OPEN };
        let committed =
            async { step.await.map_or_else(|_| Err(RpcRefusal::internal()), |it| it.map_err(|it| *it)) };
        Self::new(Conditions { commits: Some(Box::pin(committed)), ..Conditions::default() })
    }

    /// Opens when this is confirmed; `None`: no other server can know it better.
    pub(crate) fn of_ownership(ownership: Option<Confirmation>) -> Self {
        if ownership.is_none() {
            return Self::OPEN;
        }
        Self::new(Conditions { ownership, ..Conditions::default() })
    }

    /// Opens when both are open.
    pub(crate) fn and(self, other: Self) -> Self {
        let (mut one, other) = match (self.0, other.0) {
            (Some(one), Some(other)) => (one, *other),
            (one, other) => return Self(one.or(other)),
        };
        debug_assert!(other.without_space.is_none(), "it would hold for what the first waits for");
        one.commits = both(one.commits, other.commits);
        one.ownership = both(one.ownership, other.ownership);
        one.logs = one.logs.or(other.logs);
        Self(Some(one))
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Does not wait for commits while there is no space for them: it is as open as `then` says.
    fn without_space(mut self, no_space: Option<NoSpace>, then: Result<(), RpcRefusal>) -> Self {
        if let Some(conditions) = &mut self.0 {
            conditions.without_space = no_space.map(|no_space| (no_space, then));
        }
        self
    }
}

fn both(one: Option<Confirmation>, other: Option<Confirmation>) -> Option<Confirmation> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Box::pin(async {
            one.await?;
            other.await
        })),
        (one, other) => one.or(other),
    }
}

impl Future for Gate {
    type Output = Result<(), RpcRefusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(conditions) = &mut self.0 else { return Poll::Ready(Ok(())) };
        if let Some(refused) = &conditions.refused {
            return Poll::Ready(Err(refused.clone()));
        }
        let opened = ready!(conditions.poll(cx));
        match &opened {
            Ok(()) => self.0 = None,
            Err(refused) => conditions.refused = Some(refused.clone()),
        }
        Poll::Ready(opened)
    }
}

impl Conditions {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RpcRefusal>> {
        if let Some(commits) = &mut self.commits {
            let committed = match (commits.as_mut().poll(cx), &mut self.without_space) {
                (Poll::Pending, Some((no_space, then))) => no_space.as_mut().poll(cx).map(|()| then.clone()),
                (committed, _) => committed,
            };
            let committed = ready!(committed);
            self.commits = None;
            committed?;
        }
        let confirmed = self.ownership.as_mut().map_or(Poll::Ready(Ok(())), |it| it.as_mut().poll(cx));
        let confirmed = ready!(confirmed);
        let failure = self.logs.as_ref().and_then(|logs| logs.failure());
        Poll::Ready(failure.map_or(confirmed, |failure| Err(failure.clone())))
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conditions").finish_non_exhaustive()
    }
}

/// A value that may leave the server only when its gate is open.
#[derive(Debug)]
#[must_use = "the value is reached through `committed`"]
pub(crate) struct Uncommitted<T> {
    value: T,
    gate: Gate,
}

impl<T> Uncommitted<T> {
    /// A value behind this gate.
    pub(crate) fn new(value: T, gate: Gate) -> Self {
        Self { value, gate }
    }

    /// The value before its gate is open.
    #[cfg(test)]
    pub(crate) fn peek(&self) -> &T {
        &self.value
    }

    #[cfg(test)]
    pub(crate) fn into_inner(self) -> T {
        self.value
    }

    #[cfg(test)]
    pub(crate) fn into_parts(self) -> (T, Gate) {
        (self.value, self.gate)
    }

    /// Waits for this gate as well.
    pub(crate) fn behind(self, gate: Gate) -> Self {
        Self { value: self.value, gate: gate.and(self.gate) }
    }

    /// The value, or why it may not be told; itself while neither is known. The task is woken when it may be.
    pub(crate) fn poll(mut self, cx: &mut Context<'_>) -> Result<Result<T, RpcRefusal>, Self> {
        match Pin::new(&mut self.gate).poll(cx) {
            Poll::Ready(opened) => Ok(opened.map(|()| self.value)),
            Poll::Pending => Err(self),
        }
    }

    /// The value, if nothing is waited for; else itself.
    pub(crate) fn if_open(self) -> Result<T, Self> {
        if self.gate.0.is_none() { Ok(self.value) } else { Err(self) }
    }

    /// Another value that follows from this one.
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Uncommitted<U> {
        Uncommitted { value: map(self.value), gate: self.gate }
    }

    /// Waits for the gate and returns the value.
    ///
    /// # Errors
    /// The reason for which it may not be told: if the log refuses the step, it is not known whether the step
    /// took place.
    pub(crate) async fn committed(self) -> Result<T, RpcRefusal> {
        self.gate.await.map(|()| self.value)
    }

    /// The same of a value that is only shown: nothing is waited for while there is no space for what is to
    /// be committed.
    ///
    /// # Errors
    /// See [`Self::committed`]; or that there is no space.
    pub(crate) async fn shown(self, gates: &Gates) -> Result<T, RpcRefusal> {
        let why = "etcd has no space left: nothing is committed, and what waits for that is not shown; ask again when there is space";
        let refused = Err(RpcRefusal::new(RefusalReason::Recovering, why));
        self.gate.without_space(gates.no_space(), refused).await.map(|()| self.value)
    }
}

impl Uncommitted<RpcRefusal> {
    /// The reason before its gate is open, for counters: no client is told.
    pub(crate) fn reason(&self) -> RefusalReason {
        self.value.reason
    }
}

/// A refusal that says nothing of an instance.
impl From<RpcRefusal> for Uncommitted<RpcRefusal> {
    fn from(why: RpcRefusal) -> Self {
        debug_assert!(!depends_on_instances(why.reason), "it is to be confirmed: {why:?}");
        Self::new(why, Gate::OPEN)
    }
}

/// The logs of a server, as far as the answers to clients depend on them.
pub(crate) trait LogSource: fmt::Debug + Send + Sync {
    /// Completes when requests may be taken again; `None`: they may.
    fn room(&self) -> Option<OwnedNotified>;

    /// Resolve when everything is committed that was logged so far, or the log has failed: one of each log
    /// that has something to commit. So many bytes wait for each.
    fn barriers(&self, bytes: usize) -> Vec<oneshot::Receiver<()>>;

    /// Begins to confirm that the server owns each shard that others may own by now.
    fn confirmations(&self) -> Vec<Confirmation>;

    /// The number of logs that were removed, since their shards were lost or handed over.
    fn removed(&self) -> u64;

    /// The reason for which nothing may be told any more, if a log has failed.
    fn failure(&self) -> Option<&RpcRefusal>;

    /// Completes while nothing can be committed for want of space; `None`: that never happens.
    fn no_space(&self) -> Option<NoSpace>;
}

/// Makes the gates of answers that follow from no step of an instance.
#[derive(Clone, Debug)]
pub(crate) struct Gates(Option<Arc<dyn LogSource>>);

impl Gates {
    /// For answers that depend on no log.
    pub(crate) const NONE: Self = Self(None);

    /// For answers that depend on these logs.
    pub(crate) fn new(logs: Arc<dyn LogSource>) -> Self {
        Self(Some(logs))
    }

    /// For a call that comes now.
    pub(crate) fn of_call(&self) -> CallGates {
        CallGates { removed: self.removed(), gates: self.clone() }
    }

    fn removed(&self) -> u64 {
        self.0.as_ref().map_or(0, |logs| logs.removed())
    }

    /// Completes when requests may be taken again; `None`: they may.
    pub(crate) fn room(&self) -> Option<OwnedNotified> {
        self.0.as_ref()?.room()
    }

    /// The reason for which nothing may be told any more, if a log has failed.
    pub(crate) fn failure(&self) -> Option<&RpcRefusal> {
        self.0.as_ref()?.failure()
    }

    /// For an answer that says nothing of an instance that another server may know better: opens when
    /// everything that was logged so far is committed.
    pub(crate) fn everything_committed(&self) -> Gate {
        let Some(logs) = &self.0 else { return Gate::OPEN };
        let barriers = logs.barriers(REFUSAL_BYTES);
        if barriers.is_empty() && logs.failure().is_none() {
            return Gate::OPEN;
        }
        let committed = async {
            for barrier in barriers {
                // Without a sender its log has failed.
                let _ = barrier.await;
            }
            Ok(())
        };
        let commits: Option<Confirmation> = Some(Box::pin(committed));
        Gate::new(Conditions { commits, logs: Some(logs.clone()), ..Conditions::default() })
    }

    /// For an answer about the existence of instances: opens when all shards are confirmed.
    pub(crate) fn ownership(&self) -> Gate {
        let Some(logs) = &self.0 else { return Gate::OPEN };
        let confirmations = logs.confirmations();
        if confirmations.is_empty() {
            return Gate::OPEN;
        }
        let confirmed = async {
            for confirmation in confirmations {
                confirmation.await?;
            }
            Ok(())
        };
        let ownership: Option<Confirmation> = Some(Box::pin(confirmed));
        Gate::new(Conditions { ownership, logs: Some(logs.clone()), ..Conditions::default() })
    }

    fn no_space(&self) -> Option<NoSpace> {
        self.0.as_ref()?.no_space()
    }
}

/// Makes the gate of the refusal of one call.
#[derive(Debug)]
pub(crate) struct CallGates {
    gates: Gates,
    /// The number of logs that had been removed when the call came.
    removed: u64,
}

impl CallGates {
    /// The refusal of the call for this reason, if it has one of ours: of which instance it is, and so of
    /// which shard, is not known. `without_space`: it says nothing that may not be committed, and is told
    /// while nothing can be.
    pub(crate) fn refusal(&self, reason: Option<RefusalReason>, without_space: bool) -> Gate {
        let gates = &self.gates;
        let mut gate = gates.everything_committed();
        if without_space {
            gate = gate.without_space(gates.no_space(), Ok(()));
        }
        if !reason.is_some_and(depends_on_instances) {
            return gate;
        }
        let ownership = gates.ownership();
        // Looked at behind the logs: all that are not among them are counted. One that was removed cannot be
        // asked, and the refusal may be of an instance of its shard.
        if gates.removed() == self.removed {
            return gate.and(ownership);
        }
        let why = "the server has lost a shard meanwhile, and it may be that of the instance: ask again with the same number";
        let lost = Err(RpcRefusal::new(RefusalReason::OwnerLost, why));
        gate.and(Gate::of_ownership(Some(Box::pin(std::future::ready(lost)))))
    }
}

/// The ownership of a log that several servers share: it belongs to one of them at a time.
pub(crate) trait Ownership: fmt::Debug + Send + Sync {
    /// Asks whether this server owns the log. All callers before the beginning of a read share it: returns
    /// the number of the next one that begins, or of one behind it.
    fn ask(&self) -> u64;

    /// The outcome of the read of this number or of a later one; `None`: none has ended yet. If the server
    /// does not own the log, or no read confirms it in time, the server owns it no more.
    fn outcome(&self, read: u64) -> Option<Result<(), RpcRefusal>>;

    /// Completes when a read has shown something since this was called.
    fn read_ended(&self) -> OwnedNotified;

    /// Registers a function that is called with the reason when the log is lost, before anything else learns
    /// of it.
    fn on_lost(&self, lost: Lost);
}

/// A function that is called with the reason when a log is lost.
pub(crate) type Lost = Box<dyn FnOnce(&RpcRefusal) + Send>;

/// Begins to confirm this ownership.
pub(crate) fn confirm(ownership: &Arc<dyn Ownership>) -> Confirmation {
    let (ownership, read) = (ownership.clone(), ownership.ask());
    Box::pin(async move {
        loop {
            let read_ended = ownership.read_ended();
            if let Some(outcome) = ownership.outcome(read) {
                return outcome;
            }
            read_ended.await;
        }
    })
}

/// Whether a refusal for this reason says something of an instance that another server may know better: that
/// there is none, or how far it is. Parameters that the creation of an instance has fixed never change, so a
/// refusal that follows from them alone needs no confirmation; nor does one that is about the caller, its
/// request or this server.
fn depends_on_instances(reason: RefusalReason) -> bool {
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
        | RefusalReason::NotOwner
        | RefusalReason::OwnerLost
        | RefusalReason::ReadTooLarge => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::task::Waker;

    use super::*;

    fn poll(gate: &mut Gate) -> Poll<Result<(), RpcRefusal>> {
        Pin::new(gate).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn refused() -> RpcRefusal {
        RpcRefusal::new(RefusalReason::LogFailed, "the disk is full")
    }

    /// One log, in which something waits to be committed until the sender is dropped.
    #[derive(Debug, Default)]
    struct OneLog {
        failure: OnceLock<RpcRefusal>,
        waiting: std::sync::Mutex<Vec<oneshot::Sender<()>>>,
        is_full: bool,
    }

    impl LogSource for OneLog {
        fn room(&self) -> Option<OwnedNotified> {
            None
        }

        fn barriers(&self, _: usize) -> Vec<oneshot::Receiver<()>> {
            let (sender, receiver) = oneshot::channel();
            self.waiting.lock().unwrap().push(sender);
            vec![receiver]
        }

        fn confirmations(&self) -> Vec<Confirmation> {
            Vec::new()
        }

        fn removed(&self) -> u64 {
            0
        }

        fn failure(&self) -> Option<&RpcRefusal> {
            self.failure.get()
        }

        fn no_space(&self) -> Option<NoSpace> {
            self.is_full.then(|| -> NoSpace { Box::pin(std::future::ready(())) })
        }
    }

    #[test]
    fn two_gates_open_when_both_are_open() {
        let ((first, one), (second, other)) = (oneshot::channel(), oneshot::channel());
        let mut both = Gate::of_step(Some(one)).and(Gate::OPEN).and(Gate::of_step(Some(other)));
        assert!(poll(&mut both).is_pending());
        second.send(Ok(())).unwrap();
        assert!(poll(&mut both).is_pending(), "the first is not committed");
        first.send(Ok(())).unwrap();
        assert_eq!(poll(&mut both), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_gate_that_did_not_open_stays_shut() {
        let (step, receiver) = oneshot::channel();
        let mut gate = Gate::of_step(Some(receiver));
        step.send(Err(Box::new(refused()))).unwrap();
        for _ in 0..2 {
            assert_eq!(poll(&mut gate), Poll::Ready(Err(refused())));
        }
    }

    #[test]
    fn after_a_failure_of_the_log_no_gate_opens() {
        let log = Arc::new(OneLog::default());
        let gates = Gates::new(log.clone());
        let mut gate = gates.of_call().refusal(Some(RefusalReason::InstanceUnknown), false);
        assert!(poll(&mut gate).is_pending());
        log.failure.set(refused()).unwrap();
        log.waiting.lock().unwrap().clear();
        assert_eq!(poll(&mut gate), Poll::Ready(Err(refused())));
    }

    #[test]
    fn without_space_only_what_says_nothing_uncommitted_is_told() {
        let gates = Gates::new(Arc::new(OneLog { is_full: true, ..OneLog::default() })).of_call();
        assert!(poll(&mut gates.refusal(Some(RefusalReason::NameTaken), false)).is_pending());
        assert_eq!(
            poll(&mut gates.refusal(Some(RefusalReason::TooManyInstances), true)),
            Poll::Ready(Ok(()))
        );
    }

    #[tokio::test]
    async fn what_is_only_shown_is_refused_without_space() {
        let gates = Gates::new(Arc::new(OneLog { is_full: true, ..OneLog::default() }));
        let (_step, receiver) = oneshot::channel();
        let shown = Uncommitted::new("state", Gate::of_step(Some(receiver))).shown(&gates).await;
        assert_eq!(shown.unwrap_err().reason, RefusalReason::Recovering);
        assert_eq!(Uncommitted::new("state", Gate::OPEN).shown(&gates).await, Ok("state"));
    }
}
