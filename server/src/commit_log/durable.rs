//! A log that commits the batches that its engine has made durable.
//!
//! Instances add their steps to the batch that forms ([`queue`]); the [`writer`] hands the batch to the
//! [`Engine`] as soon as that may take another one. So while one batch is being synced, the steps of all
//! instances gather in the next: one write and one sync for all of them (group commit). When a batch is
//! committed, a task of the server resolves the instances that have steps in it, in the order of the batches.
//!
//! After the first failure nothing is written any more and nothing is told any more, not even what could be
//! read from memory: nobody knows what the disk has kept, so only a restart, which reads the log, can tell.

mod queue;
mod writer;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use prost::Message as _;
use stickycas_proto::log::v1::{Checkpoint, Expired, Record, Restart, record};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::engine::{Engine, EngineError, Outcome, StoreUsage};
use super::{
    BatchLimits, CommitLog, CommitOutcome, HeldPhases, LogIndex, LogState, OnCommit, Step, Submission,
};
use crate::gate::{Confirmation, Ownership, confirm};
use crate::metrics::CommitLogMetrics;
use crate::quota::LogBytes;

pub(crate) use queue::Dirty;

use queue::{Queue, Resolving, effect_bytes};
use writer::{ResolvedBatch, Shared, Writer, gather, resolve_batches};

/// See the module.
pub(crate) struct DurableLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<Writer>>,
    resolved: Mutex<Option<mpsc::UnboundedReceiver<ResolvedBatch>>>,
    /// Tell the time, and have batches gather.
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

