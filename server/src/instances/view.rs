//! Views of an instance: Get, List and Watch (SPEC F12, F13). They show what is committed.
//!
//! Under the lock of an instance a view takes no more than it has to: of the status as many rows as are
//! shown, of the list a reference and its length, of the events their encoded segments. They are decoded and
//! encoded when the lock is free.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;

use stickycas_model::machine::{Brief, Entry, Machine, MemberStatus, State, Status};
use stickycas_model::params::{Order, Params};
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::{Phase, ProcessId, SessionId, Time, Value};
use stickycas_proto::convert::history::event_to_wire;
use stickycas_proto::log::v1::DumpedInstance;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{self, RefusalReason};

use super::archive::restore_machine;
use super::config::InstanceConfig;
use super::instance::Instance;
use super::lifecycle::{Inner, Lifecycle};
use super::sessions::SessionSink;
use super::shard::{Context, ShardContext, WatcherId};
use crate::auth::Principal;
#[cfg(test)]
use crate::event_log::SharedEvents;
use crate::event_log::Truncated;
use crate::gate::{Gate, Uncommitted};

/// The state of an instance, and the index of the event that comes next.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    /// The list, which may have grown since: `status` tells its length.
    pub(crate) list: Arc<StickyCas<Entry>>,
    pub(crate) next_index: u64,
}

/// An instance in a list.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) brief: Brief,
    /// The number of processes that have reported a decision.
    pub(crate) decided: u32,
    /// The one that they have reported, false reports aside, if it is the same.
    pub(crate) decision: Option<Value>,
}

/// The content of a view, told when it is committed; an error is the reason for which the instance is gone.
type View<T> = Uncommitted<Result<T, RpcRefusal>>;

/// The result of a poll of a watcher.
#[derive(Debug)]
pub(crate) enum WatchPoll {
    /// The next events.
    Events(Vec<v1::Event>),
    /// None yet; the watcher is woken when there are.
    Pending,
    /// The instance has ended or expired, and every event was delivered.
    End,
    /// The instance is gone, and not because it has ended or expired.
    Gone(RpcRefusal),
    /// The next event is not kept any more; from this phase on every event is.
    TooSlow(Phase),
}

impl Instance {
    /// The status of the instance (F12), and of one of its members (F8e).
    ///
    /// # Errors
    /// The reason for which the instance is gone, if it is.
    pub(crate) fn status(&self, process: Option<ProcessId>) -> View<(Status, Option<MemberStatus>)> {
        let rows = self.context().limits.status_rows;
        self.view(|machine, now, _| {
            (machine.status_rows(now, rows), process.map(|process| machine.member(process)))
        })
    }

    /// The state of the instance with every entry.
    ///
    /// # Errors
    /// The reason for which the instance is gone, if it is.
    pub(crate) fn snapshot(&self) -> View<Snapshot> {
        self.view(|machine, now, next_index| Snapshot {
            status: machine.status_rows(now, self.context().limits.status_rows),
            list: machine.shared_list().clone(),
            next_index,
        })
    }

    /// A call touches the instance (F10).
    pub(crate) fn touch(&self) {
        let mut inner = self.lock();
        let now = self.now(&inner);
        if let Some(live) = inner.live() {
            live.touched = live.touched.max(now);
        }
    }

    /// Shows the machine to `view`, with the time of the instance and the index of the event that comes next.
    /// It does not touch the instance. Counts that it shows are logged.
    pub(super) fn view<T>(&self, view: impl FnOnce(&Machine, Time, u64) -> T) -> View<T> {
        self.look(true, view)
    }

    fn look<T>(&self, shows_counts: bool, view: impl FnOnce(&Machine, Time, u64) -> T) -> View<T> {
        let mut inner = self.lock();
        let now = self.now(&inner);
        if let Some(gone) = self.gone(&inner) {
            return inner.outcome(Err(Box::new(gone)));
        }
        let (trailer, next_index) = match &mut inner.lifecycle {
            Lifecycle::Live(live) => {
                if shows_counts {
                    self.log_counts(live);
                }
                let viewed = view(&live.machine, now, live.next_index());
                return Uncommitted::new(Ok(viewed), inner.commit_gate().and(self.shard.ownership()));
            }
            Lifecycle::Archived(archived) => (archived.events.trailer(), archived.events.view().next_index()),
        };
        // The lock is free again while the machine is decoded.
        drop(inner);
        let viewed = view(&restore_machine(&trailer, &self.config), now, next_index);
        Uncommitted::new(Ok(viewed), self.shard.ownership())
    }

