//! A stale owner by construction: what a server does that does not know that it was deposed.

use std::fmt::Debug;
use std::task::Waker;
use std::time::{Duration, Instant};

use stickycas_cluster::store::{Change, KeyRange};
use stickycas_model::types::SessionId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::server_frame::Frame;
use tokio::task::JoinHandle;

use super::calls::{FIRST, READ, Stream, access, append, create, find, get, list, list_after, reason, spec};
use super::world::{LEASE, World};
use crate::instances::WatchPoll;

/// What a call that a stale owner takes was told.
#[track_caller]
fn assert_lost<T: Debug>(world: &mut World, what: &str, call: JoinHandle<Result<T, RpcRefusal>>) {
    let told = world.finish(call).map_err(|refused| refused.reason);
    assert!(matches!(told, Err(RefusalReason::OwnerLost | RefusalReason::NotOwner)), "{what}: {told:?}");
}

#[test]
fn a_server_that_was_stopped_and_deposed_tells_nothing_when_it_goes_on() {
    let mut world = World::of(2, 11, Duration::from_millis(20), 8);
    let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
    let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    let first = world.both_answered(0, id, 1, || append("x"));
    let unknown = world.probe(world.shard_of(id));

    world.stop(0);
    world.until("the other has all shards", |world| world.served(1).len() == 8);
    world.both_answered(1, id, 2, || append("y"));
    let (new, _) = world.run(1, create(b.clone(), spec("new"))).unwrap();
    let shown = world.run(1, get(b.clone(), id)).unwrap();

    // Calls have come while it was stopped, and it takes them before it learns anything.
    let gets = world.begin(0, get(a.clone(), id));
    let lists = world.begin(0, list(a.clone()));
    let lists_nothing = world.begin(0, list_after(a.clone(), Some(id)));
    let gets_nothing = world.begin(0, get(a.clone(), unknown));
    let gets_new = world.begin(0, get(a.clone(), new));
    let appends = world.begin(0, access(a.clone(), id, FIRST, 2, append("z")));
    let out_of_order = world.begin(0, access(a.clone(), id, FIRST, 9, READ));
    let creates = world.begin(0, create(a.clone(), spec("other")));
    let finds_new = world.begin(0, find(a.clone(), "new"));
    let repeats = world.begin(0, access(a.clone(), id, FIRST, 1, append("x")));
    world.go_on(0);
    assert_lost(&mut world, "Get", gets);
    assert_lost(&mut world, "List", lists);
    assert_lost(&mut world, "List of nothing", lists_nothing);
    assert_lost(&mut world, "Get of no instance", gets_nothing);
    assert_lost(&mut world, "Get of one that it never had", gets_new);
    assert_lost(&mut world, "Append", appends);
    assert_lost(&mut world, "an access that is refused", out_of_order);
    assert_lost(&mut world, "Create", creates);
    // Its claim is in etcd, and the instance is not here.
    assert_lost(&mut world, "Get of a name", finds_new);
    // An answer that is kept never changes: it may be told.
    match world.finish(repeats) {
        Ok(repeated) => assert_eq!(repeated, (first[0].clone(), true)),
        Err(refused) => assert_eq!(refused.reason, RefusalReason::OwnerLost),
    }
    assert!(world.check_writers() > 0);
    assert_eq!(world.run(1, get(b.clone(), id)).map(|it| it.list), Ok(shown.list));
    assert_eq!(reason(world.run(1, find(b, "other"))), RefusalReason::InstanceUnknown);
}

/// The transaction is on its way when the server is stopped. It arrives when another one owns the shard and
/// has not written yet, so the end of the log is as the transaction expects it: nothing but the owner's key
/// tells that it must not be.
#[test]
fn what_a_stopped_server_has_sent_is_not_written_once_another_one_owns_the_shard() {
    let mut shown = 0;
    for seed in 0..12 {
        let mut world = World::of(2, seed, Duration::from_millis(60), 2);
        let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
        let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
        let (keys, shard) = (World::keys(), world.shard(world.shard_of(id)));
        world.both_answered(0, id, 1, || append("x"));
        world.pass(Duration::from_millis(500));
        let batches = |world: &World| world.written(&keys.whole_log(shard)).len();
        let before = batches(&world);
        let calls = world.begin_both(0, id, 2, || append("z"));
        world.step();
        world.stop(0);
        if batches(&world) != before {
            // The transaction has arrived already.
            continue;
        }
        let owner = KeyRange::one(keys.owner(shard));
        world.until("the other owns the shard", |world| {
            let last = world.written(&owner).pop();
            last.is_some_and(|(_, change)| matches!(change, Change::Put(kv) if *kv.value == *b"server-1"))
        });
        assert_eq!(batches(&world), before, "seed {seed}: it has not written yet");
        world.stop(1);
        world.go_on(0);
        for call in calls {
            let told = world.finish(call).map_err(|refused| refused.reason);
            assert!(matches!(told, Err(RefusalReason::OwnerLost)), "seed {seed}: {told:?}");
        }
        world.check_writers();
        assert_eq!(batches(&world), before, "seed {seed}: nobody has written");
        world.go_on(1);
        world.stop(0);
        world.until("the other serves the shard", |world| world.served(1).len() == 2);
        let shown_after = world.run(1, get(b.clone(), id)).unwrap();
        assert_eq!(shown_after.list.len(), 1, "seed {seed}");
        world.check_writers();
        shown += 1;
    }
    println!("{shown} of 12 seeds show it");
    assert!(shown > 0, "no transaction was on its way");
}

