//! A log that commits what its engine has made durable.
//!
//! Instances add their steps to the batch that forms; a thread hands the batch to the [`Engine`] as soon as that may take
//! another one. So while one batch is being synced, the steps of all instances gather in the next: one write and one
//! sync for all of them (group commit). When a batch is committed, a task of the server settles the instances that have
//! steps in it, in the order of the batches.
//!
//! After the first failure nothing is written any more and nothing is told any more, not even what could be read from
//! memory: nobody knows what the disk has kept, so only a restart, which reads the log, can tell.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use prost::Message as _;
use stickycas_proto::log::v1::{Batch, Checkpoint, Record, Restart, record};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc, oneshot};

use super::engine::{AppendBatch, Done, Engine, EngineError, Outcome, Usage};
use super::{Append, CommitLog, Place, RULES, Settle, Settled, Step};
use crate::metrics::CommitLogMetrics;

/// See the module.
pub(crate) struct DurableLog {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    settled: Mutex<Option<mpsc::UnboundedReceiver<SettledBatch>>>,
}

/// Completes when a log has failed.
#[derive(Clone, Debug)]
pub(crate) struct LogFailure(Arc<Shared>);

struct Shared {
    /// Batches that the engine takes before it has settled the first.
    depth: usize,
    queue: Mutex<Queue>,
    /// The writer waits here for a batch that it may append.
    work: Condvar,
    failure: OnceLock<RpcRefusal>,
    failed: Notify,
    /// Bytes that may wait for their commit before no further inputs are read.
    limit: usize,
    /// Whether more wait.
    full: AtomicBool,
    /// Notified when there is room again.
    room: Arc<Notify>,
    settled: mpsc::UnboundedSender<SettledBatch>,
    /// The engine's usage when the last batch was handed to it.
    usage: Mutex<Usage>,
    metrics: Arc<CommitLogMetrics>,
}

/// A batch that is settled, and the instances that have steps in it.
struct SettledBatch {
    instances: Vec<InstanceId>,
    settled: Settled,
}

struct Queue {
    /// The batch that forms.
    forming: Forming,
    /// Its place.
    place: Place,
    /// The instances that have records since the last checkpoints were begun, some of them twice.
    dirty: Vec<Dirty>,
    /// An instance is among them if it has a record at this place or behind it.
    dirty_since: Place,
    /// Batches that the engine has not settled yet, in order.
    in_flight: VecDeque<InFlight>,
    /// Bytes of all of them.
    bytes: usize,
    /// What forms now is the last batch; what is appended behind it is never settled.
    closing: bool,
}

/// A batch that forms.
#[derive(Default)]
struct Forming {
    records: Vec<Record>,
    checkpoints: Vec<(u64, Option<Vec<u8>>)>,
    trim: Option<Place>,
    settling: Settling,
}

impl Forming {
    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.checkpoints.is_empty() && self.trim.is_none()
    }
}

/// An instance with records that no checkpoint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dirty {
    /// Its number.
    pub(crate) number: u64,
    /// Its id.
    pub(crate) instance: InstanceId,
}

/// What is to be told when a batch is settled.
#[derive(Default)]
struct Settling {
    instances: Vec<InstanceId>,
    barriers: Vec<oneshot::Sender<()>>,
    bytes: usize,
    /// When the first step of the batch came.
    since: Option<Instant>,
}

struct InFlight {
    place: Place,
    settling: Settling,
    committed: bool,
}

impl fmt::Debug for DurableLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableLog").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("failure", &self.failure).finish_non_exhaustive()
    }
}

