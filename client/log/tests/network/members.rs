//! Members, readers, and what stops them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stickycas_client::{AccessNumber, Params, ParamsSpec, WaitMode};
use stickycas_log::{LogError, Member, Reader, Series, SeriesSpec};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{attack, check, client, coordinate, member, read_to, series, server, server_at, spec};

#[tokio::test(flavor = "multi_thread")]
async fn members_append_beside_byzantine_ones_at_full_speed() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, spec(6, 3));
    let attackers = [5, 6].map(|number| attack(&mut tasks, &address, number));
    let mut appending = JoinSet::new();
    for number in 1..=3 {
        let (member, _) = member(&mut tasks, &address, number).await;
        // Several at a time.
        for value in 0..20 {
            let member = member.clone();
            appending.spawn(async move {
                let text = format!("value {value} of {number}");
                let place = member.append(text.as_str()).await.unwrap();
                (text, place)
            });
        }
    }
    // Member 4 has nothing to append.
    let (_idle, _) = member(&mut tasks, &address, 4).await;
    let appended: BTreeMap<_, _> = appending.join_all().await.into_iter().collect();
    let last = *appended.values().max().unwrap();
    let log = read_to(&mut Reader::new(&series(&address, "m4"), 1), last).await.unwrap();
    check(&log, &appended, &[]);
    let coordinators = read_to(&mut Reader::new(&series(&address, "coordinator"), 1), last).await.unwrap();
    assert_eq!(log, coordinators);
    assert!(attackers.iter().all(|acted| acted.load(Ordering::Relaxed) > 5), "{attackers:?}");
    assert!(log.iter().any(|it| it.value == b"forged" && it.member.get() > 4), "no forged entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_goes_on_without_members_that_are_dead() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, spec(4, 2));
    let (first, _) = member(&mut tasks, &address, 1).await;
    let (third, _) = member(&mut tasks, &address, 3).await;
    let first = first.append("value a").await.unwrap();
    let third = third.append("value b").await.unwrap();
    let log = Reader::new(&series(&address, "m2"), 1).read().await.unwrap();
    check(&log, &BTreeMap::from([("value a".to_owned(), first), ("value b".to_owned(), third)]), &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_leaves_ends_its_slots() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, spec(1, 1));
    let (member, driver) = Member::join(&series(&address, "m1")).await.unwrap();
    let appending = tokio::spawn(async move {
        let place = member.append("value a").await;
        drop(member);
        place
    });
    driver.run().await.unwrap();
    assert_eq!(appending.await.unwrap().unwrap().slot, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_member_reads_only_with_a_role() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, spec(2, 1));
    let error = Member::join(&series(&address, "coordinator")).await.unwrap_err().to_string();
    assert_eq!(error, "coordinator is no member of orders: a reader needs no membership");
    let (member, _) = member(&mut tasks, &address, 1).await;
    let error = member.append(vec![0; 1016]).await.unwrap_err().to_string();
    assert_eq!(error, "a value of 1016 bytes: give at most 1015 for this log");
    assert!(Reader::new(&series(&address, "somebody"), 1).read().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_slot_is_told_and_not_passed_over() {
    let address = server(|config| config.limits.retention = Duration::from_secs(5)).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, spec(1, 1));
    let (member, _) = member(&mut tasks, &address, 1).await;
    let mut places = Vec::new();
    // The server forgets by and by.
    let error = loop {
        places.push(member.append("value").await.unwrap());
        match Reader::new(&series(&address, "m1"), 1).read().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, LogError::Forgotten(name) if name.starts_with("orders.")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_lets_an_idle_log_live_on() {
    let address = server(|config| config.limits.idle_lifetime = Duration::from_secs(8)).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, SeriesSpec { window: 2, ..spec(1, 1) });
    let m1 = client(&address, "m1");
    while m1.find("orders.2").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_secs(17)).await;
    let (member, _) = member(&mut tasks, &address, 1).await;
    for slot in 1..=3 {
        assert_eq!(member.append("value").await.unwrap().slot, slot);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_has_begun_again_is_told_apart() {
    let (address, server) = server_at("127.0.0.1:0", |_| {}).await;
    let (spec, mut tasks) = (SeriesSpec { window: 2, ..spec(1, 1) }, JoinSet::new());
    coordinate(&mut tasks, &address, spec.clone());
    let (first, _) = member(&mut tasks, &address, 1).await;
    let mut reader = Reader::new(&series(&address, "m1"), 1);
    for _ in 0..2 {
        first.append("value").await.unwrap();
        reader.next().await.unwrap();
    }
    let mut ahead = reader.clone();
    for _ in 0..3 {
        first.append("value").await.unwrap();
        ahead.next().await.unwrap();
    }
    drop(first);
    tasks.shutdown().await;
    // The server loses everything.
    server.abort();
    while tokio::net::TcpStream::connect(&address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server_at(&address, |_| {}).await;
    coordinate(&mut tasks, &address, spec);
    let (of_new, _) = member(&mut tasks, &address, 1).await;
    let is_foreign = |error: LogError| matches!(&error, LogError::Foreign { .. });
    assert!(is_foreign(ahead.read().await.unwrap_err()));
    // Who has seen nothing of the first series.
    let error = Reader::new(&series(&address, "m1"), 6).read().await.unwrap_err();
    assert!(matches!(&error, LogError::BegunAgain { wanted, .. } if wanted == "orders.6"), "{error}");
    of_new.append("value").await.unwrap();
    assert!(is_foreign(reader.next().await.unwrap_err()));
    assert!(is_foreign(reader.read().await.unwrap_err()));
}

/// An earlier life was killed when its first append in a slot had not won.
#[tokio::test(flavor = "multi_thread")]
async fn no_life_appends_another_value_than_the_one_before() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    // Few win in the first round. Nothing goes on before all have joined.
    let join_timeout = Duration::from_mins(1);
    let spec = SeriesSpec { patience: Duration::from_millis(300), join_timeout, ..spec(8, 8) };
    coordinate(&mut tasks, &address, spec);
    let mut others = Vec::new();
    for number in 2..=8 {
        others.push(member(&mut tasks, &address, number).await.0);
    }
    let m1 = client(&address, "m1");
    let slot = m1.find("orders.1").await.unwrap();
    let earlier = async {
        let value = "value of the earlier life";
        m1.append(slot, AccessNumber::FIRST, value, WaitMode::UntilPhase).await.unwrap();
        let (later, _) = member(&mut tasks, &address, 1).await;
        later.append("value of the later life").await.unwrap()
    };
    let (later, other) = tokio::join!(earlier, others[0].append("value"));
    assert!(later.slot > 1 && other.is_ok());
    let status = m1.get(slot).await.unwrap().status;
    assert!(status.offences.shown.is_empty(), "{:?}", status.offences);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_series_of_the_same_name_is_refused() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, spec(2, 1));
    let (member, _) = member(&mut tasks, &address, 1).await;
    member.append("value").await.unwrap();
    let other = series(&address, "coordinator").coordinate(&spec(3, 1)).await.unwrap_err().to_string();
    assert!(other.starts_with("series orders exists with other members or parameters"), "{other}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_that_finds_another_one_of_its_member_ends() {
    let address = server(|_| {}).await;
    let mut tasks = JoinSet::new();
    coordinate(&mut tasks, &address, SeriesSpec { window: 1, ..spec(1, 1) });
    let life = async || {
        let (member, driver) = Member::join(&series(&address, "m1")).await.unwrap();
        (member, tokio::spawn(driver.run()))
    };
    let is_replaced =
        |error: &LogError| matches!(error, LogError::Replaced(slot) if slot.starts_with("orders."));
    // The older one may have been the last to say hello: then the newer one has ended, and begins again.
    let append = async |newer: &mut (Member, _)| {
        while let Err(error) = newer.0.append("value of the newer").await {
            assert!(matches!(error, LogError::Ended), "{error}");
            let (_, ended) = std::mem::replace(newer, life().await);
            let error = ended.await.unwrap().unwrap_err();
            assert!(is_replaced(&error), "{error}");
        }
    };
    let (older, mut older_runs) = life().await;
    older.append("value of the older").await.unwrap();
    let mut newer = life().await;
    let error = loop {
        tokio::select! {
            ended = &mut older_runs => break ended.unwrap().unwrap_err(),
            () = append(&mut newer) => {}
        }
    };
    assert!(is_replaced(&error), "{error}");
    assert!(matches!(older.append("value").await, Err(LogError::Ended)));
    append(&mut newer).await;
}

/// The older life has seen the slot before the newer one acted there.
#[tokio::test]
async fn a_life_that_was_away_takes_no_entry_of_another_one_for_its_own() {
    for _ in 0..20 {
        let address = server(|_| {}).await;
        let mut tasks = JoinSet::new();
        coordinate(&mut tasks, &address, spec(1, 1));
        let (older, driver) = Member::join(&series(&address, "m1")).await.unwrap();
        let mut driver = Box::pin(driver.run());
        timeout(Duration::from_millis(20), &mut driver).await.unwrap_err();
        let (newer, newer_runs) = member(&mut tasks, &address, 1).await;
        let place = newer.append("value of the newer").await.unwrap();
        newer_runs.abort();
        let (appended, ended) = tokio::join!(older.append("value of the older"), driver);
        assert!(matches!(ended, Err(LogError::Replaced(_))), "{ended:?}");
        assert!(appended.is_err(), "{appended:?}, and the newer life has {place:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_of_another_kind_are_no_log() {
    let address = server(|_| {}).await;
    let coordinator = client(&address, "coordinator");
    for (name, bytes, rounds) in [("short.1", 9, 2), ("paper.1", 100, 1)] {
        let spec = ParamsSpec { max_value_bytes: bytes, append_rounds: rounds, ..ParamsSpec::new(2, 2, 2) };
        let create = coordinator.create_instance().name(name);
        let roster = ["m1".to_owned(), "m2".to_owned()];
        create.params(&Params::try_new(spec).unwrap()).roster(&roster).send().await.unwrap();
        let series = Series::new(&client(&address, "m1"), name.trim_end_matches(".1")).unwrap();
        let error = Member::join(&series).await.unwrap_err().to_string();
        assert!(error.contains("is no log"), "{error}");
    }
    let never = Series::new(&client(&address, "m1"), "never").unwrap();
    let error = Reader::new(&never, 1).read().await.unwrap_err();
    assert!(matches!(error, LogError::Nothing(name) if name == "never"));
    let spec = SeriesSpec { max_value_bytes: 9, ..spec(2, 1) };
    let error = series(&address, "coordinator").coordinate(&spec).await.unwrap_err().to_string();
    assert!(error.contains("max_value_bytes"), "{error}");
}
