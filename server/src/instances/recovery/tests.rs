//! What is recovered is what was there: random inputs, checkpoints at random moments, and restarts.

use std::time::Duration;

use prost::Message as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::machine::Checkpoint as Machine;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Seed, SessionId, Time, Value};
use stickycas_proto::log::v1::DumpedInstance;
use stickycas_proto::names::InstanceName;
use stickycas_proto::v1::event::What;

use super::super::CreateSpec;
use super::super::checkpoints::Captured;
use super::super::outbox::Outbox;
use super::super::sessions::SessionSink;
use super::*;
use crate::auth::Principal;
use crate::commit_log::engine::{DiskEngine, Done, StoreUsage, WriteBatch};
use crate::limits::Limits;
use crate::quota::KnownPrincipals;
use crate::storage::Storage;

fn limits() -> Limits {
    Limits { retention: Duration::from_millis(1), ..Limits::default() }
}

struct Server {
    engine: Arc<dyn Engine>,
    storage: Storage,
    instances: Arc<Instances>,
    random: StdRng,
}

/// All that is recovered of an instance.
#[derive(Debug, PartialEq)]
struct Found {
    dumped: DumpedInstance,
    machine: Machine,
    named: bool,
}

impl Server {
    async fn start(engine: Arc<dyn Engine>, random: StdRng) -> Self {
        let mut server = Self::recover(engine, random).await;
        let recovered = server.storage.replay(&server.instances).await.unwrap();
        server.begin(recovered).await;
        server
    }

    async fn begin(&mut self, recovered: Recovered) {
        self.storage.begin(&self.instances, recovered).await;
    }

    async fn recover(engine: Arc<dyn Engine>, random: StdRng) -> Self {
        let storage = Storage::durable(engine.clone(), None, &limits()).unwrap();
        let instances = storage.instances(limits(), KnownPrincipals::default());
        Self { engine, storage, instances, random }
    }

    /// The same server again, which must be as it was.
    async fn restart(self) -> Self {
        // A view has counters logged that were not.
        self.found();
        self.storage.close().await;
        while !self.all().iter().all(|instance| instance.lock().is_committed()) {
            tokio::task::yield_now().await;
        }
        let (before, counts) = (self.found(), self.counts());
        let Self { engine, random, .. } = self;
        let mut server = Self::recover(engine, random).await;
        let recovered = server.storage.replay(&server.instances).await.unwrap();
        let after = server.found();
        assert_eq!(after.len(), before.len());
        for (after, before) in after.iter().zip(&before) {
            assert_eq!(after.machine, before.machine, "{:#?}", before.dumped);
            assert_eq!(after, before);
        }
        assert_eq!(server.counts(), counts);
        server.begin(recovered).await;
        server
    }

    fn all(&self) -> Vec<Arc<Instance>> {
        self.instances.after(None, usize::MAX)
    }

    /// Instances that have not ended, those of them whose processes gather, and accesses that wait.
    fn counts(&self) -> (usize, usize, u64) {
        let load = self.instances.load();
        (load.live(), load.gathering(), self.instances.steps().waiting())
    }

    fn found(&self) -> Vec<Found> {
        let found = |instance: &Arc<Instance>| {
            let name = instance.config().name.clone();
            let found = name.map(|name| self.instances.registry().named(&name).map(|it| it.config().id));
            // An instance that has expired may not have been removed yet.
            let mut machine = instance.view(|machine, _, _| machine.checkpoint()).into_inner().ok()?;
            // Inputs that changed nothing have advanced it.
            machine.time = Time::ZERO;
            Some(Found { dumped: instance.dump(), machine, named: found == Some(Some(instance.config().id)) })
        };
        self.all().iter().filter_map(found).collect()
    }

    async fn act(&mut self) {
        match self.random.random_range(0..100) {
            0..8 => self.create().await,
            8..10 => self.storage.shorten(&self.instances).await,
            10..14 => self.all().iter().for_each(|instance| _ = instance.wake_now()),
            _ => self.input(),
        }
        tokio::task::yield_now().await;
    }

