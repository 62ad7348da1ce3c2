//! A server's pages over HTTP: its readiness and its metrics.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The time between two questions whether a server is ready.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Batches that a log has made durable, the steps of instances in them, the seconds that writing and syncing
/// them took, and their bytes.
pub(crate) const COMMITS: &str = "stickycas_log_sync_seconds_count";
pub(crate) const STEPS: &str = "stickycas_log_batch_steps_sum";
pub(crate) const SYNC_S: &str = "stickycas_log_sync_seconds_sum";
pub(crate) const BYTES: &str = "stickycas_log_bytes_written_total";

/// The body of this page (GET over HTTP/1.0), and whether its status is 200.
async fn get(address: &str, page: &str) -> anyhow::Result<(bool, String)> {
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
        ensure!(Instant::now() < until, "the server is not ready after {within:?}: {}", body.trim());
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The metrics of a server at one moment, of several, or between two moments.
#[derive(Clone, Debug, Default)]
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

    /// Adds `times` those of another moment or server.
    pub(crate) fn plus(mut self, times: f64, other: &Self) -> Self {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_default() += times * value;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_between_two_moments_are_read_from_metrics() {
        let metrics = |commits: u32| {
            Metrics::parse(&format!(
                "# TYPE stickycas_log_sync_seconds histogram\n\
                 stickycas_log_sync_seconds_count {commits}\n\
                 stickycas_log_sync_seconds_bucket{{le=\"+Inf\"}} 99\n\
                 stickycas_log_bytes_written_total {commits}00.5\n# EOF\n"
            ))
        };
        let between = metrics(7).plus(-1.0, &metrics(3));
        assert_eq!((between.value(COMMITS).unwrap(), between.value(BYTES).unwrap()), (4.0, 400.0));
        let error = between.value(STEPS).unwrap_err().to_string();
        assert_eq!(error, "the server has no metric stickycas_log_batch_steps_sum");
    }
}
