//! A log with its coordinator, correct members, and Byzantine ones at full speed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stickycas_client::{Client, ProcessSpec, RetryPolicy, Strategy, Value};
use stickycas_log::{Delivered, LogError, Member, Place, Reader, Series, SeriesSpec};
use stickycas_server::Config;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

pub const NAME: &str = "orders";

/// Starts a server in memory that lives as long as the test's runtime; gives its address.
pub async fn server(config: impl FnOnce(&mut Config)) -> String {
    server_at("127.0.0.1:0", config).await.0
}

/// The same at this address, until the task is aborted.
pub async fn server_at(address: &str, config: impl FnOnce(&mut Config)) -> (String, AbortHandle) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut of_server = Config::insecure(["coordinator".to_owned()]);
    config(&mut of_server);
    let serving = tokio::spawn(async move {
        stickycas_server::run(listener, of_server, std::future::pending()).await.unwrap();
    });
    (address, serving.abort_handle())
}

pub fn client(address: &str, principal: &str) -> Client {
    let policy = RetryPolicy {
        first: Duration::from_millis(2),
        longest: Duration::from_millis(50),
        ..RetryPolicy::default().without_end()
    };
    Client::builder(format!("http://{address}")).principal(principal).retry(policy).connect_lazy().unwrap()
}

pub fn series(address: &str, principal: &str) -> Series {
    Series::new(&client(address, principal), NAME).unwrap()
}

/// m1, ..., mn, in warps of p.
pub fn spec(n: u32, p: u32) -> SeriesSpec {
    SeriesSpec {
        warp_size: p,
        patience: Duration::from_millis(50),
        join_timeout: Duration::from_millis(50),
        ..SeriesSpec::new((1..=n).map(|number| format!("m{number}")).collect())
    }
}

/// Runs the coordinator; dropping or aborting the task kills it.
pub fn coordinate(tasks: &mut JoinSet<()>, address: &str, spec: SeriesSpec) -> AbortHandle {
    let series = series(address, "coordinator");
    tasks.spawn(async move { match series.coordinate(&spec).await.unwrap() {} })
}

/// Starts a member; aborting the task kills it.
pub async fn member(tasks: &mut JoinSet<()>, address: &str, number: u32) -> (Member, AbortHandle) {
    let (member, driver) = Member::join(&series(address, &format!("m{number}"))).await.unwrap();
    let task = tasks.spawn(async move { driver.run().await.unwrap() });
    (member, task)
}

/// A Byzantine member acts in every slot as soon as it exists, in another way each time. Gives the number of
/// slots in which it has acted.
pub fn attack(tasks: &mut JoinSet<()>, address: &str, number: u32) -> Arc<AtomicU64> {
    let client = client(address, &format!("m{number}"));
    let acted = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&acted);
    tasks.spawn(async move {
        // Of the 64 streams that it may have.
        let (streams, mut playing) = (Arc::new(Semaphore::new(48)), JoinSet::new());
        for slot in 1_u64.. {
            let view = loop {
                match client.get(&format!("{NAME}.{slot}")).await {
                    Ok(view) => break view,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            let conduct = match slot % 7 {
                0 => "repeat-append".to_owned(),
                1 => "repeat-append(value=0x0101)".to_owned(),
                2 => format!("collude(value={})", forged(slot)),
                3 => "silent".to_owned(),
                4 => "late-append(access=3, value=0x00)".to_owned(),
                5 => "empty".to_owned(),
                _ => "liar".to_owned(),
            };
            let permit = Arc::clone(&streams).acquire_owned().await.unwrap();
            let (client, acted) = (client.clone(), Arc::clone(&count));
            playing.spawn(async move {
                let strategy: Strategy = conduct.parse().unwrap();
                let stop = tokio::time::sleep(Duration::from_secs(1));
                let played =
                    client.play(view.instance.id, ProcessSpec::byzantine(strategy, None, slot), stop).await;
                acted.fetch_add(u64::from(played.report.is_some()), Ordering::Relaxed);
                drop(permit);
            });
            while playing.try_join_next().is_some() {}
        }
    });
    acted
}

/// An entry like that of a correct member.
fn forged(slot: u64) -> Value {
    Value::new(&[&[1], slot.to_be_bytes().as_slice(), b"forged"].concat()).unwrap()
}

/// All values of the log up to this place.
pub async fn read_to(reader: &mut Reader, last: Place) -> Result<Vec<Delivered>, LogError> {
    let mut values = Vec::new();
    while reader.slot() <= last.slot {
        values.extend(reader.next().await?);
    }
    Ok(values)
}

/// The values of correct members stand where their appends were told, each once. `appended`: by text.
pub fn check(log: &[Delivered], appended: &BTreeMap<String, Place>, unanswered: &[String]) {
    assert!(log.is_sorted_by(|a, b| a.place < b.place), "two values at a place");
    let mut found = BTreeMap::new();
    for delivered in log.iter().filter(|it| it.value.starts_with(b"value ")) {
        let text = String::from_utf8(delivered.value.clone()).unwrap();
        let before = found.insert(text.clone(), delivered.place);
        assert_eq!(before, None, "{text} stands at {:?} too", delivered.place);
        assert!(appended.contains_key(&text) || unanswered.contains(&text), "nobody appended {text}");
    }
    for (text, place) in appended {
        assert_eq!(found.get(text), Some(place), "{text}");
    }
}