    async fn create(&mut self) {
        let random = &mut self.random;
        let processes = random.random_range(1..=4);
        let spec = ParamsSpec {
            order: *[Order::Ascending, Order::Shuffled].choose(random).unwrap(),
            arbiter: [Arbiter::FirstCome, Arbiter::Uniform].choose(random).unwrap().clone(),
            append_window: *[AppendWindow::FirstAccess, AppendWindow::Open].choose(random).unwrap(),
            patience: Patience::Finite(Duration::from_micros(random.random_range(1..500))),
            pace: Duration::from_micros(random.random_range(0..50)),
            pipeline: 3,
            seed: Seed::new(random.random()),
            ..ParamsSpec::new(
                processes,
                random.random_range(1..=processes),
                random.random_range(1..=processes),
            )
        };
        let most = if spec.append_window == AppendWindow::Open { 1 } else { spec.warp_size };
        let spec = ParamsSpec { append_rounds: random.random_range(1..=most), ..spec };
        let name = format!("name-{}", random.random_range(0..6));
        let spec = CreateSpec {
            name: random.random_bool(0.5).then(|| InstanceName::optional(&name).unwrap().unwrap()),
            params: Params::try_new(spec).unwrap(),
            seed_given: true,
            roster: (1..=processes).map(|process| format!("p{process}")).collect(),
        };
        // A name may be taken, by an instance that was created differently.
        if let Ok(created) = self.instances.create(&Principal::new("creator"), spec).await {
            created.committed().await.unwrap();
        }
    }

    /// An input of some instance, most often of one that has not ended; one in four makes no sense.
    fn input(&mut self) {
        let all = self.all();
        let random = &mut self.random;
        let Some(instance) = all.choose(random) else { return };
        let process = ProcessId::new(random.random_range(1..=instance.params().processes())).unwrap();
        let sink = SessionSink { outbox: Arc::new(Outbox::new(1_000)), channel: 0 };
        let member = instance.status(Some(process)).into_inner();
        let Some(member) = member.ok().and_then(|(_, member)| member) else { return };
        let value = Value::new(format!("value {}", random.random_range(0..3)).as_bytes()).unwrap();
        let wrong = random.random_bool(0.25);
        let session = member.session.filter(|_| random.random_bool(0.7));
        let session = if wrong { session.map(SessionId::next) } else { session };
        let number = member.next.get() + u64::from(wrong && random.random_bool(0.5));
        let number = number - u64::from(number > 1 && random.random_bool(0.1));
        let op = if number == 1 || random.random_bool(0.1) {
            Op::Append(value.clone())
        } else {
            Op::Read { start: Position::new(random.random_range(0..3)) }
        };
        let number = AccessNumber::new(number).unwrap();
        let access = Access { process, session, number, op, no_wait: random.random_bool(0.1) };
        match random.random_range(0..20) {
            0..3 => drop(instance.hello(process, random.random(), &sink, Instant::now())),
            3..10 => drop(instance.access(access, &sink, Instant::now())),
            10..16 => drop(instance.call(access)),
            16..18 => drop(instance.call_decide(process, value)),
            18 => {
                let (kind, detail) = (OffenceKind::Malformed, "bytes that are no message".to_owned());
                // More than are recorded one by one.
                for _ in 0..random.random_range(1..20) {
                    let offence =
                        Offence { process, kind, number: None, phase: None, detail: detail.clone() };
                    instance.file_offence(offence);
                }
            }
            _ => drop(instance.close()),
        }
    }
}

#[tokio::test]
async fn what_is_recovered_is_what_was_there() {
    // More of them: STICKYCAS_SEEDS=1000.
    let seeds = std::env::var("STICKYCAS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(30);
    for seed in 0..seeds {
        println!("seed {seed}");
        let engine: Arc<dyn Engine> = Arc::new(DiskEngine::in_memory().unwrap());
        let mut server = Server::start(engine, StdRng::seed_from_u64(seed)).await;
        for _ in 0..6 {
            for _ in 0..server.random.random_range(0..120) {
                server.act().await;
            }
            server = server.restart().await;
        }
    }
}

/// What a future comes to that has nothing to wait for; `None` if it has.
fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(outcome) => Some(outcome),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_name_is_recovered_with_the_instance_that_took_it_last() {
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::in_memory().unwrap());
    let server = Server::start(engine, StdRng::seed_from_u64(0)).await;
    let creator = Principal::new("creator");
    // Two instances of one name are never the same.
    let mut seeds = 0..;
    let mut create = || {
        let spec = ParamsSpec { seed: Seed::new(seeds.next().unwrap()), ..ParamsSpec::new(1, 1, 1) };
        let spec = CreateSpec {
            name: InstanceName::optional("name").unwrap(),
            params: Params::try_new(spec).unwrap(),
            seed_given: true,
            roster: vec!["p1".to_owned()],
        };
        Box::pin(server.instances.create(&creator, spec))
    };
    let (first, _) = create().await.unwrap().committed().await.unwrap();
    drop(first.close());
    // Both wait until the name is free. The one that came first gets it last.
    let (mut early, mut late) = (create(), create());
    assert!(poll(early.as_mut()).is_none() && poll(late.as_mut()).is_none());
    let (second, _) = late.await.unwrap().committed().await.unwrap();
    second.close().committed().await.unwrap().unwrap();
    let (third, _) = early.await.unwrap().committed().await.unwrap();
    assert_eq!(server.found().iter().filter(|found| found.named).count(), 1);

    server.storage.shorten(&server.instances).await;
    let server = server.restart().await;
    let name = InstanceName::optional("name").unwrap().unwrap();
    let named = server.instances.registry().named(&name).map(|instance| instance.config().id);
    assert_eq!(named, Some(third.config().id));
}

