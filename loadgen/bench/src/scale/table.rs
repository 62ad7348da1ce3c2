//! The cost of the table of all instances on the live page: the server holds this many, and viewers look at
//! several pages of it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use stickycas_client::Client;
use stickycas_view::{PageOptions, ServerPage};
use tokio::net::TcpListener;

use super::{IN_FLIGHT, play_portions};
use crate::fixture::Fixture;
use crate::metrics::get;
use crate::results::{Figures, Row};
use crate::servers::{Launch, OBSERVER, settled_memory};
use crate::stopwatch::processor_time_of;
use crate::workload::Shape;

/// How often a viewer asks.
const EVERY: Duration = Duration::from_secs(1);
/// The queries of the viewers.
const QUERIES: [&str; 4] = ["", "state=finished", "text=00", "state=running"];

/// Plays this many instances to their end, and then looks at the table: the time until the first page, the
/// memory, and the processor time of the server for a second while nobody looks and while viewers do.
pub(super) async fn measure(launch: &Launch, count: usize, look: Duration) -> anyhow::Result<Row> {
    let fixture = Fixture::groups(launch.start().await?, Shape::SMALL, 1, 0).await?;
    play_portions(&fixture, count, IN_FLIGHT).await?;
    let pid = fixture.server.pid();
    let memory = settled_memory(pid).await?;
    let spent = processor_time_of(pid)?;
    tokio::time::sleep(look / 4).await;
    let idle = processor_time_of(pid)?.saturating_sub(spent).as_secs_f64() / (look / 4).as_secs_f64();

    let client = Client::builder(&fixture.server.url).principal(OBSERVER).connect_lazy()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let page = listener.local_addr()?.to_string();
    let served = ServerPage::new(client, listener, PageOptions::default())?;
    tokio::spawn(served.serve(|_| ()));
    let (began, spent) = (Instant::now(), processor_time_of(pid)?);
    let (mut first, mut requests) = (Duration::ZERO, 0);
    while began.elapsed() < look {
        for query in QUERIES {
            let (is_there, body) = get(&page, &format!("/api/instances?{query}")).await?;
            ensure!(is_there, "the page refuses {query}: {body}");
            let found: Value = serde_json::from_str(&body)?;
            let rows = found["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
            ensure!(rows.iter().all(|row| row["state"] == "finished"), "rows of another state");
            if requests == 0 {
                first = began.elapsed();
                ensure!(!rows.is_empty(), "no rows");
            }
            requests += 1;
        }
        tokio::time::sleep(EVERY).await;
    }
    let spent = processor_time_of(pid)?.saturating_sub(spent);
    let figures = Figures::default()
        .count("instances", count as u64)
        .count("requests", requests)
        .with("first_page_ms", first.as_secs_f64() * 1e3)
        .with("idle_processor", idle)
        .with("looked_at_processor", spent.as_secs_f64() / began.elapsed().as_secs_f64())
        .count("more_bytes", settled_memory(pid).await?.saturating_sub(memory));
    Ok(Row::once("table of the live page", figures))
}
