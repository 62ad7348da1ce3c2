//! A server that drains hands its shards over.

use std::time::Duration;

use stickycas_cluster::keys::Name;
use stickycas_cluster::store::{Change, KeyRange};

use super::super::directory::TURN;
use super::calls::{FIRST, access, append, create, get, spec};
use super::world::{LEASE, World};

#[test]
fn a_server_that_drains_loses_nothing_and_its_shards_are_free_at_once() {
    let mut world = World::of(2, 17, Duration::from_millis(10), 8);
    let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
    let before = world.served(0);
    let mut ids = Vec::new();
    for _ in 0..8 {
        world.pass(TURN);
        ids.push(world.run(0, create(a.clone(), spec(""))).unwrap().0);
    }
    for id in &ids {
        world.both_answered(0, *id, 1, || append("before"));
    }
    // Accesses are under way when it drains.
    let mut calls = Vec::new();
    for id in &ids {
        for process in [FIRST, FIRST.next()] {
            calls.push((*id, process, world.begin(0, access(a.clone(), *id, process, 2, append("late")))));
        }
    }
    world.step();
    let cluster = world.servers[0].cluster.clone();
    let leaves = world.begin(0, async move { cluster.leave(LEASE * 10).await });
    // Far less than a lease.
    world.pass(LEASE / 4);
    assert!(leaves.is_finished());
    assert_eq!(world.served(1), (0..8).collect::<Vec<_>>());
    let [gained, handed_over, lost, given_up] = world.moves(0);
    assert!(handed_over >= before.len() as u64);
    assert_eq!((gained - handed_over, lost, given_up), (0, 0, 0));
    let [gained, handed_over, lost, given_up] = world.moves(1);
    assert_eq!((gained - handed_over, lost, given_up), (8, 0, 0));
    let answered: Vec<_> =
        calls.into_iter().map(|(id, process, call)| (id, process, world.finish(call))).collect();
    for (id, process, told) in answered {
        // What it had taken it has committed and answered, before it gave the shard up.
        let (told, _) = told.unwrap();
        let again = world.run(1, access(b.clone(), id, process, 2, append("late"))).unwrap();
        assert_eq!(again, (told, true));
    }
    for id in &ids {
        assert_eq!(world.run(1, get(b.clone(), *id)).unwrap().list.len(), 2);
    }
    world.check_writers();
    // Released one by one, while the session went on.
    let keys = World::keys();
    let end = |key| match world.written(&KeyRange::one(key)).pop() {
        Some((at, Change::Deleted(..))) => at,
        other => panic!("{other:?}"),
    };
    let session_ended = end(keys.server(&Name::new("server-0").unwrap()));
    for shard in before {
        let owners = world.written(&KeyRange::one(keys.owner(world.shard(shard))));
        let released = owners.iter().rfind(|(_, change)| matches!(change, Change::Deleted(..)));
        assert!(released.is_some_and(|(at, _)| *at < session_ended), "shard {shard}: {owners:?}");
    }
}