/// The lock of an instance is free while its checkpoint is made, so inputs come in between.
#[tokio::test]
async fn inputs_behind_a_checkpoint_that_is_still_written_are_replayed() {
    for seed in 0..20 {
        let engine = Arc::new(DiskEngine::in_memory().unwrap());
        let mut server = Server::start(engine, StdRng::seed_from_u64(seed)).await;
        for _ in 0..4 {
            server.create().await;
        }
        for _ in 0..3 {
            (0..50).for_each(|_| server.input());
            let log = server.storage.durable_log().unwrap();
            let (needed_from, _) = log.begin_checkpoints();
            let instances = server.all();
            let captured: Vec<_> =
                instances.iter().map(|instance| Captured::of(instance, log, false)).collect();
            (0..50).for_each(|_| server.input());
            // In a later batch than what they cover.
            let log = server.storage.durable_log().unwrap();
            log.committed().await;
            for (instance, captured) in instances.iter().zip(captured) {
                captured.into_iter().for_each(|captured| _ = captured.write(instance, log));
            }
            log.committed().await;
            log.trim(needed_from);
            server = server.restart().await;
        }
    }
}

/// An engine that fails when it has read everything.
#[derive(Debug)]
struct FailingEngine(DiskEngine);

impl Engine for FailingEngine {
    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        self.0.write(batch, done);
    }

    fn read(&self, visit: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        self.0.read(visit)?;
        Err(EngineError::failed("the rest cannot be read"))
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        self.0.identity()
    }

    fn usage(&self) -> StoreUsage {
        self.0.usage()
    }
}

#[tokio::test]
async fn of_several_faults_the_first_is_named() {
    let engine = Arc::new(FailingEngine(DiskEngine::in_memory().unwrap()));
    let storage = Storage::durable(engine.clone(), None, &limits()).unwrap();
    let instances = storage.instances(limits(), KnownPrincipals::default());
    let random = StdRng::seed_from_u64(0);
    let mut server = Server { engine: engine.clone(), storage, instances, random };
    for _ in 0..100 {
        server.create().await;
    }
    let numbers: Vec<u64> = server.all().iter().map(|instance| instance.config().number).collect();
    server.storage.shorten(&server.instances).await;
    server.storage.close().await;
    let fault = async || {
        let server = Server::recover(engine.clone(), StdRng::seed_from_u64(0)).await;
        server.storage.replay(&server.instances).await.unwrap_err().to_string()
    };
    assert_eq!(fault().await, "the log cannot be read: the rest cannot be read");
    let mut damaged: Vec<u64> = numbers.into_iter().filter(|number| number % 7 == 3).collect();
    damaged.sort_unstable();
    assert!(damaged.len() > 3);
    let mut last = 0;
    let read = engine.0.read(&mut |stored| {
        if let Stored::Batch(log_index, _) = stored {
            last = log_index;
        }
        Ok(())
    });
    read.unwrap();
    for (log_index, number) in (last + 1..).zip(damaged.iter().rev()) {
        let checkpoints = vec![(*number, Some(vec![255]))];
        let append = WriteBatch { log_index, checkpoints, ..WriteBatch::default() };
        engine.write(append, Box::new(|_| ()));
        for _ in 0..5 {
            let fault = fault().await;
            assert!(fault.contains(&format!("the checkpoint of instance {number}:")), "{fault}");
        }
    }
}

