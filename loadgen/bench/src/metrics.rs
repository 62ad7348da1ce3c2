//! A server's pages over HTTP: its readiness, its metrics, and others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The time between two questions whether a server is ready.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The body of this page (GET over HTTP/1.0), and whether its status is 200.
pub(crate) async fn get(address: &str, page: &str) -> anyhow::Result<(bool, String)> {
    let mut tcp = TcpStream::connect(address).await?;
    tcp.write_all(format!("GET {page} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
    let mut response = String::new();
    tcp.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").context("no end of the headers")?;
    let status = head.split_whitespace().nth(1).context("no status")?;
    Ok((status == "200", body.to_owned()))
}

/// Waits until the server at this address is ready, and fails if it is not within this time.
pub(crate) async fn ready(address: &str, within: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + within;
    loop {
        let (is_ready, body) = get(address, "/readyz").await.with_context(|| address.to_owned())?;
        if is_ready {
            return Ok(());
        }
        if Instant::now() >= until {
            bail!("the server is not ready after {within:?}: {}", body.trim());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The metrics of a server at one moment.
#[derive(Debug)]
pub(crate) struct Metrics(HashMap<String, f64>);

impl Metrics {
    /// Those of the server at this address.
    pub(crate) async fn read(address: &str) -> anyhow::Result<Self> {
        let (is_there, body) = get(address, "/metrics").await?;
        ensure!(is_there, "{address} tells no metrics");
        Ok(Self::parse(&body))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let metrics = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(metrics.collect())
    }

    /// The value of this metric, labels included in its name.
    pub(crate) fn value(&self, name: &str) -> anyhow::Result<f64> {
        self.0.get(name).copied().with_context(|| format!("the server has no metric {name}"))
    }
}

/// The commits of the log of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Commits {
    /// Batches that were made durable.
    pub(crate) commits: f64,
    /// The steps of instances in them.
    pub(crate) steps: f64,
    /// Seconds that writing and syncing them took.
    pub(crate) sync_s: f64,
    /// Bytes of the batches.
    pub(crate) bytes: f64,
}

impl Commits {
    /// Since the start of the server at this address.
    pub(crate) async fn read(address: &str) -> anyhow::Result<Self> {
        Self::of(&Metrics::read(address).await?)
    }

    fn of(metrics: &Metrics) -> anyhow::Result<Self> {
        Ok(Self {
            commits: metrics.value("stickycas_log_sync_seconds_count")?,
            steps: metrics.value("stickycas_log_batch_steps_sum")?,
            sync_s: metrics.value("stickycas_log_sync_seconds_sum")?,
            bytes: metrics.value("stickycas_log_bytes_written_total")?,
        })
    }

    /// These, and `times` those: 1 adds the commits of another server, -1 takes away those of before.
    pub(crate) fn plus(self, times: f64, other: Self) -> Self {
        Self {
            commits: self.commits + times * other.commits,
            steps: self.steps + times * other.steps,
            sync_s: self.sync_s + times * other.sync_s,
            bytes: self.bytes + times * other.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_between_two_moments_are_read_from_metrics() {
        let text = |commits: u32| {
            format!(
                "# TYPE stickycas_log_sync_seconds histogram\n\
                 stickycas_log_sync_seconds_sum {commits}.5\n\
                 stickycas_log_sync_seconds_count {commits}\n\
                 stickycas_log_sync_seconds_bucket{{le=\"+Inf\"}} 99\n\
                 stickycas_log_batch_steps_sum {commits}0\n\
                 stickycas_log_bytes_written_total {commits}00\n# EOF\n"
            )
        };
        let commits = |count| Commits::of(&Metrics::parse(&text(count))).unwrap();
        let between = commits(7).plus(-1.0, commits(3));
        assert_eq!(between, Commits { commits: 4.0, steps: 40.0, sync_s: 4.0, bytes: 400.0 });
        let error = Commits::of(&Metrics::parse("# EOF\n")).unwrap_err().to_string();
        assert_eq!(error, "the server has no metric stickycas_log_sync_seconds_count");
    }
}
