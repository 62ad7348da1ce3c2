use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::*;
use crate::keys::Name;
use crate::model::{Faults, Model, ModelStore};
use crate::store::{Op, Txn};

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
    Space { members: members.iter().map(member).collect(), silent, near_quota: false }
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
    let of = |members: &[_], silent| driver.candidate(&space(members, silent)).is_some();
    assert!(of(&[("a", 400, 200, true)], 0));
    assert!(!of(&[("a", 400, 201, true)], 0), "less than half is free");
    assert!(!of(&[("a", 90, 1, true)], 0), "the file is small");
    assert!(of(&[("a", 800, 600, true)], 0), "near the quota a quarter is enough");
    assert!(!of(&[("a", 800, 601, true)], 0));
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
    told.wait_for(|space| space.near_quota).await.unwrap();
    sleep(config().compact_every * 3).await;
    assert!(told.borrow().near_quota, "nobody is elected");

    elected.store(true, Ordering::Relaxed);
    sleep(config().compact_every).await;
    overwrite(&store, 1).await;
    let last = model.revision();
    told.wait_for(|space| !space.near_quota).await.unwrap();
    let space = told.borrow().members["model"];
    assert!(space.size < 100 * KIB && space.size == space.size_in_use, "{space:?}");
    assert!(store.watch(KeyRange::one("k"), last).await.is_ok(), "the last minutes are kept");
    let first = store.watch(KeyRange::one("k"), Revision(2)).await;
    assert!(matches!(first, Err(StoreError::Compacted(_))));
    driver.abort();
}
