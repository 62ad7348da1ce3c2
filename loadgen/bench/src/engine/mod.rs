//! The engine of the server's log beside alternatives: the cost of making a batch durable, without a server.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- engine --disk DIR --json engine.json
//! ```
//!
//! | candidate, with the size of its batches | measured |
//! | --- | --- |
//! | `redb` | the engine of the server, with the settings of `server/src/commit_log/engine/redb.rs`, which is not public: a transaction for each batch, committed in two phases, which is two syncs |
//! | `redb-one-phase` | the same in one phase, which is one sync |
//! | `segments` | two files of our own that take turns: length, place, checksum and batch, then one sync |
//!
//! All of them do the same work: one batch in flight, as large as those that the server makes (`wire` tells
//! how many bytes a commit has), with its place and a CRC-32, and the batches before the last 64 MiB trimmed,
//! which is the server's default (`log_tail_bytes`). Checkpoints are left out: they are written seldom. Each
//! candidate has one log, which lives through all rounds.

mod segments;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use redb::{Database, Durability, TableDefinition};
use serde_json::json;

use self::segments::SegmentLog;
use crate::results::{Common, Figures, Results, quantile};
use crate::rounds::{Candidate, RoundOptions};
use crate::servers;

/// How to measure engines.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    #[command(flatten)]
    common: Common,
}

/// KiB of the batches, and how many of them a turn has.
const SIZES: [(usize, usize); 4] = [(1, 600), (16, 600), (128, 200), (1_024, 60)];
/// Bytes of batches that are kept: the default of the server.
const TAIL: u64 = 64 << 20;
/// Memory that the database may take for pages.
const CACHE: usize = 64 << 20;
const BATCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");

/// A log that keeps batches on disk.
trait BatchLog: Send {
    /// Makes a batch durable. `trim`: batches before this place are not needed any more.
    fn append(&mut self, place: u64, batch: &[u8], trim: Option<u64>) -> anyhow::Result<()>;
}

struct DatabaseLog {
    database: Database,
    /// As the server commits.
    two_phase: bool,
}

impl BatchLog for DatabaseLog {
    fn append(&mut self, place: u64, batch: &[u8], trim: Option<u64>) -> anyhow::Result<()> {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        write.set_two_phase_commit(self.two_phase);
        {
            let mut batches = write.open_table(BATCHES)?;
            let sealed = [batch, &crc32fast::hash(batch).to_le_bytes()].concat();
            batches.insert(place, &*sealed)?;
            if let Some(trim) = trim {
                batches.retain_in(..trim, |_, _| false)?;
            }
        }
        write.commit()?;
        Ok(())
    }
}

/// An engine with batches of one size.
#[derive(Clone)]
struct Measured {
    engine: &'static str,
    kib: usize,
    commits: usize,
    log: Arc<Mutex<Kept>>,
}

/// A log, and what stands in it.
struct Kept {
    log: Box<dyn BatchLog>,
    batch: Vec<u8>,
    place: u64,
    /// Bytes since the first place that is kept.
    bytes: u64,
}

impl Measured {
    /// A new log in this folder, to which so many batches are appended in all.
    fn new(
        engine: &'static str,
        (kib, commits): (usize, usize),
        folder: &Path,
        all: u64,
    ) -> anyhow::Result<Self> {
        let database = |two_phase| {
            let database = Database::builder().set_cache_size(CACHE).create(folder.join("log.redb"))?;
            anyhow::Ok(Box::new(DatabaseLog { database, two_phase }))
        };
        let batch = noise(kib << 10);
        let log: Box<dyn BatchLog> = match engine {
            "segments" => Box::new(SegmentLog::create(folder, TAIL.min(all * batch.len() as u64))?),
            engine => database(engine == "redb")?,
        };
        let log = Arc::new(Mutex::new(Kept { log, batch, place: 0, bytes: 0 }));
        Ok(Self { engine, kib, commits, log })
    }

    #[allow(clippy::cast_precision_loss)]
    fn turn(&self) -> anyhow::Result<Figures> {
        let mut times = Vec::new();
        let mut kept = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { log, batch, place, bytes } = &mut *kept;
        for _ in 0..self.commits {
            *place += 1;
            batch[..8].copy_from_slice(&place.to_le_bytes());
            let trim = (*bytes >= TAIL).then_some(*place);
            *bytes = if trim.is_some() { 0 } else { *bytes } + batch.len() as u64;
            let started = Instant::now();
            log.append(*place, batch, trim)?;
            times.push(started.elapsed());
        }
        let rate = times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64();
        let at = |at| quantile(&times, at).map(|time| time.as_secs_f64() * 1e6);
        Ok(Figures::default()
            .with("commits_per_s", rate)
            .with("bytes_per_s", rate * batch.len() as f64)
            .maybe("median_us", at(0.5))
            .maybe("p99_us", at(0.99)))
    }
}

impl Candidate for Measured {
    fn name(&self) -> String {
        format!("{}/{}KiB", self.engine, self.kib)
    }

    fn over(&self) -> Vec<String> {
        if self.engine == "redb" { Vec::new() } else { vec![format!("redb/{}KiB", self.kib)] }
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
    let disk = options.common.disk();
    let (mut candidates, mut folders) = (Vec::new(), Vec::new());
    for (kib, commits) in SIZES {
        for engine in ["redb", "redb-one-phase", "segments"] {
            let folder = servers::folder(&disk)?;
            let commits = options.rounds.scaled(commits);
            let all = commits as u64 * (u64::from(options.rounds.rounds) + 1);
            candidates.push(Measured::new(engine, (kib, commits), folder.path(), all)?);
            folders.push(folder);
        }
    }
    let candidates = options.rounds.wanted(candidates)?;
    let rows = options.rounds.run(&candidates, |candidate| async move { candidate.turn() })?;
    let conditions = json!({"rounds": options.rounds.rounds, "disk": servers::file_system(&disk)});
    Results { measured: "engine", programs: Default::default(), conditions, rows }.report(&options.common)?;
    Ok(ExitCode::SUCCESS)
}
