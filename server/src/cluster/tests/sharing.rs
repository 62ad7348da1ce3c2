//! Shards and names that servers share.

use std::time::Duration;

use stickycas_proto::v1::RefusalReason;

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
fn a_name_is_that_of_one_instance_until_it_is_closed_or_has_expired() {
    let mut world = World::new(2, Duration::ZERO, 8);
    // What has ended is let go at once.
    world.limits.retention = Duration::ZERO;
    for _ in 0..2 {
        world.start();
    }
    world.settle();
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
        let lost = outcomes[1 - winner].clone().unwrap_err().reason;
        assert!([RefusalReason::NameTaken, RefusalReason::NotOwner].contains(&lost), "seed {seed}: {lost:?}");
        refusals.push(lost);
        let loser = world.servers[1 - winner].instances.clone();
        assert_eq!(world.run(1 - winner, list(loser)), Ok(Vec::new()), "seed {seed}");
        assert_eq!(world.name_holder("name"), Some(id.to_string()));
        // Both are gone; a third server recovers everything.
        let third = world.start();
        world.stop(0);
        world.stop(1);
        world.settle();
        let recovered = world.servers[third].instances.clone();
        let listed: Vec<_> =
            world.run(third, list(recovered.clone())).unwrap().into_iter().map(|it| it.0).collect();
        assert_eq!(listed, [id], "seed {seed}");
        assert_eq!(world.run(third, find(recovered, "name")), Ok(id), "seed {seed}");
    }
    println!("{refusals:?}");
    assert!(refusals.contains(&RefusalReason::NameTaken), "no commit has decided: {refusals:?}");
}
