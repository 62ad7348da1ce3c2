//! A server that is cut off, and the one that takes its shards.

use std::time::Duration;

use stickycas_model::access::Op;
use stickycas_proto::v1::RefusalReason;

use super::calls::{FIRST, READ, access, append, create, get, reason, spec};
use super::world::World;

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
    world.settle();
    for (id, before) in ids.iter().zip(&before) {
        let owner = world.owner_of(*id);
        let after = world.run(owner, get(world.servers[owner].instances.clone(), *id)).unwrap();
        assert!(after.list.starts_with(&before.list));
    }
    assert!(world.check_writers() > 0);
}
