//! The log above an engine whose outcomes the test decides.

use stickycas_model::types::Time;
use stickycas_proto::log::v1::{Batch, Tick};
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use super::*;
use crate::commit_log::engine::{DiskEngine, Done, EngineError, ManualEngine, Outcome, Stored, WriteBatch};

/// A log, its engine, and what it has resolved.
struct Fixture {
    engine: Arc<ManualEngine>,
    log: DurableLog,
    resolved: mpsc::UnboundedReceiver<(InstanceId, CommitOutcome)>,
}

fn log_on(engine: Arc<dyn Engine>, limit: usize) -> DurableLog {
    let log = DurableLog::new(Arc::new(LogState::new(limit)), Arc::default());
    log.write_to(engine).unwrap();
    log
}

fn fixture(depth: usize, limit: usize) -> Fixture {
    let engine = Arc::new(ManualEngine::new(depth));
    let log = log_on(engine.clone(), limit);
    let (sender, resolved) = mpsc::unbounded_channel();
    log.on_commit(Box::new(move |instance, resolved| sender.send((instance, resolved)).unwrap()));
    Fixture { engine, log, resolved }
}

/// A step of the instance with this number.
fn append(log: &DurableLog, number: u64, last: LogIndex) -> LogIndex {
    let input = Some(record::Input::Tick(Tick {}));
    let record = Record { instance: number, input, ..Record::default() };
    let step = Step {
        instance: InstanceId::new(number.into()),
        name: None,
        last,
        at: Time::ZERO,
        events: &[],
        record: Some(&record),
    };
    match log.submit(step) {
        Submission::Later(log_index) => log_index,
        Submission::Committed => panic!("nothing is committed at once"),
    }
}

impl Fixture {
    fn step(&self, number: u64, last: LogIndex) -> LogIndex {
        append(&self.log, number, last)
    }

    /// The next write, once it has gathered.
    async fn gathered(&self) -> (WriteBatch, Done) {
        while self.engine.is_idle() {
            tokio::task::yield_now().await;
        }
        self.engine.next()
    }

    async fn resolved(&mut self) -> (u128, Result<u64, RefusalReason>) {
        let resolved = tokio::time::timeout(Duration::from_secs(60), self.resolved.recv()).await;
        match resolved.unwrap().unwrap() {
            (instance, CommitOutcome::Committed(log_index)) => (instance.get(), Ok(log_index.get())),
            (instance, CommitOutcome::Refused(why)) => (instance.get(), Err(why.reason)),
        }
    }
}

fn instances(write: &WriteBatch) -> Vec<u64> {
    Batch::decode(&*write.batch).unwrap().records.iter().map(|record| record.instance).collect()
}

#[tokio::test]
async fn steps_that_come_during_a_sync_are_committed_together() {
    let mut it = fixture(1, usize::MAX);
    let first = it.step(1, LogIndex::START);
    let (batch, done) = it.engine.next();
    assert_eq!((batch.log_index, instances(&batch)), (1, vec![1]));
    let mut last = first;
    for number in [2, 3, 2, 1] {
        last = it.step(number, if number == 1 { first } else { LogIndex::START });
    }
    assert_eq!(last, LogIndex::new(2));
    assert!(it.engine.is_idle(), "the engine takes one write at a time");
    done(Outcome::Committed);
    assert_eq!(it.resolved().await, (1, Ok(1)));
    let (batch, done) = it.engine.next();
    assert_eq!((batch.log_index, instances(&batch)), (2, vec![2, 3, 2, 1]));
    done(Outcome::Committed);
    for instance in [2, 3, 2, 1] {
        assert_eq!(it.resolved().await, (instance, Ok(2)));
    }
}

#[tokio::test]
async fn what_came_during_a_sync_is_joined_by_what_comes_of_it() {
    let it = fixture(1, usize::MAX);
    it.log.serve();
    it.step(1, LogIndex::START);
    let (_, done) = it.gathered().await;
    it.step(2, LogIndex::START);
    // It has gathered before the engine is free, and gathers again then.
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert!(it.log.shared.queue().is_gathered);
    done(Outcome::Committed);
    it.step(3, LogIndex::START);
    let (batch, _) = it.gathered().await;
    assert_eq!(instances(&batch), [2, 3]);
}

