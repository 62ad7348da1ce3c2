//! Several shards in one server: lost, taken again, and confirmed.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock};
use std::task::{Context as TaskContext, Poll, Waker};

use prost::Message as _;
use stickycas_model::access::{Access, Op};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, SessionId, Value};
use stickycas_proto::attach::EncodedResponse;
use stickycas_proto::names::{InstanceName, InstanceRef};
use stickycas_proto::status::Owner;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{self, AttachResponse};

use super::super::instance::{UnaryAccess, UnaryAnswer};
use super::super::placement::{Placement, owner_lost};
use super::super::{
    CompletedAccess, CreateSpec, NameClaims, Outbox, Polled, Receiver, Recovery, SessionSink, WatchPoll,
};
use super::*;
use crate::auth::Principal;
use crate::commit_log::engine::{DiskEngine, Engine, ManualEngine, Outcome};
use crate::commit_log::{DurableLog, LogState, MemoryLog, OnCommit, Step, Submission};
use crate::counting_waker::CountingWaker;
use crate::gate::{Confirmation, confirm};
use crate::limits::Limits;
use crate::quota::KnownPrincipals;

mod confirmed;
mod lost;
mod names;

const FIRST: ProcessId = ProcessId::FIRST;
const READ: Op = Op::Read { start: Position::new(0) };

/// Shards by the lowest bits of the id, some of them owned by other servers.
#[derive(Debug, Default)]
struct Cluster {
    owners: Mutex<BTreeMap<ShardKey, Owner>>,
    /// The shards of this server.
    own: Mutex<Vec<ShardKey>>,
    /// How often the shard of an id was asked for.
    asked: AtomicUsize,
    /// It is served from then on.
    served_when_asked: Mutex<Option<Arc<ShardContext>>>,
}

const SHARDS: u128 = 4;

fn shard_of(id: InstanceId) -> ShardKey {
    ShardKey(u32::try_from(id.get() % SHARDS).unwrap())
}

impl Placement for Cluster {
    fn shard_of(&self, id: InstanceId) -> ShardKey {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(shard) = self.served_when_asked.lock().unwrap().take() {
            shard.set_leaving(false);
        }
        shard_of(id)
    }

    fn id_in(&self, shard: ShardKey, random: u128) -> InstanceId {
        InstanceId::new(random - random % SHARDS + u128::from(shard.0))
    }

    fn owner_of(&self, shard: ShardKey) -> Option<Owner> {
        self.owners.lock().unwrap().get(&shard).cloned()
    }

    fn is_owner(&self, shard: ShardKey) -> bool {
        self.own.lock().unwrap().contains(&shard)
    }
}

fn other() -> Owner {
    Owner { address: "cas-2.example:7400".to_owned(), epoch: 7 }
}

/// A server of the cluster.
struct Server {
    instances: Arc<Instances>,
    cluster: Arc<Cluster>,
    state: Arc<LogState>,
}

/// A shard of it, and where its log is.
struct Shard {
    context: Arc<ShardContext>,
    log: Arc<DurableLog>,
    engine: Arc<dyn Engine>,
}

impl Server {
    fn new(names: Option<Arc<dyn NameClaims>>) -> Self {
        let (cluster, state) = (Arc::<Cluster>::default(), Arc::<LogState>::default());
        let known = KnownPrincipals::default();
        let instances = Instances::without_shards(Limits::default(), &state, known, cluster.clone(), names);
        Self { instances, cluster, state }
    }

    /// Takes a shard, and recovers what this engine has kept of it.
    async fn take(&self, key: u32, engine: Arc<dyn Engine>) -> Shard {
        let log = Arc::new(DurableLog::new(self.state.clone(), Arc::default()));
        log.write_to(engine.clone()).unwrap();
        let shared: Arc<dyn CommitLog> = log.clone();
        let context = self.instances.add_shard(ShardKey(key), &shared).unwrap();
        let recovered =
            Recovery::run(&self.instances, &context, &*engine, None, crate::instances::Part::ALL).unwrap();
        let ids: Vec<_> = self.instances.registry().after(None).cloned().collect();
        for instance in ids.iter().filter(|instance| Arc::ptr_eq(&instance.shard, &context)) {
            let refused = self.instances.get(instance.config().id).unwrap_err();
            assert_eq!(refused.reason, RefusalReason::NotOwner, "it is not served yet");
        }
        self.instances.go_on(&context, &log, recovered).await;
        Shard { context, log, engine }
    }

