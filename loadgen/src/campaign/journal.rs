//! The journal of a campaign: what has been done, one JSON record a line, in `journal.ndjson`.
//!
//! A line is written as soon as a cell is done, so that no kill loses it; every second the lines are flushed to the
//! disk, so that a loss of power loses no more. The first line holds the campaign itself: a folder can be taken up
//! again, and reported on, without the file that it began with. A last line that a kill cut off is dropped.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::cell::Counts;
use super::plan::Campaign;
use crate::report::folder::is_taken;

/// The name of the journal in the folder of a campaign.
pub const JOURNAL: &str = "journal.ndjson";
/// The version of its records.
const VERSION: u32 = 1;
/// How often lines are flushed to the disk.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Campaign(Origin),
    Session(Session),
    Cell(Done),
    Network(Sampled),
}

/// From what a campaign was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// [`VERSION`].
    version: u32,
    /// Version of the program: another one may count differently.
    program: String,
    /// The file, as it was named.
    pub file: String,
    /// What stood in it.
    pub text: String,
    /// The seed.
    pub seed: u64,
    /// The sweeps to which it was limited; none: all of them.
    pub only: Vec<String>,
}

impl Origin {
    /// For a campaign read from this file, with this seed and limited to these sweeps.
    #[must_use]
    pub fn new(file: String, text: String, seed: u64, only: Vec<String>) -> Self {
        Self { version: VERSION, program: env!("CARGO_PKG_VERSION").to_owned(), file, text, seed, only }
    }

    /// The campaign.
    ///
    /// # Errors
    /// If the text is none, or has no such sweeps.
    pub fn campaign(&self) -> anyhow::Result<Campaign> {
        let (campaign, _) = Campaign::parse(&self.file, &self.text, Some(self.seed))?;
        campaign.only(&self.only).map_err(anyhow::Error::msg)
    }
}

/// A time at which the campaign was started or taken up again, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// When, in milliseconds since 1970 (UTC).
    pub at: u64,
    /// The commit that the program was built from, if the build was told.
    pub commit: Option<String>,
    /// Whether it was built with debug assertions.
    pub debug_assertions: bool,
    /// Operating system.
    pub os: String,
    /// Processor architecture.
    pub architecture: String,
    /// Processors that it may use.
    pub cpus: u64,
}

impl Session {
    fn now() -> Self {
        Self {
            at: now(),
            commit: option_env!("STICKYCAS_COMMIT").map(str::to_owned),
            debug_assertions: cfg!(debug_assertions),
            os: std::env::consts::OS.to_owned(),
            architecture: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| usize::from(cpus) as u64),
        }
    }
}

/// A cell that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Done {
    at: u64,
    number: u64,
    #[serde(flatten)]
    counts: Counts,
}

/// A run that was made over the network as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampled {
    /// When it ended, in milliseconds since 1970 (UTC).
    pub at: u64,
    /// Its cell.
    pub cell: u64,
    /// Its seed.
    pub seed: u64,
    /// In what it differs from its replay or from the simulation; `None`: in nothing.
    pub difference: Option<String>,
}

impl Sampled {
    /// A run that ended now.
    #[must_use]
    pub fn now(cell: u64, seed: u64, difference: Option<String>) -> Self {
        Self { at: now(), cell, seed, difference }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// The sessions, in order; the first one started the campaign.
    pub sessions: Vec<Session>,
    /// What was counted of each cell that is done.
    pub cells: BTreeMap<u64, Counts>,
    /// What came of the runs over the network, by their seeds.
    pub network: BTreeMap<u64, Sampled>,
    /// When something was done last, in milliseconds since 1970 (UTC).
    pub last: u64,
    /// Milliseconds from the start of each session to the last thing that was done in it.
    pub busy: u64,
}

impl Past {
    fn take(&mut self, line: Line) {
        let at = match line {
            Line::Campaign(_) => return,
            Line::Session(session) => {
                let at = session.at;
                self.sessions.push(session);
                self.last = self.last.max(at);
                return;
            }
            Line::Cell(done) => {
                self.cells.insert(done.number, done.counts);
                done.at
            }
            Line::Network(sampled) => {
                let at = sampled.at;
                self.network.insert(sampled.seed, sampled);
                at
            }
        };
        self.busy += at.saturating_sub(self.last);
        self.last = self.last.max(at);
    }
}

/// An open journal. Whoever holds it is the only one that writes.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    flushed: Instant,
    past: Past,
}