#[tokio::test]
async fn batches_that_are_committed_out_of_order_are_resolved_in_order() {
    let mut it = fixture(2, usize::MAX);
    it.step(1, LogIndex::START);
    let (_, first) = it.engine.next();
    it.step(2, LogIndex::START);
    let (_, second) = it.engine.next();
    second(Outcome::Committed);
    assert!(it.resolved.try_recv().is_err(), "the batch before it is not committed");
    first(Outcome::Committed);
    assert_eq!((it.resolved().await, it.resolved().await), ((1, Ok(1)), (2, Ok(2))));
}

#[tokio::test]
async fn nothing_is_taken_of_an_instance_whose_creation_was_refused() {
    let mut it = fixture(1, usize::MAX);
    let dirty = Dirty { number: 7, instance: InstanceId::new(7) };
    it.step(7, LogIndex::START);
    let (_, done) = it.engine.next();
    assert_eq!(it.log.begin_checkpoints().1, [dirty]);
    it.log.refuse_creation(dirty.instance, 7, RpcRefusal::new(RefusalReason::NotOwner, "taken"));
    // The instance is not told yet: it has another step, and gets its checkpoint.
    it.step(7, LogIndex::START);
    it.log.checkpoint(7, Some(&Checkpoint::default()));
    done(Outcome::Committed);
    assert_eq!(it.resolved().await, (7, Err(RefusalReason::NotOwner)));
    let (batch, done) = it.engine.next();
    assert_eq!((instances(&batch), batch.checkpoints), (vec![7], vec![(7, None)]), "the record of its end");
    done(Outcome::Committed);
    let (_, again) = it.log.begin_checkpoints();
    assert!(!again.is_empty() && again.iter().all(|it| *it == dirty), "{again:?}");
    it.log.checkpoint(7, None);
    assert_eq!(it.log.begin_checkpoints().1, [], "it is gone");
}

#[tokio::test]
async fn after_a_failure_nothing_is_written_and_everything_is_refused() {
    let mut it = fixture(1, usize::MAX);
    it.step(1, LogIndex::START);
    let (_, done) = it.engine.next();
    it.step(2, LogIndex::START);
    let barrier = it.log.barrier(0).unwrap();
    assert!(it.log.failure().is_none());
    done(Outcome::Unknown(EngineError::failed("the disk is gone")));
    assert_eq!(it.resolved().await, (1, Err(RefusalReason::LogFailed)));
    assert_eq!(it.resolved().await, (2, Err(RefusalReason::LogFailed)));
    barrier.await.unwrap();
    assert!(it.log.failed().await.message.contains("the disk is gone"));
    it.step(3, LogIndex::START);
    assert_eq!(it.resolved().await, (3, Err(RefusalReason::LogFailed)));
    it.log.close();
    assert!(it.engine.is_idle());
}

#[tokio::test]
async fn while_too_much_waits_no_inputs_are_read() {
    let mut it = fixture(1, 4 * 1024);
    assert!(it.log.state().room().is_none());
    let mut steps = 0;
    while it.log.state().room().is_none() {
        it.step(steps, LogIndex::START);
        steps += 1;
    }
    assert!(steps > 1);
    let room = it.log.state().room().unwrap();
    let mut resolved = 0;
    while resolved < steps {
        let (batch, done) = it.engine.next();
        resolved += instances(&batch).len() as u64;
        done(Outcome::Committed);
    }
    room.await;
    assert!(it.log.state().room().is_none());
    for _ in 0..steps {
        it.resolved().await.1.unwrap();
    }
}