#[test]
fn a_server_that_is_cut_off_from_etcd_tells_nothing_and_its_streams_end_after_a_lease() {
    let mut world = World::of(2, 13, Duration::from_millis(5), 8);
    let [a, b] = [0, 1].map(|it| world.servers[it].instances.clone());
    let (id, _) = world.run(0, create(a.clone(), spec("name"))).unwrap();
    let first = world.both_answered(0, id, 1, || append("x"));
    let unknown = world.probe(world.shard_of(id));
    let instance = a.get(id).unwrap();
    let mut stream = Stream::new();
    world.inside(0, || stream.hello(&instance, FIRST));
    let mut welcome = None;
    world.until("the session is open", |_| {
        welcome = stream.take().pop();
        welcome.is_some()
    });
    let Some(Frame::Welcome(welcome)) = welcome else { panic!("{welcome:?}") };
    let session = SessionId::new(welcome.session);
    let watcher = instance.next_watcher();
    let (_, next, _) = instance.kept_events();
    let watch = || instance.poll_events(next, 9, watcher, Waker::noop());
    assert!(matches!(watch(), WatchPoll::Pending));

    world.servers[0].store.cut_off(true);
    // An answer that is kept never changes: it is told.
    let repeats = world.run(0, access(a.clone(), id, FIRST, 1, append("x")));
    assert_eq!(repeats, Ok((first[0].clone(), true)));
    // While its lease lasts nobody else owns the shard; but it cannot know that.
    let gets = world.begin(0, get(a.clone(), id));
    let lists = world.begin(0, list(a.clone()));
    let lists_nothing = world.begin(0, list_after(a.clone(), Some(id)));
    let gets_nothing = world.begin(0, get(a.clone(), unknown));
    let creates = world.begin(0, create(a.clone(), spec("")));
    let finds = world.begin(0, find(a.clone(), "unused"));
    let appends = world.begin_both(0, id, 2, || append("z"));
    // Refused by the instance without an input that is logged, on the stream.
    let sink = stream.sink();
    let refused = world
        .inside(0, || instance.access(Stream::access_of(FIRST, session, 9, READ), &sink, Instant::now()));
    assert_eq!(refused, Err(RefusalReason::AccessNumberOutOfOrder));
    assert_lost(&mut world, "Get", gets);
    assert_lost(&mut world, "List", lists);
    assert_lost(&mut world, "List of nothing", lists_nothing);
    assert_lost(&mut world, "Get of no instance", gets_nothing);
    assert_eq!(reason(world.finish(finds)), RefusalReason::Recovering);

    world.pass(LEASE);
    assert_eq!(world.served(0), [0; 0]);
    assert_lost(&mut world, "Create", creates);
    appends.into_iter().for_each(|call| assert_lost(&mut world, "Append", call));
    let told: Vec<_> = stream
        .take()
        .into_iter()
        .map(|frame| match frame {
            Frame::Refusal(refusal) => (refusal.access_number, refusal.reason()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(told.iter().all(|(_, reason)| *reason == RefusalReason::OwnerLost), "{told:?}");
    assert!(told.contains(&(0, RefusalReason::OwnerLost)), "the session has ended: {told:?}");
    let watched = watch();
    assert!(
        matches!(&watched, WatchPoll::Gone(why) if why.reason == RefusalReason::OwnerLost),
        "{watched:?}"
    );

    world.until("the other has all shards", |world| world.served(1).len() == 8);
    world.both_answered(1, id, 2, || append("y"));
    let gets = world.begin(0, get(a.clone(), id));
    let gets_nothing = world.begin(0, get(a.clone(), unknown));
    assert_lost(&mut world, "Get", gets);
    assert_lost(&mut world, "Get of no instance", gets_nothing);
    // What it has sent arrives when it is connected again.
    world.servers[0].store.cut_off(false);
    world.resolve();
    world.check_writers();
    let owner = world.owner_of(id);
    let shown = world.run(owner, get(world.servers[owner].instances.clone(), id)).unwrap();
    let values: Vec<_> = shown.list.into_iter().map(|entry| entry.0).collect();
    assert_eq!(values, [b"x", b"y"]);
    drop(b);
}
