//! The engine of the server's log beside alternatives: the cost of making a batch durable, without a server.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- engine
//! cargo run --release -p stickycas-bench -- engine --disk DIR --json engine.json
//! ```
//!
//! | candidate | measured |
//! | --- | --- |
//! | `redb` | the engine of the server, with its settings: a transaction for each batch, committed in two phases, which is two syncs |
//! | `redb-one-phase` | the same in one phase, which is one sync |
//! | `segments` | two files of our own that take turns: length, place, checksum and batch, then one sync ([`segments`]) |
//!
//! All of them do the same work: one batch in flight, as large as those that the server makes (`wire` tells
//! how many bytes a commit has), with its place and a CRC-32, and the batches before the last 64 MiB trimmed,
//! which is the server's default (`log_tail_bytes`). Checkpoints are left out: they are written seldom. Each
//! candidate has one log for each size, which lives through all rounds.
//!
//! In the raw results: `disk` (the kind of file system), `rounds`, and for each of `candidates` its `name`,
//! `batch_bytes`, over the rounds the summaries of `rate` (commits per second), `median_us`, `p99_us` and
//! `bytes_per_second`, and `of_redb`: the rate in units of the server's engine in the same round.

mod database;
mod report;
mod segments;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use self::database::DatabaseLog;
use self::report::{Results, Series};
use self::segments::SegmentLog;
use crate::{disk, results};

/// How to measure engines.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each candidate has its turn, after one turn that does not count.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The directory for the logs while they are written; by default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// Commits in each turn, for batches of 1 KiB; larger batches have fewer.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    commits: u32,
    /// Write every figure there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Bytes of the batches, and how many times fewer of them a turn has than of the smallest.
const SIZES: [(usize, u32); 4] = [(1 << 10, 1), (16 << 10, 1), (128 << 10, 3), (1 << 20, 10)];
/// Bytes of batches that are kept: the default of the server.
const TAIL: u64 = 64 << 20;

/// A log that keeps batches on disk.
trait BatchLog {
    /// Makes a batch durable. `trim`: batches before this place are not needed any more.
    fn append(&mut self, place: u64, batch: &[u8], trim: Option<u64>) -> anyhow::Result<()>;
}

/// A kind of log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Database { two_phase: bool },
    Segments,
}

const KINDS: [Kind; 3] =
    [Kind::Database { two_phase: true }, Kind::Database { two_phase: false }, Kind::Segments];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Database { two_phase: true } => "redb",
            Self::Database { two_phase: false } => "redb-one-phase",
            Self::Segments => "segments",
        }
    }

    /// A new log in this folder; `tail`: the most bytes of batches that it has to keep.
    fn open(self, folder: &Path, tail: u64) -> anyhow::Result<Box<dyn BatchLog>> {
        Ok(match self {
            Self::Database { two_phase } => Box::new(DatabaseLog::create(folder, two_phase)?),
            Self::Segments => Box::new(SegmentLog::create(folder, tail)?),
        })
    }
}

/// A candidate with batches of one size.
struct Candidate {
    series: Series,
    log: Box<dyn BatchLog>,
    batch: Vec<u8>,
    place: u64,
    /// The first place that is kept, and the bytes from there on.
    kept: (u64, u64),
}

impl Candidate {
    /// Appends so many batches, and returns how long each took.
    fn turn(&mut self, commits: u32) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..commits {
            self.place += 1;
            self.batch[..8].copy_from_slice(&self.place.to_le_bytes());
            let trim = (self.kept.1 >= TAIL).then_some(self.place);
            if trim.is_some() {
                self.kept = (self.place, 0);
            }
            self.kept.1 += self.batch.len() as u64;
            let started = Instant::now();
            self.log.append(self.place, &self.batch, trim)?;
            times.push(started.elapsed());
        }
        Ok(times)
    }
}

/// Bytes without a pattern.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..bytes).map(|_| next().to_le_bytes()[0]).collect()
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let directory = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let (mut candidates, mut folders) = (Vec::new(), Vec::new());
    for (bytes, fewer) in SIZES {
        for kind in KINDS {
            let folder = disk::folder(&directory, "engine")?;
            let series = Series::new(kind.name(), bytes, fewer);
            let commits = u64::from(options.commits / fewer).max(1) * (u64::from(options.rounds) + 1);
            let log = kind.open(folder.path(), TAIL.min(commits * bytes as u64))?;
            candidates.push(Candidate { series, log, batch: noise(bytes), place: 0, kept: (0, 0) });
            folders.push(folder);
        }
    }
    for round in 0..=options.rounds {
        for candidate in &mut candidates {
            let commits = (options.commits / candidate.series.fewer).max(1);
            let times = candidate.turn(commits)?;
            if round > 0 {
                candidate.series.rounds.push(times);
            }
        }
    }
    let series: Vec<&Series> = candidates.iter().map(|candidate| &candidate.series).collect();
    let results = Results::new(disk::file_system(&directory), options.rounds, &series);
    results.print()?;
    if let Some(json) = &options.json {
        results::write(json, "engine", &BTreeMap::new(), &results)?;
    }
    Ok(ExitCode::SUCCESS)
}
