//! Many seeds, each in a process of its own: the clock, random numbers and the process-wide counters of
//! libraries begin anew with each.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use stickycas_faults::CrashResult;

use crate::disk::Counted;
use crate::round::SeedResult;
use crate::test::Test;

/// How long a seed may take in real time: far longer than it does.
const LONGEST_SEED: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// After so many failed seeds no further ones begin: they would say the same.
const MOST_FAILED: usize = 10;

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
    /// The kind of each run.
    pub(crate) test: Test,
    /// How many at a time.
    pub(crate) jobs: NonZeroUsize,
    /// The folder for the remains of failed seeds.
    pub(crate) out: PathBuf,
}

/// The results of all seeds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct SeedsResult {
    /// The results of the rounds of their clients.
    pub(crate) rounds: CrashResult,
    /// Messages that arrived.
    pub(crate) messages: u64,
    /// The disturbances of the network and of the servers.
    pub(crate) disturbances: u64,
    /// What was tried of the disks.
    pub(crate) disks: Counted,
    /// Virtual time, in seconds.
    pub(crate) virtual_seconds: f64,
}

impl SeedsResult {
    fn add(&mut self, seed: SeedResult) {
        self.messages += seed.messages;
        self.disturbances += seed.disturbances;
        self.disks.add(seed.disks);
        self.virtual_seconds += seed.round.seconds;
        self.rounds.add(seed.round);
    }
}

/// Runs the seeds.
pub(crate) fn run(options: &Options) -> anyhow::Result<SeedsResult> {
    let rounds = CrashResult { seed: options.first, asked: options.seeds, ..CrashResult::default() };
    let result = Mutex::new(SeedsResult { rounds, ..SeedsResult::default() });
    let next = AtomicU64::new(0);
    let locked = || result.lock().expect("no thread panics while it holds it");
    let work = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.seeds || locked().rounds.failed.len() >= MOST_FAILED {
                return Ok(());
            }
            let seed = run_in_process(options.test, options.first + number, &options.out)?;
            locked().add(seed);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.get()).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    Ok(result.into_inner().expect("no thread panics while it holds it"))
}

/// Runs one seed in a process of its own. One that dies or comes to no end is a violation.
fn run_in_process(test: Test, seed: u64, out: &Path) -> anyhow::Result<SeedResult> {
    let folder = out.join(format!("seed-{seed}"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (told, log) = (folder.join("result.json"), folder.join("log.txt"));
    let mut child = Command::new(std::env::current_exe().context("cannot find myself")?)
        .args(["one", "--seed", &seed.to_string(), "--out"])
        .arg(&folder)
        .args(test.arguments())
        .stdin(Stdio::null())
        .stdout(File::create(&told)?)
        .stderr(File::create(&log)?)
        .spawn()
        .context("cannot start a process")?;
    let deadline = Instant::now() + LONGEST_SEED;
    let status = loop {
        match child.try_wait()? {
            None if Instant::now() > deadline => {
                child.kill()?;
                break child.wait()?;
            }
            None => sleep(LOOK_EVERY),
            Some(status) => break status,
        }
    };
    let mut result = if status.success() {
        serde_json::from_slice(&fs::read(&told)?).context("it told no result")?
    } else {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let killed =
            if Instant::now() > deadline { format!(" after {LONGEST_SEED:?}") } else { String::new() };
        SeedResult::failed(seed, format!("its process ended with {status}{killed}: {}", log.trim_end()))
    };
    if result.round.counts.violations_found == 0 {
        fs::remove_dir_all(&folder)?;
    } else {
        result.round.folder = Some(folder);
    }
    Ok(result)
}