impl fmt::Debug for DurableLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableLog").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl DurableLog {
    /// A log that writes nothing before it has an [engine](Self::write_to). `state`: shared by the logs of
    /// the server.
    pub(crate) fn new(state: Arc<LogState>, metrics: Arc<CommitLogMetrics>) -> Self {
        Self::with(state, metrics, BatchLimits::NONE, None)
    }

    /// As [`Self::new`]. `ownership`: other servers may own the log at other times.
    pub(crate) fn with(
        state: Arc<LogState>,
        metrics: Arc<CommitLogMetrics>,
        limits: BatchLimits,
        ownership: Option<Arc<dyn Ownership>>,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let first = LogIndex::START.next();
        let queue = Queue { log_index: first, dirty_since: first, ..Queue::default() };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            work: Notify::new(),
            failure: OnceLock::new(),
            failed: Notify::new(),
            state,
            may_gather: Notify::new(),
            gathers: AtomicBool::new(false),
            served_before: OnceLock::new(),
            serves_since: OnceLock::new(),
            written_nanos: AtomicU64::new(0),
            held_phases: Arc::default(),
            resolved: sender,
            usage: Mutex::default(),
            metrics,
            limits,
            ownership,
        });
        if let Some(ownership) = &shared.ownership {
            let log = Arc::downgrade(&shared);
            ownership.on_lost(Box::new(move |why| {
                if let Some(log) = log.upgrade() {
                    log.fail(why);
                }
            }));
        }
        let resolved = Mutex::new(Some(receiver));
        Self { shared, writer: Mutex::default(), resolved, tasks: Mutex::default() }
    }

    /// Writes to this engine from now on. Called once; the log is to [begin](Self::begin) when the engine has
    /// been read.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn write_to(&self, engine: Arc<dyn Engine>) -> std::io::Result<()> {
        let writer = Writer::start(self.shared.clone(), engine)?;
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
        Ok(())
    }

    /// The log goes on behind this place. `served`: how long instances had been served. `dirty`: those that
    /// the restart changes, and those that have records in the log.
    pub(crate) fn begin(&self, last: LogIndex, served: Duration, dirty: Vec<Dirty>) {
        let _ = self.shared.served_before.set(u64::try_from(served.as_nanos()).unwrap_or(u64::MAX));
        let mut queue = self.shared.queue();
        (queue.log_index, queue.dirty, queue.dirty_since) = (last.next(), dirty, last.next());
    }

    /// Logs that the server has restarted. Completes when that is committed, or the log has failed.
    pub(crate) async fn restart(&self) {
        let restart = Record { input: Some(record::Input::Restart(Restart {})), ..Record::default() };
        self.shared.queue().forming.push(&restart);
        self.shared.wake_writer();
        self.committed().await;
    }

    /// The instances are served from now on: their time goes on (F3).
    pub(crate) fn serve(&self) {
        let _ = self.shared.serves_since.set(self.shared.state.clock().now());
        let tells_time = tokio::spawn(write_served_time_in_time(self.shared.clone()));
        let gathers = tokio::spawn(gather(self.shared.clone()));
        let tasks = [tells_time, gathers].map(AbortOnDropHandle::new);
        *self.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks.into();
    }

    /// Completes when everything that was written so far is committed, or the log has failed.
    pub(crate) async fn committed(&self) {
        if let Some(committed) = self.barrier(0) {
            let _ = committed.await;
        }
    }

    /// Begins new checkpoints: returns the place from which on the log is needed when all of these instances
    /// have one, and the instances.
    pub(crate) fn begin_checkpoints(&self) -> (LogIndex, Vec<Dirty>) {
        let mut queue = self.shared.queue();
        let boundary = queue.log_index;
        // An instance that has its checkpoint before its next record in the batch that forms is dirty again.
        queue.dirty_since = boundary.next();
        (boundary, std::mem::take(&mut queue.dirty))
    }

    /// The end of the part of the log that a checkpoint covers if it is made of an instance now, while its
    /// lock is held: a place, and a number of records of the batch there.
    pub(crate) fn covered(&self) -> (u64, u32) {
        let queue = self.shared.queue();
        (queue.log_index.get(), queue.forming.record_count())
    }

    /// Sets the checkpoint of the instance with this number; `None` removes it, since the instance is gone.
    /// The records that it covers were written before, so it is never committed before them; later records
    /// stand behind them and are read after it. Returns how many bytes that takes.
    pub(crate) fn checkpoint(&self, number: u64, checkpoint: Option<&Checkpoint>) -> usize {
        // Encoded before the queue is locked.
        let state = checkpoint.map(Checkpoint::encode_to_vec);
        let mut queue = self.shared.queue();
        if self.shared.failure.get().is_some() {
            return 0;
        }
        let was_empty = queue.forming.is_empty();
        let state = queue.accept_checkpoint(number, state);
        let bytes = CHECKPOINT + state.as_ref().map_or(0, Vec::len);
        queue.forming.set_checkpoint(number, state);
        queue.forming.resolving.bytes += bytes;
        queue.bytes += bytes;
        if queue.forming.is_full(self.shared.limits) {
            queue.seal(self.shared.served_nanos());
        }
        let has_sealed = !queue.sealed.is_empty();
        drop(queue);
        if has_sealed {
            self.shared.work.notify_one();
        } else if was_empty {
            self.shared.wake_writer();
        }
        bytes
    }

    /// The time for which instances have been served (F3): since the log was made, without the time in which
    /// no server served it.
    pub(crate) fn served(&self) -> Duration {
        Duration::from_nanos(self.shared.served_nanos())
    }

    /// Writes how long instances have been served, unless a batch has told it a short while ago.
    pub(crate) fn write_served_time_if_due(&self) {
        if Duration::from_nanos(self.shared.unwritten_nanos()) >= WRITE_TIME_EVERY {
            self.shared.write_served_time();
        }
    }

    /// Writes it before the instances are not served here any more.
    pub(crate) fn write_last_served_time(&self) {
        if self.shared.serves_since.get().is_some() {
            self.shared.write_served_time();
        }
    }

    /// Whether an instance holds a phase open, or gathers.
    pub(crate) fn holds_phases(&self) -> bool {
        !self.shared.held_phases.is_empty()
    }

    /// The instance is to have another checkpoint with the next ones.
    pub(crate) fn checkpoint_again(&self, dirty: Dirty) {
        self.shared.queue().dirty.push(dirty);
    }

    /// The log before this place is not needed any more.
    pub(crate) fn trim(&self, before: LogIndex) {
        let mut queue = self.shared.queue();
        if self.shared.failure.get().is_none() {
            queue.forming.trim = Some(before);
            drop(queue);
            self.shared.wake_writer();
        }
    }

    /// The disk has failed: the server tells nothing more and ends.
    pub(crate) fn disk_failed(&self, error: EngineError) {
        self.shared.resolve(LogIndex::START, Outcome::Unknown(error));
    }

    /// Bytes in the engine after the last commit.
    pub(crate) fn usage(&self) -> StoreUsage {
        *self.shared.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The creation of this instance is not in the log and never will be, for the reason `why`: its callers
    /// are told. The record of its end covers later records of it in the log, and its checkpoint is removed
    /// with the next ones.
    pub(crate) fn refuse_creation(&self, instance: InstanceId, number: u64, why: RpcRefusal) {
        let mut queue = self.shared.queue();
        queue.forming.push(&expired(number));
        queue.refused.insert(number, instance);
        queue.dirty.push(Dirty { number, instance });
        let resolving = Resolving { instances: vec![instance], ..Resolving::default() };
        self.shared.send(resolving, CommitOutcome::Refused(Box::new(why)));
        drop(queue);
        self.shared.wake_writer();
    }

    /// Looks again whether the engine takes a batch: it may take more than before.
    pub(crate) fn wake(&self) {
        self.shared.work.notify_one();
        self.shared.wake_writer();
    }

    /// Completes with the reason when the log has failed.
    pub(crate) fn failed(&self) -> impl Future<Output = RpcRefusal> + Send + use<> {
        let shared = self.shared.clone();
        async move {
            loop {
                let notified = shared.failed.notified();
                if let Some(why) = shared.failure.get() {
                    return why.clone();
                }
                notified.await;
            }
        }
    }

    /// Commits what was written so far, and ends the log. Blocks; but a writer that is a task is cancelled,
    /// so [`Self::committed`] comes first.
    pub(crate) fn close(&self) {
        {
            let mut queue = self.shared.queue();
            let last = queue.log_index;
            queue.closing.get_or_insert(last);
        }
        self.shared.work.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Writer::Thread(thread)) = writer {
            let _ = thread.join();
        }
    }
}