    /// Whether this is the list that the instance itself has. The list of an ended one is decoded for each
    /// view.
    pub(crate) fn has_list(&self, list: &Arc<StickyCas<Entry>>) -> bool {
        self.lock().live_ref().is_some_and(|live| Arc::ptr_eq(live.machine.shared_list(), list))
    }

    /// Bytes from which the machine of an ended instance is made for a view; none of a live one.
    pub(crate) fn restored_bytes(&self) -> usize {
        match &self.lock().lifecycle {
            Lifecycle::Live(_) => 0,
            Lifecycle::Archived(archived) => archived.events.size(),
        }
    }

    /// The state of the instance.
    ///
    /// # Errors
    /// The reason for which the instance is gone, if it is.
    pub(crate) fn state(&self) -> View<State> {
        let (state, gate) = self.uncommitted_state();
        Uncommitted::new(state, gate)
    }

    /// The same, and the gate of an answer that follows from it.
    pub(super) fn uncommitted_state(&self) -> (Result<State, RpcRefusal>, Gate) {
        let mut inner = self.lock();
        let state = self.gone(&inner).map_or_else(|| Ok(inner.state()), Err);
        (state, inner.commit_gate().and(self.shard.ownership()))
    }

    /// The state of the instance, perhaps ahead of its committed steps; `None` if it is gone.
    pub(crate) fn latest_state(&self) -> Option<State> {
        // After a step has panicked the instance is gone.
        let inner = self.inner.lock().ok()?;
        inner.gone.is_none().then(|| inner.state())
    }

    /// The line of List. To be listed does not touch the instance (F10).
    ///
    /// # Errors
    /// The reason for which the instance is gone, if it is.
    pub(crate) fn summary(&self) -> View<Summary> {
        self.look(false, |machine, _, _| Summary {
            brief: machine.brief(),
            decided: machine.decided(),
            decision: machine.decision_in_common().cloned(),
        })
    }

    /// Whether the client of this session, which receives on `sink`, is still to be told something that it
    /// waits for.
    pub(crate) fn owes_answer(&self, process: ProcessId, session: SessionId, sink: &SessionSink) -> bool {
        // After a step has panicked no answer will come.
        let Ok(inner) = &self.inner.lock() else { return false };
        let gone = inner.gone.iter().flat_map(|gone| &gone.uncommitted);
        if gone.into_iter().any(|effects| effects.concern(process, false, sink)) {
            return true;
        }
        let Some(live) = inner.live_ref() else { return false };
        let open = live.sessions.is_open(process, session);
        let waits = || !live.machine.member(process).waiting.is_empty();
        live.uncommitted.iter().any(|effects| effects.concern(process, open, sink)) || (open && waits())
    }

    /// The index of the first event for a watcher that wants everything from `phase` on.
    ///
    /// # Errors
    /// If events of that phase are not kept any more.
    pub(crate) fn start_of(&self, phase: Option<Phase>) -> Result<u64, Truncated> {
        self.lock().events().start_of(phase)
    }

    /// The index of the committed event that comes next; `None` if another server may own the instance by
    /// now, and more may be committed.
    pub(crate) fn next_event(&self) -> Option<u64> {
        (!self.shard.log.is_shared()).then(|| self.lock().events().next_index())
    }

    /// The id of a new watcher.
    pub(crate) fn next_watcher(&self) -> WatcherId {
        self.context().next_watcher()
    }

    /// The stream of this watcher has ended.
    pub(crate) fn remove_watcher(&self, watcher: WatcherId) {
        // Also called while a panic unwinds, and a second one would end the server.
        if let Ok(inner) = &mut self.inner.lock()
            && let Some(live) = inner.live()
        {
            live.watchers.remove(&watcher);
        }
    }

