//! A server without its network: real instances over the real log and engine, on a simulated disk.
//!
//! Its log writes one batch when the test lets it. So each batch has the messages of clients since the one
//! before, and each fact that was told between two batches was told at a known place of the disk's tape.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

use super::super::{Instances, Recovered, Recovery, RecoveryError};
use crate::commit_log::engine::faulty_disk::FaultyDisk;
use crate::commit_log::engine::{
    Done, Engine, EngineError, Outcome, RedbEngine, StoreUsage, Stored, WriteBatch,
};
use crate::commit_log::{CommitLog, DurableLog, MemoryLog};
use crate::limits::Limits;

/// The moment at which an engine tells that a batch is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    /// After the commit: the case that is tested.
    AfterTheCommit,
    /// The planted bug: after everything is written, and only so many syncs of the commit are done.
    AfterSyncs(u32),
}

/// An engine that appends when it may.
#[derive(Debug)]
struct SteppedEngine {
    engine: RedbEngine,
    disk: FaultyDisk,
    tells: Tells,
    steps: Mutex<Steps>,
    changed: Condvar,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct Steps {
    /// Appends that have come.
    came: u64,
    /// Appends that may be done; `None`: all.
    may: Option<u64>,
    /// Appends whose outcome was told.
    told: u64,
    /// Appends of which the clients have heard.
    heard: u64,
    /// Appends that are done.
    done: u64,
}

impl SteppedEngine {
    fn steps(&self) -> MutexGuard<'_, Steps> {
        self.steps.lock().unwrap()
    }

    fn wait(&self, until: impl Fn(&Steps) -> bool) {
        let waiting = self.changed.wait_while(self.steps(), |steps| !until(steps));
        drop(waiting.unwrap());
    }
}

impl SteppedEngine {
    /// Tells that an append is committed in the middle of a sync, which goes on when the clients have
    /// listened.
    fn tell_early(&self, append: u64, done: Done) {
        done(Outcome::Committed);
        self.steps().told = append;
        self.changed.notify_all();
        self.wait(|steps| steps.heard >= append || steps.may.is_none());
    }
}

impl Engine for SteppedEngine {
    fn depth(&self) -> usize {
        self.engine.depth()
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        let came = {
            let mut steps = self.steps();
            steps.came += 1;
            steps.came
        };
        self.changed.notify_all();
        self.wait(|steps| steps.may.is_none_or(|may| came <= may));
        match self.tells {
            Tells::AfterTheCommit => self.engine.write(batch, done),
            Tells::AfterSyncs(syncs) => {
                let this = self.this.clone();
                self.disk
                    .before_sync(syncs, move || this.upgrade().expect("it is in use").tell_early(came, done));
                self.engine.write(batch, Box::new(|_| ()));
            }
        }
        let mut steps = self.steps();
        (steps.told, steps.done) = (came, came);
        drop(steps);
        self.changed.notify_all();
    }

    fn read(&self, visit: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        self.engine.read(visit)
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        self.engine.identity()
    }

    fn usage(&self) -> StoreUsage {
        self.engine.usage()
    }
}

/// See the module.
pub(super) struct Server {
    pub(super) instances: Arc<Instances>,
    pub(super) disk: FaultyDisk,
    log: Arc<DurableLog>,
    engine: Arc<SteppedEngine>,
}

impl Server {
    /// A server that has recovered from the disk and serves, unless the disk has failed by then.
    pub(super) async fn start(disk: &FaultyDisk, tells: Tells) -> Result<Self, RecoveryError> {
        let engine = RedbEngine::with_backend(disk.clone()).map_err(RecoveryError::Engine)?;
        let (steps, changed) = (Mutex::default(), Condvar::new());
        let engine = Arc::new_cyclic(|this| SteppedEngine {
            engine,
            disk: disk.clone(),
            tells,
            steps,
            changed,
            this: this.clone(),
        });
        let log = Arc::new(DurableLog::new(Arc::default(), Arc::default()));
        log.write_to(engine.clone()).expect("there are threads");
        let shared: Arc<dyn CommitLog> = log.clone();
        let instances = Instances::new(limits(), &shared);
        let recovered =
            Recovery::run(&instances, &instances.only_shard(), &*engine, None, crate::instances::Part::ALL)
                .inspect_err(|_| log.close())?;
        instances.go_on(&instances.only_shard(), &log, recovered).await;
        engine.wait(|steps| steps.done == steps.came);
        engine.steps().may = Some(1);
        Ok(Self { instances, disk: disk.clone(), log, engine })
    }

    /// Whether a batch waits to be written. Waits until that is certain.
    fn has_batch(&self) -> bool {
        if self.has_failed() || self.log.barrier(0).is_none() {
            return false;
        }
        self.engine.wait(|steps| steps.came > steps.done);
        true
    }

    /// The messages that were sent so far are the next batch.
    pub(super) fn end_batch(&self) {
        self.has_batch();
    }

    /// Writes the batch that waits, if one does, and has everything told that may be told then.
    pub(super) async fn write(&self) -> bool {
        {
            let mut steps = self.engine.steps();
            steps.heard = steps.told;
        }
        self.engine.changed.notify_all();
        let has_batch = self.has_batch();
        if has_batch {
            let came = {
                let mut steps = self.engine.steps();
                steps.may = Some(steps.came);
                steps.came
            };
            self.engine.changed.notify_all();
            self.engine.wait(|steps| steps.told == came);
        }
        // The task that resolves steps.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        has_batch
    }

    /// Begins to write checkpoints, which goes on with the next batches.
    pub(super) async fn begin_checkpoints(&self) {
        let (instances, log) = (self.instances.clone(), self.log.clone());
        let shard = instances.only_shard();
        tokio::spawn(async move { instances.write_checkpoints(&shard, &log).await });
        tokio::task::yield_now().await;
    }

    pub(super) fn has_failed(&self) -> bool {
        self.instances.log_failure().is_some()
    }

    /// Ends the server: with its power if it was switched off before, else in order.
    pub(super) fn stop(self) {
        self.engine.steps().may = None;
        self.engine.changed.notify_all();
        self.log.close();
    }
}

/// Instances that have ended expire as soon as they are looked at.
fn limits() -> Limits {
    Limits { retention: std::time::Duration::ZERO, ..Limits::default() }
}

/// The instances that a server recovers from this disk. Their later steps are not logged.
pub(super) fn recover(disk: &FaultyDisk) -> Result<(Arc<Instances>, Recovered), RecoveryError> {
    let engine = RedbEngine::with_backend(disk.clone()).map_err(RecoveryError::Engine)?;
    let memory: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
    let instances = Instances::new(limits(), &memory);
    let recovered =
        Recovery::run(&instances, &instances.only_shard(), &engine, None, crate::instances::Part::ALL);
    disk.switch_off();
    let recovered = recovered?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("it takes nothing of the system");
    runtime.block_on(instances.serve_shard(&instances.only_shard(), recovered.served));
    Ok((instances, recovered))
}
