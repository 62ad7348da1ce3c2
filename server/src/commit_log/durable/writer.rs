//! The writer of a log: hands batches to the engine, one after the other, and tells their outcomes. It is a
//! thread of its own, or a task if the engine does not block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use stickycas_proto::log::v1::record::Input;
use stickycas_proto::log::v1::{Batch, Record};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::{Notify, mpsc};
use tokio::task::yield_now;
use tokio_util::task::AbortOnDropHandle;

use super::queue::{Forming, InFlight, Queue, Resolving};
use crate::commit_log::engine::{Done, Engine, EngineError, NameChange, Outcome, StoreUsage, WriteBatch};
use crate::commit_log::{BatchLimits, CommitOutcome, HeldPhases, LogIndex, LogState, OnCommit, RULES, Step};
use crate::gate::Ownership;
use crate::metrics::CommitLogMetrics;

/// See the module.
pub(super) enum Writer {
    Thread(JoinHandle<()>),
    Task { _handle: AbortOnDropHandle<()> },
}

impl Writer {
    /// Begins to write.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(shared: Arc<Shared>, engine: Arc<dyn Engine>) -> io::Result<Self> {
        let blocks = engine.blocks();
        let writing = write(shared, engine);
        if !blocks {
            return Ok(Self::Task { _handle: AbortOnDropHandle::new(tokio::spawn(writing)) });
        }
        let write = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("without drivers it takes nothing of the system").block_on(writing);
        };
        Ok(Self::Thread(std::thread::Builder::new().name("log".to_owned()).spawn(write)?))
    }
}

/// Hands batches to the engine until the log closes or fails.
async fn write(log: Arc<Shared>, engine: Arc<dyn Engine>) {
    while let Some((log_index, forming)) = next_batch(&log, &*engine).await {
        hand_over(&log, &engine, log_index, forming);
    }
}

/// Hands a batch to the engine.
pub(super) fn hand_over(
    log: &Arc<Shared>,
    engine: &Arc<dyn Engine>,
    log_index: LogIndex,
    mut forming: Forming,
) {
    let (served_nanos, (released, released_nanos)) = (forming.served, forming.released);
    log.written_nanos.store(served_nanos, Ordering::Relaxed);
    let steps = u64::from(forming.record_count());
    let (rules, released_place) = (RULES, released.get());
    let batch = forming.take_batch(&Batch {
        rules,
        served_nanos,
        released_place,
        released_nanos,
        ..Batch::default()
    });
    let (bytes, written) = (batch.len() as u64, Instant::now());
    let checkpoints = forming.checkpoints.len() as u64;
    let write = WriteBatch {
        log_index: log_index.get(),
        batch,
        checkpoints: forming.checkpoints,
        trim: forming.trim.map(LogIndex::get),
        names: forming.names,
    };
    let (shared, holds) = (log.clone(), engine.clone());
    let done: Done = Box::new(move |outcome| {
        if matches!(outcome, Outcome::Committed) {
            shared.metrics.count_batch(steps, bytes, written.elapsed());
            shared.metrics.checkpoints.fetch_add(checkpoints, Ordering::Relaxed);
            // Before anybody is told: a task that waits for the commit sees the space that it has freed.
            *shared.usage.lock().unwrap_or_else(PoisonError::into_inner) = holds.usage();
        }
        shared.resolve(log_index, outcome);
    });
    // A batch before this one may have failed in the meantime.
    if log.failure.get().is_some() {
        return;
    }
    // Without its writer the log would be silent for ever.
    if catch_unwind(AssertUnwindSafe(|| engine.write(write, done))).is_err() {
        log.resolve(log_index, Outcome::Unknown(EngineError::failed("its engine has panicked")));
    }
}

/// The next batch, which is in flight from now on; `None`: there will be none.
async fn next_batch(log: &Shared, engine: &dyn Engine) -> Option<(LogIndex, Forming)> {
    loop {
        let work = log.work.notified();
        {
            let mut queue = log.queue();
            let is_last =
                queue.closing.is_some_and(|last| queue.log_index > last || queue.forming.is_empty());
            if log.failure.get().is_some() || (is_last && queue.sealed.is_empty()) {
                return None;
            }
            let may_gather = log.gathers.load(Ordering::Relaxed) && queue.closing.is_none();
            queue.is_gathered |= !may_gather;
            if queue.at_engine() < engine.depth() && queue.has_batch() {
                return Some(queue.begin_batch(log.served_nanos()));
            }
        }
        work.await;
    }
}

