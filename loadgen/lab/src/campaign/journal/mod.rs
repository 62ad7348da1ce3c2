//! The journal of a campaign: the work that is done, one JSON record a line, in `journal.ndjson`.
//!
//! A line is written as soon as a cell is done, so that no kill loses it; every second the lines are flushed
//! to the disk, so that a loss of power loses no more. The first line holds the campaign itself: a folder can
//! be taken up again, and reported on, without the file that it began with. A last line that a kill cut off
//! is dropped.

mod record;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use stickycas_harness::atomic_files::is_taken;
use stickycas_harness::environment::Platform;
use stickycas_harness::exit::UsageError;

pub(super) use self::record::now;
pub use self::record::{CampaignSource, Completed, Sampled, Session};
use self::record::{Done, Line};
use super::cell::Counts;

/// The name of the journal in the folder of a campaign.
pub const JOURNAL: &str = "journal.ndjson";
/// How often lines are flushed to the disk.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// An open journal. Its holder is the only one that writes.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    flushed: Instant,
    completed: Completed,
}

impl Journal {
    /// Opens the journal of this folder: a new one, or the one of the same campaign, to go on with it.
    ///
    /// # Errors
    /// If the folder holds anything else, is in use, or cannot be written.
    pub fn open(folder: &Path, source: &CampaignSource) -> anyhow::Result<Self> {
        completed(folder, source)?;
        let path = folder.join(JOURNAL);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let open = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = open.with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{} is in use: another campaign runs there", folder.display())
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        // Once more, now that no other program writes.
        let Read { source: before, completed, whole } = compatible(folder, source)?;
        file.set_len(whole).with_context(|| format!("cannot write {}", path.display()))?;
        let mut journal = Self { file, path, flushed: Instant::now(), completed };
        if before.is_none() {
            journal.write(Line::Campaign(source.clone()))?;
        }
        journal.write(Line::Session(Session { at: now(), platform: Platform::here() }))?;
        Ok(journal)
    }

    /// The work that is done.
    #[must_use]
    pub fn completed(&self) -> &Completed {
        &self.completed
    }

    /// Writes down that a cell is done.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn cell(&mut self, number: u64, counts: Counts) -> anyhow::Result<()> {
        self.write(Line::Cell(Done { at: now(), number, counts }))
    }

    /// Writes down the result of a run over the network.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn network(&mut self, sampled: Sampled) -> anyhow::Result<()> {
        self.write(Line::Network(sampled))
    }

    fn write(&mut self, line: Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_string(&line).expect("our records have text keys and no failing parts");
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| {
            if self.flushed.elapsed() < FLUSH_EVERY {
                return Ok(());
            }
            self.flushed = Instant::now();
            self.file.sync_data()
        });
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.completed.take(line);
        Ok(())
    }

    /// Flushes everything to the disk.
    ///
    /// # Errors
    /// If that fails.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The work that is done of this campaign in this folder, which may not exist. Nothing is written.
///
/// # Errors
/// If the folder holds anything else.
pub fn completed(folder: &Path, source: &CampaignSource) -> anyhow::Result<Completed> {
    if folder.join(JOURNAL).is_file() {
        return compatible(folder, source).map(|read| read.completed);
    }
    if is_taken(folder) {
        let reason = format!("{} exists already and holds no campaign: give another --out", folder.display());
        bail!(UsageError(reason));
    }
    Ok(Completed::default())
}

/// Reads a journal that must be of this campaign, if it says of which.
fn compatible(folder: &Path, source: &CampaignSource) -> anyhow::Result<Read> {
    let read = read_lines(&folder.join(JOURNAL))?;
    let Some(before) = &read.source else { return Ok(read) };
    let folder = folder.display();
    if before.program != source.program {
        let (theirs, ours) = (&before.program, &source.program);
        bail!(UsageError(format!(
            "{folder} was begun by version {theirs} of this program, and this is {ours}: give another --out"
        )));
    }
    if before.campaign().ok() != Some(source.campaign()?) {
        let CampaignSource { file, seed, .. } = before;
        let reason = format!("{folder} holds another campaign ({file} with seed {seed}): give another --out");
        bail!(UsageError(reason));
    }
    Ok(read)
}

/// Reads the journal of a folder without writing to it.
///
/// # Errors
/// If there is none, or it is broken, with the line.
pub fn read(folder: &Path) -> anyhow::Result<(CampaignSource, Completed)> {
    let path = folder.join(JOURNAL);
    if !path.is_file() {
        let reason = format!("{} holds no campaign: there is no {JOURNAL} in it", folder.display());
        bail!(UsageError(reason));
    }
    let Read { source, completed, .. } = read_lines(&path)?;
    let source = source.with_context(|| format!("{}: its first line is cut off", path.display()))?;
    Ok((source, completed))
}

/// The content of a journal file.
struct Read {
    /// `None` if not even the first line is whole.
    source: Option<CampaignSource>,
    completed: Completed,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

fn read_lines(path: &Path) -> anyhow::Result<Read> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let (mut source, mut completed) = (None, Completed::default());
    for (index, line) in text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let broken = || {
            format!(
                "{}:{}: this is no line of a journal: restore it, or give another --out",
                path.display(),
                index + 1
            )
        };
        let line: Line = serde_json::from_slice(line).with_context(broken)?;
        match (index, line) {
            (0, Line::Campaign(first)) => source = Some(first),
            (0, _) | (_, Line::Campaign(_)) => bail!(broken()),
            (_, line) => completed.take(line),
        }
    }
    Ok(Read { source, completed, whole: whole as u64 })
}