impl DurableLog {
    /// A log on this engine, which is to [begin](Self::begin) when the engine has been read. `limit`: bytes that may wait
    /// for their commit before no further inputs are read.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        limit: usize,
        metrics: Arc<CommitLogMetrics>,
    ) -> std::io::Result<Self> {
        metrics.enable();
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Queue {
            forming: Forming::default(),
            place: Place::START.next(),
            dirty: Vec::new(),
            dirty_since: Place::START.next(),
            in_flight: VecDeque::new(),
            bytes: 0,
            closing: false,
        };
        let shared = Arc::new(Shared {
            depth: engine.depth(),
            queue: Mutex::new(queue),
            work: Condvar::new(),
            failure: OnceLock::new(),
            failed: Notify::new(),
            limit,
            full: AtomicBool::new(false),
            room: Arc::default(),
            settled: sender,
            usage: Mutex::new(engine.usage()),
            metrics,
        });
        let writes = shared.clone();
        let writer =
            std::thread::Builder::new().name("log".to_owned()).spawn(move || writes.write(&*engine))?;
        Ok(Self { shared, writer: Mutex::new(Some(writer)), settled: Mutex::new(Some(receiver)) })
    }

    /// The server serves from now on: the log goes on behind this place, with the record of the restart. `dirty`: the
    /// instances that the restart changes, and those that have records in the log.
    pub(crate) async fn begin(&self, last: Place, dirty: Vec<Dirty>) {
        let restart = Record { input: Some(record::Input::Restart(Restart {})), ..Record::default() };
        {
            let mut queue = self.shared.queue();
            (queue.place, queue.dirty, queue.dirty_since) = (last.next(), dirty, last.next());
            queue.forming.records.push(restart);
        }
        self.shared.work.notify_one();
        self.committed().await;
    }

    /// Completes when everything that was appended so far is settled.
    pub(crate) async fn committed(&self) {
        if let Some(committed) = self.barrier() {
            let _ = committed.await;
        }
    }

    /// Begins new checkpoints: returns the place from which on the log is needed when all of these instances have one,
    /// and the instances.
    pub(crate) fn begin_checkpoints(&self) -> (Place, Vec<Dirty>) {
        let mut queue = self.shared.queue();
        let boundary = queue.place;
        // An instance that has its checkpoint before its next record in the batch that forms is dirty again.
        queue.dirty_since = boundary.next();
        (boundary, std::mem::take(&mut queue.dirty))
    }

    /// Sets the checkpoint of the instance with this number, whose lock the caller holds; `None` removes it, since the
    /// instance is gone. Returns how many bytes are in the batch that forms.
    pub(crate) fn checkpoint(&self, number: u64, checkpoint: Option<&Checkpoint>) -> usize {
        // Encoded before the queue is locked. The place is known only behind: the fields of one message may be encoded in
        // two parts.
        let encoded = checkpoint.map(Checkpoint::encode_to_vec);
        let mut queue = self.shared.queue();
        if self.shared.failure.get().is_some() {
            return 0;
        }
        let (place, was_empty) = (queue.place.get(), queue.forming.is_empty());
        let records = u32::try_from(queue.forming.records.len()).unwrap_or(u32::MAX);
        let state = encoded.map(|mut encoded| {
            let covered = Checkpoint { place, records, ..Checkpoint::default() };
            encoded.extend(covered.encode_to_vec());
            encoded
        });
        let bytes = CHECKPOINT + state.as_ref().map_or(0, Vec::len);
        queue.forming.checkpoints.push((number, state));
        queue.forming.settling.bytes += bytes;
        queue.bytes += bytes;
        drop(queue);
        if was_empty {
            self.shared.work.notify_one();
        }
        bytes
    }

    /// The log before this place is not needed any more.
    pub(crate) fn trim(&self, before: Place) {
        let mut queue = self.shared.queue();
        if self.shared.failure.get().is_none() {
            queue.forming.trim = Some(before);
            drop(queue);
            self.shared.work.notify_one();
        }
    }

    /// Bytes in the engine.
    pub(crate) fn usage(&self) -> Usage {
        *self.shared.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when the log has failed.
    pub(crate) fn failure_signal(&self) -> LogFailure {
        LogFailure(self.shared.clone())
    }

    /// Commits what was appended so far, and ends the log. Blocks.
    pub(crate) fn close(&self) {
        self.shared.queue().closing = true;
        self.shared.work.notify_all();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

impl LogFailure {
    /// Completes when the log has failed; returns the reason.
    pub(crate) async fn wait(&self) -> RpcRefusal {
        loop {
            let notified = self.0.failed.notified();
            if let Some(why) = self.0.failure.get() {
                return why.clone();
            }
            notified.await;
        }
    }
}

impl CommitLog for DurableLog {
    fn keeps_inputs(&self) -> bool {
        true
    }

    fn append(&self, step: Step<'_>) -> Append {
        let Some(record) = step.record else {
            debug_assert!(false, "every step has a record: the log keeps inputs");
            return Append::Committed;
        };
        let bytes = bytes_of(&record, step.events.len());
        let mut queue = self.shared.queue();
        if let Some(why) = self.shared.failure.get() {
            let settling = Settling { instances: vec![step.instance], ..Settling::default() };
            self.shared.send(settling, Settled::Refused(Box::new(why.clone())));
            return Append::Later(queue.place);
        }
        let (place, was_empty) = (queue.place, queue.forming.is_empty());
        let forming = &mut queue.forming;
        if step.last != place {
            forming.settling.instances.push(step.instance);
        }
        let number = record.instance;
        forming.records.push(*record);
        forming.settling.bytes += bytes;
        forming.settling.since.get_or_insert_with(Instant::now);
        queue.bytes += bytes;
        if step.last < queue.dirty_since {
            queue.dirty.push(Dirty { number, instance: step.instance });
        }
        if queue.bytes > self.shared.limit {
            self.shared.full.store(true, Ordering::Relaxed);
        }
        drop(queue);
        if was_empty {
            self.shared.work.notify_one();
        }
        Append::Later(place)
    }

    fn on_settled(&self, settle: Settle) {
        let receiver = self.settled.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = receiver else { return };
        tokio::spawn(async move {
            while let Some(SettledBatch { instances, settled }) = receiver.recv().await {
                for turn in instances.chunks(INSTANCES_PER_TURN) {
                    turn.iter().for_each(|instance| settle(*instance, settled.clone()));
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    fn failure(&self) -> Option<&RpcRefusal> {
        self.shared.failure.get()
    }

    fn room(&self) -> Option<OwnedNotified> {
        if !self.shared.full.load(Ordering::Relaxed) {
            return None;
        }
        let room = self.shared.room.clone().notified_owned();
        // There may be room since the first look.
        self.shared.full.load(Ordering::SeqCst).then_some(room)
    }

    fn barrier(&self) -> Option<oneshot::Receiver<()>> {
        let mut queue = self.shared.queue();
        if self.shared.failure.get().is_some() {
            return None;
        }
        let settling = if !queue.forming.is_empty() {
            &mut queue.forming.settling
        } else {
            &mut queue.in_flight.back_mut()?.settling
        };
        let (sender, receiver) = oneshot::channel();
        settling.barriers.push(sender);
        Some(receiver)
    }
}

/// About how much memory a checkpoint takes beside its bytes until it is committed.
const CHECKPOINT: usize = 64;

/// Instances that are settled before other tasks run.
const INSTANCES_PER_TURN: usize = 64;

/// About how much memory a step takes until it is committed: its record, and its effects.
fn bytes_of(record: &Record, events: usize) -> usize {
    const STEP: usize = 256;
    const EVENT: usize = 96;
    record.encoded_len() + STEP + events * EVENT
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer: hands batches to the engine until the log closes or fails.
    fn write(self: Arc<Self>, engine: &dyn Engine) {
        while let Some((place, forming)) = self.next_batch() {
            let batch = Batch { rules: RULES, records: forming.records };
            let (steps, batch) = (batch.records.len() as u64, batch.encode_to_vec());
            let (bytes, appended) = (batch.len() as u64, Instant::now());
            let checkpoints = forming.checkpoints.len() as u64;
            let append = AppendBatch {
                place: place.get(),
                batch,
                checkpoints: forming.checkpoints,
                trim: forming.trim.map(Place::get),
            };
            *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = engine.usage();
            let shared = self.clone();
            let done: Done = Box::new(move |outcome| {
                if matches!(outcome, Outcome::Committed) {
                    shared.metrics.count_batch(steps, bytes, appended.elapsed());
                    shared.metrics.count_checkpoints(checkpoints);
                }
                shared.settle(place, outcome);
            });
            // Without its writer the log would be silent for ever.
            if catch_unwind(AssertUnwindSafe(|| engine.append(append, done))).is_err() {
                self.settle(place, Outcome::Unknown(EngineError("its engine has panicked".to_owned())));
            }
        }
    }

    /// The next batch, which is in flight from now on; `None`: there will be none.
    fn next_batch(&self) -> Option<(Place, Forming)> {
        let mut queue = self.queue();
        loop {
            let is_ready = queue.in_flight.len() < self.depth && !queue.forming.is_empty();
            if self.failure.get().is_some() || (queue.closing && queue.forming.is_empty()) {
                return None;
            }
            if is_ready {
                break;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let mut forming = std::mem::take(&mut queue.forming);
        let place = queue.place;
        queue.place = place.next();
        let settling = std::mem::take(&mut forming.settling);
        queue.in_flight.push_back(InFlight { place, settling, committed: false });
        Some((place, forming))
    }

    /// The engine tells what became of the batch at this place.
    fn settle(&self, place: Place, outcome: Outcome) {
        match outcome {
            Outcome::Committed => self.commit(place),
            Outcome::Refused(why) => self.fail(&why),
            Outcome::Unknown(error) => {
                tracing::error!(%error, "the log cannot be written: the server tells nothing more and ends");
                let why = format!("the server cannot write its log: {error}");
                self.fail(&RpcRefusal::new(RefusalReason::LogFailed, why));
            }
        }
    }

    fn commit(&self, place: Place) {
        let mut queue = self.queue();
        if let Some(batch) = queue.in_flight.iter_mut().find(|batch| batch.place == place) {
            batch.committed = true;
        }
        while queue.in_flight.front().is_some_and(|batch| batch.committed) {
            let Some(InFlight { place, settling, .. }) = queue.in_flight.pop_front() else { break };
            queue.bytes -= settling.bytes;
            if let Some(since) = settling.since {
                self.metrics.count_commit(since.elapsed());
            }
            self.send(settling, Settled::Committed(place));
        }
        let room = queue.bytes <= self.limit / 2;
        drop(queue);
        self.work.notify_one();
        if room && self.full.swap(false, Ordering::SeqCst) {
            self.room.notify_waiters();
        }
    }

    fn fail(&self, why: &RpcRefusal) {
        if self.failure.set(why.clone()).is_err() {
            return;
        }
        self.metrics.count_failure();
        let mut queue = self.queue();
        let in_flight = std::mem::take(&mut queue.in_flight).into_iter().map(|batch| batch.settling);
        let forming = std::mem::take(&mut queue.forming).settling;
        for settling in in_flight.chain([forming]) {
            self.send(settling, Settled::Refused(Box::new(why.clone())));
        }
        drop(queue);
        self.failed.notify_waiters();
        self.full.store(false, Ordering::SeqCst);
        self.room.notify_waiters();
    }

    fn send(&self, Settling { instances, barriers, .. }: Settling, settled: Settled) {
        // Without a receiver the server has ended.
        let _ = self.settled.send(SettledBatch { instances, settled });
        for barrier in barriers {
            let _ = barrier.send(());
        }
    }
}

#[cfg(test)]
mod tests;
