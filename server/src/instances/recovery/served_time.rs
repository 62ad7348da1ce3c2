//! Patience and the join timeout over the lives of servers (SPEC F3). The clock shows what the tests say.

use std::fmt;
use std::sync::Mutex;

use prost::Message as _;
use stickycas_model::access::{Access, Op};
use stickycas_model::machine::State;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId};
use tokio_util::task::AbortOnDropHandle;

use super::super::CreateSpec;
use super::super::checkpoints::Captured;
use super::super::outbox::Outbox;
use super::super::sessions::SessionSink;
use super::*;
use crate::auth::Principal;
use crate::commit_log::engine::{DiskEngine, Done, StoreUsage, WriteBatch};
use crate::commit_log::{CommitLog as _, DurableLog, ServedClock};
use crate::limits::Limits;
use crate::quota::KnownPrincipals;
use crate::storage::Storage;

const SECOND: u64 = 1_000;
/// Shorter than a life.
const REJOIN: Duration = Duration::from_millis(SECOND);
const PATIENCE: u64 = 300 * SECOND;

/// An engine in memory. While it is stalled, its writes wait.
struct StallingEngine {
    redb: DiskEngine,
    stalled: Mutex<Option<Vec<(WriteBatch, Done)>>>,
}

impl fmt::Debug for StallingEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StallingEngine").finish_non_exhaustive()
    }
}

impl Engine for StallingEngine {
    fn depth(&self) -> usize {
        self.redb.depth()
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        match &mut *self.stalled.lock().unwrap() {
            Some(stalled) => stalled.push((batch, done)),
            None => self.redb.write(batch, done),
        }
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

impl StallingEngine {
    fn new() -> Arc<Self> {
        Arc::new(Self { redb: DiskEngine::in_memory().unwrap(), stalled: Mutex::default() })
    }

    fn stall(&self) {
        *self.stalled.lock().unwrap() = Some(Vec::new());
    }

    fn go_on(&self) {
        let stalled = self.stalled.lock().unwrap().take().expect("it is stalled");
        stalled.into_iter().for_each(|(batch, done)| self.redb.write(batch, done));
    }

    fn batches(&self) -> Vec<Batch> {
        let mut batches = Vec::new();
        let mut visit = |stored: Stored<'_>| {
            if let Stored::Batch(_, bytes) = stored {
                batches.push(Batch::decode(bytes).unwrap());
            }
            Ok(())
        };
        self.redb.read(&mut visit).unwrap();
        batches
    }
}

/// A server from its start to its end.
struct Life {
    engine: Arc<StallingEngine>,
    storage: Storage,
    instances: Arc<Instances>,
    clock: Arc<ServedClock>,
    _timers: AbortOnDropHandle<()>,
}

/// The end of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The server is told to stop.
    Stop,
    /// It is killed.
    Kill,
}

fn id(process: u32) -> ProcessId {
    ProcessId::new(process).unwrap()
}

impl Life {
    /// A life on a clock that goes by itself, or else shows 0 until the test lets time [pass](Self::pass).
    async fn on(engine: &Arc<StallingEngine>, limits: Limits, goes: bool) -> Self {
        let limits = Limits { rejoin: REJOIN, ..limits };
        let storage = Storage::durable(engine.clone(), None, &limits).unwrap();
        let instances = storage.instances(limits, KnownPrincipals::default());
        let clock = storage.durable_log().unwrap().state().clock().clone();
        if !goes {
            clock.set(0);
        }
        storage.recover(&instances).await.unwrap();
        let timed = instances.clone();
        let _timers = AbortOnDropHandle::new(tokio::spawn(async move { timed.run_timers().await }));
        Self { engine: engine.clone(), storage, instances, clock, _timers }
    }

    async fn start(engine: &Arc<StallingEngine>) -> Self {
        Self::on(engine, Limits::default(), false).await
    }

    fn log(&self) -> &DurableLog {
        self.storage.durable_log().unwrap()
    }

    /// Logged steps are committed, and their effects leave.
    async fn resolve(&self) {
        for _ in 0..3 {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            if self.engine.stalled.lock().unwrap().is_none() {
                self.log().committed().await;
            }
        }
    }

