//! Many seeds, each in a process of its own: the clock, random numbers and the process-wide counters of
//! libraries begin anew with each.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::{Deserialize, Serialize};
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

/// Runs the seeds; `progress` is told after each.
///
/// # Errors
/// A seed cannot be run.
pub(crate) fn run(options: &Options, progress: impl Fn(&SeedsResult) + Sync) -> anyhow::Result<SeedsResult> {
    let rounds = CrashResult { seed: options.first, asked: options.seeds, ..CrashResult::default() };
    let result = Mutex::new(SeedsResult { rounds, ..SeedsResult::default() });
    let next = AtomicU64::new(0);
    let work = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let failed = result.lock().expect("no thread panics while it holds it").rounds.failed.len();
            if number >= options.seeds || failed >= MOST_FAILED {
                return Ok(());
            }
            let seed = run_in_process(options.test, options.first + number, &options.out)?;
            let mut result = result.lock().expect("no thread panics while it holds it");
            result.add(seed);
            progress(&result);
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
    let mut result = match wait(&mut child)? {
        None => {
            SeedResult::failed(&test.plan(seed)?, format!("it did not come to its end in {LONGEST_SEED:?}"))
        }
        Some(status) if status.success() => {
            serde_json::from_slice(&fs::read(&told)?).context("it told no result")?
        }
        Some(status) => {
            let log = fs::read_to_string(&log).unwrap_or_default();
            SeedResult::failed(
                &test.plan(seed)?,
                format!("its process ended with {status}: {}", log.trim_end()),
            )
        }
    };
    if result.round.counts.violations_found == 0 {
        fs::remove_dir_all(&folder)?;
    } else {
        result.round.folder = Some(folder);
    }
    Ok(result)
}

/// How the process has ended; `None`: it was killed, since it took too long.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > LONGEST_SEED {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(LOOK_EVERY);
    }
}