#[tokio::test]
async fn other_tasks_run_while_many_instances_go_on() {
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::in_memory().unwrap());
    let server = Server::start(engine, StdRng::seed_from_u64(0)).await;
    for _ in 0..600 {
        let spec = CreateSpec {
            name: None,
            params: Params::try_new(ParamsSpec::new(1, 1, 1)).unwrap(),
            seed_given: false,
            roster: vec!["p1".to_owned()],
        };
        drop(server.instances.create(&Principal::new("creator"), spec).await);
    }
    let restarted = || {
        let events = server.all().into_iter().flat_map(|instance| instance.dump().events);
        events.filter(|event| matches!(event.what, Some(What::Restarted(_)))).count()
    };
    let shard = server.instances.only_shard();
    let (mut seen, mut restarting) =
        (vec![0], std::pin::pin!(server.instances.serve_shard(&shard, Duration::ZERO)));
    while poll(restarting.as_mut()).is_none() {
        seen.push(restarted());
    }
    seen.push(restarted());
    assert!(seen.is_sorted_by(|before, after| after - before <= 256), "{seen:?}");
    assert_eq!(seen.last(), Some(&600));
}

#[tokio::test]
async fn a_log_that_ends_before_its_checkpoints_is_damaged() {
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::in_memory().unwrap());
    let mut server = Server::start(engine.clone(), StdRng::seed_from_u64(0)).await;
    server.create().await;
    server.storage.shorten(&server.instances).await;
    server.storage.close().await;
    let lost = DiskEngine::in_memory().unwrap();
    let mut checkpoints = Vec::new();
    let mut visit = |stored: Stored<'_>| {
        if let Stored::Checkpoint(number, bytes) = stored {
            checkpoints.push((number, Some(bytes.to_vec())));
        }
        Ok(())
    };
    engine.read(&mut visit).unwrap();
    let batch = Batch { rules: RULES, ..Batch::default() }.encode_to_vec();
    lost.write(WriteBatch { log_index: 1, batch, checkpoints, ..WriteBatch::default() }, Box::new(|_| ()));
    let server = Server::recover(Arc::new(lost), StdRng::seed_from_u64(0)).await;
    let error = server.storage.replay(&server.instances).await.unwrap_err().to_string();
    assert!(error.contains("the last batch is 1, and a checkpoint covers batch"), "{error}");
}

#[tokio::test]
async fn an_ended_instance_ages_while_it_is_served_and_only_then() {
    const SERVED: Duration = Duration::from_secs(9 * 60);
    let engine: Arc<dyn Engine> = Arc::new(DiskEngine::in_memory().unwrap());
    let mut server = Server::start(engine.clone(), StdRng::seed_from_u64(0)).await;
    for _ in 0..8 {
        server.create().await;
    }
    let ended: Vec<_> = server.all().into_iter().step_by(2).map(|instance| instance.config().id).collect();
    assert!(ended.len() > 2);
    for id in &ended {
        server.instances.get(*id).unwrap().close().committed().await.unwrap().unwrap();
    }
    let age = |server: &Server| {
        let since = |instance: &Arc<Instance>| {
            let inner = instance.lock();
            (ended.contains(&instance.config().id), instance.now(&inner).since(inner.latest()))
        };
        server.all().iter().map(since).collect::<Vec<_>>()
    };
    // A batch that was written so much later.
    server.storage.close().await;
    let mut last = 0;
    let mut visit = |stored: Stored<'_>| {
        if let Stored::Batch(log_index, _) = stored {
            last = log_index;
        }
        Ok(())
    };
    engine.read(&mut visit).unwrap();
    let later = Batch { rules: RULES, served_nanos: nanos(SERVED), ..Batch::default() };
    let later = WriteBatch { log_index: last + 1, batch: later.encode_to_vec(), ..WriteBatch::default() };
    engine.write(later, Box::new(|_| ()));
    // From the inputs, then from checkpoints.
    for _ in 0..3 {
        let server = Server::start(engine.clone(), StdRng::seed_from_u64(0)).await;
        for (ended, age) in age(&server) {
            assert!((SERVED / 2..SERVED * 2).contains(&age) == ended, "{ended}: {age:?}");
        }
        server.storage.shorten(&server.instances).await;
        server.storage.close().await;
    }
}