#[tokio::test]
async fn the_time_that_is_served_stands_still_while_too_much_waits() {
    let mut it = fixture(1, 4 * 1024);
    it.log.begin(LogIndex::START, Duration::from_secs(7), Vec::new());
    it.log.serve();
    let log_index = it.step(1, LogIndex::START);
    let goes_on = |log: &DurableLog, from| {
        while log.served() <= from {
            std::hint::spin_loop();
        }
    };
    goes_on(&it.log, it.log.served());
    it.log.hold(log_index, 10_000);
    let (served, clock) = (it.log.served(), it.log.state().clock().clone());
    assert_eq!(clock.nanos(Instant::now() + Duration::from_secs(60)), clock.now());
    assert_eq!(it.log.served(), served);
    let (_, done) = it.gathered().await;
    let room = it.log.state().room().expect("too much waits");
    done(Outcome::Committed);
    it.resolved().await.1.unwrap();
    room.await;
    goes_on(&it.log, served);
    // A log that fails while it is full does not stop what waits for time.
    let log_index = it.step(1, LogIndex::START);
    it.log.hold(log_index, 10_000);
    let served = it.log.served();
    let (_, done) = it.gathered().await;
    done(Outcome::Unknown(EngineError::failed("the disk is gone")));
    goes_on(&it.log, served);
}

#[tokio::test]
async fn a_log_that_has_failed_does_not_become_full_again() {
    let mut it = fixture(1, 4 * 1024);
    it.step(1, LogIndex::START);
    let (_, first) = it.engine.next();
    let next = it.step(2, LogIndex::START);
    it.log.hold(next, 10_000);
    assert!(it.log.state().room().is_some());
    // The effects of the first batch leave when the second has failed.
    first(Outcome::Committed);
    let (_, second) = it.engine.next();
    second(Outcome::Unknown(EngineError::failed("the disk is gone")));
    assert_eq!(it.resolved().await, (1, Ok(1)));
    assert_eq!(it.resolved().await, (2, Err(RefusalReason::LogFailed)));
    it.log.hold(next, 10_000);
    assert_eq!(it.log.uncommitted_bytes(), 0);
    assert!(it.log.state().room().is_none());
}

#[tokio::test]
async fn effects_of_inputs_that_are_not_logged_count() {
    let mut it = fixture(1, 4 * 1024);
    let log_index = it.step(1, LogIndex::START);
    let (_, first) = it.engine.next();
    let next = it.step(2, LogIndex::START);
    // What waits for a batch that is in flight, and for the one that forms.
    for (log_index, bytes) in [(log_index, 3_000), (next, 1_000)] {
        assert!(it.log.state().room().is_none());
        it.log.hold(log_index, bytes);
    }
    let room = it.log.state().room().expect("too much waits");
    first(Outcome::Committed);
    it.resolved().await.1.unwrap();
    room.await;
    assert!(it.log.state().room().is_none(), "what waited for it has left with it");
    it.log.hold(log_index, 1_000_000);
    assert!(it.log.state().room().is_none(), "nothing can wait for it any more");
    let (_, second) = it.engine.next();
    second(Outcome::Committed);
    assert!(it.log.uncommitted_bytes() > 1_000, "it is committed, and its effects have not left");
    it.log.hold(next, 1_000_000);
    let room = it.log.state().room().expect("too much waits");
    it.resolved().await.1.unwrap();
    room.await;
    assert_eq!(it.log.uncommitted_bytes(), 0);
}

#[tokio::test]
async fn what_waits_for_a_barrier_counts() {
    let it = fixture(1, 4 * 1024);
    assert!(
        it.log.barrier(10_000).is_none() && it.log.state().room().is_none(),
        "nothing is to be committed"
    );
    it.step(1, LogIndex::START);
    let before = it.log.uncommitted_bytes();
    let barrier = it.log.barrier(10_000).unwrap();
    assert_eq!(it.log.uncommitted_bytes(), before + 10_000);
    let room = it.log.state().room().expect("too much waits");
    let (_, done) = it.engine.next();
    done(Outcome::Committed);
    barrier.await.unwrap();
    room.await;
}

