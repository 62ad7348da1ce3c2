//! Many seeds, each in a process of its own: clock, random numbers and whatever a library counts for its process begin
//! anew with each.

use std::fs::{self, File};
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use stickycas_crash::CrashResult;

use crate::round::SeedResult;

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) first: u64,
    pub(crate) seeds: u64,
    /// How many at a time.
    pub(crate) jobs: NonZeroUsize,
    /// Where what is left of failed seeds goes.
    pub(crate) out: PathBuf,
}

/// What all seeds have shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SeedsResult {
    /// What the clients were told.
    pub(crate) rounds: CrashResult,
    /// Messages that arrived.
    pub(crate) messages: u64,
    /// What was done to the network and to the server.
    pub(crate) disturbances: u64,
    /// Virtual time, in seconds.
    pub(crate) virtual_seconds: f64,
}

impl SeedsResult {
    fn add(&mut self, seed: SeedResult) {
        self.messages += seed.messages;
        self.disturbances += seed.disturbances;
        self.virtual_seconds += seed.round.seconds;
        self.rounds.add(seed.round);
    }
}

/// Runs the seeds; `progress` is told after each.
///
/// # Errors
/// What keeps a seed from being run; a process that dies without a result.
pub(crate) fn run(options: &Options, progress: impl Fn(&SeedsResult) + Sync) -> anyhow::Result<SeedsResult> {
    let rounds = CrashResult { seed: options.first, asked: options.seeds, ..CrashResult::default() };
    let result = Mutex::new(SeedsResult { rounds, ..SeedsResult::default() });
    let next = AtomicU64::new(0);
    let work = || -> anyhow::Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.seeds {
                return Ok(());
            }
            let seed = run_in_process(options.first + number, &options.out)?;
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

/// Runs one seed in a process of its own.
fn run_in_process(seed: u64, out: &Path) -> anyhow::Result<SeedResult> {
    let folder = out.join(format!("seed-{seed}"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let log = folder.join("log.txt");
    let mut child = Command::new(std::env::current_exe().context("cannot find myself")?)
        .args(["one", "--seed", &seed.to_string(), "--out"])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        .spawn()
        .context("cannot start a process")?;
    let mut told = Vec::new();
    child.stdout.take().context("it has no output")?.read_to_end(&mut told)?;
    let status = child.wait()?;
    if !status.success() {
        let log = fs::read_to_string(&log).unwrap_or_default();
        bail!("seed {seed}: the process ended with {status}; repeat it with --seeds 1 --seed {seed}:\n{log}");
    }
    let mut result: SeedResult = serde_json::from_slice(&told).context("it told no result")?;
    if result.round.violations_found == 0 {
        fs::remove_dir_all(&folder)?;
    } else {
        result.round.folder = Some(folder);
    }
    Ok(result)
}