/// The time for which a batch gathers, at most: a longer one costs more in waiting than fewer commits save.
const LONGEST_GATHERING: Duration = Duration::from_millis(1);

/// Has each batch gather what comes: it is written when nothing has been added to it for a turn of the
/// scheduler, and at the first turn after [`LONGEST_GATHERING`]. It begins to gather when the engine may take
/// it.
pub(super) async fn gather(log: Arc<Shared>) {
    log.gathers.store(true, Ordering::Relaxed);
    let _gathering = Gathering(log.clone());
    // A batch may have begun to form before this.
    log.may_gather.notify_one();
    while log.failure.get().is_none() {
        log.may_gather.notified().await;
        let (began, mut records) = (Instant::now(), log.queue().forming.record_count());
        loop {
            yield_now().await;
            let mut queue = log.queue();
            let now = queue.forming.record_count();
            if now == records || began.elapsed() >= LONGEST_GATHERING {
                queue.is_gathered = !queue.forming.is_empty();
                break;
            }
            records = now;
        }
        log.work.notify_one();
    }
}

/// As long as batches gather.
struct Gathering(Arc<Shared>);

impl Drop for Gathering {
    fn drop(&mut self) {
        self.0.gathers.store(false, Ordering::Relaxed);
        self.0.work.notify_one();
    }
}

/// The state that the log, its writer and its engine share: the queue, and the outcomes of its batches.
pub(super) struct Shared {
    pub(super) queue: Mutex<Queue>,
    /// The writer waits here for a batch that it may write.
    pub(super) work: Notify,
    /// Batches gather: see [`gather`], which waits here for one that may.
    pub(super) may_gather: Notify,
    pub(super) gathers: AtomicBool,
    pub(super) failure: OnceLock<RpcRefusal>,
    pub(super) failed: Notify,
    /// The state that the logs of the server share.
    pub(super) state: Arc<LogState>,
    /// The time for which instances had been served before this server, in nanoseconds.
    pub(super) served_before: OnceLock<u64>,
    /// The reading of the clock when this server began to serve them.
    pub(super) serves_since: OnceLock<u64>,
    /// The served time that the last batch tells, in nanoseconds.
    pub(super) written_nanos: AtomicU64,
    pub(super) held_phases: Arc<HeldPhases>,
    pub(super) resolved: mpsc::UnboundedSender<ResolvedBatch>,
    /// The engine's usage when it committed the last batch.
    pub(super) usage: Mutex<StoreUsage>,
    pub(super) metrics: Arc<CommitLogMetrics>,
    pub(super) limits: BatchLimits,
    /// `None`: no other server ever owns the log.
    pub(super) ownership: Option<Arc<dyn Ownership>>,
}

/// A batch that is resolved, and the instances that have steps in it.
pub(super) struct ResolvedBatch {
    pub(super) instances: Vec<InstanceId>,
    pub(super) resolved: CommitOutcome,
}

/// Instances that are resolved before other tasks run.
const INSTANCES_PER_TURN: usize = 64;

