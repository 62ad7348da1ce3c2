//! The engine of the server's log beside alternatives: the cost of making a batch durable, without a server.
//!
//! | candidate, with the size of its batches | measured |
//! | --- | --- |
//! | `redb` | the engine of the server, with the settings of `server/src/commit_log/engine/redb.rs`, which is not public: a transaction for each batch, committed in two phases, which is two syncs |
//! | `redb-one-phase` | the same in one phase, which is one sync |
//! | `segments` | a file of our own that is written over from its beginning when it is trimmed: length, place, checksum and batch, then one sync |
//!
//! One batch in flight, as large as those that the server makes, and the batches before the last 64 MiB
//! trimmed, which is the server's default (`log_tail_bytes`). Each candidate has one log, which lives through
//! all rounds.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redb::{Database, Durability, TableDefinition};
use serde_json::json;

use crate::results::{Figures, quantile};
use crate::rounds::{Candidate, RoundOptions};
use crate::servers;

/// KiB of the batches, and how many of them a turn has.
const SIZES: [(usize, usize); 4] = [(1, 600), (16, 600), (128, 200), (1_024, 60)];
/// Bytes of batches that are kept: the default of the server.
const TAIL: u64 = 64 << 20;
/// Memory that the database may take for pages.
const CACHE: usize = 64 << 20;
const BATCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");

/// A log that keeps batches on disk.
enum BatchLog {
    Database { database: Database, two_phase: bool },
    Segments { file: File, offset: u64 },
}

impl BatchLog {
    /// A new one in this folder. A file of our own has its whole size, with room for one more batch, from the
    /// beginning: a sync then has no new length to write.
    fn create(engine: &str, folder: &Path, batch: usize) -> anyhow::Result<Self> {
        if engine == "segments" {
            let file = File::create(folder.join("segments"))?;
            for mebibyte in 0..=(TAIL + TAIL / 32 + 2 * batch as u64) >> 20 {
                file.write_all_at(&[0; 1 << 20], mebibyte << 20)?;
            }
            file.sync_all()?;
            return Ok(Self::Segments { file, offset: 0 });
        }
        let database = Database::builder().set_cache_size(CACHE).create(folder.join("log.redb"))?;
        Ok(Self::Database { database, two_phase: engine == "redb" })
    }

    /// Makes a batch durable. `trim`: the batches before it are not needed any more.
    fn append(&mut self, place: u64, batch: &[u8], trim: bool) -> anyhow::Result<()> {
        let checksum = crc32fast::hash(batch).to_le_bytes();
        match self {
            Self::Database { database, two_phase } => {
                let mut write = database.begin_write()?;
                write.set_durability(Durability::Immediate)?;
                write.set_two_phase_commit(*two_phase);
                {
                    let mut batches = write.open_table(BATCHES)?;
                    batches.insert(place, &*[batch, &checksum].concat())?;
                    if trim {
                        batches.retain_in(..place, |_, _| false)?;
                    }
                }
                write.commit()?;
            }
            Self::Segments { file, offset } => {
                *offset = if trim { 0 } else { *offset };
                let head = [(batch.len() as u64).to_le_bytes(), place.to_le_bytes()].concat();
                let frame = [&head, batch, &checksum].concat();
                file.write_all_at(&frame, *offset)?;
                file.sync_data()?;
                *offset += frame.len() as u64;
            }
        }
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
    log: BatchLog,
    batch: Vec<u8>,
    place: u64,
    /// Bytes since the first place that is kept.
    bytes: u64,
}

impl Measured {
    #[allow(clippy::cast_precision_loss)]
    fn turn(&self) -> anyhow::Result<Figures> {
        let mut times = Vec::new();
        let mut kept = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { log, batch, place, bytes } = &mut *kept;
        for _ in 0..self.commits {
            *place += 1;
            batch[..8].copy_from_slice(&place.to_le_bytes());
            let trim = *bytes >= TAIL;
            *bytes = if trim { 0 } else { *bytes } + batch.len() as u64;
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

/// Measures, and prints the results.
pub(crate) fn run(options: &RoundOptions) -> anyhow::Result<ExitCode> {
    let (mut candidates, mut folders) = (Vec::new(), Vec::new());
    for (kib, commits) in SIZES {
        for engine in ["redb", "redb-one-phase", "segments"] {
            let folder = servers::folder(&options.common.disk())?;
            // Bytes without a pattern.
            let batch: Vec<u8> =
                (0..kib << 10).map(|at| crc32fast::hash(&at.to_le_bytes()).to_le_bytes()[0]).collect();
            let log = BatchLog::create(engine, folder.path(), batch.len())?;
            let log = Arc::new(Mutex::new(Kept { log, batch, place: 0, bytes: 0 }));
            candidates.push(Measured { engine, kib, commits: options.scaled(commits), log });
            folders.push(folder);
        }
    }
    let candidates = options.wanted(candidates)?;
    let rows = options.run(&candidates, |candidate| async move { candidate.turn() })?;
    options.report("engine", None, json!({}), rows)
}
