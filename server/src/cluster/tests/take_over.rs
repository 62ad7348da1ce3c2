//! A server that is cut off, and the one that takes its shards.

use std::sync::Arc;
use std::time::Duration;

use stickycas_cluster::store::{Change, KeyRange, Op as StoreOp, Store as _, Txn};
use stickycas_model::access::Op;
use stickycas_model::params::{AppendWindow, ParamsSpec, Patience};
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use super::calls::{FIRST, READ, Stream, access, append, create, get, reason, spec, spec_of};
use super::world::{LEASE, World};
use crate::commit_log::{CommitLog as _, ServedClock};

/// Every third access reads.
fn op(number: u64) -> Op {
    if number.is_multiple_of(3) { READ } else { append(&format!("value {number}")) }
}

#[test]
fn who_takes_over_has_the_same_lists_and_gives_the_same_answers() {
    let mut world = World::of(2, 7, Duration::from_millis(5), 8);
    let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(world.run(0, create(a.clone(), spec(&format!("name-{number}")))).unwrap().0);
    }
    let mut answers = Vec::new();
    for (turn, id) in ids.iter().enumerate() {
        // Some of them are further than others.
        for number in 1..=turn as u64 + 1 {
            let of_both = world.both_answered(0, *id, number, || op(number));
            if number == turn as u64 + 1 {
                answers.push((*id, number, of_both));
            }
        }
    }
    let before: Vec<_> = ids.iter().map(|id| world.run(0, get(a.clone(), *id)).unwrap()).collect();
    // An access waits for the other process's.
    let waiting = world.begin(0, access(a.clone(), ids[0], FIRST, 2, append("late")));
    world.pass(Duration::from_millis(200));

    world.servers[0].store.cut_off(true);
    assert_eq!(reason(world.finish(waiting)), RefusalReason::OwnerLost);
    world.until("the other has all shards", |world| world.served(1).len() == 8);
    assert!(world.served(0).is_empty());
    let [gained, handed_over, lost, given_up] = world.moves(0);
    assert_eq!((gained, given_up), (handed_over + lost, 0));
    assert!(lost > 0);
    let sample = world.inside(1, || world.servers[1].cluster.sample());
    assert_eq!(
        (sample.shards, sample.owned, sample.served, sample.taking, sample.without_owner),
        (8, 8, 8, 0, 0)
    );
    assert!(sample.lease_left > Duration::ZERO && sample.lease_left <= sample.lease);
    assert!(
        sample.transactions.committed > 0 && sample.transactions.batches >= sample.transactions.committed
    );
    for (id, before) in ids.iter().zip(&before) {
        let after = world.run(1, get(b.clone(), *id)).unwrap();
        assert_eq!(after.list, before.list);
        let (kept, since) = after.events.split_at(before.events.len());
        assert_eq!(kept, before.events, "and then {since:?}");
    }
    for (id, number, before) in answers {
        for (process, before) in [FIRST, FIRST.next()].into_iter().zip(before) {
            let again = world.run(1, access(b.clone(), id, process, number, op(number))).unwrap();
            assert_eq!(again, (before, true));
        }
    }
    // The access that waited was committed: it waits on.
    let again = world.begin(1, access(b.clone(), ids[0], FIRST, 2, append("late")));
    let other = world.run(1, access(b.clone(), ids[0], FIRST.next(), 2, append("later")));
    assert!(world.finish(again).unwrap().1, "it came before");
    assert!(!other.unwrap().1);

    // The first comes back, and has a part of them again.
    world.servers[0].store.cut_off(false);
    world.resolve();
    for (id, before) in ids.iter().zip(&before) {
        let owner = world.owner_of(*id);
        let after = world.run(owner, get(world.servers[owner].instances.clone(), *id)).unwrap();
        assert!(after.list.starts_with(&before.list));
    }
    assert!(world.check_writers() > 0);
}

#[test]
fn what_waits_to_be_confirmed_is_told_when_etcd_answers_again_within_a_lease() {
    let mut world = World::of(2, 5, Duration::from_millis(5), 4);
    let a = world.servers[0].instances.clone();
    let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    let first = world.both_answered(0, id, 1, || append("x"));
    // Longer than a request may take.
    world.servers[0].store.cut_off(true);
    let gets = world.begin(0, get(a.clone(), id));
    world.pass(LEASE / 2);
    assert!(!gets.is_finished(), "nobody has confirmed it, and nobody has said that it is lost");
    world.servers[0].store.cut_off(false);
    assert!(world.finish(gets).is_ok());
    assert_eq!(world.both_answered(0, id, 2, || append("y")).len(), first.len());

    world.servers[0].store.cut_off(true);
    let gets = world.begin(0, get(a, id));
    let refused = world.finish(gets).unwrap_err();
    assert_eq!(refused.reason, RefusalReason::OwnerLost, "not within a lease");
}

/// The end of the epoch and the beginning of the next one are told at once, before anything is done about the
/// first.
#[test]
fn a_shard_that_is_lost_and_owned_again_at_once_is_read_again() {
    let mut world = World::of(2, 19, Duration::ZERO, 8);
    let a = world.servers[0].instances.clone();
    let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    world.both_answered(0, id, 1, || append("x"));
    let shard = world.shard_of(id);
    let (owner, before) = (World::keys().owner(world.shard(shard)), world.epoch_of(shard));
    let Some((_, Change::Put(kv))) = world.written(&KeyRange::one(owner.clone())).pop() else {
        panic!("somebody owns it")
    };
    // Under the same lease, while the server is stopped.
    world.stop(0);
    let delete = StoreOp::Delete(KeyRange::one(owner.clone()));
    let put = StoreOp::Put { key: owner, value: kv.value, lease: kv.lease };
    let store = world.servers[1].store.clone();
    world.run(1, async move {
        for op in [delete, put] {
            store.txn(Txn { then: vec![op], ..Txn::default() }).await.unwrap();
        }
    });
    assert!(world.epoch_of(shard) > before);
    world.go_on(0);
    let [gained, _, lost, _] = world.moves(0);
    world.until("the server has lost the shard, and has it again", |world| {
        let [now_gained, _, now_lost, _] = world.moves(0);
        (now_gained, now_lost) == (gained + 1, lost + 1)
    });
    world
        .until("it is read again", |world| world.inside(0, || world.servers[0].cluster.sample().taking == 0));
    assert_eq!(world.run(0, get(a, id)).unwrap().list.len(), 1);
    world.both_answered(0, id, 2, || append("y"));
    world.check_writers();
}

