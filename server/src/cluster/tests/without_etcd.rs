//! A store that is away, full, or put back: what servers tell of that, and what they do.

use std::time::Duration;

use stickycas_proto::v1::RefusalReason;

use super::calls::{append, create, get, spec};
use super::world::{LEASE, World};
use crate::readiness::{Readiness, State};

/// What a server tells of its readiness from now on.
fn readiness(world: &World, server: usize) -> Readiness {
    let readiness = Readiness::new(State::Serving);
    let (cluster, follows) = (world.servers[server].cluster.clone(), readiness.clone());
    drop(world.begin(server, async move { cluster.follow_readiness(&follows).await }));
    readiness
}

/// A world of two servers that look after the space of the store.
fn world(seed: u64) -> World {
    let mut world = World::new(seed, Duration::from_millis(5), 8);
    world.etcd_quota = 1 << 30;
    world.start();
    world.start();
    world.resolve();
    world
}

#[test]
fn a_server_without_a_lease_is_not_ready_and_knows_of_no_owner() {
    let mut world = world(61);
    let ready = readiness(&world, 0);
    world.pass(LEASE);
    assert_eq!(ready.state(), State::Serving);
    for server in 0..2 {
        let sample = world.inside(server, || world.servers[server].cluster.sample());
        assert_eq!((sample.owned, sample.without_owner, sample.space.silent), (4, 0, 0));
        world.servers[server].store.cut_off(true);
    }
    // One that is started meanwhile knows as little.
    let third = world.start();
    world.servers[third].store.cut_off(true);
    world.until("it is not ready", |_| ready.state() == State::Stalled);
    world.pass(LEASE * 4);
    for server in 0..3 {
        let sample = world.inside(server, || world.servers[server].cluster.sample());
        assert_eq!((sample.shards, sample.owned, sample.served, sample.without_owner), (8, 0, 0, 8));
        assert_eq!((sample.space.silent, sample.lease_left), (1, Duration::ZERO), "server {server}");
    }
    for server in 0..2 {
        let told = world.inside(server, || world.servers[server].instances.placement().cluster());
        assert_eq!(told.shards_without_owner.len(), 8);
        assert!(told.servers.iter().all(|it| it.shards.is_empty()));
        let own = told.servers.iter().find(|it| it.name == told.answered_by).unwrap();
        assert_eq!(own.lease_left.map(|left| (left.seconds, left.nanos)), Some((0, 0)));
    }
    for server in 0..3 {
        world.servers[server].store.cut_off(false);
    }
    world.resolve();
    world.until("it is ready again", |_| ready.state() == State::Serving);
}

#[test]
fn a_server_that_commits_nothing_of_what_waits_is_not_ready() {
    let mut world = world(62);
    let a = world.servers[0].instances.clone();
    let ids = ["first", "second"].map(|name| world.run(0, create(a.clone(), spec(name))).unwrap().0);
    let ready = readiness(&world, 0);
    world.model.set_quota(Some(1));
    // The first transaction crosses the quota, and is applied; what is in those behind it waits.
    let mut waiting = Vec::new();
    for id in ids {
        waiting.extend(world.begin_both(0, id, 1, || append("x")));
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(ready.state(), State::Serving, "not at once");
    world.until("it is not ready", |_| ready.state() == State::Stalled);
    assert_eq!(world.served(0).len(), 4, "it keeps its shards: nobody else has space either");
    world.model.set_quota(None);
    for call in waiting {
        world.finish(call).unwrap();
    }
    world.until("it is ready again", |_| ready.state() == State::Serving);
}

#[test]
fn servers_go_on_from_what_a_store_that_was_put_back_has() {
    let mut world = world(63);
    let servers = [0, 1].map(|it| world.servers[it].instances.clone());
    let ids = ["first", "second"].map(|name| world.run(0, create(servers[0].clone(), spec(name))).unwrap().0);
    for id in ids {
        world.both_answered(0, id, 1, || append("kept"));
    }
    let saved = world.inside(0, || world.model.saved());
    for id in ids {
        for number in 2..6 {
            world.both_answered(0, id, number, || append("lost"));
        }
    }
    world.run(0, create(servers[0].clone(), spec("later"))).unwrap();
    world.inside(0, || world.model.put_back(saved));
    // Nobody waits without end, and nobody is told what is not there.
    let calls = ids.map(|id| world.begin_both(0, id, 6, || append("more")));
    for call in calls.into_iter().flatten() {
        assert_eq!(world.finish(call).unwrap_err().reason, RefusalReason::OwnerLost);
    }
    world.pass(LEASE);
    world.resolve();
    for id in ids {
        let owner = world.owner_of(id);
        let shown = world.run(owner, get(servers[owner].clone(), id)).unwrap();
        assert!(shown.list.iter().all(|(value, ..)| value == b"kept"), "{:?}", shown.list);
        world.both_answered(owner, id, 2, || append("more"));
    }
    for server in 0..2 {
        let sent = world.inside(server, || world.servers[server].cluster.sample().transactions);
        assert!(sent.refused_place < 20, "nothing is sent again and again: {sent:?}");
    }
}
