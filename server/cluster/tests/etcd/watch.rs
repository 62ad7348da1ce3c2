use std::time::Duration;

use stickycas_cluster::etcd::{Client, Config};
use stickycas_cluster::store::{Change, KeyRange, Revision, Store, StoreError};
use stickycas_cluster::testing::conformance::{next, put, unconditional};

use super::{impatient, set, single};

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_watch_ends_with_its_member_and_another_one_goes_on_where_it_ended() {
    let (mut etcd, client) = single().await;
    let range = KeyRange::prefix("k/");
    let first = set(&client, "k/a", "1").await.unwrap().revision;
    let mut watch = client.watch(range.clone(), first).await.unwrap();
    assert_eq!(next(&mut watch).await.unwrap().unwrap().len(), 1);
    etcd.kill(0);
    let over = next(&mut watch).await.unwrap();
    assert!(matches!(over, Err(StoreError::NotDone(_))), "{over:?}");
    assert_eq!(next(&mut watch).await.unwrap(), over, "it stays over");
    etcd.restart(0).await.unwrap();
    let mut watch = loop {
        match client.watch(range.clone(), Revision(first.0 + 1)).await {
            Ok(watch) => break watch,
            Err(StoreError::NotDone(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let second = set(&client, "k/b", "2").await.unwrap().revision;
    let told = next(&mut watch).await.unwrap().unwrap();
    assert!(matches!(&told[..], [Change::Put(kv)] if kv.modified == second), "{told:?}");
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_large_change_comes_in_fragments_and_is_told_at_once() {
    let (_etcd, client) = single().await;
    // 4 MiB of history, of which one revision is 1 MiB.
    let mut last = Revision(0);
    for round in 0..4_u8 {
        let ops = (0..64).map(|key| put(format!("k/{key:02}"), vec![round; 16 << 10])).collect();
        last = client.txn(unconditional(ops)).await.unwrap().revision;
    }
    let mut watch = client.watch(KeyRange::prefix("k/"), Revision(1)).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 4 {
        told.push(next(&mut watch).await.unwrap().unwrap());
    }
    assert!(told.iter().all(|changes| changes.len() == 64));
    assert!(matches!(&told[3][0], Change::Put(kv) if kv.modified == last));
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn an_idle_watch_goes_on_while_its_member_answers() {
    let (etcd, client) = single().await;
    let restless = Client::new(&Config { watch_idle: Duration::from_millis(1), ..etcd.config() }).unwrap();
    let mut watch = restless.watch(KeyRange::one("watched"), Revision(0)).await.unwrap();
    let told = tokio::spawn(async move { next(&mut watch).await.unwrap() });
    for round in 0..200 {
        set(&client, "elsewhere", &round.to_string()).await.unwrap();
    }
    set(&client, "watched", "").await.unwrap();
    assert_eq!(told.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_watch_of_a_stopped_member_ends() {
    let (etcd, _client) = single().await;
    let client = Client::new(&impatient(etcd.config())).unwrap();
    let mut watch = client.watch(KeyRange::one("watched"), Revision(0)).await.unwrap();
    let signal = |name: &str| {
        let pid = etcd.pid(0).unwrap().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    let over = next(&mut watch).await.unwrap();
    assert!(matches!(&over, Err(StoreError::NotDone(told)) if told.contains("silent")), "{over:?}");
    let unknown = set(&client, "a", "").await;
    assert!(matches!(unknown, Err(StoreError::Unknown(_))), "{unknown:?}");
    signal("-CONT");
}
