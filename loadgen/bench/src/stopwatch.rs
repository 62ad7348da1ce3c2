//! Wall time and processor time of a turn.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::results::Figures;

/// The work and the times of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Instances in which all processes decided.
    pub(crate) instances: usize,
    /// Appends and reads of all processes.
    pub(crate) accesses: usize,
    pub(crate) wall: Duration,
    /// Processor time of this program, of servers, and of members of etcd; `None` where the system does not
    /// tell, or there is no such program.
    own: Option<Duration>,
    servers: Option<Duration>,
    etcd: Option<Duration>,
}

impl Sample {
    /// Rates, and the processor time for each access: of all programs, and of servers and etcd alone.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn figures(&self) -> Figures {
        let (accesses, wall) = (self.accesses as f64, self.wall.as_secs_f64());
        let cost = |time: Duration| time.as_secs_f64() * 1e6 / accesses;
        let all = self.own.map(|own| own + self.servers.unwrap_or_default() + self.etcd.unwrap_or_default());
        Figures::default()
            .with("accesses_per_s", accesses / wall)
            .with("instances_per_s", self.instances as f64 / wall)
            .maybe("cost_us", all.map(cost))
            .maybe("server_cost_us", self.servers.map(cost))
            .maybe("etcd_cost_us", self.etcd.map(cost))
    }
}

/// The process ids of programs whose processor time counts, beside this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    pub(crate) servers: Vec<u32>,
    /// Members of etcd.
    pub(crate) etcd: Vec<u32>,
}

/// Measures from its creation on.
pub(crate) struct Stopwatch {
    programs: Programs,
    before: [Option<Duration>; 3],
    started: Instant,
}

impl Stopwatch {
    pub(crate) fn of(programs: Programs) -> Self {
        Self { before: times(&programs), programs, started: Instant::now() }
    }

    pub(crate) fn stop(&self, instances: usize, accesses: usize) -> Sample {
        let wall = self.started.elapsed();
        let now = times(&self.programs);
        let [own, servers, etcd] = [0, 1, 2].map(|at| Some(now[at]?.saturating_sub(self.before[at]?)));
        Sample { instances, accesses, wall, own, servers, etcd }
    }
}

/// Of this program, of servers, of etcd.
fn times(programs: &Programs) -> [Option<Duration>; 3] {
    let all = |pids: &[u32]| {
        if pids.is_empty() { None } else { pids.iter().map(|pid| threads(&pid.to_string())).sum() }
    };
    [threads("self"), all(&programs.servers), all(&programs.etcd)]
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
