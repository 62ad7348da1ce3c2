//! Wall time and processor time of a turn.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use crate::operators::Commits;

/// The work and the times of one turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    /// Instances in which all processes decided.
    pub(crate) instances: usize,
    /// Appends and reads of all processes.
    pub(crate) accesses: usize,
    /// Wall time, in seconds.
    #[serde(serialize_with = "seconds", rename = "wall_s")]
    pub(crate) wall: Duration,
    /// Processor time of all threads, of clients and server, in seconds; `None` where the system does not tell.
    #[serde(serialize_with = "maybe_seconds", rename = "processor_s")]
    pub(crate) processor: Option<Duration>,
    /// The part of it that the server took, if it is a program of its own.
    #[serde(
        serialize_with = "maybe_seconds",
        rename = "server_processor_s",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) server: Option<Duration>,
    /// What the server's log has committed, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<Commits>,
}

impl Sample {
    /// Accesses per second.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn rate(&self) -> f64 {
        self.accesses as f64 / self.wall.as_secs_f64()
    }

    /// Instances per second.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn instance_rate(&self) -> f64 {
        self.instances as f64 / self.wall.as_secs_f64()
    }

    /// Commits of the log per second, if there is a log.
    pub(crate) fn commit_rate(&self) -> Option<f64> {
        self.log.map(|log| log.commits / self.wall.as_secs_f64())
    }

    /// Accesses for each commit of the log.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn accesses_per_commit(&self) -> Option<f64> {
        self.log.map(|log| self.accesses as f64 / log.commits)
    }

    /// Microseconds for each commit of the log.
    pub(crate) fn commit_micros(&self) -> Option<f64> {
        self.log.map(|log| log.sync_s * 1e6 / log.commits)
    }

    /// Bytes of batches of the log for each access.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn log_bytes_each(&self) -> Option<f64> {
        self.log.map(|log| log.bytes / self.accesses as f64)
    }

    /// Microseconds of a processor for each access.
    pub(crate) fn cost(&self) -> Option<f64> {
        self.processor.map(|processor| self.micros_each(processor))
    }

    /// The part of [`Self::cost`] that a server took that is a program of its own.
    pub(crate) fn server_cost(&self) -> Option<f64> {
        self.server.map(|server| self.micros_each(server))
    }

    /// Microseconds for each access.
    #[allow(clippy::cast_precision_loss)]
    fn micros_each(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.accesses as f64
    }
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

fn maybe_seconds<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}

/// Measures from its creation on.
pub(crate) struct Stopwatch {
    /// The process id of the server, if it is a program of its own: its processor time counts too.
    server: Option<u32>,
    /// Processor time of this program and of the server, when the stopwatch was started.
    before: (Option<Duration>, Option<Duration>),
    started: Instant,
}

impl Stopwatch {
    /// `server`: the process id of a server outside this program.
    pub(crate) fn start(server: Option<u32>) -> Self {
        Self { server, before: processor_times(server), started: Instant::now() }
    }

    pub(crate) fn stop(&self, instances: usize, accesses: usize) -> Sample {
        let wall = self.started.elapsed();
        let now = processor_times(self.server);
        let since = |(now, before): (Duration, Duration)| now.saturating_sub(before);
        let own = now.0.zip(self.before.0).map(since);
        let server = now.1.zip(self.before.1).map(since);
        let processor = match self.server {
            Some(_) => own.zip(server).map(|(own, server)| own + server),
            None => own,
        };
        Sample { instances, accesses, wall, processor, server, log: None }
    }
}

/// Processor time of the living threads of this program, and of the server's.
fn processor_times(server: Option<u32>) -> (Option<Duration>, Option<Duration>) {
    (threads("self"), server.and_then(|server| threads(&server.to_string())))
}

/// Processor time of the living threads of another program.
pub(crate) fn processor_time_of(pid: u32) -> anyhow::Result<Duration> {
    threads(&pid.to_string()).with_context(|| format!("the system does not tell the time of process {pid}"))
}

/// From `schedstat` of each thread, whose first field is its processor time in nanoseconds (Linux).
fn threads(process: &str) -> Option<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}