/// Has the time written every second while an instance holds a phase open, or gathers: one batch for all of
/// them, and none if another one has told it meanwhile.
async fn write_served_time_in_time(log: Arc<Shared>) {
    let (clock, every) = (log.state.clock(), WRITE_TIME_HELD_EVERY);
    while log.failure.get().is_none() {
        log.held_phases.wait().await;
        // A batch that tells it may be under way.
        let rest = every.checked_sub(log.unwritten_nanos()).filter(|rest| *rest > 0).unwrap_or(every);
        clock.sleep_until(clock.now().saturating_add(rest)).await;
        if log.unwritten_nanos() >= every && !log.held_phases.is_empty() {
            log.write_served_time();
        }
    }
}

/// The record of the end of an instance that others know nothing of.
pub(crate) fn expired(instance: u64) -> Record {
    Record { instance, input: Some(record::Input::Expired(Expired {})), ..Record::default() }
}

impl CommitLog for DurableLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn submit(&self, step: Step<'_>) -> Submission {
        let Some(record) = step.record else {
            debug_assert!(false, "every step has a record: the log keeps inputs");
            return Submission::Committed;
        };
        let mut queue = self.shared.queue();
        if queue.refused.contains_key(&record.instance) {
            // The instance is about to be told.
            return Submission::Later(queue.log_index);
        }
        if let Some(why) = self.shared.failure.get() {
            let resolving = Resolving { instances: vec![step.instance], ..Resolving::default() };
            self.shared.send(resolving, CommitOutcome::Refused(Box::new(why.clone())));
            return Submission::Later(queue.log_index);
        }
        let change = self.shared.name_change(&step, record);
        if change.as_ref().is_some_and(|change| queue.forming.names.iter().any(|it| it.name == change.name)) {
            // A name changes hands once in a batch.
            queue.seal(self.shared.served_nanos());
        }
        let (log_index, was_empty) = (queue.log_index, queue.forming.is_empty());
        let forming = &mut queue.forming;
        forming.names.extend(change);
        if step.last != log_index {
            forming.resolving.instances.push(step.instance);
        }
        let number = record.instance;
        let bytes = forming.push(record) + effect_bytes(step.events.len());
        forming.resolving.bytes += bytes;
        forming.resolving.since.get_or_insert_with(Instant::now);
        queue.bytes += bytes;
        if step.last < queue.dirty_since {
            queue.dirty.push(Dirty { number, instance: step.instance });
        }
        self.shared.check_room(&mut queue);
        if queue.forming.is_full(self.shared.limits) {
            queue.seal(self.shared.served_nanos());
        }
        let has_sealed = !queue.sealed.is_empty();
        drop(queue);
        if has_sealed {
            self.shared.work.notify_one();
        } else if was_empty {
            self.shared.wake_writer();
        }
        Submission::Later(log_index)
    }

    fn on_commit(&self, resolve: OnCommit) {
        let receiver = self.resolved.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        tokio::spawn(resolve_batches(receiver, Arc::downgrade(&self.shared), resolve));
    }

    fn hold(&self, log_index: LogIndex, bytes: usize) {
        let mut queue = self.shared.queue();
        if self.shared.failure.get().is_none() {
            queue.hold(log_index, bytes);
            self.shared.check_room(&mut queue);
        }
    }

    fn failure(&self) -> Option<&RpcRefusal> {
        self.shared.failure.get()
    }

    fn state(&self) -> &Arc<LogState> {
        &self.shared.state
    }

    fn depose(&self, why: &RpcRefusal) {
        self.shared.fail(why);
    }

    fn confirm(&self) -> Option<Confirmation> {
        self.shared.ownership.as_ref().map(confirm)
    }

    fn is_shared(&self) -> bool {
        self.shared.ownership.is_some()
    }

    fn held_phases(&self) -> Option<&Arc<HeldPhases>> {
        Some(&self.shared.held_phases)
    }

    fn largest_record(&self) -> Option<usize> {
        self.shared.ownership.as_ref().map(|_| LARGEST_SHARED_RECORD)
    }

    fn uncommitted_bytes(&self) -> usize {
        self.shared.queue().bytes
    }

    fn charge(&self, bytes: LogBytes) {
        let queue = &mut *self.shared.queue();
        if let Some(resolving) = queue.last() {
            resolving.charges.push(bytes);
        }
    }

    fn barrier(&self, bytes: usize) -> Option<oneshot::Receiver<()>> {
        let queue = &mut *self.shared.queue();
        if self.shared.failure.get().is_some() {
            return None;
        }
        let resolving = queue.last()?;
        let (sender, receiver) = oneshot::channel();
        resolving.barriers.push(sender);
        resolving.bytes += bytes;
        queue.bytes += bytes;
        self.shared.check_room(queue);
        Some(receiver)
    }
}

/// About how much memory a checkpoint takes beside its bytes until it is committed.
const CHECKPOINT: usize = 64;

/// Bytes of the largest record of a log that servers share: 512 KiB. With the records before it in its batch,
/// which are less than [`BatchLimits::bytes`], it fits a request to the store, which takes 1 MiB.
const LARGEST_SHARED_RECORD: usize = 512 << 10;

/// The interval in which the time for which instances have been served is written, if nothing else is. A
/// server that is killed forgets so much of it at most: an ended instance can be read so much longer.
const WRITE_TIME_EVERY: Duration = Duration::from_secs(60);
/// The same while an instance holds a phase open, or gathers, in nanoseconds: so much of patience and of the
/// join timeout is given back by a kill at most (F3).
const WRITE_TIME_HELD_EVERY: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
