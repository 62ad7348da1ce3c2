use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::keys::{RulesVersion, Subject};
use crate::model::{Faults, Model, ModelStore};
use crate::store::Change;

const TIME_TO_LIVE: Duration = Duration::from_secs(3);

/// A server that is nothing but a member.
struct Server {
    membership: Membership,
    events: mpsc::UnboundedReceiver<Event>,
    driver: JoinHandle<()>,
    store: ModelStore,
    owned: BTreeMap<ShardId, Epoch>,
}

fn model() -> Model {
    Model::new(1, Faults::default())
}

fn keys() -> Keys {
    Keys::new(&Name::new("demo").unwrap())
}

fn shards() -> ShardCount {
    ShardCount::new(4).unwrap()
}

fn start(model: &Model, name: &str, incarnation: u64) -> Server {
    let info =
        ServerInfo { address: format!("{name}:1"), incarnation, replays: RulesVersion(1), draining: false };
    let config = MembershipConfig { name: Name::new(name).unwrap(), info, time_to_live: TIME_TO_LIVE };
    let store = model.connect();
    let (membership, events, driver) = Membership::new(store.clone(), keys(), shards(), config);
    Server { membership, events, driver: tokio::spawn(driver), store, owned: BTreeMap::new() }
}

impl Server {
    async fn event(&mut self) -> Event {
        let event = self.events.recv().await.unwrap();
        match event {
            Event::Claimed { shard, epoch } => {
                assert_eq!(self.owned.insert(shard, epoch), None, "claimed twice");
            }
            Event::Lost { shard, epoch } => {
                assert_eq!(self.owned.remove(&shard), Some(epoch), "lost without being owned");
            }
            Event::ReleaseRequested { shard, epoch } => {
                assert_eq!(self.owned.get(&shard), Some(&epoch), "requested without being owned");
            }
        }
        event
    }

    /// Waits until it owns so many shards.
    async fn owns(&mut self, count: usize) {
        while self.owned.len() != count {
            self.event().await;
        }
    }

    /// The shard whose release is requested next.
    async fn requested(&mut self) -> (ShardId, Epoch) {
        loop {
            if let Event::ReleaseRequested { shard, epoch } = self.event().await {
                return (shard, epoch);
            }
        }
    }

    async fn hand_over(&mut self) -> ShardId {
        let (shard, epoch) = self.requested().await;
        self.membership.release(shard, epoch).await;
        self.owned.remove(&shard);
        shard
    }
}

/// Who owns which shard by the store.
async fn owners(model: &Model) -> BTreeMap<ShardId, (String, Epoch)> {
    let found = model.connect().range(keys().owners(), 0).await.unwrap().found;
    let owner = |kv: crate::store::KeyValue| {
        let Ok(Subject::Owner(shard)) = keys().parse(&kv.key, shards()) else { panic!("{kv:?}") };
        (shard, (String::from_utf8(kv.value.to_vec()).unwrap(), Epoch(kv.created)))
    };
    found.into_iter().map(owner).collect()
}

/// The revisions at which the key of a shard's owner was deleted.
fn deletions(model: &Model, shard: ShardId) -> Vec<Revision> {
    let key = keys().owner(shard);
    let history = model.history();
    let deleted = history.iter().filter(|(_, changes)| {
        changes.iter().any(|change| matches!(change, Change::Deleted(deleted, _) if *deleted == key))
    });
    deleted.map(|(revision, _)| *revision).collect()
}

