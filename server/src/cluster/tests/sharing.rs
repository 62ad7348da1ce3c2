//! Shards and names that servers share.

use std::time::Duration;

use stickycas_proto::v1::RefusalReason;

use super::super::directory::TURN;
use super::calls::{FIRST, access, append, close, create, find, get, list, reason, spec};
use super::world::{World, address};

#[test]
fn two_servers_share_the_shards_and_each_points_to_the_other() {
    let mut world = World::of(2, 1, Duration::ZERO, 8);
    assert_eq!([0, 1].map(|it| world.served(it).len()), [4, 4]);
    for server in [0, 1] {
        let other = 1 - server;
        let mut shards = Vec::new();
        for _ in 0..8 {
            world.pass(TURN);
            let instances = world.servers[server].instances.clone();
            let (id, is_new) = world.run(server, create(instances, spec(""))).unwrap();
            assert!(is_new);
            shards.push(world.shard_of(id));
            let asked = world.servers[other].instances.clone();
            let refused = world.run(other, get(asked.clone(), id)).unwrap_err();
            assert_eq!(refused.reason, RefusalReason::NotOwner);
            let owner = refused.owner.expect("it is known");
            assert_eq!((owner.address, owner.epoch), (address(server), world.epoch_of(world.shard_of(id))));
            let refused = world.run(other, access(asked, id, FIRST, 1, append("x")));
            assert_eq!(reason(refused), RefusalReason::NotOwner);
        }
        shards.sort_unstable();
        shards.dedup();
        assert_eq!(shards, world.served(server), "new instances are in all shards of their server");
    }
    let listed = [0, 1].map(|it| {
        let instances = world.servers[it].instances.clone();
        world.run(it, list(instances)).unwrap().len()
    });
    assert_eq!(listed, [8, 8]);
}

#[test]
fn a_server_that_reads_the_log_of_its_shard_does_not_name_itself() {
    let mut world = World::new(47, Duration::from_millis(40), 8);
    world.start();
    let (instances, mut reads) = (world.servers[0].instances.clone(), 0);
    world.until("all shards are served", |world| {
        for shard in 0..8 {
            let refused = world.inside(0, || instances.not_found_reason(world.probe(shard)).into_inner());
            assert_eq!(refused.owner, None, "{}", refused.message);
            reads += usize::from(refused.reason == RefusalReason::Recovering);
        }
        world.served(0).len() == 8
    });
    assert!(reads > 0, "it owned none before it served it");
}

#[test]
fn a_name_is_that_of_one_instance_until_it_is_closed_or_has_expired() {
    let mut world = World::new(2, Duration::ZERO, 8);
    // What has ended is let go at once.
    world.limits.retention = Duration::ZERO;
    for _ in 0..2 {
        world.start();
    }
    world.resolve();
    let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
    let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    let holder = world.owner_address(id);
    assert_eq!(world.run(0, find(a.clone(), "name")), Ok(id));
    for refused in
        [world.run(1, find(b.clone(), "name")), world.run(1, create(b.clone(), spec("name"))).map(|it| it.0)]
    {
        let refused = refused.unwrap_err();
        assert_eq!(refused.reason, RefusalReason::NotOwner);
        assert_eq!(refused.owner.map(|owner| owner.address), Some(holder.clone()), "the other knows it");
    }
    assert_eq!(world.run(0, create(a.clone(), spec("name"))), Ok((id, false)), "it is found");
    assert_eq!(world.name_holder("name"), Some(id.to_string()));

    world.run(0, close(a.clone(), id)).unwrap();
    world.until("it expires and its name is free", |world| world.name_holder("name").is_none());
    let (second, is_new) = world.run(1, create(b.clone(), spec("name"))).unwrap();
    assert!(is_new && second != id);
    assert_eq!(world.name_holder("name"), Some(second.to_string()));
    assert_eq!(reason(world.run(0, find(a, "name"))), RefusalReason::NotOwner);
}

