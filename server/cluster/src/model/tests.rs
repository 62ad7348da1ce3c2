use std::collections::BTreeSet;

use bytes::Bytes;
use tokio::runtime::Builder;

use super::*;
use crate::store::{Compare, Op};

fn put(key: &str, value: &str) -> Op {
    Op::Put { key: Bytes::from(key.to_owned()), value: Bytes::from(value.to_owned()), lease: None }
}

fn then(ops: Vec<Op>) -> Txn {
    Txn { then: ops, ..Txn::default() }
}

fn store() -> ModelStore {
    Model::new(1, Faults::default()).connect()
}

#[tokio::test(start_paused = true)]
async fn a_transaction_does_one_of_its_two_sides() {
    let store = store();
    let txn = Txn {
        compare: vec![Compare::Created("a".into(), Revision(0))],
        then: vec![put("a", "1"), Op::Get(KeyRange::one("a"))],
        otherwise: vec![Op::Get(KeyRange::one("a"))],
    };
    let first = store.txn(txn.clone()).await.unwrap();
    let second = store.txn(txn).await.unwrap();
    assert_eq!((first.succeeded, first.revision), (true, Revision(2)));
    assert_eq!((second.succeeded, second.revision), (false, Revision(2)));
    assert_eq!(first.found, second.found);
    assert_eq!(first.found[0][0].created, Revision(2));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_made_again_is_created_anew() {
    let store = store();
    let mut created = Vec::new();
    for ops in
        [vec![put("a", "1")], vec![put("a", "2")], vec![Op::Delete(KeyRange::one("a"))], vec![put("a", "3")]]
    {
        store.txn(then(ops)).await.unwrap();
        created.push(store.range(KeyRange::one("a"), 0).await.unwrap().found.first().map(|kv| kv.created.0));
    }
    assert_eq!(created, [Some(2), Some(2), None, Some(5)]);
}

#[tokio::test(start_paused = true)]
async fn what_etcd_refuses_is_refused() {
    let store = store();
    let keys = |count| (0..count).map(|number| put(&number.to_string(), "")).collect::<Vec<_>>();
    let refused = [
        vec![put("a", "1"), put("a", "2")],
        vec![put("b", "1"), Op::Delete(KeyRange::prefix("b"))],
        keys(129),
        vec![put("c", &"x".repeat(3 << 19))],
    ];
    for ops in refused {
        assert!(matches!(store.txn(then(ops)).await, Err(StoreError::Refused(_))));
    }
    assert!(store.txn(then(keys(128))).await.is_ok());
    let lease = Some(LeaseId(7));
    let put = Op::Put { key: "d".into(), value: Bytes::new(), lease };
    assert_eq!(store.txn(then(vec![put])).await, Err(StoreError::NoLease));
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_with_its_keys_unless_it_is_kept_alive() {
    let model = Model::new(1, Faults { lease_slack: Duration::ZERO, ..Faults::default() });
    let store = model.connect();
    let lease = store.grant(Duration::from_secs(3)).await.unwrap();
    let put = Op::Put { key: "a".into(), value: Bytes::new(), lease: Some(lease) };
    store.txn(then(vec![put])).await.unwrap();
    let mut watch = store.watch(KeyRange::one("a"), Revision(0)).await.unwrap();
    for _ in 0..3 {
        sleep(Duration::from_secs(2)).await;
        store.keep_alive(lease).await.unwrap();
    }
    let kept = Instant::now();
    assert_eq!(watch.next().await, Ok(vec![Change::Deleted("a".into(), Revision(3))]));
    assert_eq!(kept.elapsed().as_secs(), 3);
    assert_eq!(store.keep_alive(lease).await, Err(StoreError::NoLease));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_each_revision_until_it_is_compacted() {
    let store = store();
    for ops in [vec![put("a", "1"), put("a2", "1")], vec![put("b", "1")], vec![put("a", "2")]] {
        store.txn(then(ops)).await.unwrap();
    }
    let mut watch = store.watch(KeyRange::prefix("a"), Revision(2)).await.unwrap();
    assert_eq!(watch.next().await.unwrap().len(), 2);
    assert_eq!(watch.next().await.unwrap().len(), 1);
    store.compact(Revision(3)).await.unwrap();
    for from in [2, 3] {
        let watch = store.watch(KeyRange::prefix("a"), Revision(from)).await;
        assert_eq!(watch.map(|_| ()), Err(StoreError::Compacted(Revision(4))));
    }
    assert_eq!(store.compact(Revision(3)).await, Err(StoreError::Compacted(Revision(3))));
    assert!(store.watch(KeyRange::prefix("a"), Revision(4)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_full_store_takes_deletes_only_until_there_is_room() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    store.txn(then(vec![put("a", &"x".repeat(100))])).await.unwrap();
    model.set_quota(Some(150));
    assert_eq!(store.txn(then(vec![put("b", &"x".repeat(100))])).await, Err(StoreError::NoSpace));
    assert_eq!(store.txn(then(vec![put("c", "")])).await, Err(StoreError::NoSpace), "the alarm stays");
    let all = KeyRange { from: "a".into(), to: Some("d".into()) };
    let there = store.range(all.clone(), 0).await.unwrap().found;
    let there: Vec<_> = there.iter().map(|kv| &kv.key[..]).collect();
    assert_eq!(there, [b"a", b"b"], "the request that crosses the quota is applied all the same");
    assert_eq!(model.refused_for_space(), 1);
    store.txn(then(vec![Op::Delete(all)])).await.unwrap();
    store.compact(model.revision()).await.unwrap();
    assert!(model.used() < 50);
    model.set_quota(Some(150));
    assert_eq!(
        store.txn(then(vec![put("b", "")])).await,
        Err(StoreError::NoSpace),
        "the file is as large as it was"
    );
    store.defragment("model").await.unwrap();
    model.set_quota(Some(150));
    assert!(store.txn(then(vec![put("b", &"x".repeat(100))])).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_knows_nothing_and_may_have_done_it() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let model = Model::new(seed, Faults::default());
        let store = model.connect();
        store.cut_off(true);
        let error = store.txn(then(vec![put("a", "1")])).await.unwrap_err();
        assert!(model.history().is_empty());
        store.cut_off(false);
        sleep(Duration::from_secs(20)).await;
        seen.insert((matches!(error, StoreError::Unknown(_)), model.history().len()));
    }
    assert_eq!(seen, [(false, 0), (true, 0), (true, 1)].into());
}

#[tokio::test(start_paused = true)]
async fn what_gets_no_answers_is_done_and_not_known() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    store.drop_answers(true);
    let error = store.txn(then(vec![put("a", "1")])).await.unwrap_err();
    assert!(matches!(error, StoreError::Unknown(_)), "{error}");
    assert_eq!(model.history().len(), 1);
    store.drop_answers(false);
    store.txn(then(vec![put("a", "2")])).await.unwrap();
}

#[test]
fn a_request_arrives_although_its_client_is_gone() {
    let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (etcd, client) = (runtime(), runtime());
    let model =
        Model::on(etcd.handle().clone(), 1, Faults { delay: Duration::from_millis(9), ..Faults::default() });
    let store = model.connect();
    client.block_on(async {
        let txn = store.txn(then(vec![put("a", "1")]));
        assert!(timeout(Duration::ZERO, txn).await.is_err(), "it is on its way");
    });
    drop(client);
    etcd.block_on(async {
        assert!(model.history().is_empty());
        sleep(Duration::from_millis(9)).await;
        assert_eq!(model.history().len(), 1);
    });
}

/// What happens to some requests that are sent at once.
async fn transcript(seed: u64) -> String {
    let faults = Faults { delay: Duration::from_millis(50), lost: 200, ..Faults::default() };
    let model = Model::new(seed, faults);
    let store = model.connect();
    let mut requests = tokio::task::JoinSet::new();
    for number in 0..20 {
        let store = store.clone();
        requests.spawn(async move { (number, store.txn(then(vec![put("a", &number.to_string())])).await) });
    }
    let mut answers = Vec::new();
    while let Some(answer) = requests.join_next().await {
        answers.push(answer.unwrap());
    }
    format!("{answers:?} {:?}", model.history())
}

#[tokio::test(start_paused = true)]
async fn everything_follows_from_the_seed() {
    assert_eq!(transcript(5).await, transcript(5).await);
    assert_ne!(transcript(5).await, transcript(6).await);
}

#[tokio::test(start_paused = true)]
async fn the_model_does_what_every_store_does() {
    crate::testing::conformance::conforms(&store(), "/conforms/").await.unwrap();
}
