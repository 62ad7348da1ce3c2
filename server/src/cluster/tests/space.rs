//! A store that becomes full: new instances are refused, and what goes on goes on.

use std::sync::Arc;
use std::time::Duration;

use stickycas_cluster::keys::Epoch;
use stickycas_cluster::membership::Event;
use stickycas_cluster::store::{Op, Revision, Store as _, Txn};
use stickycas_proto::v1::RefusalReason;
use tokio::sync::mpsc;

use super::super::ownership::follow;
use super::calls::{append, create, get, spec};
use super::world::{LEASE, World};

/// A world of one server that looks after the space of the store.
fn world(quota: u64) -> World {
    let mut world = World::new(31, Duration::from_millis(5), 4);
    world.etcd_quota = quota;
    world.start();
    world.resolve();
    world
}

#[test]
fn near_the_quota_no_instance_is_created_and_those_that_are_there_go_on() {
    const QUOTA: u64 = 32 << 10;
    let mut world = world(QUOTA);
    let a = world.servers[0].instances.clone();
    let (id, _) = world.run(0, create(a.clone(), spec("first"))).unwrap();
    let mut created = 1;
    let refused = loop {
        match world.run(0, create(a.clone(), spec(""))) {
            Ok(_) => created += 1,
            Err(refused) => break refused,
        }
        // The members are looked at from time to time.
        world.pass(Duration::from_secs(1));
        assert!(world.model.used() < QUOTA, "the refusal comes before the quota is used up");
    };
    println!("{created} instances, {} bytes: {}", world.model.used(), refused.message);
    assert_eq!(refused.reason, RefusalReason::TooManyInstances);
    assert!(refused.message.contains(&format!("of {QUOTA} bytes")), "{}", refused.message);
    assert!(world.model.used() >= QUOTA / 100 * 90);
    assert!(world.inside(0, || world.servers[0].cluster.sample().is_full));
    // What was created before is found, and goes on.
    assert_eq!(world.run(0, create(a, spec("first"))), Ok((id, false)));
    world.both_answered(0, id, 1, || append("x"));
}

#[test]
fn a_full_store_refuses_new_instances_at_once_and_other_calls_wait_for_space() {
    let mut world = world(1 << 30);
    let a = world.servers[0].instances.clone();
    let [first, second, idle] =
        ["first", "second", "idle"].map(|name| world.run(0, create(a.clone(), spec(name))).unwrap().0);
    world.model.set_quota(Some(1));
    // The first transaction crosses the quota, and is applied; what is in those behind it waits.
    let mut waiting = Vec::new();
    for instance in [first, second] {
        waiting.extend(world.begin_both(0, instance, 1, || append("x")));
        world.pass(Duration::from_secs(1));
    }
    let refused = world.run(0, create(a.clone(), spec("new"))).unwrap_err();
    assert_eq!(refused.reason, RefusalReason::TooManyInstances);
    assert!(refused.message.contains("full"), "{}", refused.message);
    world.pass(LEASE * 4);
    assert!(waiting.iter().any(|call| !call.is_finished()));
    assert!(world.run(0, get(a.clone(), idle)).is_ok(), "what needs no space is told");
    assert_eq!(world.served(0).len(), 4, "it keeps its shards");

    world.model.set_quota(None);
    for call in waiting {
        world.finish(call).unwrap();
    }
    // Once the server has looked at the members again.
    world.pass(Duration::from_secs(1));
    world.run(0, create(a, spec("new"))).unwrap();
}

#[test]
fn no_shard_is_handed_over_while_the_store_is_full() {
    let mut world = world(1 << 30);
    let a = world.servers[0].instances.clone();
    // Each in a shard of its own.
    let [first, second, idle] =
        ["first", "second", "idle"].map(|name| world.run(0, create(a.clone(), spec(name))).unwrap().0);
    world.model.set_quota(Some(1));
    let mut waiting = Vec::new();
    for instance in [first, second] {
        waiting.extend(world.begin_both(0, instance, 1, || append("x")));
        world.pass(Duration::from_secs(1));
    }
    let (requests, events) = mpsc::unbounded_channel();
    let cluster = Arc::downgrade(&world.servers[0].cluster);
    let _follows = world.begin(0, follow(cluster, a.clone(), events));
    for instance in [second, idle] {
        let shard = world.shard_of(instance);
        let epoch = Epoch(Revision(world.epoch_of(shard)));
        requests.send(Event::ReleaseRequested { shard: world.shard(shard), epoch }).unwrap();
    }
    let mut asked = 0;
    world.until("both have stayed for longer than a lease", |world| {
        asked += 1;
        assert_eq!(world.served(0).len(), 4, "it is served all the time");
        asked > 2_000
    });
    assert!(waiting.iter().any(|call| !call.is_finished()));
    assert!(world.run(0, get(a.clone(), idle)).is_ok());

    world.model.set_quota(None);
    for call in waiting {
        world.finish(call).unwrap();
    }
    let [_, handed_over, lost, given_up] = world.moves(0);
    assert_eq!((handed_over, lost, given_up), (0, 0, 0));
    let shard = world.shard_of(second);
    let epoch = Epoch(Revision(world.epoch_of(shard)));
    requests.send(Event::ReleaseRequested { shard: world.shard(shard), epoch }).unwrap();
    world.until("once there is space it is handed over", |world| world.moves(0)[1] == 1);
}

#[test]
fn a_shard_that_is_leaving_when_the_store_is_found_full_is_served_again_at_once() {
    let mut world = world(1 << 30);
    let a = world.servers[0].instances.clone();
    let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    world.model.set_quota(Some(1));
    // If this crosses the quota it is applied; the next one finds the store full.
    let store = world.servers[0].store.clone();
    let put = Op::Put { key: "other".into(), value: "x".into(), lease: None };
    let _ = world.run(0, async move { store.txn(Txn { then: vec![put], ..Txn::default() }).await });
    assert!(world.inside(0, || !*world.servers[0].cluster.committer.full().borrow()));
    let calls = world.begin_both(0, id, 1, || append("x"));
    let shard = world.shard_of(id);
    let epoch = Epoch(Revision(world.epoch_of(shard)));
    let (cluster, instances) = (world.servers[0].cluster.clone(), a.clone());
    let shard_id = world.shard(shard);
    let (requests, events) = mpsc::unbounded_channel();
    let _follows = world.begin(0, follow(Arc::downgrade(&cluster), instances, events));
    requests.send(Event::ReleaseRequested { shard: shard_id, epoch }).unwrap();
    world.until("it leaves", |world| !world.served(0).contains(&shard));
    world.pass(LEASE / 4);
    assert!(world.inside(0, || *cluster.committer.full().borrow()));
    assert!(world.served(0).contains(&shard), "it stays, and is served");
    world.model.set_quota(None);
    for call in calls {
        world.finish(call).unwrap();
    }
}
