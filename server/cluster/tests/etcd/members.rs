use std::net::TcpListener;

use stickycas_cluster::etcd::{Client, Config};
use stickycas_cluster::store::{Change, KeyRange, LeaseId, Members, Revision, Store, StoreError};
use stickycas_cluster::testing::conformance::next;
use stickycas_cluster::testing::etcd::Options;

use super::{create, impatient, set, single, start};

const KEYS: usize = 60;

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn with_three_members_each_is_killed_once_and_nothing_is_lost_or_told_twice() {
    let mut etcd = start(&Options { members: 3, ..Options::default() }).await;
    let client = Client::new(&etcd.config()).unwrap();
    let range = KeyRange::prefix("k/");
    let observer = tokio::spawn(observe(Client::new(&etcd.config()).unwrap(), range.clone()));
    for number in 0..KEYS {
        create(&client, &format!("k/{number:02}")).await;
        let (turn, member) = (number % 20, number / 20);
        match turn {
            5 => etcd.kill(member),
            15 => etcd.restart(member).await.unwrap(),
            _ => {}
        }
    }
    let found = loop {
        match client.range(range.clone(), 0).await {
            Ok(answer) => break answer.found,
            Err(StoreError::NotDone(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let keys: Vec<_> = found.iter().map(|kv| kv.key.clone()).collect();
    assert_eq!(keys, (0..KEYS).map(|number| format!("k/{number:02}")).collect::<Vec<_>>());
    assert!(found.iter().all(|kv| kv.created == kv.modified), "none was created twice");
    assert_eq!(observer.await.unwrap(), keys);
}

/// The keys that a watch tells, opened again where it ended.
async fn observe(client: Client, range: KeyRange) -> Vec<bytes::Bytes> {
    let (mut keys, mut from) = (Vec::new(), Revision(1));
    while keys.len() < KEYS {
        let mut watch = match client.watch(range.clone(), from).await {
            Ok(watch) => watch,
            Err(StoreError::NotDone(_)) => {
                tokio::task::yield_now().await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        while keys.len() < KEYS {
            match next(&mut watch).await.unwrap() {
                Ok(changes) => {
                    for change in changes {
                        let Change::Put(kv) = change else { panic!("nothing is deleted") };
                        from = Revision(kv.modified.0 + 1);
                        keys.push(kv.key);
                    }
                }
                Err(StoreError::NotDone(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    keys
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn without_a_majority_nothing_is_written_and_a_read_is_not_done() {
    let mut etcd = start(&Options { members: 3, ..Options::default() }).await;
    let client = Client::new(&impatient(etcd.config())).unwrap();
    let before = loop {
        if let Ok(answer) = set(&client, "a", "1").await {
            break answer.revision;
        }
    };
    etcd.kill(1);
    etcd.kill(2);
    let read = client.range(KeyRange::one("a"), 0).await;
    assert!(matches!(read, Err(StoreError::NotDone(_))), "{read:?}");
    let write = set(&client, "a", "2").await;
    assert!(matches!(write, Err(StoreError::NotDone(_) | StoreError::Unknown(_))), "{write:?}");
    etcd.restart(1).await.unwrap();
    let after = loop {
        if let Ok(answer) = client.range(KeyRange::one("a"), 0).await {
            break answer;
        }
    };
    assert!(after.found[0].created <= before, "what was acknowledged stands");
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn an_endpoint_that_accepts_and_never_answers_leaves_a_write_unknown_and_the_next_one_goes_elsewhere() {
    let (etcd, _client) = single().await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let config = Config { first: Some(0), ..impatient(etcd.config()) };
    let endpoints = vec![silent_url.clone(), etcd.urls()[0].clone()];
    let both = || Client::new(&Config { endpoints: endpoints.clone(), ..config.clone() }).unwrap();
    let client = both();
    let unknown = set(&client, "a", "1").await;
    assert!(matches!(unknown, Err(StoreError::Unknown(_))), "{unknown:?}");
    assert!(set(&client, "a", "2").await.is_ok());
    let client = both();
    let read = client.range(KeyRange::one("a"), 0).await;
    assert!(matches!(read, Err(StoreError::NotDone(_))), "{read:?}");
    let client = both();
    assert!(matches!(client.watch(KeyRange::one("a"), Revision(1)).await, Err(StoreError::NotDone(_))));
    let client = both();
    let kept = client.keep_alive(LeaseId(1)).await;
    assert!(matches!(kept, Err(StoreError::Unknown(_))), "{kept:?}");
    assert_eq!(client.keep_alive(LeaseId(1)).await, Err(StoreError::NoLease));
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn an_endpoint_that_refuses_connections_has_done_nothing_and_the_next_request_goes_elsewhere() {
    let (etcd, _client) = single().await;
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoints = vec![format!("http://{closed}"), etcd.urls()[0].clone()];
    let client = Client::new(&Config { endpoints, first: Some(0), ..etcd.config() }).unwrap();
    let refused = set(&client, "a", "1").await;
    assert!(matches!(refused, Err(StoreError::NotDone(_))), "{refused:?}");
    assert!(set(&client, "a", "1").await.is_ok());
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn members_tell_their_space_and_one_leads() {
    let etcd = start(&Options { members: 3, ..Options::default() }).await;
    let client = Client::new(&etcd.config()).unwrap();
    let mut leaders = 0;
    for url in &etcd.urls() {
        let space = client.space(url).await.unwrap();
        assert!(space.size >= space.size_in_use && space.size_in_use > 0);
        leaders += u32::from(space.is_leader);
        client.defragment(url).await.unwrap();
    }
    assert_eq!((leaders, client.alarm().await), (1, Ok(false)));
    assert!(matches!(client.space("http://elsewhere:1").await, Err(StoreError::Refused(_))));
}
