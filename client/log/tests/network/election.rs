//! Leaders that are killed, or Byzantine, and replaced.

use std::time::Duration;

use stickycas_client::{ProcessSpec, Strategy};
use stickycas_log::{Elected, Election, LogError, SeriesSpec};
use tokio::task::JoinSet;

use crate::support::{NAME, client, coordinate, series, server, spec};

const LONG: Duration = Duration::from_secs(3);

/// These members support this candidate; all learn the same.
async fn elect(address: &str, epoch: u64, members: &[u32], candidate: &str) -> Elected {
    let mut supporting = JoinSet::new();
    for number in members {
        let election = Election::new(&series(address, &format!("m{number}")));
        let candidate = candidate.to_owned();
        supporting.spawn(async move { election.support(epoch, &candidate).await.unwrap() });
    }
    let mut outcomes = supporting.join_all().await;
    outcomes.dedup();
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_leader_and_a_byzantine_one_are_replaced() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    // Long enough that no correct member is late, since f is 1 already.
    coordinate(
        &mut tasks,
        &address,
        SeriesSpec { window: 1, join_timeout: LONG, patience: LONG, ..spec(5, 2) },
    );
    // Member 5 appends itself as often as it can. Of the fourth epoch nobody else would know.
    let byzantine = client(&address, "m5");
    tasks.spawn(async move {
        for epoch in 1..=3 {
            let id = loop {
                match byzantine.find(&format!("{NAME}.{epoch}")).await {
                    Ok(id) => break id,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            let strategy: Strategy = "repeat-append(value=m5)".parse().unwrap();
            let stop = tokio::time::sleep(LONG);
            let _ = byzantine.play(id, ProcessSpec::byzantine(strategy, None, epoch), stop).await;
        }
    });
    let observer = Election::new(&series(&address, "m2"));
    assert!(matches!(observer.current().await, Ok(None) | Err(LogError::Nothing(_))));
    let leader = |epoch, leader: &str| Elected { epoch, leader: Some(leader.to_owned()) };
    assert_eq!(elect(&address, 1, &[1, 2, 3, 4], "m1").await, leader(1, "m1"));
    // Member 1 is dead from now on; the others are deceived by member 5.
    assert_eq!(elect(&address, 2, &[2, 3, 4], "m5").await, leader(2, "m5"));
    observer.begun(2).await.unwrap();
    assert_eq!(elect(&address, 3, &[2, 3, 4], "m3").await, leader(3, "m3"));
    // Member 1 comes back.
    let returned = Election::new(&series(&address, "m1"));
    assert_eq!(returned.current().await.unwrap(), Some(leader(3, "m3")));
    assert_eq!(returned.outcome(2).await.unwrap(), leader(2, "m5"));
    assert_eq!(returned.next().await.unwrap(), 4);
    let error = returned.support(4, "m9").await.unwrap_err().to_string();
    assert_eq!(error, "m9 is no member of orders");
}
