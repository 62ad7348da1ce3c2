//! The table of all instances on the live page: what a request of a viewer takes while the server holds this many, and that a
//! viewer who turns all pages sees every instance once.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::finished::play_portions;
use super::fixture::{PROCESSES, ScaleFixture};
use super::server::{Memory, memory, start_with_page};
use crate::operators::get;

/// Requests of which the median is told.
const REQUESTS: usize = 101;

/// What the table costs.
#[derive(Debug, Serialize)]
pub(super) struct TableCost {
    instances: usize,
    /// Before anybody looked, and while somebody looks.
    before: Memory,
    after: Memory,
    requests: Vec<RequestTime>,
}

/// How long requests took.
#[derive(Debug, Serialize)]
struct RequestTime {
    what: String,
    first_ms: f64,
    /// Of the same request when it is sent again, at once; absent: it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    again_median_ms: Option<f64>,
}

/// A page of the table, of what is looked at here.
#[derive(Debug, Deserialize)]
struct TablePage {
    rows: Vec<Row>,
    total: Option<u64>,
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    state: String,
}

/// Plays this many instances to their end, and then looks at the table.
pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<TableCost> {
    let (server, page) = start_with_page(program, count)?;
    let fixture = Arc::new(ScaleFixture::on(server, PROCESSES as usize).await?);
    play_portions(&fixture, count, false).await?;
    let before = memory(fixture.server.pid()).await?;
    let mut requests = Vec::new();
    for query in [
        "sort=created&descending=true",
        "sort=created",
        "sort=phase",
        "sort=length&descending=true",
        "sort=awaited",
        "state=finished&sort=created&descending=true",
        "text=00&sort=created",
        "state=running",
    ] {
        requests.push(timed(&page, query, count).await.with_context(|| query.to_owned())?);
    }
    requests.push(turn_all_pages(&page, count).await?);
    let after = memory(fixture.server.pid()).await?;
    Ok(TableCost { instances: count, before, after, requests })
}

/// This page of the table, and how long it took.
async fn request(page: &str, query: &str) -> anyhow::Result<(TablePage, Duration)> {
    let asked = Instant::now();
    let (is_there, body) = get(page, &format!("/api/instances?{query}")).await?;
    let took = asked.elapsed();
    ensure!(is_there, "the page refuses {query}: {body}");
    Ok((serde_json::from_str(&body)?, took))
}

async fn timed(page: &str, query: &str, count: usize) -> anyhow::Result<RequestTime> {
    let (found, first) = request(page, query).await?;
    let wanted = query.split('&').find_map(|part| part.strip_prefix("state="));
    ensure!(
        found.rows.iter().all(|row| wanted.is_none_or(|state| row.state == state)),
        "rows of another state"
    );
    if !query.starts_with("text=") {
        let all = if wanted == Some("running") { 0 } else { count };
        ensure!(
            found.total == Some(all as u64) && found.rows.is_empty() == (all == 0),
            "{:?} of {all}",
            found.total
        );
    }
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        times.push(request(page, query).await?.1);
    }
    times.sort_unstable();
    Ok(RequestTime {
        what: query.to_owned(),
        first_ms: ms(first),
        again_median_ms: Some(ms(times[REQUESTS / 2])),
    })
}

/// Asks for one page after the other, to the last one. `first_ms` is the time of all of them.
async fn turn_all_pages(page: &str, count: usize) -> anyhow::Result<RequestTime> {
    let began = Instant::now();
    let (mut ids, mut pages) = (HashSet::with_capacity(count), 0);
    let mut query = "sort=created".to_owned();
    loop {
        let (found, _) = request(page, &query).await?;
        pages += 1;
        for row in found.rows {
            ensure!(ids.insert(row.id.clone()), "{} is shown twice", row.id);
        }
        let Some(next) = found.next else { break };
        query = format!("sort=created&page={next}");
    }
    ensure!(ids.len() == count, "{} of {count} instances are shown", ids.len());
    Ok(RequestTime {
        what: format!("all {pages} pages"),
        first_ms: ms(began.elapsed()),
        again_median_ms: None,
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl TableCost {
    /// A row for each request: how many instances, what, first and again; and the memory in a last one.
    pub(super) fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let rows = self.requests.iter().map(|it| {
            let again = it.again_median_ms.map_or(String::new(), |ms| format!("{ms:.2}"));
            vec![self.instances.to_string(), it.what.clone(), format!("{:.1}", it.first_ms), again]
        });
        let mib = self.after.rss_bytes.saturating_sub(self.before.rss_bytes) >> 20;
        let memory =
            vec![self.instances.to_string(), format!("memory: {mib} MiB more"), String::new(), String::new()];
        rows.chain([memory])
    }
}
