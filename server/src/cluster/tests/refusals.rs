//! Refusals of one server: what they cost while etcd is silent.

use std::time::Duration;

use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use super::world::World;

/// More than one stream of a client may have waiting.
const REFUSALS: u64 = 3_000;

#[test]
fn any_number_of_refusals_waits_without_tasks_and_for_one_shard_each() {
    let mut world = World::of(1, 41, Duration::from_millis(5), 21);
    let instances = world.servers[0].instances.clone();
    let shard = 3;
    let unknown: Vec<_> = (0..REFUSALS)
        .map(|at| InstanceId::new(world.probe(shard).get() + u128::from(at) * 21))
        .filter(|id| world.shard_of(*id) == shard)
        .collect();
    assert!(unknown.len() > 1_000, "{}", unknown.len());
    world.servers[0].store.cut_off(true);
    let (tasks, before) = (world.tasks(0), world.confirmations(0));
    let mut frames = Vec::new();
    let mut calls = Vec::new();
    for id in &unknown {
        let (refused, gate) = world.inside(0, || instances.not_found_reason(*id)).into_parts();
        assert_eq!(refused.reason, RefusalReason::InstanceUnknown);
        assert!(!gate.is_open(), "it is to be confirmed");
        frames.push(gate);
        // Of a unary call it is not known which shard it is of.
        let gate = world.inside(0, || instances.gates().of_call().refusal(Some(refused.reason), false));
        assert!(!gate.is_open(), "it is to be confirmed");
        calls.push(gate);
    }
    assert!(world.tasks(0) <= tasks, "{} tasks, and {tasks} before", world.tasks(0));
    world.pass(Duration::from_millis(500));
    assert!(world.tasks(0) <= tasks + 2, "{} tasks, and {tasks} before", world.tasks(0));
    world.servers[0].store.cut_off(false);
    for frame in frames {
        world.run(0, frame).unwrap();
    }
    for call in calls {
        world.run(0, call).unwrap();
    }
    let after = world.confirmations(0);
    let asked = unknown.len() as u64;
    assert_eq!(
        after.confirmed - before.confirmed,
        asked + asked * 21,
        "one shard for a frame, all for a call"
    );
    assert!(after.reads - before.reads <= 3, "{before:?}, {after:?}");
}
