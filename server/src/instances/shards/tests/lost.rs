//! A shard that is lost while its log is read back, and an instance of an earlier ownership in the place of
//! one of a later.

use std::sync::mpsc;

use tokio::task::spawn_blocking;

use super::*;
use crate::commit_log::engine::{Done, EngineError, StoreUsage, Stored, WriteBatch};
use crate::instances::RecoveryError;

/// An engine that is read up to its first value, and behind it when the test says so.
#[derive(Debug)]
struct Paused {
    engine: Arc<dyn Engine>,
    reached: mpsc::Sender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Engine for Paused {
    fn depth(&self) -> usize {
        self.engine.depth()
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        self.engine.write(batch, done);
    }

    fn read(&self, visit: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        let mut is_first = true;
        self.engine.read(&mut |stored| {
            visit(stored)?;
            if std::mem::take(&mut is_first) {
                self.reached.send(()).unwrap();
                self.goes_on.lock().unwrap().recv().unwrap();
            }
            Ok(())
        })
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        self.engine.identity()
    }

    fn usage(&self) -> StoreUsage {
        self.engine.usage()
    }
}

#[tokio::test]
async fn a_shard_lost_while_it_is_recovered_leaves_nothing() {
    let server = Server::new(None);
    let before = server.take(0, Arc::new(DiskEngine::in_memory().unwrap())).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let instance = server.create(spec("")).await;
        let _waiting = instance.call(access(FIRST, None, 1, append("x")));
        ids.push(instance.config().id);
    }
    before.log.committed().await;
    server.instances.drop_shard(&before.context, owner_lost(ShardKey(0))).await;
    before.log.close();

    let log: Arc<dyn CommitLog> = Arc::new(DurableLog::new(server.state.clone(), Arc::default()));
    let lost = server.instances.add_shard(ShardKey(0), &log).unwrap();
    let (reached, has_reached) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let paused = Paused { engine: before.engine.clone(), reached, goes_on: Mutex::new(goes_on) };
    let (instances, context) = (server.instances.clone(), lost.clone());
    let recovery = spawn_blocking(move || {
        Recovery::run(&instances, &context, &paused, None, crate::instances::Part::ALL)
    });
    spawn_blocking(move || has_reached.recv().unwrap()).await.unwrap();
    let mut dropped = pin!(server.instances.drop_shard(&lost, owner_lost(ShardKey(0))));
    let cx = &mut TaskContext::from_waker(Waker::noop());
    assert!((0..10).all(|_| dropped.as_mut().poll(cx).is_pending()), "it waits for the recovery");
    assert!(server.instances.add_shard(ShardKey(0), &log).is_err(), "two recoveries would overlap");
    go_on.send(()).unwrap();
    assert!(matches!(recovery.await.unwrap(), Err(RecoveryError::Lost)));
    with_timeout(dropped).await;
    let usage = server.instances.usage();
    assert_eq!((usage.held, usage.processes, usage.reserved_bytes), (0, 0, 0));
    assert_eq!((server.instances.load().live(), server.instances.steps().waiting()), (0, 0));
    assert!(matches!(
        Recovery::run(&server.instances, &lost, &*before.engine, None, crate::instances::Part::ALL),
        Err(RecoveryError::Lost)
    ));

    server.take(0, before.engine.clone()).await;
    assert!(ids.iter().all(|id| server.instances.get(*id).is_ok()));
    assert_eq!((server.instances.held(), server.instances.steps().waiting()), (3, 3));
}

#[tokio::test]
async fn a_checkpoint_is_not_made_of_an_instance_of_another_log() {
    let server = Server::new(None);
    let shard = server.take(0, Arc::new(DiskEngine::in_memory().unwrap())).await;
    let instance = server.create(spec("")).await;
    let _waiting = instance.call(access(FIRST, None, 1, append("x")));
    shard.log.committed().await;
    // Its earlier state, in its place.
    let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::with_state(server.state.clone()));
    let other = Arc::new(ShardContext::new(server.instances.context.clone(), ShardKey(0), log));
    Recovery::run(&server.instances, &other, &*shard.engine, None, crate::instances::Part::ALL).unwrap();
    let found = server.instances.registry().get(instance.config().id).cloned().unwrap();
    assert!(!Arc::ptr_eq(&found, &instance));
    let batches = shard.engine.usage().batches;
    server.instances.write_checkpoints(&shard.context, &shard.log).await;
    shard.log.committed().await;
    let usage = shard.engine.usage();
    assert_eq!((usage.checkpoints, usage.batches), (0, batches), "nothing is written, and nothing trimmed");
    server.instances.remove(&found);
    server.instances.registry_mut().insert(&instance, server.instances.capacity(&shard.context), true);
    let _waiting = instance.call(access(FIRST.next(), None, 1, append("y")));
    server.instances.write_checkpoints(&shard.context, &shard.log).await;
    shard.log.committed().await;
    assert!(shard.engine.usage().checkpoints > 0);
}
