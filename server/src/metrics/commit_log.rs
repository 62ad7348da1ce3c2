//! The metrics of a durable log: the steps and bytes of a batch, the duration of a commit and of a sync, and
//! the bytes on disk.
//!
//! A log in memory has none of them. Their names, `stickycas_log_*`, are in the dashboard and the alert rules
//! in `deploy/`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use super::exposition::Exposition;

/// Upper bounds of the buckets of durations, in seconds: from a fast disk to one that hangs.
const SECONDS: [f64; 12] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];
/// Upper bounds of the buckets of batch sizes, in steps.
const STEPS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0];

/// In the place of free bytes that the system has not told: no disk has so many, and 0 would be a full one.
const NOT_MEASURED: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct CommitLogMetrics {
    /// Bytes of the files of the log.
    pub(crate) bytes_on_disk: AtomicU64,
    /// Bytes that are free on its disk, or [`NOT_MEASURED`].
    pub(crate) free_bytes: AtomicU64,
    bytes_written: AtomicU64,
    /// Instances that have got a checkpoint, or have lost theirs.
    pub(crate) checkpoints: AtomicU64,
    /// Writes and syncs that failed.
    pub(crate) failures: AtomicU64,
    batch: Histogram,
    /// Seconds from the first step of a batch until the batch was resolved.
    pub(crate) commit: Histogram,
    sync: Histogram,
}

impl Default for CommitLogMetrics {
    fn default() -> Self {
        Self {
            bytes_on_disk: AtomicU64::new(0),
            free_bytes: AtomicU64::new(NOT_MEASURED),
            bytes_written: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            batch: Histogram::new(STEPS),
            commit: Histogram::new(SECONDS),
            sync: Histogram::new(SECONDS),
        }
    }
}

impl CommitLogMetrics {
    /// A batch of so many steps was written, in so many bytes, and made durable.
    pub(crate) fn count_batch(&self, steps: u64, bytes: u64, sync: Duration) {
        #[expect(clippy::cast_precision_loss, reason = "a batch has few steps")]
        self.batch.observe(steps as f64);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        self.sync.observe(sync.as_secs_f64());
    }

    pub(crate) fn encode(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        out.histogram("stickycas_log_batch_steps", "Steps in one batch of the log", &self.batch)?;
        out.histogram(
            "stickycas_log_commit_seconds",
            "Time from the first step of a batch to its commit",
            &self.commit,
        )?;
        out.histogram("stickycas_log_sync_seconds", "Time of one sync of the log to disk", &self.sync)?;
        out.counter("stickycas_log_bytes_written", "Bytes written to the log", get(&self.bytes_written))?;
        out.counter(
            "stickycas_log_checkpoints",
            "Checkpoints of instances that were written to the log or removed from it",
            get(&self.checkpoints),
        )?;
        out.counter(
            "stickycas_log_failures",
            "Writes and syncs of the log that failed",
            get(&self.failures),
        )?;
        out.gauge("stickycas_log_bytes", "Bytes of the log's files on disk", get(&self.bytes_on_disk))?;
        match get(&self.free_bytes) {
            NOT_MEASURED => Ok(()),
            free => out.gauge("stickycas_log_free_bytes", "Bytes that are free on the disk of the log", free),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: CommitLogMetrics) -> String {
        super::super::exposition::tests::text(move |out| metrics.encode(out))
    }

    #[test]
    fn a_durable_log_has_the_metrics_that_the_documentation_promises() {
        let written = || {
            let metrics = CommitLogMetrics::default();
            metrics.count_batch(3, 100, Duration::from_millis(2));
            metrics
        };
        assert!(!text(written()).contains("free_bytes"), "a disk that was not measured is no full one");
        let measured = written();
        measured.free_bytes.store(0, Ordering::Relaxed);
        let told = text(measured);
        assert!(told.contains("stickycas_log_free_bytes 0\n"), "{told}");
        assert!(told.contains("stickycas_log_batch_steps_bucket{le=\"4.0\"} 1\n"), "{told}");
        assert!(told.contains("stickycas_log_sync_seconds_bucket{le=\"+Inf\"} 1\n"), "{told}");
        let page = include_str!("../../../docs/operate/operations.md");
        let names = |name: &str| [format!("| `{name}` "), format!("| `{name}_total` ")];
        for line in told.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, help) = line.split_once(' ').unwrap();
            let row = page.lines().find(|row| names(name).iter().any(|name| row.starts_with(name)));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| {help} |"))), "{line}");
        }
    }

    #[test]
    fn values_are_counted_in_their_buckets() {
        let metrics = CommitLogMetrics::default();
        for (steps, millis) in [(1, 1), (2, 2), (3, 3), (9_999, 60_000)] {
            metrics.count_batch(steps, 100, Duration::from_millis(millis));
            metrics.commit.observe(Duration::from_millis(millis).as_secs_f64());
        }
        for (counter, count) in
            [(&metrics.failures, 1), (&metrics.checkpoints, 2), (&metrics.bytes_on_disk, 77)]
        {
            counter.store(count, Ordering::Relaxed);
        }
        let told = text(metrics);
        for line in [
            "stickycas_log_batch_steps_bucket{le=\"1.0\"} 1",
            "stickycas_log_batch_steps_bucket{le=\"2.0\"} 2",
            "stickycas_log_batch_steps_bucket{le=\"4.0\"} 3",
            "stickycas_log_batch_steps_bucket{le=\"4096.0\"} 3",
            "stickycas_log_batch_steps_bucket{le=\"+Inf\"} 4",
            "stickycas_log_batch_steps_sum 10005.0",
            "stickycas_log_commit_seconds_bucket{le=\"10.0\"} 3",
            "stickycas_log_commit_seconds_bucket{le=\"+Inf\"} 4",
            "stickycas_log_bytes_written_total 400",
            "stickycas_log_checkpoints_total 2",
            "stickycas_log_failures_total 1",
            "stickycas_log_bytes 77",
        ] {
            assert!(told.contains(&format!("{line}\n")), "{line}: {told}");
        }
    }
}