/// Two servers that share the shards; each owns two.
async fn two(model: &Model) -> (Server, Server) {
    let mut first = start(model, "a", 1);
    first.owns(4).await;
    let mut second = start(model, "b", 2);
    for _ in 0..2 {
        first.hand_over().await;
    }
    second.owns(2).await;
    (first, second)
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_cannot_be_handed_over_is_asked_for_again() {
    let model = model();
    let mut first = start(&model, "a", 1);
    first.owns(4).await;
    let mut second = start(&model, "b", 2);
    let (kept, _) = (first.requested().await, first.requested().await);
    first.membership.keep(kept.0, kept.1);
    sleep(TIME_TO_LIVE / 2).await;
    assert!(first.events.try_recv().is_err(), "not at once");
    assert_eq!(first.requested().await, kept);
    assert_eq!(owners(&model).await[&kept.0], ("a".to_owned(), kept.1));
    first.membership.release(kept.0, kept.1).await;
    second.owns(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_server_gets_its_share_once_it_is_released() {
    let model = model();
    let mut first = start(&model, "a", 1);
    first.owns(4).await;
    let mut second = start(&model, "b", 2);
    let released = [first.requested().await, first.requested().await];
    // However long the owner takes, its key stands, and nobody claims the shard.
    sleep(TIME_TO_LIVE * 10).await;
    assert!(owners(&model).await.values().all(|(name, _)| name == "a"));
    for (shard, epoch) in released {
        first.membership.release(shard, epoch).await;
    }
    second.owns(2).await;
    assert_eq!(
        second.owned.keys().copied().collect::<BTreeSet<_>>(),
        released.map(|(shard, _)| shard).into()
    );
    for (shard, before) in released {
        assert!(second.owned[&shard] > before);
        assert_eq!(deletions(&model, shard).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_drains_hands_everything_over_and_claims_nothing() {
    let model = model();
    let (mut first, mut second) = two(&model).await;
    first.membership.drain();
    for _ in 0..2 {
        first.hand_over().await;
    }
    second.owns(4).await;
    sleep(TIME_TO_LIVE * 10).await;
    assert!(first.events.try_recv().is_err() && first.owned.is_empty());
    assert!(first.membership.view().borrow().servers["a"].draining);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_leaves_is_replaced_at_once() {
    let model = model();
    let (mut first, mut second) = two(&model).await;
    let left = Instant::now();
    first.membership.leave().await;
    second.owns(4).await;
    assert!(left.elapsed() < TIME_TO_LIVE, "nobody waits for the end of the lease");
    first.owns(0).await;
    first.driver.await.unwrap();
    assert_eq!(*first.membership.valid_until().borrow(), None);
    assert!(
        model
            .connect()
            .range(KeyRange::one(keys().server(&Name::new("a").unwrap())), 1)
            .await
            .unwrap()
            .found
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_server_that_is_killed_are_claimed_when_its_lease_has_ended() {
    let model = model();
    let (first, mut second) = two(&model).await;
    let valid_until = first.membership.valid_until().borrow().unwrap();
    first.driver.abort();
    second.owns(4).await;
    assert!(Instant::now() >= valid_until, "the server could assume that it owns them until then");
    for (shard, (name, epoch)) in owners(&model).await {
        assert_eq!(name, "b");
        assert!(deletions(&model, shard).iter().all(|deleted| *deleted < epoch.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_cut_off_drops_its_shards_before_another_one_claims_them() {
    let model = model();
    let (mut first, mut second) = two(&model).await;
    first.store.cut_off(true);
    first.owns(0).await;
    let owned: Vec<_> = owners(&model).await.into_values().map(|(name, _)| name).collect();
    assert_eq!(owned.iter().filter(|name| *name == "a").count(), 2, "its lease has not ended yet");
    second.owns(4).await;
    first.store.cut_off(false);
    for _ in 0..2 {
        second.hand_over().await;
    }
    first.owns(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_watches_end_keeps_its_shards_and_learns_what_has_changed() {
    for compacted in [false, true] {
        let model = model();
        let (mut first, second) = two(&model).await;
        // Each of its three watches ends now and then.
        for _ in 0..10 {
            first.store.cut_off(true);
            sleep(TIME_TO_LIVE / 4).await;
            first.store.cut_off(false);
            sleep(TIME_TO_LIVE).await;
        }
        assert!(first.events.try_recv().is_err(), "nothing is lost");
        first.store.cut_off(true);
        // Meanwhile one comes and one goes.
        second.membership.leave().await;
        let mut third = start(&model, "c", 3);
        third.owns(2).await;
        if compacted {
            model.connect().compact(model.revision()).await.unwrap();
        }
        first.store.cut_off(false);
        let servers = || first.membership.view().borrow().servers.keys().cloned().collect::<Vec<_>>();
        while servers() != ["a", "c"] {
            sleep(Duration::from_millis(10)).await;
        }
        sleep(TIME_TO_LIVE * 4).await;
        assert!(first.events.try_recv().is_err(), "it has lost nothing");
        assert_eq!(owners(&model).await.len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_is_not_taken_from_a_server_that_lives() {
    let model = model();
    let mut first = start(&model, "a", 1);
    first.owns(4).await;
    let mut others = [start(&model, "a", 2), start(&model, "a", 3)];
    sleep(TIME_TO_LIVE * 20).await;
    assert!(first.events.try_recv().is_err(), "it has lost nothing");
    for other in &mut others {
        assert!(other.events.try_recv().is_err(), "who has come later has got nothing");
        assert_eq!(*other.membership.valid_until().borrow(), None);
    }
    // Who waits may still be told to go.
    let [mut second, third] = others;
    third.membership.leave().await;
    third.driver.await.unwrap();

    let valid_until = first.membership.valid_until().borrow().unwrap();
    first.driver.abort();
    second.owns(4).await;
    assert!(Instant::now() >= valid_until, "the name is free when the lease has ended");
    // The same process begins a new session under its name at once, and one that has lost its name meanwhile
    // waits for it.
    second.store.cut_off(true);
    second.owns(0).await;
    let mut fourth = start(&model, "a", 4);
    fourth.owns(4).await;
    second.store.cut_off(false);
    sleep(TIME_TO_LIVE * 20).await;
    assert!(second.events.try_recv().is_err() && fourth.events.try_recv().is_err());
    fourth.membership.leave().await;
    second.owns(4).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_left_is_started_again_at_once() {
    let model = model();
    let mut first = start(&model, "a", 1);
    first.owns(4).await;
    first.membership.leave().await;
    let began = Instant::now();
    start(&model, "a", 2).owns(4).await;
    assert!(began.elapsed() < TIME_TO_LIVE / 2);
}

/// The store is put back to what it was before `since` has happened; the session goes on with its lease, or
/// has none there.
#[tokio::test(start_paused = true)]
async fn servers_begin_anew_when_the_store_was_put_back() {
    for lease_is_there in [true, false] {
        let model = model();
        let before = model.saved();
        let mut first = start(&model, "a", 1);
        first.owns(4).await;
        let saved = if lease_is_there { model.saved() } else { before };
        for shard in (0..5).flat_map(|_| shards().shards()) {
            let epoch = first.owned.remove(&shard).unwrap();
            assert!(first.membership.release(shard, epoch).await);
            first.owns(4).await;
        }
        let ended = first.owned.clone();
        let at = model.revision();
        model.put_back(saved);
        assert!(model.revision() < at);
        first.owns(0).await;
        first.owns(4).await;
        assert!(first.owned.iter().any(|(shard, epoch)| *epoch <= ended[shard]), "epochs have begun anew");
        let owners = owners(&model).await;
        assert!(first.owned.iter().all(|(shard, epoch)| owners[shard] == ("a".to_owned(), *epoch)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_key_is_deleted_registers_again() {
    let model = model();
    let mut first = start(&model, "a", 1);
    first.owns(4).await;
    let key = keys().server(&Name::new("a").unwrap());
    let delete = vec![Op::Delete(KeyRange::one(key.clone()))];
    let store = model.connect();
    store.txn(Txn { then: delete, ..Txn::default() }).await.unwrap();
    first.owns(0).await;
    first.owns(4).await;
    assert_eq!(store.range(KeyRange::one(key), 1).await.unwrap().found.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_given_up_is_claimed_by_another_server_and_stays_there() {
    let model = model();
    let (mut first, mut second) = two(&model).await;
    let (shard, epoch) = second.owned.pop_last().unwrap();
    second.membership.give_up(shard, epoch).await;
    first.owns(3).await;
    assert!(first.owned.contains_key(&shard));
    sleep(TIME_TO_LIVE * 10).await;
    assert!(first.events.try_recv().is_err(), "the load is uneven, and still the release is not requested");
    assert!(second.events.try_recv().is_err());
    // In the end the load counts again.
    assert_eq!(first.hand_over().await, shard);
    second.owns(2).await;
}

#[tokio::test(start_paused = true)]
async fn who_claims_what_another_server_gave_up_hands_another_shard_over() {
    let model = model();
    let (mut first, mut second) = two(&model).await;
    let (shard, epoch) = first.owned.pop_last().unwrap();
    first.membership.give_up(shard, epoch).await;
    second.owns(3).await;
    let other = second.hand_over().await;
    assert_ne!(other, shard);
    first.owns(2).await;
    assert!(first.owned.contains_key(&other) && second.owned.contains_key(&shard));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_was_owned_elsewhere_already_counts_as_no_failure() {
    let model = model();
    let mut server = start(&model, "a", 1);
    server.owns(4).await;
    // Its owner's key is deleted; it learns that when it gives the shard up.
    let (shard, epoch) = server.owned.pop_first().unwrap();
    let delete = vec![Op::Delete(KeyRange::one(keys().owner(shard)))];
    let store = model.connect();
    let (deleted, was_owner) = tokio::join!(
        store.txn(Txn { then: delete, ..Txn::default() }),
        server.membership.give_up(shard, epoch)
    );
    assert!(!was_owner);
    deleted.unwrap();
    let given_up = Instant::now();
    loop {
        if let Event::Claimed { shard: claimed, epoch: newer } = server.events.recv().await.unwrap() {
            assert!(claimed == shard && newer > epoch);
            break;
        }
    }
    assert!(given_up.elapsed() < TIME_TO_LIVE, "there is no pause");
}

#[tokio::test(start_paused = true)]
async fn a_server_alone_claims_what_it_gave_up_after_pauses_that_grow() {
    let model = model();
    let mut server = start(&model, "a", 1);
    server.owns(4).await;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let (shard, epoch) = server.owned.pop_first().unwrap();
        server.membership.give_up(shard, epoch).await;
        let given_up = Instant::now();
        server.owns(4).await;
        assert!(server.owned[&shard] > epoch);
        pauses.push(given_up.elapsed());
    }
    assert!(pauses[0] >= TIME_TO_LIVE && pauses.is_sorted_by(|a, b| *a + TIME_TO_LIVE < *b), "{pauses:?}");
}

/// Every shard has had one owner only.
#[tokio::test(start_paused = true)]
async fn servers_that_start_together_claim_their_shares_and_move_nothing() {
    let model = model();
    let mut servers = Vec::new();
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        servers.push(start(&model, name, number as u64));
        sleep(TIME_TO_LIVE / 12).await;
    }
    sleep(TIME_TO_LIVE).await;
    let owned = owners(&model).await;
    assert_eq!(owned.len(), 4);
    assert_eq!(owned.values().map(|(name, _)| name).collect::<BTreeSet<_>>().len(), 3);
    assert!(owned.keys().all(|&shard| deletions(&model, shard).is_empty()));

    // One dies: nobody waits for anything but the end of its lease.
    let dead = servers.remove(0);
    let before: Vec<_> = owned.iter().filter(|(_, (name, _))| name == "a").map(|(&shard, _)| shard).collect();
    dead.driver.abort();
    let freed = |model: &Model| before.iter().all(|&shard| !deletions(model, shard).is_empty());
    while !freed(&model) {
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_millis(2)).await;
    assert_eq!(owners(&model).await.len(), 4);
}