    /// A shard in memory.
    fn take_in_memory(&self, key: u32) -> Arc<ShardContext> {
        let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::with_state(self.state.clone()));
        let shard = self.instances.add_shard(ShardKey(key), &log).unwrap();
        shard.set_served();
        shard
    }

    async fn create(&self, spec: CreateSpec) -> Arc<Instance> {
        let created = self.instances.create(&Principal::new("creator"), spec).await;
        created.unwrap().committed().await.unwrap().0
    }
}

/// Two processes in one warp; each waits for the other without end.
fn spec(name: &str) -> CreateSpec {
    let spec = ParamsSpec { patience: Patience::Endless, ..ParamsSpec::new(2, 2, 1) };
    CreateSpec {
        name: InstanceName::optional(name).unwrap(),
        params: Params::try_new(spec).unwrap(),
        seed_given: false,
        roster: vec!["p1".to_owned(), "p2".to_owned()],
    }
}

fn access(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
    Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
}

fn append(text: &str) -> Op {
    Op::Append(Value::new(text.as_bytes()).unwrap())
}

/// The client's end of an Attach stream.
struct Stream {
    outbox: Arc<Outbox>,
    receiver: Receiver,
    frames: Vec<Frame>,
}

impl Stream {
    fn new() -> Self {
        Self { outbox: Arc::new(Outbox::new(1_000)), receiver: Receiver::default(), frames: Vec::new() }
    }

    fn sink(&self, channel: u32) -> SessionSink {
        SessionSink { outbox: self.outbox.clone(), channel }
    }

    /// What has come, and nothing is awaited.
    fn poll(&mut self, cx: &mut TaskContext<'_>) -> bool {
        let Polled::Frames(EncodedResponse(bytes)) =
            self.outbox.poll(&mut self.receiver, 100, usize::MAX, cx)
        else {
            return false;
        };
        let frames = AttachResponse::decode(&*bytes).unwrap().frames;
        self.frames.extend(frames.into_iter().filter_map(|frame| frame.frame));
        true
    }

    /// The next frame.
    async fn next(&mut self) -> Frame {
        let some = std::future::poll_fn(|cx| {
            if self.frames.is_empty() && !self.poll(cx) {
                return Poll::Pending;
            }
            Poll::Ready(self.frames.remove(0))
        });
        with_timeout(some).await
    }

    /// Whether nothing more has come.
    fn is_silent(&mut self) -> bool {
        self.frames.is_empty() && !self.poll(&mut TaskContext::from_waker(Waker::noop()))
    }

    async fn hello(&mut self, instance: &Instance, process: ProcessId, channel: u32) -> v1::Welcome {
        instance.hello(process, 0, &self.sink(channel), Instant::now()).unwrap();
        match self.next().await {
            Frame::Welcome(welcome) => *welcome,
            other => panic!("{other:?}"),
        }
    }

    async fn refusal(&mut self) -> (u32, u64, RefusalReason) {
        match self.next().await {
            Frame::Refusal(refusal) => (refusal.channel, refusal.access_number, refusal.reason()),
            other => panic!("{other:?}"),
        }
    }
}

async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("it comes")
}

/// The answer to a unary access, once it comes.
async fn answer(called: UnaryAccess) -> Result<CompletedAccess, RpcRefusal> {
    match called.answer {
        UnaryAnswer::Known(known) => with_timeout(known.committed()).await?,
        UnaryAnswer::Waiting(waiter) => with_timeout(waiter).await.unwrap().map_err(|refused| *refused),
    }
}

fn reason<T: fmt::Debug>(outcome: Result<T, RpcRefusal>) -> RefusalReason {
    outcome.unwrap_err().reason
}

