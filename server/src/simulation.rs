//! The server over a simulated machine: its connections come from any [`Listener`], and its log is kept on a
//! [`Disk`] that can lose what no sync has made durable, or, if it is one of a cluster, in any store in the
//! place of etcd. Everything above is the real server: accept loop, HTTP/2, services, instances, the log with
//! its queue and its group commit, the engine (redb) and recovery.
//!
//! All of it runs in the tasks of one runtime. With a runtime of one thread and a paused clock, and with the
//! operating system's clock and random numbers replaced by the program, a run can be repeated exactly.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(feature = "cluster")]
use stickycas_cluster::store::Members;
use stickycas_model::random::SplitMix64;

#[cfg(feature = "cluster")]
use crate::cluster::{Cluster, ClusterError};
use crate::commit_log::engine::faulty_disk::{Change, Fault, FaultyDisk, Kept, SECTOR};
use crate::commit_log::engine::{
    Done, Engine, EngineError, Outcome, RedbEngine, StoreUsage, Stored, WriteBatch,
};
use crate::instances::RecoveryError;
use crate::storage::{Storage, StorageError};
use crate::transport::Listener;
use crate::{Config, ServeError, ServerParts, Stopped, serve_in};

/// A disk with the log of a server. Clones are the same disk.
#[derive(Clone, Default)]
pub struct Disk(Arc<Mutex<DiskState>>);

#[derive(Default)]
struct DiskState {
    /// Its content while no server uses it.
    content: Vec<u8>,
    in_use: Option<FaultyDisk>,
    /// The position of its tape when the last commit was told.
    told: usize,
    /// Whether the server that uses it was told that it has committed something.
    committed: bool,
    /// The number of its uses so far.
    uses: u64,
    /// The number of the write of the next use that fails, counted from 1.
    next_failing: Option<u64>,
}

/// The ways in which a server comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its process is killed: all its writes are kept, synced or not.
    Process,
    /// Its machine loses power: writes that were not synced are kept, lost, or torn.
    Power,
}

/// The duration of the commit of the next batch.
pub type CommitLatency = Box<dyn Fn() -> Duration + Send + Sync>;

/// Serves on this listener and this disk until `shutdown` completes, as [`crate::run`] does. The server is
/// killed by [`Disk::stop`], and by dropping the future.
///
/// # Errors
/// As [`crate::run`].
pub async fn serve<L: Listener>(
    listener: L,
    disk: &Disk,
    latency: CommitLatency,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let engine = disk.engine(latency).map_err(|error| StorageError::from(RecoveryError::Engine(error)))?;
    let storage = Storage::durable(Arc::new(engine), None, &config.limits)?;
    serve_on(listener, storage, config, shutdown).await
}

/// Serves on this listener as a server of a cluster over this store, until `shutdown` completes, as
/// [`crate::run`] does. The server is killed when the runtime ends in which it is called.
///
/// # Errors
/// As [`crate::run`]; and if the configuration names no cluster.
#[cfg(feature = "cluster")]
pub async fn serve_in_cluster<L: Listener>(
    listener: L,
    store: impl Members + Clone,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let member = config.cluster.as_ref().ok_or_else(|| ClusterError::Identity("it has no name".to_owned()));
    let cluster = member.and_then(|member| {
        let cluster = Cluster::with(store.clone(), member, &config.limits, false)?;
        cluster.look_after(store, member)?;
        Ok(cluster)
    });
    serve_on(listener, Storage::Cluster(cluster.map_err(StorageError::from)?), config, shutdown).await
}

async fn serve_on<L: Listener>(
    grpc: L,
    storage: Storage,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let environment = ServerParts { grpc, tokens: None, http: None, credentials: None, storage };
    serve_in(environment, config, shutdown).await
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").finish_non_exhaustive()
    }
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the log.
    fn engine(&self, latency: CommitLatency) -> Result<SimulatedEngine, EngineError> {
        let mut state = self.state();
        let content = state.content.clone();
        let disk = match state.next_failing.take() {
            Some(write) => FaultyDisk::with_fault(content, Fault::WriteFails(write, Kept::Nothing)),
            None => FaultyDisk::new(content),
        };
        let redb = RedbEngine::with_backend(disk.clone());
        // A log that is made is there as a whole or not at all.
        let is_made = state.content.is_empty();
        state.told = if is_made { disk.position() } else { 0 };
        state.in_use = (!is_made || redb.is_ok()).then_some(disk);
        state.committed = false;
        state.uses += 1;
        let use_number = state.uses;
        drop(state);
        Ok(SimulatedEngine { redb: redb?, disk: self.clone(), use_number, latency })
    }

    /// Notes that the server is told this outcome of its writes so far. Returns whether the disk is still in
    /// this use.
    fn tell(&self, use_number: u64, outcome: &Outcome) -> bool {
        let state = &mut *self.state();
        match &state.in_use {
            Some(disk) if state.uses == use_number => {
                state.told = disk.position();
                state.committed |= matches!(outcome, Outcome::Committed);
                true
            }
            _ => false,
        }
    }

    /// The next write fails.
    pub fn fail_next_write(&self) {
        if let Some(disk) = &self.state().in_use {
            disk.fail_next_write();
        }
    }

    /// This write of the next server that uses it fails, counted from 1: the first ones are those of opening
    /// the log, and of the record that it was started again.
    pub fn fail_write_of_next_use(&self, write: u64) {
        self.state().next_failing = Some(write);
    }

    /// Whether a write of the server that uses it has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.state().in_use.as_ref().is_some_and(|disk| disk.fired().is_some())
    }

    /// Whether the server that uses it has committed something and was told so. The first thing is the record
    /// that it was started again; then it serves.
    #[must_use]
    pub fn has_committed(&self) -> bool {
        let state = self.state();
        state.in_use.is_some() && state.committed
    }

    /// Stops the disk, at a drawn moment of the commit that is under way: later writes of the server are
    /// lost.
    pub fn stop(&self, loss: Loss, random: &mut SplitMix64) {
        let mut state = self.state();
        let Some(disk) = state.in_use.take() else { return };
        disk.switch_off();
        let position = state.told + random.index(disk.position() + 1 - state.told);
        state.content = disk.tape().image_at(position, |change| match loss {
            Loss::Process => Kept::Whole,
            Loss::Power => kept(change, random),
        });
    }
}

