//! Servers of one cluster in one process, over the model of etcd.
//!
//! Each server has a runtime of its own, whose time is paused, and the test drives them in turn, a short
//! while each. So a server is stopped as SIGSTOP stops a process: it is driven no more, while time goes on
//! for the others; when it goes on, its clock has jumped, its timers are late, and calls have come meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use stickycas_cluster::confirm::Confirmations;
use stickycas_cluster::keys::{Epoch, Keys, Name, decode_batch};
use stickycas_cluster::model::{Faults, Model, ModelStore};
use stickycas_cluster::shard::{ShardCount, ShardId, shard_of};
use stickycas_cluster::store::{Change, KeyRange, Revision};
use stickycas_model::access::Op;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};

use super::super::Cluster;
use super::calls::{Answered, FIRST, access};
use crate::commit_log::DurableLog;
use crate::config::ClusterConfig;
use crate::instances::{Instances, ShardContext};
use crate::limits::Limits;
use crate::metrics::ShardMove;
use crate::quota::KnownPrincipals;

/// The time of a lease.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// How long each server is driven before the next one.
const STEP: Duration = Duration::from_millis(2);
/// What is awaited comes within this, by the clock of the world.
const LIMIT: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct World {
    pub(super) model: Model,
    pub(super) servers: Vec<Server>,
    pub(super) limits: Limits,
    /// In bytes; servers look after the space of the store if there is one.
    pub(super) etcd_quota: u64,
    shards: u32,
    now: Option<Instant>,
}

pub(super) struct Server {
    pub(super) store: ModelStore,
    pub(super) cluster: Arc<Cluster>,
    pub(super) instances: Arc<Instances>,
    stopped: bool,
    // Dropped last: what the tasks hold is used by nobody then.
    runtime: Runtime,
}

impl World {
    /// No servers yet. `delay`: the longest of a request, and of its answer.
    pub(super) fn new(seed: u64, delay: Duration, shards: u32) -> Self {
        let faults = Faults { delay, time_limit: Duration::from_secs(1), ..Faults::default() };
        let model = Model::new(seed, faults);
        Self { model, servers: Vec::new(), limits: Limits::default(), etcd_quota: 0, shards, now: None }
    }

    /// Starts a server, which joins the cluster; returns its number.
    pub(super) fn start(&mut self) -> usize {
        let number = self.servers.len();
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let began = runtime.block_on(async { Instant::now() });
        let now = *self.now.get_or_insert(began);
        // All clocks show the same.
        runtime.block_on(advance(now.saturating_duration_since(began)));
        let store = self.model.connect();
        let config = ClusterConfig {
            etcd: Vec::new(),
            etcd_credentials: None,
            etcd_quota: self.etcd_quota,
            name: "demo".to_owned(),
            server: format!("server-{number}"),
            advertise: address(number),
            lease: LEASE,
            shards: self.shards,
        };
        let (cluster, instances) = runtime.block_on(async {
            let cluster = Cluster::with(store.clone(), &config, &self.limits, false).unwrap();
            if self.etcd_quota > 0 {
                cluster.look_after(store.clone(), &config).unwrap();
            }
            let instances = cluster.instances(self.limits.clone(), KnownPrincipals::default());
            (cluster, instances)
        });
        let (joins, keeps) = ((cluster.clone(), instances.clone()), (cluster.clone(), instances.clone()));
        runtime.spawn(async move { joins.0.join(&joins.1).await.unwrap() });
        runtime.spawn(async move { keeps.0.keep_short(&keeps.1).await });
        let times = instances.clone();
        runtime.spawn(async move { times.run_timers().await });
        self.servers.push(Server { store, cluster, instances, stopped: false, runtime });
        number
    }

    /// A world of so many servers that share the shards evenly.
    pub(super) fn of(servers: usize, seed: u64, delay: Duration, shards: u32) -> Self {
        let mut world = Self::new(seed, delay, shards);
        for _ in 0..servers {
            world.start();
        }
        world.resolve();
        world
    }

    /// Waits until all servers agree that those which run have all shards, evenly, and each serves its own.
    pub(super) fn resolve(&mut self) {
        self.until("shards are shared evenly", |world| {
            let running: Vec<usize> =
                (0..world.servers.len()).filter(|it| !world.servers[*it].stopped).collect();
            let all: Vec<u32> = (0..world.shards).collect();
            let served: Vec<Vec<u32>> = running.iter().map(|it| world.served(*it)).collect();
            let mut together = served.concat();
            together.sort_unstable();
            let lengths = served.iter().map(Vec::len);
            let is_even = lengths.clone().max().unwrap_or(0) - lengths.min().unwrap_or(0) <= 1;
            let agree = running.iter().zip(&served).all(|(owner, shards)| {
                running.iter().all(|seen_by| world.owned(*seen_by, *owner) == *shards)
            });
            together == all && is_even && agree
        });
    }