impl Journal {
    /// Opens the journal of this folder: a new one, or the one of the same campaign, to go on with it.
    ///
    /// # Errors
    /// If the folder holds anything else, is in use, or cannot be written.
    pub fn open(folder: &Path, origin: &Origin) -> anyhow::Result<Self> {
        past(folder, origin)?;
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
        // Once more, now that nobody else writes.
        let Read { origin: before, past, whole } = compatible(folder, origin)?;
        file.set_len(whole).with_context(|| format!("cannot write {}", path.display()))?;
        let mut journal = Self { file, path, flushed: Instant::now(), past };
        if before.is_none() {
            journal.write(Line::Campaign(origin.clone()))?;
        }
        journal.write(Line::Session(Session::now()))?;
        Ok(journal)
    }

    /// What has been done.
    #[must_use]
    pub fn past(&self) -> &Past {
        &self.past
    }

    /// Writes down that a cell is done.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn cell(&mut self, number: u64, counts: Counts) -> anyhow::Result<()> {
        self.write(Line::Cell(Done { at: now(), number, counts }))
    }

    /// Writes down what came of a run over the network.
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
        self.past.take(line);
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

/// What has been done of this campaign in this folder, which may not exist. Nothing is written.
///
/// # Errors
/// If the folder holds anything else.
pub fn past(folder: &Path, origin: &Origin) -> anyhow::Result<Past> {
    if folder.join(JOURNAL).is_file() {
        return compatible(folder, origin).map(|read| read.past);
    }
    if is_taken(folder) {
        bail!("{} exists already and holds no campaign: give another --out", folder.display());
    }
    Ok(Past::default())
}

/// Reads a journal that must be of this campaign, if it says of which.
fn compatible(folder: &Path, origin: &Origin) -> anyhow::Result<Read> {
    let read = read_lines(&folder.join(JOURNAL))?;
    let Some(before) = &read.origin else { return Ok(read) };
    let folder = folder.display();
    if before.program != origin.program {
        let (theirs, ours) = (&before.program, &origin.program);
        bail!(
            "{folder} was begun by version {theirs} of this program, and this is {ours}: give another --out"
        );
    }
    if before.campaign().ok() != Some(origin.campaign()?) {
        let Origin { file, seed, .. } = before;
        bail!("{folder} holds another campaign ({file} with seed {seed}): give another --out");
    }
    Ok(read)
}

/// Reads the journal of a folder without writing to it.
///
/// # Errors
/// If there is none, or it is broken, with the line.
pub fn read(folder: &Path) -> anyhow::Result<(Origin, Past)> {
    let path = folder.join(JOURNAL);
    if !path.is_file() {
        bail!("{} holds no campaign: there is no {JOURNAL} in it", folder.display());
    }
    let Read { origin, past, .. } = read_lines(&path)?;
    let origin = origin.with_context(|| format!("{}: its first line is cut off", path.display()))?;
    Ok((origin, past))
}

/// What stands in a journal.
struct Read {
    /// `None` if not even the first line is whole.
    origin: Option<Origin>,
    past: Past,
    /// Bytes up to the end of the last whole line.
    whole: u64,
}

fn read_lines(path: &Path) -> anyhow::Result<Read> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let (mut origin, mut past) = (None, Past::default());
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
            (0, Line::Campaign(first)) => origin = Some(first),
            (0, _) | (_, Line::Campaign(_)) => bail!(broken()),
            (_, line) => past.take(line),
        }
    }
    Ok(Read { origin, past, whole: whole as u64 })
}

/// Writes a file so that it is there whole or not at all: beside its place, and then moved there.
///
/// # Errors
/// If it cannot be written.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // That what is left of it cannot be removed either is not the news.
        let _ = fs::remove_file(&temporary);
    })
}