/// Has the instances of each batch resolved; then the effects of the batch have left.
pub(super) async fn resolve_batches(
    mut batches: mpsc::UnboundedReceiver<ResolvedBatch>,
    log: Weak<Shared>,
    resolve: OnCommit,
) {
    while let Some(ResolvedBatch { instances, resolved }) = batches.recv().await {
        for turn in instances.chunks(INSTANCES_PER_TURN) {
            turn.iter().for_each(|instance| resolve(*instance, resolved.clone()));
            yield_now().await;
        }
        if let (CommitOutcome::Committed(log_index), Some(log)) = (resolved, log.upgrade()) {
            log.release(log_index);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time for which instances have been served, in nanoseconds.
    pub(super) fn served_nanos(&self) -> u64 {
        let since =
            self.serves_since.get().map_or(0, |since| self.state.clock().now().saturating_sub(*since));
        self.served_before.get().map_or(0, |before| before.saturating_add(since))
    }

    /// For how long no batch has said that, in nanoseconds.
    pub(super) fn unwritten_nanos(&self) -> u64 {
        self.served_nanos().saturating_sub(self.written_nanos.load(Ordering::Relaxed))
    }

    /// Writes it in a batch now, even if nothing else is in it.
    pub(super) fn write_served_time(&self) {
        self.queue().forming.writes_time = true;
        self.wake_writer();
    }

    /// A batch begins to form, or the engine may take one.
    pub(super) fn wake_writer(&self) {
        let gathers = self.gathers.load(Ordering::Relaxed);
        if gathers { &self.may_gather } else { &self.work }.notify_one();
    }

    /// Too much may wait by now, or there may be room again. Under the lock of the queue, so that bytes are
    /// counted in the order in which they come and go.
    pub(super) fn check_room(&self, queue: &mut Queue) {
        if self.failure.get().is_none() {
            self.count_bytes(queue);
        }
    }

    fn count_bytes(&self, queue: &mut Queue) {
        let before = std::mem::replace(&mut queue.counted, queue.bytes);
        self.state.recount(before, queue.bytes);
    }

    /// The engine tells the outcome of the batch at this place.
    pub(super) fn resolve(&self, log_index: LogIndex, outcome: Outcome) {
        match outcome {
            Outcome::Committed => self.commit(log_index),
            Outcome::Refused(why) => self.fail(&why),
            Outcome::Unknown(error) => {
                tracing::error!(%error, "the log cannot be written: the server tells nothing more and ends");
                let why = format!("the server cannot write its log: {error}");
                let why = RpcRefusal::new(RefusalReason::LogFailed, why);
                self.metrics.failures.fetch_add(1, Ordering::Relaxed);
                self.state.fail(&why);
                self.fail(&why);
            }
        }
    }

    pub(super) fn commit(&self, log_index: LogIndex) {
        let mut queue = self.queue();
        if let Some(batch) = queue.in_flight.iter_mut().find(|batch| batch.log_index == log_index) {
            batch.committed = true;
        }
        while queue.in_flight.front().is_some_and(|batch| batch.committed) {
            let Some(InFlight { log_index, resolving, .. }) = queue.in_flight.pop_front() else { break };
            queue.leaving.push_back((log_index, resolving.bytes));
            if let Some(since) = resolving.since {
                self.metrics.commit.observe(since.elapsed().as_secs_f64());
            }
            self.send(resolving, CommitOutcome::Committed(log_index));
        }
        // What has come meanwhile gathers once more: clients answer to this commit.
        queue.is_gathered = false;
        let has_sealed = !queue.sealed.is_empty();
        drop(queue);
        if has_sealed {
            self.work.notify_one();
        }
        self.wake_writer();
    }

    /// The effects of the batches up to this place have left.
    pub(super) fn release(&self, log_index: LogIndex) {
        let mut queue = self.queue();
        queue.release(log_index, self.served_nanos());
        self.check_room(&mut queue);
    }

    /// Nothing is written or committed any more.
    pub(super) fn fail(&self, why: &RpcRefusal) {
        if self.failure.set(why.clone()).is_err() {
            return;
        }
        let mut queue = self.queue();
        let in_flight = std::mem::take(&mut queue.in_flight).into_iter().map(|batch| batch.resolving);
        let forming = std::mem::take(&mut queue.forming).resolving;
        queue.sealed.clear();
        for resolving in in_flight.chain([forming]) {
            self.send(resolving, CommitOutcome::Refused(Box::new(why.clone())));
        }
        // Nothing waits any more, and nothing will.
        queue.leaving.clear();
        queue.bytes = 0;
        self.count_bytes(&mut queue);
        drop(queue);
        self.work.notify_one();
        self.failed.notify_waiters();
    }

    pub(super) fn send(&self, Resolving { instances, barriers, .. }: Resolving, resolved: CommitOutcome) {
        // Without a receiver the server has ended.
        let _ = self.resolved.send(ResolvedBatch { instances, resolved });
        for barrier in barriers {
            let _ = barrier.send(());
        }
    }

    /// The name that a step claims or releases, if other servers may want it.
    pub(super) fn name_change(&self, step: &Step<'_>, record: &Record) -> Option<NameChange> {
        self.ownership.as_ref()?;
        let is_claim = match record.input {
            Some(Input::Created(_)) => true,
            Some(Input::Expired(_)) => false,
            _ => return None,
        };
        let name = step.name?.clone();
        Some(NameChange { name, instance: step.instance, number: record.instance, is_claim })
    }
}