    /// Time goes on by a step, for all that run.
    pub(super) fn step(&mut self) {
        let Some(now) = &mut self.now else { return };
        *now += STEP;
        for server in self.servers.iter().filter(|server| !server.stopped) {
            server.runtime.block_on(async { sleep_until(*now).await });
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now.unwrap() + time;
        while self.now.unwrap() < until {
            self.step();
        }
    }

    /// Goes on until this holds.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let limit = self.now.unwrap() + LIMIT;
        while !holds(self) {
            assert!(self.now.unwrap() < limit, "not within {LIMIT:?}: {what}");
            self.step();
        }
    }

    /// Begins a call at a server. It is taken when the server is driven next.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        server: usize,
        call: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.servers[server].runtime.spawn(call)
    }

    /// What a call comes to.
    #[track_caller]
    pub(super) fn finish<T>(&mut self, call: JoinHandle<T>) -> T {
        self.until("a call is answered", |_| call.is_finished());
        match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome.expect("no call panics"),
            Poll::Pending => unreachable!("it is finished"),
        }
    }

    #[track_caller]
    pub(super) fn run<T: Send + 'static>(
        &mut self,
        server: usize,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let call = self.begin(server, call);
        self.finish(call)
    }

    /// Begins an access of both processes of an instance.
    pub(super) fn begin_both(
        &self,
        server: usize,
        id: InstanceId,
        number: u64,
        op: impl Fn() -> Op,
    ) -> [JoinHandle<Result<(Answered, bool), RpcRefusal>>; 2] {
        let instances = &self.servers[server].instances;
        [FIRST, FIRST.next()]
            .map(|process| self.begin(server, access(instances.clone(), id, process, number, op())))
    }

    /// What a new access of both is answered.
    #[track_caller]
    pub(super) fn both_answered(
        &mut self,
        server: usize,
        id: InstanceId,
        number: u64,
        op: impl Fn() -> Op,
    ) -> [Answered; 2] {
        let calls = self.begin_both(server, id, number, op);
        calls.map(|call| {
            let (answered, repeated) = self.finish(call).unwrap();
            assert!(!repeated);
            answered
        })
    }

    /// Does this in a server, at once.
    pub(super) fn inside<T>(&self, server: usize, act: impl FnOnce() -> T) -> T {
        let _inside = self.servers[server].runtime.enter();
        act()
    }

    /// Nothing of this server is polled any more.
    pub(super) fn stop(&mut self, server: usize) {
        self.servers[server].stopped = true;
    }

    /// It goes on: all the time has passed for it at once.
    pub(super) fn go_on(&mut self, server: usize) {
        let (now, server) = (self.now.unwrap(), &mut self.servers[server]);
        server.stopped = false;
        server.runtime.block_on(async { advance(now.saturating_duration_since(Instant::now())).await });
    }

    /// The shards of a server in the view of another one.
    pub(super) fn owned(&self, seen_by: usize, owner: usize) -> Vec<u32> {
        let server = &self.servers[seen_by];
        let _inside = server.runtime.enter();
        let cluster = server.instances.placement().cluster();
        let found = cluster.servers.into_iter().find(|it| it.address == address(owner));
        found.map(|it| it.shards.iter().map(|shard| shard.shard).collect()).unwrap_or_default()
    }

    /// The shards that a server serves.
    pub(super) fn served(&self, server: usize) -> Vec<u32> {
        let server = &self.servers[server];
        let _inside = server.runtime.enter();
        // Of an instance that there is not: in a shard that is served there is none, any other is somebody
        // else's.
        let is_served = |probe: &InstanceId| {
            server.instances.get(*probe).is_err_and(|why| why.reason == RefusalReason::InstanceUnknown)
        };
        (0..self.shards).filter(|shard| is_served(&self.probe(*shard))).collect()
    }

    /// A shard that a server serves, and its log.
    #[track_caller]
    pub(super) fn shard_and_log(&self, server: usize, shard: u32) -> (Arc<ShardContext>, Arc<DurableLog>) {
        let held = self.servers[server].cluster.held();
        let served = held[&self.shard(shard)].served.clone().expect("it is served");
        (served.context, served.log)
    }

    /// How many shards a server has gained, handed over, lost and given up.
    pub(super) fn moves(&self, server: usize) -> [u64; 4] {
        let moves = self.servers[server].cluster.moves();
        [ShardMove::Gained, ShardMove::HandedOver, ShardMove::Lost, ShardMove::GivenUp]
            .map(|moved| moves.get(moved))
    }

    /// How many tasks a server has.
    pub(super) fn tasks(&self, server: usize) -> usize {
        self.servers[server].runtime.metrics().num_alive_tasks()
    }

    /// What was confirmed at a server.
    pub(super) fn confirmations(&self, server: usize) -> Confirmations {
        self.servers[server].cluster.confirmer.confirmations()
    }

    /// An id of no instance, in this shard.
    pub(super) fn probe(&self, shard: u32) -> InstanceId {
        let count = ShardCount::new(self.shards).unwrap();
        (1..).find(|id| shard_of(*id, count).get() == shard).map(InstanceId::new).unwrap()
    }

    /// The server that serves the shard of this instance.
    #[track_caller]
    pub(super) fn owner_of(&self, id: InstanceId) -> usize {
        let shard = self.shard_of(id);
        let serving = |it: &usize| !self.servers[*it].stopped && self.served(*it).contains(&shard);
        (0..self.servers.len()).find(serving).expect("a server has it")
    }

    pub(super) fn shard_of(&self, id: InstanceId) -> u32 {
        shard_of(id.get(), ShardCount::new(self.shards).unwrap()).get()
    }

    pub(super) fn shard(&self, shard: u32) -> ShardId {
        ShardCount::new(self.shards).unwrap().shard(shard).unwrap()
    }

    /// The keys of the cluster.
    pub(super) fn keys() -> Keys {
        Keys::new(&Name::new("demo").unwrap())
    }

    /// Where clients reach the server that serves this instance.
    #[track_caller]
    pub(super) fn owner_address(&self, id: InstanceId) -> String {
        address(self.owner_of(id))
    }

    /// The epoch of a shard now.
    #[track_caller]
    pub(super) fn epoch_of(&self, shard: u32) -> u64 {
        let changes = self.written(&KeyRange::one(Self::keys().owner(self.shard(shard))));
        match changes.last() {
            Some((_, Change::Put(owner))) => owner.created.0,
            other => panic!("nobody owns it: {other:?}"),
        }
    }

    /// The instance that has a name in the cluster.
    pub(super) fn name_holder(&self, name: &str) -> Option<String> {
        match self.written(&KeyRange::one(Self::keys().name(name))).pop()?.1 {
            Change::Put(kv) => Some(String::from_utf8_lossy(&kv.value).into_owned()),
            Change::Deleted(..) => None,
        }
    }

    /// Checks that each batch and each end of a log was written by the owner of that moment; returns how many
    /// were.
    #[track_caller]
    pub(super) fn check_writers(&self) -> usize {
        let (keys, mut batches) = (Self::keys(), 0);
        for shard in ShardCount::new(self.shards).unwrap().shards() {
            let mut writes = self.written(&keys.whole_log(shard));
            writes.retain(|(_, change)| matches!(change, Change::Put(_)));
            writes.extend(self.written(&KeyRange::one(keys.owner(shard))));
            writes.sort_by_key(|(at, _)| *at);
            let mut owner = None;
            for (at, change) in writes {
                match change {
                    Change::Put(kv) if kv.key == keys.owner(shard) => owner = Some(Epoch(kv.created)),
                    Change::Put(kv) => {
                        let (epoch, _) = decode_batch(&kv.value).unwrap();
                        assert_eq!(Some(epoch), owner, "who writes to {shard} at {at:?} is its owner");
                        batches += 1;
                    }
                    Change::Deleted(..) => owner = None,
                }
            }
        }
        batches
    }

    /// What was written to these keys, and when.
    pub(super) fn written(&self, range: &KeyRange) -> Vec<(Revision, Change)> {
        let is_in = |key: &[u8]| match &range.to {
            Some(to) => *key >= *range.from && *key < **to,
            None => *key == *range.from,
        };
        let _inside = self.servers.iter().find(|it| !it.stopped).map(|it| it.runtime.enter());
        let history = self.model.history().into_iter();
        let changes = history.flat_map(|(at, changes)| changes.into_iter().map(move |change| (at, change)));
        changes
            .filter(|(_, change)| match change {
                Change::Put(kv) => is_in(&kv.key),
                Change::Deleted(key, _) => is_in(key),
            })
            .collect()
    }
}

/// Where clients reach a server.
pub(super) fn address(server: usize) -> String {
    format!("server-{server}.example:7400")
}