/// The clock that the instances of a server follow. It stands still until the test lets time pass.
fn clock_of(world: &World, server: usize) -> Arc<ServedClock> {
    let shard = world.served(server)[0];
    let clock = world.shard_and_log(server, shard).1.state().clock().clone();
    world.inside(server, || clock.set(clock.now()));
    clock
}

/// So many tenths of a second pass for the instances of a server.
fn serve(world: &mut World, server: usize, clock: &ServedClock, tenths: u32) {
    for _ in 0..tenths {
        world.inside(server, || clock.set(clock.now() + 100_000_000));
        world.pass(Duration::from_millis(30));
    }
}

/// How many batches have been written to the log of this shard.
fn batches(world: &World, shard: u32) -> usize {
    let writes = world.written(&World::keys().whole_log(world.shard(shard)));
    writes.iter().filter(|(_, change)| matches!(change, Change::Put(_))).count()
}

/// The patience of the second process, for which the instance waits.
fn left(world: &World, server: usize, id: InstanceId) -> Duration {
    world.inside(server, || {
        let instance = world.servers[server].instances.get(id).unwrap();
        let view = instance.status(None);
        match view.peek().as_ref().unwrap().0.awaited[..] {
            [ref member] if member.process == FIRST.next() => match member.patience {
                Patience::Finite(left) => left,
                Patience::Endless => panic!("it has an end"),
            },
            ref others => panic!("{others:?}"),
        }
    })
}

#[test]
fn patience_that_has_drained_is_gone_for_who_takes_over() {
    const PATIENCE: Duration = Duration::from_secs(300);
    let after = |millis| PATIENCE - Duration::from_millis(millis);
    let mut world = World::of(2, 23, Duration::from_millis(5), 8);
    let a = world.servers[0].instances.clone();
    let [of_a, of_b] = [0, 1].map(|it| clock_of(&world, it));
    let (patience, append_window) = (Patience::Finite(PATIENCE), AppendWindow::Open);
    let params = ParamsSpec { patience, append_window, ..ParamsSpec::new(2, 2, 1) };
    let roster = vec!["p1".to_owned(), "p2".to_owned()];
    let (id, _) = world.run(0, create(a.clone(), spec_of("", params, roster))).unwrap();
    world.both_answered(0, id, 1, || append("x"));
    let waiting = world.begin(0, access(a.clone(), id, FIRST, 2, READ));
    world.pass(Duration::from_millis(30));
    serve(&mut world, 0, &of_a, 5);
    // Only the log of the shard with an instance that holds a phase open tells the time, once a second.
    let shards: Vec<u32> = (0..8).collect();
    let before: Vec<usize> = shards.iter().map(|shard| batches(&world, *shard)).collect();
    serve(&mut world, 0, &of_a, 100);
    for (shard, before) in shards.into_iter().zip(before) {
        let expected = if shard == world.shard_of(id) { 10 } else { 0 };
        assert_eq!(batches(&world, shard) - before, expected, "shard {shard}");
    }
    assert_eq!(left(&world, 0, id), after(10_500));

    // Cut off: what the log told last counts, 0.5 s before.
    world.servers[0].store.cut_off(true);
    assert_eq!(reason(world.finish(waiting)), RefusalReason::OwnerLost);
    world.until("the other has all shards", |world| world.served(1).len() == 8);
    assert_eq!(left(&world, 1, id), after(10_000));
    world.servers[0].store.cut_off(false);
    world.resolve();
    if world.owner_of(id) == 0 {
        assert_eq!(left(&world, 0, id), after(10_000));
        let cluster = world.servers[0].cluster.clone();
        let leaves = world.begin(0, async move { cluster.leave(LEASE * 10).await });
        world.finish(leaves);
        world.until("the other has all shards", |world| world.served(1).len() == 8);
    }
    assert_eq!(left(&world, 1, id), after(10_000), "no patience drains while they are away");

    // Both are back, and time passes. What is handed over forgets nothing.
    world.inside(1, || {
        let instance = world.servers[1].instances.get(id).unwrap();
        for process in [FIRST, FIRST.next()] {
            Stream::new().hello(&instance, process);
        }
    });
    serve(&mut world, 1, &of_b, 27);
    assert_eq!(left(&world, 1, id), after(12_700));
    let third = world.start();
    world.until("a third server has joined", |world| !world.served(third).is_empty());
    clock_of(&world, third);
    let cluster = world.servers[1].cluster.clone();
    let leaves = world.begin(1, async move { cluster.leave(LEASE * 10).await });
    world.finish(leaves);
    let shard = world.shard_of(id);
    world.until("another server has it", |world| {
        [0, third].iter().any(|it| world.served(*it).contains(&shard))
    });
    let owner = world.owner_of(id);
    assert_ne!(owner, 1);
    assert_eq!(left(&world, owner, id), after(12_700));
    world.check_writers();
}
