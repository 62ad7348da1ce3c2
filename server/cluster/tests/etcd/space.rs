use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stickycas_cluster::etcd::Client;
use stickycas_cluster::etcd::wire::alarm_request::AlarmAction;
use stickycas_cluster::etcd::wire::maintenance_client::MaintenanceClient;
use stickycas_cluster::etcd::wire::{AlarmRequest, AlarmType};
use stickycas_cluster::keys::{Keys, Name};
use stickycas_cluster::maintenance::{Fullness, MaintenanceConfig, Space, maintenance};
use stickycas_cluster::store::{KeyRange, Members, Op, Store, StoreError};
use stickycas_cluster::testing::conformance::{put, unconditional};
use stickycas_cluster::testing::etcd::Options;
use tokio::task::JoinSet;

use super::{set, start};

const QUOTA: u64 = 8 << 20;
const VALUE: usize = 200 << 10;
const IN_FLIGHT: usize = 8;

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_full_store_refuses_what_takes_space_until_it_is_emptied_and_the_alarm_disarmed() {
    let etcd = start(&Options { quota_bytes: Some(QUOTA), ..Options::default() }).await;
    let client = Client::new(&etcd.config()).unwrap();
    let lease = client.grant(Duration::from_mins(1)).await.unwrap();
    let full = fill(&client).await;
    assert!(!full.is_empty());
    // The reason why nobody knows after this error: some of them may be there.
    let there = client.range(KeyRange::prefix("k/"), 0).await.unwrap().found;
    let applied = full.iter().filter(|key| there.iter().any(|kv| kv.key == key.as_bytes())).count();
    println!("no space was answered to {} puts, of which {applied} were applied", full.len());

    assert_eq!(set(&client, "k/more", "").await, Err(StoreError::NoSpace));
    assert_eq!(client.grant(Duration::from_mins(1)).await, Err(StoreError::NoSpace));
    assert!(client.keep_alive(lease).await.is_ok(), "what needs no space is taken");
    assert_eq!(client.alarm().await, Ok(true));

    let delete = unconditional(vec![Op::Delete(KeyRange::prefix("k/"))]);
    let deleted = client.txn(delete).await.unwrap().revision;
    client.compact(deleted).await.unwrap();
    let url = &etcd.urls()[0];
    // The compaction goes on behind its answer.
    while client.space(url).await.unwrap().size > QUOTA / 2 {
        client.defragment(url).await.unwrap();
    }
    assert_eq!(set(&client, "k/more", "").await, Err(StoreError::NoSpace), "the alarm stays");
    disarm(url).await;
    assert!(set(&client, "k/more", "").await.is_ok());
    assert_eq!(client.alarm().await, Ok(false));
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn the_elected_server_keeps_three_members_far_from_their_quota() {
    let etcd = start(&Options { members: 3, quota_bytes: Some(QUOTA), ..Options::default() }).await;
    let client = Client::new(&etcd.config()).unwrap();
    let config = MaintenanceConfig {
        compact_every: Duration::from_millis(200),
        look_every: Duration::from_millis(50),
        defragment_from: 1 << 20,
        defragment_again: Duration::from_millis(1),
        quota: QUOTA,
    };
    let elected = Arc::new(AtomicBool::new(false));
    let (mut told, driver) = {
        let (keys, elected) = (Keys::new(&Name::new("demo").unwrap()), Arc::clone(&elected));
        maintenance(client.clone(), keys, config, move || elected.load(Ordering::Relaxed))
    };
    let driver = tokio::spawn(driver);
    let mut overwritten = 0;
    while told.borrow_and_update().fullness() < Fullness::Near {
        set(&client, "k", &"x".repeat(VALUE)).await.unwrap();
        overwritten += VALUE as u64;
        assert!(overwritten < QUOTA, "the alarm comes before the quota");
        if overwritten > QUOTA / 2 {
            told.changed().await.unwrap();
        }
    }
    elected.store(true, Ordering::Relaxed);
    let small = |space: &Space| {
        space.members.len() == 3 && space.members.values().all(|member| member.size < QUOTA / 4)
    };
    while !small(&told.borrow_and_update()) {
        // What a compaction frees counts as free only after the next writes.
        set(&client, "other", "").await.unwrap();
        told.changed().await.unwrap();
    }
    assert_eq!(told.borrow().fullness(), Fullness::Enough);
    assert_eq!(client.alarm().await, Ok(false));
    driver.abort();
}

/// Disarms the alarm of every member, as an operator does.
async fn disarm(url: &str) {
    let mut maintenance = MaintenanceClient::connect(url.to_owned()).await.unwrap();
    let request = |action: AlarmAction, member_id| AlarmRequest {
        action: action.into(),
        member_id,
        alarm: AlarmType::Nospace.into(),
    };
    let armed = maintenance.alarm(request(AlarmAction::Get, 0)).await.unwrap().into_inner().alarms;
    for alarm in armed {
        maintenance.alarm(request(AlarmAction::Deactivate, alarm.member_id)).await.unwrap();
    }
}

/// Puts until there is no space; returns the keys whose puts were answered so.
async fn fill(client: &Client) -> Vec<String> {
    let mut full = Vec::new();
    for round in 0_usize.. {
        let mut puts = JoinSet::new();
        for number in 0..IN_FLIGHT {
            let (client, key) = (client.clone(), format!("k/{round}/{number}"));
            puts.spawn(async move {
                let answer = client.txn(unconditional(vec![put(key.clone(), vec![1; VALUE])])).await;
                (key, answer)
            });
        }
        for (key, answer) in puts.join_all().await {
            match answer {
                Ok(_) => {}
                Err(StoreError::NoSpace) => full.push(key),
                Err(error) => panic!("{key}: {error}"),
            }
        }
        if !full.is_empty() {
            break;
        }
    }
    full
}
