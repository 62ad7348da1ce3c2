//! The writer of a log: hands batches to the engine, one after the other. It is a thread of its own, or a task if the
//! engine does not block.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use stickycas_proto::log::v1::Batch;
use tokio_util::task::AbortOnDropHandle;

use super::queue::Forming;
use super::shared::Shared;
use crate::commit_log::engine::{Done, Engine, EngineError, Outcome, WriteBatch};
use crate::commit_log::{LogIndex, RULES};

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
            shared.metrics.count_checkpoints(checkpoints);
            // Before anybody is told: who waits for the commit sees what it has freed.
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
            if queue.at_engine() < engine.depth() && queue.has_batch() {
                return Some(queue.begin_batch(log.served_nanos()));
            }
        }
        work.await;
    }
}
