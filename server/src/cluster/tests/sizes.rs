//! What is large: batches, checkpoints, rosters.

use std::time::Duration;

use stickycas_cluster::committer::PIECE_BYTES;
use stickycas_cluster::keys::Epoch;
use stickycas_cluster::read::Stored;
use stickycas_cluster::store::{Change, Revision};
use stickycas_model::params::{AppendWindow, ParamsSpec, Patience};
use stickycas_proto::v1::RefusalReason;

use super::calls::{FIRST, access, append, create, get, list, spec_of};
use super::world::World;

const LARGE: u32 = 64 << 10;

/// Processes that take no notice of each other, with large values.
fn large(processes: u32) -> ParamsSpec {
    ParamsSpec {
        patience: Patience::Endless,
        max_value_bytes: LARGE,
        append_window: AppendWindow::Open,
        ..ParamsSpec::new(processes, processes, 1)
    }
}

fn roster(processes: u32, bytes: usize) -> Vec<String> {
    (1..=processes).map(|number| format!("p{number:0width$}", width = bytes - 1)).collect()
}

#[test]
fn more_than_a_transaction_takes_is_divided() {
    let mut world = World::of(1, 19, Duration::from_millis(50), 1);
    let a = world.servers[0].instances.clone();
    let rosters = roster(16, 6);
    let (id, _) = world.run(0, create(a.clone(), spec_of("", large(16), rosters))).unwrap();
    let before = world.written(&World::keys().whole_log(world.shard(0))).len();
    let mut calls = Vec::new();
    let mut process = FIRST;
    let value = "v".repeat(LARGE as usize);
    // 2 MiB, at once.
    for _ in 0..16 {
        for number in [1, 2] {
            calls.push(world.begin(0, access(a.clone(), id, process, number, append(&value))));
        }
        process = process.next();
    }
    calls.into_iter().for_each(|call| drop(world.finish(call).unwrap()));
    let written = world.written(&World::keys().whole_log(world.shard(0)));
    let sizes: Vec<usize> = written[before..]
        .iter()
        .map(|(_, change)| if let Change::Put(kv) = change { kv.value.len() } else { 0 })
        .collect();
    println!("{sizes:?}");
    assert!(sizes.iter().sum::<usize>() > 2 << 20);
    assert!(sizes.iter().all(|size| *size < 512 << 10), "{sizes:?}");
    assert!(world.served(0) == [0]);
}

#[test]
fn a_large_checkpoint_goes_in_pieces_and_is_read_back() {
    let mut world = World::new(23, Duration::from_millis(5), 1);
    world.limits.log_tail_bytes = 0;
    world.start();
    world.resolve();
    let a = world.servers[0].instances.clone();
    let (id, _) = world.run(0, create(a.clone(), spec_of("name", large(12), roster(12, 6)))).unwrap();
    world.run(0, create(a.clone(), spec_of("", ParamsSpec::new(1, 1, 1), roster(1, 6)))).unwrap();
    for number in 1..=3 {
        let mut process = FIRST;
        let mut calls = Vec::new();
        for at in 0..12 {
            let value = format!("{number} {at} ").repeat(10_000);
            calls.push(world.begin(0, access(a.clone(), id, process, number, append(&value))));
            process = process.next();
        }
        calls.into_iter().for_each(|call| drop(world.finish(call).unwrap()));
    }
    let (keys, shard) = (World::keys(), world.shard(0));
    world.until("the checkpoint is written and the log is trimmed", |world| {
        let log = world.written(&keys.whole_log(shard));
        log.iter().any(|(_, change)| matches!(change, Change::Deleted(..)))
    });
    let pieces = world.written(&keys.all_pieces(shard));
    let sizes: Vec<usize> = pieces
        .iter()
        .filter_map(|(_, change)| if let Change::Put(kv) = change { Some(kv.value.len()) } else { None })
        .collect();
    println!("pieces: {sizes:?}");
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size <= PIECE_BYTES));
    let (store, epoch) = (world.servers[0].cluster.store.clone(), Epoch(Revision(world.epoch_of(0))));
    let (found, _) = world.run(0, async move { store.read_shard(shard, epoch).await }).unwrap();
    let checkpoints = found.into_iter().map_while(|stored| match stored {
        Stored::Checkpoint(number, _) => Some(number),
        Stored::Batch(..) => None,
    });
    assert_eq!(checkpoints.collect::<Vec<_>>(), [1, 2], "that in pieces is the first");
    let before = world.run(0, get(a.clone(), id)).unwrap();
    let other = world.start();
    world.stop(0);
    world.until("the other has the shard", |world| world.served(other) == [0]);
    let after = world.run(other, get(world.servers[other].instances.clone(), id)).unwrap();
    assert_eq!(after.list, before.list);
    world.check_writers();
}

#[test]
fn a_create_whose_record_is_too_large_is_refused_and_the_largest_is_taken() {
    let mut world = World::of(1, 29, Duration::ZERO, 1);
    let a = world.servers[0].instances.clone();
    // 64 bytes of a name are 66 bytes of the record.
    let create_of = |world: &mut World, processes: u32| {
        let spec = ParamsSpec {
            patience: Patience::Endless,
            max_value_bytes: 16,
            ..ParamsSpec::new(processes, 1, 1)
        };
        world.run(0, create(a.clone(), spec_of("", spec, roster(processes, 64))))
    };
    let most = (512 << 10) / 66;
    let refused = create_of(&mut world, most).unwrap_err();
    assert_eq!(refused.reason, RefusalReason::BadParameters);
    assert!(refused.message.contains("524288"), "{}", refused.message);
    println!("{}", refused.message);
    let (id, _) = create_of(&mut world, most - 3).unwrap();
    assert_eq!(world.run(0, list(a.clone())).unwrap().len(), 1);
    let longest = world.written(&World::keys().whole_log(world.shard(0)));
    let longest = longest
        .iter()
        .filter_map(|(_, change)| if let Change::Put(kv) = change { Some(kv.value.len()) } else { None });
    println!("{:?}", longest.max());

    let other = world.start();
    world.stop(0);
    world.until("the other has the shard", |world| world.served(other) == [0]);
    let listed = world.run(other, list(world.servers[other].instances.clone())).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].0, id);
}