    /// So much time passes, in steps of a tenth of a second.
    async fn pass(&self, millis: u64) {
        for _ in 0..millis / 100 {
            self.clock.set(self.clock.now() + 100_000_000);
            self.resolve().await;
        }
    }

    async fn end(self, end: End) -> Arc<StallingEngine> {
        self.resolve().await;
        if end == End::Stop {
            self.instances.logs().stop_clock();
            self.storage.write_last_served_time();
        }
        self.storage.close().await;
        self.engine.clone()
    }

    async fn next(self, end: End) -> Self {
        let engine = self.end(end).await;
        Self::start(&engine).await
    }

    /// A new instance: its processes are of one warp.
    async fn create(&self, processes: u32, spec: impl FnOnce(&mut ParamsSpec)) -> Arc<Instance> {
        let mut params = ParamsSpec::new(processes, processes, 1);
        params.patience = Patience::Finite(Duration::from_millis(PATIENCE));
        spec(&mut params);
        let spec = CreateSpec {
            name: None,
            params: Params::try_new(params).unwrap(),
            seed_given: false,
            roster: (1..=processes).map(|process| format!("p{process}")).collect(),
        };
        let created = self.instances.create(&Principal::new("creator"), spec).await;
        created.unwrap().committed().await.unwrap().0
    }

    /// The only instance.
    fn instance(&self) -> Arc<Instance> {
        self.instances.after(None, 1).pop().unwrap()
    }

    async fn hello(&self, instance: &Instance, process: u32) {
        instance.hello(id(process), 1, &sink(), Instant::now()).unwrap();
        self.resolve().await;
    }

    async fn read(&self, instance: &Instance, process: u32, number: u64) {
        read(instance, process, number);
        self.resolve().await;
    }

    /// Both processes have joined, and process 1 waits for process 2, once all is committed.
    async fn hold(&self) -> Arc<Instance> {
        let instance = self.create(2, |_| ()).await;
        for process in [1, 2] {
            instance.hello(id(process), 1, &sink(), Instant::now()).unwrap();
        }
        read(&instance, 1, 1);
        instance
    }

    async fn held(&self) -> Arc<Instance> {
        let instance = self.hold().await;
        self.resolve().await;
        instance
    }
}

fn read(instance: &Instance, process: u32, number: u64) {
    let (process, number) = (id(process), AccessNumber::new(number).unwrap());
    let op = Op::Read { start: Position::new(0) };
    let access = Access { process, session: None, number, op, no_wait: false };
    instance.access(access, &sink(), Instant::now()).unwrap();
}

fn sink() -> SessionSink {
    SessionSink { outbox: Arc::new(Outbox::new(1_000)), channel: 0 }
}

/// The patience of process 2, for which the instance waits, as Get tells it.
fn left(instance: &Instance) -> Duration {
    let status = instance.status(None).into_inner().unwrap().0;
    let awaited = status.awaited.iter().find(|member| member.process == id(2)).expect("it is missing");
    let Patience::Finite(left) = awaited.patience else { panic!("it has an end") };
    left
}

#[tokio::test]
async fn a_silent_process_is_given_up_however_often_servers_end() {
    for (end, expected) in [(End::Kill, 3), (End::Stop, 2)] {
        let mut life = Life::start(&StallingEngine::new()).await;
        let patience = |spec: &mut ParamsSpec| spec.patience = Patience::Finite(Duration::from_secs(3));
        let instance = life.create(2, patience).await;
        for process in [1, 2] {
            life.hello(&instance, process).await;
        }
        life.read(&instance, 1, 1).await;
        drop(instance);
        let mut lives = 1;
        loop {
            life.pass(1_500).await;
            if life.instance().status(None).into_inner().unwrap().0.given_up == [id(2)] {
                break;
            }
            assert!(lives < 8, "{end:?}: {lives} lives of half its patience, and it is awaited");
            life = life.next(end).await;
            lives += 1;
            // It is there each time, and silent.
            for process in [1, 2] {
                life.hello(&life.instance(), process).await;
            }
        }
        assert_eq!(lives, expected, "{end:?}");
    }
}