#[tokio::test]
async fn a_batch_that_forms_when_another_fails_is_not_written() {
    let mut it = fixture(2, usize::MAX);
    it.step(1, LogIndex::START);
    let (_, first) = it.engine.next();
    first(Outcome::Unknown(EngineError::failed("the disk is gone")));
    assert_eq!(it.resolved().await, (1, Err(RefusalReason::LogFailed)));
    // The writer had taken it before.
    let engine: Arc<dyn Engine> = it.engine.clone();
    writer::hand_over(&it.log.shared, &engine, LogIndex::new(2), queue::Forming::default());
    assert!(it.engine.is_idle(), "nothing is written after a failure");
}

#[tokio::test]
async fn what_a_commit_frees_is_seen_with_it() {
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::in_memory().unwrap());
    let log = log_on(engine.clone(), usize::MAX);
    log.begin(LogIndex::START, Duration::ZERO, Vec::new());
    log.restart().await;
    let begun = log.usage();
    assert!(begun.batches > 0 && begun == engine.usage());
    for number in 1..=100 {
        append(&log, number, LogIndex::START);
    }
    log.committed().await;
    let grown = log.usage();
    assert!(grown.batches > begun.batches && grown == engine.usage());
    log.trim(LogIndex::END);
    log.committed().await;
    let trimmed = log.usage();
    assert!(trimmed.batches < grown.batches && trimmed == engine.usage());
    log.close();
}

#[tokio::test]
async fn a_checkpoint_covers_the_records_before_it() {
    let it = fixture(1, usize::MAX);
    it.step(1, LogIndex::START);
    let (_, done) = it.engine.next();
    it.step(1, LogIndex::START);
    it.step(2, LogIndex::START);
    assert_eq!(it.log.covered(), (2, 2), "the second batch forms, and has two records");
    it.log.checkpoint(1, Some(&Checkpoint { at_nanos: 7, ..Checkpoint::default() }));
    it.step(1, LogIndex::START);
    it.log.checkpoint(3, None);
    done(Outcome::Committed);
    let (batch, _done) = it.engine.next();
    let [(1, Some(state)), (3, None)] = &batch.checkpoints[..] else { panic!("{:?}", batch.checkpoints) };
    let state = Checkpoint::decode(&**state).unwrap();
    assert_eq!(state.at_nanos, 7);
    assert_eq!(instances(&batch), [1, 2, 1]);
}

#[tokio::test]
async fn an_instance_is_dirty_until_it_has_a_checkpoint_behind_its_records() {
    let it = fixture(1, usize::MAX);
    let first = it.step(1, LogIndex::START);
    let again = it.step(2, LogIndex::START);
    it.step(2, again);
    let numbers = |dirty: Vec<Dirty>| dirty.into_iter().map(|it| it.number).collect::<Vec<_>>();
    let (needed_from, dirty) = it.log.begin_checkpoints();
    assert_eq!(numbers(dirty)[..2], [1, 2]);
    // In the batch that forms, or in the next: it must be found again.
    it.step(1, first);
    let (next, dirty) = it.log.begin_checkpoints();
    assert_eq!(numbers(dirty), [1]);
    assert!(needed_from <= next);
}

/// An engine with a bug.
#[derive(Debug)]
struct PanickingEngine;

impl Engine for PanickingEngine {
    fn depth(&self) -> usize {
        1
    }

    fn write(&self, _: WriteBatch, _: Done) {
        panic!("a bug")
    }

    fn read(&self, _: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        Ok(())
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        Ok(Vec::new())
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage::default()
    }
}

#[tokio::test]
async fn a_log_whose_engine_panics_has_failed() {
    let log = log_on(Arc::new(PanickingEngine), usize::MAX);
    log.begin(LogIndex::START, Duration::ZERO, Vec::new());
    log.restart().await;
    assert_eq!(log.failed().await.reason, RefusalReason::LogFailed);
    log.close();
}

#[tokio::test]
async fn a_refused_batch_tells_why() {
    let mut it = fixture(1, usize::MAX);
    it.step(1, LogIndex::START);
    let (_, done) = it.engine.next();
    let why = RpcRefusal::new(RefusalReason::Draining, "another server owns the log");
    done(Outcome::Refused(Box::new(why)));
    assert_eq!(it.resolved().await, (1, Err(RefusalReason::Draining)));
    assert!(it.log.failure().is_some());
}
