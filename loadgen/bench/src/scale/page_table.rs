//! The cost of the table of all instances on the live page: the server holds this many, and viewers look at
//! several pages of it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use stickycas_client::Client;
use stickycas_view::{PageOptions, ServerPage};
use tokio::net::TcpListener;

use super::finished::play_portions;
use super::fixture::{PROCESSES, ScaleFixture};
use super::server::{Memory, OBSERVER, memory, start};
use crate::operators::get;

/// How often a viewer asks.
const EVERY: Duration = Duration::from_secs(1);
/// The queries of the viewers.
const QUERIES: [&str; 4] = ["", "state=finished", "text=00", "state=running"];

/// The cost of the table.
#[derive(Debug, Serialize)]
pub(super) struct TableCost {
    instances: usize,
    /// Before anybody looked, and while somebody looks.
    before: Memory,
    after: Memory,
    requests: usize,
    /// Until the first page is there.
    first_ms: f64,
    /// Processor time of the server for a second, in seconds: while nobody looks, and while viewers do.
    idle: f64,
    looked: f64,
}

/// A page of the table, of what is looked at here.
#[derive(Debug, Deserialize)]
struct TablePage {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    state: String,
}

/// Plays this many instances to their end, and then looks at the table.
pub(super) async fn measure(program: &Path, count: usize, look: Duration) -> anyhow::Result<TableCost> {
    let server = start(program, count)?;
    let fixture = Arc::new(ScaleFixture::on(server, PROCESSES as usize).await?);
    play_portions(&fixture, count, false).await?;
    let pid = fixture.server.pid();
    let before = memory(pid).await?;
    let spent = processor_time(pid)?;
    tokio::time::sleep(look / 4).await;
    let idle = (processor_time(pid)? - spent).as_secs_f64() / (look / 4).as_secs_f64();

    let client = Client::builder(&fixture.server.url).principal(OBSERVER).connect_lazy()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let page = listener.local_addr()?.to_string();
    let served = ServerPage::new(client, listener, PageOptions::default())?;
    tokio::spawn(served.serve(|_| ()));
    let (began, spent) = (Instant::now(), processor_time(pid)?);
    let (mut first_ms, mut requests) = (0.0, 0);
    while began.elapsed() < look {
        for query in QUERIES {
            let (is_there, body) = get(&page, &format!("/api/instances?{query}")).await?;
            ensure!(is_there, "the page refuses {query}: {body}");
            let found: TablePage = serde_json::from_str(&body)?;
            ensure!(found.rows.iter().all(|row| row.state == "finished"), "rows of another state");
            if requests == 0 {
                first_ms = began.elapsed().as_secs_f64() * 1e3;
                ensure!(!found.rows.is_empty(), "no rows");
            }
            requests += 1;
        }
        tokio::time::sleep(EVERY).await;
    }
    let looked = (processor_time(pid)? - spent).as_secs_f64() / began.elapsed().as_secs_f64();
    let after = memory(pid).await?;
    Ok(TableCost { instances: count, before, after, requests, first_ms, idle, looked })
}

/// Processor time of a program, ended threads included (Linux).
fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    /// Of `/proc`, whatever the machine.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').context("no name of the program")?;
    let ticks: Vec<f64> = rest.split_whitespace().skip(11).take(2).filter_map(|it| it.parse().ok()).collect();
    ensure!(ticks.len() == 2, "no processor time of {pid}");
    Ok(Duration::from_secs_f64(ticks.iter().sum::<f64>() / TICKS_PER_SECOND))
}

impl TableCost {
    /// A row for each figure: how many instances, what, and how much.
    pub(super) fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let mib = self.after.rss_bytes.saturating_sub(self.before.rss_bytes) >> 20;
        let rows = [
            ("until the first page, ms", format!("{:.0}", self.first_ms)),
            ("of a processor while nobody looks", format!("{:.2} %", self.idle * 100.0)),
            ("of a processor while viewers look", format!("{:.2} %", self.looked * 100.0)),
            ("memory, MiB more", mib.to_string()),
        ];
        let instances = self.instances.to_string();
        rows.into_iter().map(move |(what, much)| vec![instances.clone(), what.to_owned(), much])
    }
}