#[tokio::test]
async fn a_stop_forgets_nothing_and_a_kill_less_than_a_second() {
    let mut life = Life::start(&StallingEngine::new()).await;
    drop(life.held().await);
    let mut expected = PATIENCE;
    for (turn, end) in
        [End::Stop, End::Kill, End::Stop, End::Stop, End::Kill, End::Kill].into_iter().enumerate()
    {
        life.pass(2_700).await;
        assert_eq!(left(&life.instance()), Duration::from_millis(expected - 2_700));
        let (mut passed, mut told) = (2_700, 2_000);
        if turn % 2 == 0 {
            // Batches with checkpoints tell the time as well.
            life.storage.shorten(&life.instances).await;
            life.resolve().await;
            life.pass(2_300).await;
            (passed, told) = (5_000, 4_700);
        }
        expected -= if end == End::Stop { passed } else { told };
        life = life.next(end).await;
        assert_eq!(left(&life.instance()), Duration::from_millis(expected), "{turn}: {end:?}");
        for process in [1, 2] {
            life.hello(&life.instance(), process).await;
        }
    }
}

#[tokio::test]
async fn the_join_timeout_ends_however_often_servers_end() {
    let mut life = Life::start(&StallingEngine::new()).await;
    let instance = life.create(3, |spec| spec.join_timeout = Duration::from_secs(10)).await;
    life.hello(&instance, 1).await;
    drop(instance);
    let mut lives = 1;
    loop {
        life.pass(1_500).await;
        if life.instance().state().into_inner().unwrap() == State::Running {
            break;
        }
        assert!(lives < 20, "{lives} lives, and it gathers");
        life = life.next(End::Stop).await;
        lives += 1;
    }
    assert_eq!(lives, 7);
}

#[tokio::test]
async fn a_pace_passes_over_the_lives_of_servers() {
    let mut life = Life::start(&StallingEngine::new()).await;
    let instance = life.create(1, |spec| spec.pace = Duration::from_secs(5)).await;
    life.read(&instance, 1, 1).await;
    drop(instance);
    for _ in 0..3 {
        life.pass(1_500).await;
        life = life.next(End::Stop).await;
    }
    life.read(&life.instance(), 1, 2).await;
    let phase = || life.instance().status(None).into_inner().unwrap().0.phase.unwrap().get();
    life.pass(400).await;
    assert_eq!(phase(), 2);
    life.pass(100).await;
    assert_eq!(phase(), 3, "5 s after the last step");
}

#[tokio::test]
async fn one_batch_a_second_covers_all_that_hold_a_phase_open() {
    // More of them: STICKYCAS_INSTANCES=100000.
    let instances = std::env::var("STICKYCAS_INSTANCES").ok().and_then(|it| it.parse().ok()).unwrap_or(200);
    let engine = StallingEngine::new();
    let life = Life::start(&engine).await;
    for _ in 0..3 {
        let idle = life.create(1, |_| ()).await;
        life.read(&idle, 1, 1).await;
    }
    life.create(2, |_| ()).await;
    let before = engine.batches().len();
    life.pass(20 * SECOND).await;
    assert_eq!(engine.batches().len(), before, "nobody has joined, or nothing waits: idle");
    let mut held = Vec::new();
    for _ in 0..instances {
        held.push(life.hold().await);
    }
    life.resolve().await;
    let (before, since) = (engine.batches().len(), Instant::now());
    life.pass(20 * SECOND).await;
    let took = since.elapsed();
    let told = engine.batches().split_off(before);
    let bytes: Vec<_> = told.iter().map(Batch::encoded_len).collect();
    println!("{instances} instances: 20 seconds took {took:?} and batches of {bytes:?} bytes");
    assert_eq!(told.len(), 20);
    assert!(told.iter().all(|batch| batch.records.is_empty()));
    assert!(told.windows(2).all(|pair| pair[0].served_nanos < pair[1].served_nanos));
    held.iter().for_each(|instance| read(instance, 2, 1));
    life.resolve().await;
    let before = engine.batches().len();
    life.pass(20 * SECOND).await;
    assert_eq!(engine.batches().len(), before, "they are idle again");
    let engine = life.end(End::Kill).await;
    // One that gathers is held open from its first join on, in the next life too.
    let life = Life::start(&engine).await;
    let gathers = life.create(2, |_| ()).await;
    life.hello(&gathers, 1).await;
    drop(gathers);
    let life = life.next(End::Kill).await;
    let before = engine.batches().len();
    life.pass(5 * SECOND).await;
    assert_eq!(engine.batches().len(), before + 5);
}