#[test]
fn a_closed_instance_gives_its_name_to_a_new_one_in_another_shard() {
    let mut world = World::of(2, 3, Duration::ZERO, 8);
    let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
    let (first, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    world.run(0, close(a.clone(), first)).unwrap();
    let mut holders = vec![first];
    for _ in 0..3 {
        world.pass(TURN);
        let (next, is_new) = world.run(0, create(a.clone(), spec("name"))).unwrap();
        assert!(is_new && !holders.contains(&next));
        assert_eq!(world.name_holder("name"), Some(next.to_string()));
        world.run(0, close(a.clone(), next)).unwrap();
        holders.push(next);
    }
    let shards: std::collections::BTreeSet<_> = holders.iter().map(|id| world.shard_of(*id)).collect();
    assert!(shards.len() > 1, "the claims of several shards were in one transaction each: {shards:?}");
    assert_eq!(reason(world.run(1, find(b, "name"))), RefusalReason::NotOwner);
    assert_eq!(world.run(0, find(a, "name")).ok(), holders.last().copied());
}

#[test]
fn a_name_that_a_closed_instance_gave_up_is_not_found_there() {
    let mut world = World::of(1, 4, Duration::ZERO, 8);
    let first = world.servers[0].instances.clone();
    let names: Vec<String> = (0..12).map(|number| format!("name-{number}")).collect();
    let mut pairs = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let (closed, _) = world.run(0, create(first.clone(), spec(name))).unwrap();
        world.run(0, close(first.clone(), closed)).unwrap();
        // The next one with the name is so many shards further.
        (0..number % 8).for_each(|_| world.pass(TURN));
        let (heir, is_new) = world.run(0, create(first.clone(), spec(name))).unwrap();
        assert!(is_new);
        pairs.push([closed, heir]);
    }
    // Half of the shards move, so closed instances are at other servers than those that have taken their
    // names.
    let second = world.start();
    world.resolve();
    let mut apart = 0;
    for (name, [closed, heir]) in names.iter().zip(pairs) {
        let owner = world.owner_of(heir);
        apart += usize::from(world.owner_of(closed) != owner);
        for server in [0, second] {
            let (instances, asked) = (world.servers[server].instances.clone(), name.clone());
            let found = world.run(server, async move { find(instances, &asked).await });
            if server == owner {
                assert_eq!(found, Ok(heir), "{name} at server {server}");
            } else {
                let refused = found.unwrap_err();
                assert_eq!(refused.owner.map(|it| it.address), Some(address(owner)), "{name} at {server}");
            }
        }
    }
    assert!(apart > 0, "no closed instance is apart from its heir");
}

#[test]
fn of_two_creates_of_a_name_at_two_servers_one_wins_and_the_other_leaves_nothing() {
    let mut refusals = Vec::new();
    for seed in 0..6 {
        let mut world = World::of(2, seed, Duration::from_millis(40), 8);
        let calls =
            [0, 1].map(|it| world.begin(it, create(world.servers[it].instances.clone(), spec("name"))));
        let outcomes = calls.map(|call| world.finish(call));
        let winner =
            outcomes.iter().position(Result::is_ok).unwrap_or_else(|| panic!("seed {seed}: {outcomes:?}"));
        let (id, _) = outcomes[winner].clone().unwrap();
        let lost = outcomes[1 - winner].clone().unwrap_err();
        // A retry helps: if both are of one caller, it finds the other instance.
        assert_eq!(lost.reason, RefusalReason::NotOwner, "seed {seed}: {lost:?}");
        refusals.push(lost.message);
        let loser = world.servers[1 - winner].instances.clone();
        assert_eq!(world.run(1 - winner, list(loser)), Ok(Vec::new()), "seed {seed}");
        assert_eq!(world.name_holder("name"), Some(id.to_string()));
        // Both are gone; a third server recovers everything.
        let third = world.start();
        world.stop(0);
        world.stop(1);
        world.resolve();
        let recovered = world.servers[third].instances.clone();
        let listed: Vec<_> =
            world.run(third, list(recovered.clone())).unwrap().into_iter().map(|it| it.0).collect();
        assert_eq!(listed, [id], "seed {seed}");
        assert_eq!(world.run(third, find(recovered, "name")), Ok(id), "seed {seed}");
    }
    let by_commit = refusals.iter().any(|refusal| refusal.contains("at the same time"));
    assert!(by_commit, "no commit has decided: {refusals:?}");
}

