//! Wall time and processor time of a turn.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::results::Figures;

/// Measures from its start on: the processor time of this program, of servers and of members of etcd.
pub(crate) struct Stopwatch {
    servers: Vec<u32>,
    etcd: Vec<u32>,
    before: [Option<Duration>; 3],
    started: Instant,
}

impl Stopwatch {
    /// With the process ids of these programs.
    pub(crate) fn start(servers: Vec<u32>, etcd: Vec<u32>) -> Self {
        let mut watch = Self { servers, etcd, before: [None; 3], started: Instant::now() };
        watch.before = watch.times();
        watch.started = Instant::now();
        watch
    }

    /// The wall time, and rates and the processor time for each access: of all programs, and of servers and
    /// etcd alone, where there are some and the system tells.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn stop(&self, instances: usize, accesses: usize) -> (Duration, Figures) {
        let (wall, now) = (self.started.elapsed(), self.times());
        let [own, servers, etcd] = [0, 1, 2].map(|at| Some(now[at]?.saturating_sub(self.before[at]?)));
        let cost = |time: Duration| time.as_secs_f64() * 1e6 / accesses as f64;
        let all = own.map(|own| own + servers.unwrap_or_default() + etcd.unwrap_or_default());
        let figures = Figures::default()
            .with("accesses_per_s", accesses as f64 / wall.as_secs_f64())
            .with("instances_per_s", instances as f64 / wall.as_secs_f64())
            .maybe("cost_us", all.map(cost))
            .maybe("server_cost_us", servers.map(cost))
            .maybe("etcd_cost_us", etcd.map(cost));
        (wall, figures)
    }

    fn times(&self) -> [Option<Duration>; 3] {
        let all = |pids: &[u32]| {
            if pids.is_empty() { None } else { pids.iter().map(processor_time).sum() }
        };
        [processor_time("self"), all(&self.servers), all(&self.etcd)]
    }
}

/// Processor time of the living threads of another program.
pub(crate) fn processor_time_of(pid: u32) -> anyhow::Result<Duration> {
    processor_time(pid).with_context(|| format!("the system does not tell the time of process {pid}"))
}

/// From `schedstat` of each thread, whose first field is its processor time in nanoseconds (Linux).
fn processor_time(process: impl std::fmt::Display) -> Option<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}