    /// The next committed events for a watcher, at most `limit`. If there are none yet, `waker` is woken when
    /// there are.
    pub(crate) fn poll_events(
        &self,
        index: u64,
        limit: usize,
        watcher: WatcherId,
        waker: &Waker,
    ) -> WatchPoll {
        if let Some(failure) = self.shard.failure() {
            return WatchPoll::Gone(failure.clone());
        }
        let mut guard = self.lock();
        let inner = &mut *guard;
        let view = inner.events();
        let Some(events) = view.share(index, limit) else { return WatchPoll::TooSlow(view.oldest_phase()) };
        if !events.is_empty() {
            // They are decoded while the lock is free again.
            drop(guard);
            let numbered = (index..).zip(events.read());
            return WatchPoll::Events(
                numbered.map(|(index, recorded)| event_to_wire(index, &recorded)).collect(),
            );
        }
        let gone = if inner.is_gone() { inner.gone() } else { None };
        match (&mut inner.lifecycle, gone) {
            (Lifecycle::Live(live), None) if live.ended.is_none() => {
                live.watchers.insert(watcher, waker.clone());
                WatchPoll::Pending
            }
            // The expiry of an instance is an end like others; that the log refuses it is none.
            (_, Some(gone)) if gone.reason != RefusalReason::InstanceUnknown => WatchPoll::Gone(gone),
            (Lifecycle::Live(_) | Lifecycle::Archived(_), _) => WatchPoll::End,
        }
    }
}

/// The configuration and the state of an instance.
impl Instance {
    /// The state that all instances of the server share.
    pub(super) fn context(&self) -> &Context {
        &self.shard.server
    }

    /// The state that the instances of its shard share.
    pub(crate) fn shard(&self) -> &Arc<ShardContext> {
        &self.shard
    }

    pub(crate) fn config(&self) -> &InstanceConfig {
        &self.config
    }

    /// The parameters, without the seed.
    pub(crate) fn params(&self) -> &Params {
        &self.config.shared.params
    }

    /// The most that an access may cost beyond the usual, in frames of Attach: with shuffled warps each round
    /// has an order of its own, and the access of a process that is alone brings the next round. 65,536 warps
    /// take some 0.7 ms.
    pub(crate) fn round_work(&self) -> usize {
        const WARPS_PER_FRAME: usize = 64;
        match self.params().spec().order {
            Order::Shuffled => self.params().warps() as usize / WARPS_PER_FRAME,
            Order::Ascending | Order::Descending => 0,
        }
    }

    /// The process of this instance that the principal is; `None` if it is none of them.
    pub(crate) fn process_of(&self, principal: &Principal) -> Option<ProcessId> {
        self.config.shared.roster.process_of(principal.as_str())
    }

    /// Whether its close is committed.
    pub(super) fn is_closed(&self) -> bool {
        self.lock_poisoned().is_closed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no step of a machine panics")
    }

    /// The lock, even after a step has panicked.
    pub(super) fn lock_poisoned(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the instance now, as its lock shows it.
    pub(super) fn now(&self, inner: &Inner) -> Time {
        inner.time(self.context().timers.now())
    }

    /// Bytes of the archive; `None` if there is none.
    #[cfg(test)]
    pub(super) fn archived_size(&self) -> Option<usize> {
        match &self.lock().lifecycle {
            Lifecycle::Live(_) => None,
            Lifecycle::Archived(archived) => Some(archived.events.size()),
        }
    }

    /// Wakes the instance as a timer that fires now does.
    #[cfg(test)]
    pub(super) fn wake_now(&self) -> bool {
        let due = self.lock_poisoned().timer.due();
        self.wake(due.min(self.context().timers.now()))
    }

    /// Archives an ended instance as if no call had come for a while.
    #[cfg(test)]
    pub(super) fn archive_now(&self) {
        let inner = &mut *self.lock();
        let later = self.now(inner).after(super::archive::restored_for(self.params()));
        inner.archive_if_idle(&self.config, later);
    }

    /// The reason for which the instance is gone, if it is.
    pub(super) fn gone(&self, inner: &Inner) -> Option<RpcRefusal> {
        inner.gone().or_else(|| self.shard.failure().cloned())
    }

    /// The committed events that are kept, with the indices of the first of them and of the one that comes
    /// next.
    #[cfg(test)]
    pub(crate) fn kept_events(&self) -> (u64, u64, SharedEvents) {
        let inner = self.lock();
        let events = inner.events();
        (events.first, events.next_index(), events.share_all())
    }

    /// The instance with its history, as far as it is kept.
    pub(crate) fn dump(&self) -> DumpedInstance {
        let inner = self.lock_poisoned();
        let (first_index, events) = (inner.events().first, inner.events().share_all());
        drop(inner);
        DumpedInstance {
            number: self.config.number,
            created: Some(self.config.to_log()),
            first_index,
            events: events.read().map(|recorded| event_to_wire(0, &recorded)).collect(),
        }
    }
}
