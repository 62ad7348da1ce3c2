use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::*;
use crate::keys::Name;
use crate::model::{Faults, Model, ModelStore};
use crate::store::{Op, Store as _, Txn};

const KIB: u64 = 1 << 10;

fn keys() -> Keys {
    Keys::new(&Name::new("demo").unwrap())
}

fn config() -> MaintenanceConfig {
    MaintenanceConfig { defragment_from: 100 * KIB, quota: 1000 * KIB, ..MaintenanceConfig::default() }
}

/// A driver with these members.
fn driver(model: &Model) -> Driver<ModelStore, fn() -> bool> {
    let (space, _) = watch::channel(Space::default());
    let (store, elected): (_, fn() -> bool) = (model.connect(), || true);
    Driver { store, keys: keys(), config: config(), elected, space, defragmented: BTreeMap::new() }
}

fn space(members: &[(&str, u64, u64, bool)], silent: usize) -> Space {
    let member = |&(name, size, in_use, is_leader): &(&str, u64, u64, bool)| {
        (name.to_owned(), MemberSpace { size: size * KIB, size_in_use: in_use * KIB, is_leader })
    };
    let members = members.iter().map(member).collect();
    Space { members, silent, quota: config().quota, alarm: false }
}

#[tokio::test(start_paused = true)]
async fn the_member_with_most_free_space_is_defragmented_and_the_leader_last() {
    let mut driver = driver(&Model::new(1, Faults::default()));
    let three = space(&[("a", 500, 100, true), ("b", 400, 100, false), ("c", 400, 50, false)], 0);
    let mut order = Vec::new();
    while let Some(endpoint) = driver.candidate(&three) {
        driver.defragmented.insert(endpoint.clone(), Instant::now());
        order.push(endpoint);
    }
    assert_eq!(order, ["c", "b", "a"]);
    sleep(config().defragment_again).await;
    assert_eq!(driver.candidate(&three).as_deref(), Some("c"));
}

#[tokio::test(start_paused = true)]
async fn a_member_is_defragmented_only_where_it_is_worth_it_and_harmless() {
    let driver = driver(&Model::new(1, Faults::default()));
    let of_only = |member| driver.candidate(&space(&[member], 0)).is_some();
    let of = |members: &[_], silent| {
        let full = ("full", 400, 400, false);
        driver.candidate(&space(&[members, &[full]].concat(), silent)).is_some()
    };
    assert!(of(&[("a", 400, 200, true)], 0));
    assert!(!of_only(("a", 799, 1, true)), "nobody else answers meanwhile");
    assert!(of_only(("a", 800, 700, true)), "soon nobody takes anything");
    assert!(!of(&[("a", 400, 201, true)], 0), "less than half is free");
    assert!(!of(&[("a", 90, 1, true)], 0), "the file is small");
    assert!(of(&[("a", 800, 700, true)], 0), "near the quota an eighth is enough");
    assert!(!of(&[("a", 800, 701, true)], 0));
    assert!(!of(&[("a", 400, 200, true)], 1), "a member is silent");
    assert!(!of(&[("a", 400, 200, false)], 0), "there is no leader");
}

/// Sets one key again and again.
async fn overwrite(store: &ModelStore, times: usize) {
    for _ in 0..times {
        let put = Op::Put { key: "k".into(), value: Bytes::from(vec![0; 10 << 10]), lease: None };
        store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_elected_server_compacts_to_some_minutes_ago_and_makes_the_file_smaller() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    let elected = Arc::new(AtomicBool::new(false));
    let (mut told, driver) = {
        let elected = Arc::clone(&elected);
        maintenance(store.clone(), keys(), config(), move || elected.load(Ordering::Relaxed))
    };
    let driver = tokio::spawn(driver);
    overwrite(&store, 90).await;
    told.wait_for(|space| space.fullness() == Fullness::Full).await.unwrap();
    sleep(config().compact_every * 3).await;
    assert_eq!(told.borrow().fullness(), Fullness::Full, "nobody is elected");

    elected.store(true, Ordering::Relaxed);
    sleep(config().compact_every).await;
    overwrite(&store, 1).await;
    let last = model.revision();
    told.wait_for(|space| space.fullness() == Fullness::Enough).await.unwrap();
    let space = told.borrow().members["model"];
    assert!(space.size < 100 * KIB && space.size == space.size_in_use, "{space:?}");
    assert!(store.watch(KeyRange::one("k"), last).await.is_ok(), "the last minutes are kept");
    let first = store.watch(KeyRange::one("k"), Revision(2)).await;
    assert!(matches!(first, Err(StoreError::Compacted(_))));
    driver.abort();
}

#[test]
fn there_is_a_warning_for_every_file_that_is_near_its_quota_and_stays_so() {
    let of = |size, in_use| space(&[("a", size, in_use, true), ("b", 10, 5, false)], 0);
    let fullness = [(1000, 699), (1000, 700), (1000, 899), (1000, 900)]
        .map(|(size, in_use)| of(size, in_use).fullness());
    assert_eq!(fullness, [Fullness::Enough, Fullness::Near, Fullness::Near, Fullness::Full]);
    assert_eq!(Space { alarm: true, ..of(10, 5) }.fullness(), Fullness::Full, "etcd refuses everything");
    assert_eq!(Space::default().fullness(), Fullness::Enough, "nobody has told anything yet");
    for size in 800..=1000 {
        for in_use in 0..=size {
            let member = MemberSpace { size: size * KIB, size_in_use: in_use * KIB, is_leader: true };
            let told = of(size, in_use).fullness() >= Fullness::Near;
            assert!(told || is_worth_it(&member, &config()), "{size} {in_use}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_alarm_is_told_and_nobody_disarms_it() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    let (mut told, driver) = maintenance(store.clone(), keys(), config(), || true);
    let driver = tokio::spawn(driver);
    model.set_quota(Some(1));
    let put = Op::Put { key: "k".into(), value: "v".into(), lease: None };
    store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap_err();
    told.wait_for(|space| space.alarm).await.unwrap();
    sleep(config().compact_every * 3).await;
    assert_eq!(told.borrow().fullness(), Fullness::Full);
    // The operator makes room, and disarms it.
    model.set_quota(None);
    told.wait_for(|space| space.fullness() == Fullness::Enough).await.unwrap();
    driver.abort();
}