/// From the execution of a phase until it is committed, however long that takes.
#[tokio::test]
async fn time_that_stood_still_until_a_commit_is_not_drained_later() {
    // A kill forgets less than a second.
    for (end, drained_at_least, with_checkpoint) in
        [(End::Stop, 1_300, false), (End::Kill, 300, false), (End::Stop, 1_300, true), (End::Kill, 300, true)]
    {
        let engine = StallingEngine::new();
        let life = Life::start(&engine).await;
        let instance = life.held().await;
        engine.stall();
        life.read(&instance, 2, 1).await;
        // Phase 2 is open, and nobody has the answers of phase 1.
        life.read(&instance, 1, 2).await;
        let log = life.log();
        let (needed_from, _) = log.begin_checkpoints();
        let captured = with_checkpoint.then(|| Captured::of(&instance, log, false).unwrap());
        life.pass(4 * SECOND).await;
        engine.go_on();
        life.resolve().await;
        if let Some(captured) = captured {
            captured.write(&instance, log);
            log.committed().await;
            log.trim(needed_from);
            log.committed().await;
        }
        life.pass(1_300).await;
        assert_eq!(left(&instance), Duration::from_millis(PATIENCE - 1_300));
        drop(instance);
        let life = life.next(end).await;
        let (least, most) = (PATIENCE - 1_300, PATIENCE - drained_at_least);
        let left = left(&life.instance());
        assert!(
            (Duration::from_millis(least)..=Duration::from_millis(most)).contains(&left),
            "{left:?}: {end:?}, {with_checkpoint}"
        );
    }
}

/// A checkpoint of an instance whose time stands still depends on a batch that the next checkpoints remove.
#[tokio::test]
async fn an_instance_whose_time_stood_still_gets_another_checkpoint() {
    let engine = StallingEngine::new();
    let life = Life::start(&engine).await;
    let instance = life.held().await;
    engine.stall();
    life.read(&instance, 2, 1).await;
    life.read(&instance, 1, 2).await;
    let log = life.log();
    log.begin_checkpoints();
    let captured = Captured::of(&instance, log, false).unwrap();
    captured.write(&instance, log);
    life.pass(SECOND).await;
    engine.go_on();
    life.resolve().await;
    life.pass(10 * SECOND).await;
    life.storage.shorten(&life.instances).await;
    life.resolve().await;
    life.pass(10 * SECOND).await;
    life.storage.shorten(&life.instances).await;
    drop(instance);
    let life = life.next(End::Stop).await;
    assert_eq!(left(&life.instance()), Duration::from_millis(PATIENCE - 20 * SECOND));
}

#[tokio::test]
async fn while_the_log_is_full_no_patience_drains_also_for_the_next_life() {
    let engine = StallingEngine::new();
    let limits = Limits { uncommitted_bytes: 16 * 1024, ..Limits::default() };
    let life = Life::on(&engine, limits.clone(), true).await;
    let instance = life.held().await;
    let state = life.log().state().clone();
    engine.stall();
    while state.room().is_none() {
        instance.hello(id(2), 1, &sink(), Instant::now()).unwrap();
    }
    let (full, since) = (left(&instance), Instant::now());
    while since.elapsed() < Duration::from_millis(20) {
        assert_eq!(left(&instance), full, "nothing is read from clients");
    }
    engine.go_on();
    life.resolve().await;
    assert!(state.room().is_none());
    while left(&instance) >= full {}
    life.instances.logs().stop_clock();
    let stopped = left(&instance);
    drop(instance);
    life.end(End::Stop).await;
    let life = Life::on(&engine, limits, true).await;
    let kept = left(&life.instance());
    assert!(stopped <= kept && kept < full, "{stopped:?}, {kept:?}, {full:?}");
}
