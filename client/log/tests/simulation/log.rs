//! Many seeds: total order, no gap, no two values at a place, nothing twice, nothing lost.

use std::collections::{BTreeMap, BTreeSet};

use stickycas_log::order::{Delivered, delivered};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::random::SplitMix64;
use stickycas_model::types::ProcessId;

use crate::world::{Happened, World};

/// Seeds of a test run; `STICKYCAS_LOG_SEEDS` gives another number.
const SEEDS: u64 = 400;

fn seeds() -> u64 {
    std::env::var("STICKYCAS_LOG_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap())
}

/// n <= 6, any p, q = p, any number of Byzantine members but all.
fn world(seed: u64) -> World {
    let mut random = SplitMix64::new(seed);
    let n = 2 + random.below(5) as u32;
    let p = 1 + random.below(n.into()) as u32;
    let spec = ParamsSpec { append_rounds: p, ..ParamsSpec::new(n, p, 1 + random.below(n.into()) as u32) };
    let mut members: Vec<ProcessId> = ProcessId::all(n).collect();
    let byzantine = random.index(n as usize);
    let byzantine = (0..byzantine).map(|_| members.swap_remove(random.index(members.len()))).collect();
    World::new(Params::try_new(spec).unwrap(), byzantine, random.next_u64())
}

fn run(world: &mut World) {
    for _ in 0..300 {
        world.step += 1;
        let life = world.random.index(world.lives.len());
        match world.random.below(16) {
            0..4 => world.append(life),
            4..8 => world.act(life),
            8..12 => world.learn(life),
            12..14 => world.run(true),
            14 => world.begin(),
            _ if world.random.below(4) > 0 => world.run(false),
            _ => world.kill(life),
        }
    }
    // Everybody comes to an end: no faults any more.
    while world.lives.iter().any(|life| life.order.has_values()) {
        world.step += 1;
        let life = world.random.index(world.lives.len());
        match world.random.below(3) {
            0 => world.act(life),
            1 => world.learn(life),
            _ => world.run(true),
        }
        assert!(world.step < 100_000, "no end");
    }
}

fn check(world: &World) {
    let log: Vec<Delivered> = world.lists().flat_map(|(slot, list)| delivered(slot, list)).collect();
    assert!(log.is_sorted_by(|a, b| a.place < b.place), "two values at a place");
    // By their ids: the entries of correct members.
    let mut places: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for (slot, list) in world.lists() {
        for (entry, it) in
            list.iter().filter_map(|entry| Some((entry, delivered(slot, std::slice::from_ref(entry)).pop()?)))
        {
            let id = u64::from_be_bytes(entry.value.as_bytes()[1..9].try_into().unwrap());
            places.entry(id).or_default().push((entry.process, slot, it.value));
        }
    }
    for append in &world.appends {
        let own =
            places.get(&append.id).into_iter().flatten().filter(|(process, ..)| *process == append.member);
        let own: Vec<_> = own.collect();
        match append.answered {
            Some((_, place)) => {
                let there = log.iter().find(|it| it.place == place).expect("a value at its place");
                assert_eq!((there.member, &there.value), (append.member, &append.value));
                assert_eq!(own.len(), 1, "an append was delivered {} times", own.len());
            }
            None => assert!(append.abandoned && own.len() <= 1, "an append was lost"),
        }
    }
    // An append that began after the answer of another one stands behind it.
    let answered = || world.appends.iter().filter_map(|append| Some((append.began, append.answered?)));
    for (_, (first_end, first)) in answered() {
        for (began, (_, second)) in answered() {
            assert!(began <= first_end || first < second, "{second:?} stands before {first:?}");
        }
    }
}

#[test]
fn a_log_is_one_order_without_gaps_and_duplicates() {
    let mut happened = Happened::default();
    for seed in 0..seeds() {
        let mut world = world(seed);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&mut world);
            check(&world);
        }));
        assert!(failed.is_ok(), "seed {seed}");
        let Happened { late, killed, copied, markers, garbage, not_added } = world.happened;
        happened.late += late;
        happened.killed += killed;
        happened.copied += copied;
        happened.markers += markers;
        happened.garbage += garbage;
        happened.not_added += not_added;
    }
    let Happened { late, killed, copied, markers, garbage, not_added } = happened;
    let all = BTreeSet::from([late, killed, copied, markers, garbage, not_added]);
    assert!(all.first() > Some(&0), "{happened:?}");
}