/// The part of a change that is kept, if no sync has made it durable.
fn kept(change: &Change, random: &mut SplitMix64) -> Kept {
    match (random.below(4), change) {
        (0, _) => Kept::Nothing,
        (1, Change::Write { data, .. }) if !data.is_empty() => Kept::Prefix(random.index(data.len())),
        (2, Change::Write { data, .. }) if !data.is_empty() => {
            Kept::AllButSector(random.index(data.len().div_ceil(SECTOR)))
        }
        _ => Kept::Whole,
    }
}

/// redb on a simulated disk. A commit is written at once and told after its latency, so that the disk may
/// stop at any moment in between.
struct SimulatedEngine {
    redb: RedbEngine,
    disk: Disk,
    /// The number of this use of the disk.
    use_number: u64,
    latency: CommitLatency,
}

impl fmt::Debug for SimulatedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedEngine").finish_non_exhaustive()
    }
}

impl Engine for SimulatedEngine {
    fn depth(&self) -> usize {
        self.redb.depth()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        let (disk, use_number, latency) = (self.disk.clone(), self.use_number, (self.latency)());
        let done = Box::new(move |outcome| {
            tokio::spawn(async move {
                tokio::time::sleep(latency).await;
                if disk.tell(use_number, &outcome) {
                    done(outcome);
                }
            });
        });
        self.redb.write(batch, done);
    }

    fn read(&self, visit: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        self.redb.read(visit)
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        self.redb.identity()
    }

    fn usage(&self) -> StoreUsage {
        self.redb.usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(log_index: u64) -> WriteBatch {
        WriteBatch { log_index, batch: vec![7; 900], ..WriteBatch::default() }
    }

    fn places(disk: &Disk) -> Vec<u64> {
        let (engine, mut places) = (disk.engine(Box::new(|| Duration::ZERO)).unwrap(), Vec::new());
        let read = engine.read(&mut |stored| {
            if let Stored::Batch(log_index, _) = stored {
                places.push(log_index);
            }
            Ok(())
        });
        read.unwrap();
        places
    }

    /// What was told is kept; what was under way is there as a whole or not at all, and both happen.
    #[tokio::test(start_paused = true)]
    async fn a_disk_that_stops_keeps_what_was_told() {
        for loss in [Loss::Process, Loss::Power] {
            let mut kept_unresolved = [0; 2];
            for seed in 0..40 {
                let disk = Disk::default();
                let engine = disk.engine(Box::new(|| Duration::from_millis(5))).unwrap();
                let (told, resolved) = tokio::sync::oneshot::channel();
                engine.write(batch(1), Box::new(|outcome| drop(told.send(outcome))));
                resolved.await.unwrap();
                engine.write(batch(2), Box::new(|_| panic!("the server is gone")));
                disk.stop(loss, &mut SplitMix64::new(seed));
                drop(engine);
                let places = places(&disk);
                assert!(places.starts_with(&[1]) && places.len() <= 2, "seed {seed}: {places:?}");
                kept_unresolved[places.len() - 1] += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(kept_unresolved.iter().all(|&seeds| seeds > 0), "{loss:?}: {kept_unresolved:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_fails_commits_nothing() {
        let disk = Disk::default();
        let engine = disk.engine(Box::new(|| Duration::ZERO)).unwrap();
        disk.fail_next_write();
        let (told, resolved) = tokio::sync::oneshot::channel();
        engine.write(batch(1), Box::new(|outcome| drop(told.send(outcome))));
        assert!(matches!(resolved.await.unwrap(), Outcome::Unknown(_)));
        assert!(disk.has_failed() && !disk.has_committed());
        disk.stop(Loss::Process, &mut SplitMix64::new(1));
        drop(engine);
        assert_eq!(places(&disk), [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_can_fail_while_the_log_is_opened() {
        let disk = Disk::default();
        let commit = async |engine: &SimulatedEngine, log_index| {
            let (told, resolved) = tokio::sync::oneshot::channel();
            engine.write(batch(log_index), Box::new(|outcome| drop(told.send(outcome))));
            assert!(matches!(resolved.await.unwrap(), Outcome::Committed));
        };
        let stop = |engine| {
            disk.stop(Loss::Process, &mut SplitMix64::new(1));
            drop(engine);
        };
        let open = || disk.engine(Box::new(|| Duration::ZERO));
        let engine = open().unwrap();
        commit(&engine, 1).await;
        assert!(disk.has_committed() && !disk.has_failed());
        stop(engine);
        disk.fail_write_of_next_use(1);
        open().unwrap_err();
        assert!(disk.has_failed() && !disk.has_committed());
        disk.stop(Loss::Process, &mut SplitMix64::new(1));
        assert_eq!(places(&disk), [1]);
    }
}