/// A checkpoint covers what stands before it in the batch that forms, and of that a creation is refused
/// afterwards.
#[test]
fn what_stands_behind_a_refused_creation_in_its_batch_is_recovered() {
    let mut shown = 0;
    for seed in 0..40 {
        if shown > 2 {
            return;
        }
        let mut world = World::of(2, seed, Duration::from_millis(40), 2);
        let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
        let [id, busy] = [(); 2].map(|()| world.run(0, create(a.clone(), spec(""))).unwrap().0);
        world.both_answered(0, id, 1, || append("x"));
        let (shard, log) = world.shard_and_log(0, world.shard_of(id));
        let loses = world.begin(0, create(a.clone(), spec("name")));
        let wins = world.begin(1, create(b.clone(), spec("name")));
        // While a batch is under way, the creation stands in the next one.
        let under_way = world.begin(0, access(a.clone(), busy, FIRST, 1, append("z")));
        while log.covered().1 == 0 && !loses.is_finished() {
            world.step();
        }
        let writes = a.clone();
        let checkpoints = world.begin(0, async move { writes.write_checkpoints(&shard, &log).await });
        world.step();
        let appends = world.begin_both(0, id, 2, || append("y"));
        world.finish(checkpoints);
        for call in appends {
            world.finish(call).unwrap();
        }
        let lost = world.finish(loses);
        let _won = world.finish(wins);
        under_way.abort();
        shown += usize::from(lost.is_err_and(|lost| lost.message.contains("at the same time")));
        let told = world.run(0, get(a.clone(), id)).unwrap().list;
        world.stop(0);
        world.resolve();
        assert_eq!(world.run(1, get(b.clone(), id)).map(|it| it.list), Ok(told), "seed {seed}");
    }
    panic!("{shown} creations were refused by the commit");
}

/// The checkpoint is made while the creation is under way, and stands behind it.
#[test]
fn a_refused_creation_leaves_no_checkpoint() {
    let mut shown = 0;
    for seed in 0..12 {
        let mut world = World::of(2, seed, Duration::from_millis(40), 2);
        let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
        let mut expected = vec![world.run(0, create(a.clone(), spec(""))).unwrap().0];
        let (shard, log) = world.shard_and_log(0, world.shard_of(expected[0]));
        let log_index = log.covered().0;
        let loses = world.begin(0, create(a.clone(), spec("name")));
        let wins = world.begin(1, create(b.clone(), spec("name")));
        while log.covered().0 == log_index && !loses.is_finished() {
            world.step();
        }
        let checkpoints = |world: &mut World| {
            let (instances, shard, log) = (a.clone(), shard.clone(), log.clone());
            world.begin(0, async move { instances.write_checkpoints(&shard, &log).await })
        };
        let first = checkpoints(&mut world);
        let (lost, won) = (world.finish(loses), world.finish(wins));
        world.finish(first);
        let is_shown = lost.is_err_and(|lost| lost.message.contains("at the same time"));
        // The record of its end is trimmed.
        for _ in 0..2 {
            expected.push(world.run(0, create(a.clone(), spec(""))).unwrap().0);
            let next = checkpoints(&mut world);
            world.finish(next);
        }
        world.stop(0);
        world.resolve();
        if is_shown {
            shown += 1;
            expected.push(won.unwrap().0);
            expected.sort_unstable();
            let listed = world.run(1, list(b)).unwrap();
            let listed: Vec<_> = listed.into_iter().map(|it| it.0).collect();
            assert_eq!(listed, expected, "seed {seed}");
        }
    }
    assert!(shown > 2, "{shown} creations were refused by the commit");
}

/// The batch that takes the name from a closed instance has steps of that instance, too.
#[test]
fn a_name_is_taken_from_a_closed_instance_that_goes_on_meanwhile() {
    for seed in 0..8 {
        let mut world = World::of(1, seed, Duration::from_millis(40), 1);
        let a = world.servers[0].instances.clone();
        let (closed, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
        world.run(0, close(a.clone(), closed)).unwrap();
        let creates = world.begin(0, create(a.clone(), spec("name")));
        let mut process = FIRST;
        for _ in 0..60 {
            world.step();
            world.begin(0, access(a.clone(), closed, process, 1, append("late")));
            world.begin(0, get(a.clone(), closed));
            process = if process == FIRST { FIRST.next() } else { FIRST };
        }
        let (id, is_new) = world.finish(creates).unwrap();
        assert!(is_new && id != closed);
        assert_eq!(world.name_holder("name"), Some(id.to_string()));
    }
}
