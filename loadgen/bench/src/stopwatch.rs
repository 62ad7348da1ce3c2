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
    /// Processor time of all threads, of clients and server, in seconds; `None` where the system does not
    /// tell.
    #[serde(serialize_with = "maybe_seconds", rename = "processor_s")]
    pub(crate) processor: Option<Duration>,
    /// The part of it that the server took, if it is a program of its own.
    #[serde(
        serialize_with = "maybe_seconds",
        rename = "server_processor_s",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) server: Option<Duration>,
    /// The part of it that the members of etcd took.
    #[serde(
        serialize_with = "maybe_seconds",
        rename = "etcd_processor_s",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) etcd: Option<Duration>,
    /// The commits of the server's log, if it has one.
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

    /// The part of [`Self::cost`] that etcd took.
    pub(crate) fn etcd_cost(&self) -> Option<f64> {
        self.etcd.map(|etcd| self.micros_each(etcd))
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
    programs: Programs,
    /// Processor times when the stopwatch was started.
    before: Times,
    started: Instant,
}

/// The process ids of programs whose processor time counts, beside this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// Of servers.
    pub(crate) servers: Vec<u32>,
    /// Of members of etcd beside them.
    pub(crate) etcd: Vec<u32>,
}

/// Processor times; `None` where the system does not tell, or there is no such program.
#[derive(Clone, Copy, Debug)]
struct Times {
    own: Option<Duration>,
    servers: Option<Duration>,
    etcd: Option<Duration>,
}

impl Times {
    fn now(programs: &Programs) -> Self {
        let all = |pids: &[u32]| {
            if pids.is_empty() { None } else { pids.iter().map(|pid| threads(&pid.to_string())).sum() }
        };
        Self { own: threads("self"), servers: all(&programs.servers), etcd: all(&programs.etcd) }
    }
}

impl Stopwatch {
    /// `server`: the process id of a server outside this program.
    pub(crate) fn start(server: Option<u32>) -> Self {
        Self::of(Programs { servers: server.into_iter().collect(), etcd: Vec::new() })
    }

    /// The same with several programs.
    pub(crate) fn of(programs: Programs) -> Self {
        Self { before: Times::now(&programs), programs, started: Instant::now() }
    }

    pub(crate) fn stop(&self, instances: usize, accesses: usize) -> Sample {
        let wall = self.started.elapsed();
        let (now, before) = (Times::now(&self.programs), self.before);
        let since = |now: Option<Duration>, before: Option<Duration>| {
            now.zip(before).map(|(now, before)| now.saturating_sub(before))
        };
        let server = since(now.servers, before.servers);
        let etcd = since(now.etcd, before.etcd);
        let part = |pids: &[u32], time| if pids.is_empty() { Some(Duration::ZERO) } else { time };
        let all = [
            since(now.own, before.own),
            part(&self.programs.servers, server),
            part(&self.programs.etcd, etcd),
        ];
        Sample { instances, accesses, wall, processor: all.into_iter().sum(), server, etcd, log: None }
    }
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