#[tokio::test]
async fn a_lost_shard_ends_for_its_clients_and_goes_on_when_taken() {
    let server = Server::new(None);
    let engine = || Arc::new(DiskEngine::in_memory().unwrap());
    let (lost, kept) = (server.take(0, engine()).await, server.take(1, engine()).await);
    let (a, b) = (server.create(spec("a")).await, server.create(spec("b")).await);
    let usage = server.instances.usage();
    assert_eq!([&a, &b].map(|it| shard_of(it.config().id).0), [0, 1], "they take turns");
    assert_eq!([&a, &b].map(|it| it.config().number), [1, 1], "each shard has its own numbers");

    // A phase is executed in both; then the first process waits for the second in every way.
    let mut stream = Stream::new();
    let mut first_answers = Vec::new();
    for (channel, instance) in [&a, &b].into_iter().enumerate() {
        let called =
            [FIRST, FIRST.next()].map(|process| instance.call(access(process, None, 1, append("x"))));
        for called in called {
            first_answers.push(answer(called).await.unwrap().answer);
        }
        let welcome = stream.hello(instance, FIRST, u32::try_from(channel).unwrap()).await;
        let session = SessionId::new(welcome.session);
        let read = access(FIRST, session, 2, READ);
        instance.access(read, &stream.sink(u32::try_from(channel).unwrap()), Instant::now()).unwrap();
    }
    let waiting = [&a, &b].map(|instance| instance.call(access(FIRST, None, 2, READ)));
    let woken = Arc::new(CountingWaker::default());
    let (watcher, waker) = (a.next_watcher(), Waker::from(woken.clone()));
    lost.log.committed().await;
    with_timeout(async {
        while server.instances.steps().waiting() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Behind everything that wakes it.
    let index = loop {
        let (_, next, _) = a.kept_events();
        if matches!(a.poll_events(next, 9, watcher, &waker), WatchPoll::Pending) {
            break next;
        }
    };
    let woken_before = woken.wake_count();

    server.cluster.owners.lock().unwrap().insert(ShardKey(0), other());
    server.instances.drop_shard(&lost.context, owner_lost(ShardKey(0))).await;
    assert_eq!(stream.refusal().await, (0, 2, RefusalReason::OwnerLost));
    assert_eq!(stream.refusal().await, (0, 0, RefusalReason::OwnerLost), "the session has ended");
    assert!(stream.is_silent(), "nobody else is concerned");
    let [of_lost, of_kept] = waiting;
    assert_eq!(reason(answer(of_lost).await), RefusalReason::OwnerLost);
    assert!(woken.wake_count() > woken_before, "the watcher is told");
    let watched = a.poll_events(index, 9, watcher, &waker);
    assert!(
        matches!(&watched, WatchPoll::Gone(why) if why.reason == RefusalReason::OwnerLost),
        "{watched:?}"
    );
    assert!(matches!(a.poll_events(0, 9, watcher, &waker), WatchPoll::Gone(_)), "nothing is told any more");
    assert_eq!(reason(a.status(None).committed().await.unwrap()), RefusalReason::OwnerLost);
    assert_eq!(reason(answer(a.call(access(FIRST, None, 1, append("x")))).await), RefusalReason::OwnerLost);
    let absent = server.instances.get(a.config().id).unwrap_err();
    assert_eq!((absent.reason, absent.owner.as_deref()), (RefusalReason::NotOwner, Some(&other())));
    assert_eq!(server.instances.owner_lost(a.shard()).unwrap().owner.as_deref(), Some(&other()));
    let left = server.instances.usage();
    assert_eq!((left.held, left.removed, left.processes), (1, 1, 2));
    assert_eq!(
        left.reserved_bytes,
        usage.reserved_bytes / 2,
        "also of an instance that somebody still holds"
    );
    assert_eq!((server.instances.load().live(), server.instances.steps().waiting()), (1, 1));
    assert!(server.instances.log_failure().is_none());

    // The other shard has noticed nothing.
    let second = b.call(access(FIRST.next(), None, 2, READ));
    let answers = [answer(of_kept).await, answer(second).await].map(|it| it.unwrap().answer);
    assert!(
        matches!(stream.next().await, Frame::Answer(answer) if (answer.channel, answer.number) == (1, 2))
    );

    lost.log.close();
    let again = server.take(0, lost.engine.clone()).await;
    let found = server.instances.get(a.config().id).unwrap();
    assert!(!Arc::ptr_eq(&found, &a) && Arc::ptr_eq(found.shard(), &again.context));
    assert_eq!(server.instances.usage().reserved_bytes, usage.reserved_bytes);
    assert_eq!(server.instances.steps().waiting(), 1, "that of the other shard was answered");
    let named = InstanceRef::Name("a".parse().unwrap());
    assert!(Arc::ptr_eq(&server.instances.find(&named).await.unwrap(), &found));
    let repeated = found.call(access(FIRST, None, 1, append("x")));
    assert!(repeated.repeated);
    assert_eq!(answer(repeated).await.unwrap().answer, first_answers[0], "the kept answer");
    let welcome = stream.hello(&found, FIRST, 2).await;
    assert_eq!(welcome.own.unwrap().waiting.len(), 1, "the access was accepted, and waits on");
    let read = found.call(access(FIRST, None, 2, READ));
    assert!(read.repeated);
    let second = found.call(access(FIRST.next(), None, 2, READ));
    assert_eq!([answer(read).await, answer(second).await].map(|it| it.unwrap().answer), answers);
    assert!(
        matches!(stream.next().await, Frame::Answer(answer) if (answer.channel, answer.number) == (2, 2))
    );
    assert_eq!(server.create(spec("c")).await.config().number, 2, "no number is given twice");
    drop(kept);
}

#[tokio::test]
async fn the_log_of_another_shard_is_damaged_and_leaves_nothing() {
    let server = Server::new(None);
    let lost = server.take(0, Arc::new(DiskEngine::in_memory().unwrap())).await;
    let instance = server.create(spec("")).await;
    let _waiting = instance.call(access(FIRST, None, 1, READ));
    lost.log.committed().await;
    server.instances.drop_shard(&lost.context, owner_lost(ShardKey(0))).await;
    lost.log.close();
    let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::with_state(server.state.clone()));
    for key in [1, 2].map(ShardKey) {
        let wrong = server.instances.add_shard(key, &log).unwrap();
        let damaged =
            Recovery::run(&server.instances, &wrong, &*lost.engine, None, crate::instances::Part::ALL)
                .unwrap_err()
                .to_string();
        assert!(damaged.contains("belongs to shard 0"), "{damaged}");
        server.instances.drop_shard(&wrong, owner_lost(key)).await;
    }
    let again = server.take(0, lost.engine.clone()).await;
    assert_eq!((server.instances.held(), server.instances.steps().waiting()), (1, 1));
    server.instances.drop_shard(&again.context, owner_lost(ShardKey(0))).await;
    let usage = server.instances.usage();
    assert_eq!((usage.held, usage.processes, usage.reserved_bytes), (0, 0, 0));
    assert_eq!((server.instances.load().live(), server.instances.steps().waiting()), (0, 0));
}

#[tokio::test]
async fn a_refused_batch_ends_its_shard_and_no_other() {
    let server = Server::new(None);
    let engines = [0, 1].map(|_| Arc::new(ManualEngine::new(1)));
    engines.iter().for_each(|engine| engine.set_commits(true));
    let lost = server.take(0, engines[0].clone()).await;
    let _kept = server.take(1, engines[1].clone()).await;
    let (a, b) = (server.create(spec("a")).await, server.create(spec("b")).await);
    let idle = loop {
        let created = server.create(spec("")).await;
        if shard_of(created.config().id) == ShardKey(0) {
            break created;
        }
    };
    let mut stream = Stream::new();
    stream.hello(&idle, FIRST, 3).await;
    engines[0].set_commits(false);
    let mut created = pin!(a.close().committed());
    assert!(created.as_mut().poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
    let engine = engines[0].clone();
    let (_, done) = tokio::task::spawn_blocking(move || engine.next()).await.unwrap();
    done(Outcome::Refused(Box::new(owner_lost(ShardKey(0)))));
    assert_eq!(reason(with_timeout(created).await), RefusalReason::OwnerLost);
    assert_eq!(
        stream.refusal().await,
        (3, 0, RefusalReason::OwnerLost),
        "an instance without steps goes too"
    );
    assert!(server.instances.log_failure().is_none(), "the server goes on");
    with_timeout(async {
        while server.instances.shards().contains_key(&ShardKey(0)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(lost.context.failure().is_some());
    with_timeout(b.close().committed()).await.unwrap().unwrap();
    let absent = server.instances.get(a.config().id).unwrap_err();
    assert_eq!((absent.reason, absent.owner), (RefusalReason::NotOwner, None));
    assert!(absent.retry_after.is_some(), "no owner is known");
}

#[tokio::test]
async fn instances_are_created_in_the_shards_that_are_served() {
    let server = Server::new(None);
    let create = || async {
        server.instances.create(&Principal::new("creator"), spec("")).await.map(Uncommitted::into_inner)
    };
    assert_eq!(reason(create().await), RefusalReason::NotOwner, "there is none");
    let shards = [1, 3].map(|key| server.take_in_memory(key));
    let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::with_state(server.state.clone()));
    let recovering = server.instances.add_shard(ShardKey(2), &log).unwrap();
    let held = server.instances.add_shard(ShardKey(2), &log).unwrap_err();
    assert_eq!(held.0, ShardKey(2));
    let listed_shards = || server.instances.page_after(None, 9).1;
    assert_eq!(listed_shards(), [1, 3], "a list is not of the one that is recovered");
    let mut keys = Vec::new();
    for _ in 0..6 {
        keys.push(shard_of(create().await.unwrap().0.config().id).0);
    }
    assert_eq!(keys, [3, 1, 3, 1, 3, 1]);
    assert_eq!(server.cluster.asked.load(Ordering::Relaxed), 0, "no id is drawn in vain");
    let unserved = InstanceId::new(SHARDS + 2);
    assert_eq!(reason(server.instances.get(unserved)), RefusalReason::NotOwner);
    recovering.set_served();
    assert_eq!(reason(server.instances.get(unserved)), RefusalReason::InstanceUnknown, "it would be here");
    assert_eq!(listed_shards(), [1, 2, 3]);
    recovering.set_leaving(true);
    assert_eq!(listed_shards(), [1, 3]);
    server.instances.drop_shard(&shards[1], owner_lost(ShardKey(3))).await;
    let listed = server.instances.after(None, usize::MAX);
    assert_eq!(listed.iter().filter(|it| shard_of(it.config().id) == ShardKey(1)).count(), 3);
    assert_eq!((listed.len(), server.instances.usage().removed), (3, 3));
}

#[tokio::test]
async fn a_server_that_cannot_serve_its_own_shard_yet_names_nobody() {
    let server = Server::new(None);
    let unserved = InstanceId::new(2);
    let refused = || {
        let refused = server.instances.get(unserved).unwrap_err();
        assert_eq!(refused.owner, None, "who is told one asks there at once");
        assert!(refused.retry_after.is_some());
        refused.reason
    };
    assert_eq!(refused(), RefusalReason::NotOwner, "nobody owns it");
    server.cluster.own.lock().unwrap().push(ShardKey(2));
    assert_eq!(refused(), RefusalReason::Recovering, "its log is being read");
    let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::with_state(server.state.clone()));
    let shard = server.instances.add_shard(ShardKey(2), &log).unwrap();
    assert_eq!(refused(), RefusalReason::Recovering);
    shard.set_served();
    assert_eq!(reason(server.instances.get(unserved)), RefusalReason::InstanceUnknown);
    shard.set_leaving(true);
    assert_eq!(refused(), RefusalReason::NotOwner, "it is handed over");
}
