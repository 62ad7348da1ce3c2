//! The folder of a run: everything that is known of it, enough to judge it again and to replay it.
//!
//! | file | content |
//! | --- | --- |
//! | `scenario.toml` | the scenario as it was run, nothing left to defaults or draws |
//! | `environment.json` | where and how |
//! | `harness.json` | what the harness knows of the run and no process says ([`Harness`]) |
//! | `history.ndjson` | the history, one event a line, in order |
//! | `counts.json` | what the server counted in the course of the run, by which wire attacks are seen to fire |
//! | `reports.ndjson` | what processes said at their end, one a line |
//! | `verdict.json` | the verdict |
//! | `report.txt` | the same for people |
//!
//! It is written beside its place and then moved there, so a folder that exists is whole. [`Folder`] is one read back.

mod read;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::read::{Folder, FolderError};
use super::{json, table};
use crate::environment::Environment;
use crate::record::{How, Record};

/// Where run folders go if nobody says otherwise.
pub const DEFAULT_PARENT: &str = "runs";

/// Version of the form of run folders. Raised when a file changes its meaning or goes away.
pub const FOLDER_VERSION: u32 = 1;

/// What the harness knows of a run and no process says: `harness.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harness {
    /// [`FOLDER_VERSION`].
    pub version: u32,
    /// How the scenario was run.
    pub how: How,
    /// Lines of `history.ndjson`.
    pub events: usize,
    /// Lines of `reports.ndjson`.
    pub reports: usize,
    /// Whether the history goes to the end of the run and lacks nothing.
    pub complete: bool,
    /// What happened that nobody planned.
    pub unplanned: Vec<String>,
    /// How many processes report that they were told that the instance is unknown (F11).
    #[serde(default)]
    pub told_unknown: usize,
    /// Which correct processes were seen to play another part than the scenario gives them.
    #[serde(default)]
    pub miscast: Vec<String>,
}

impl Harness {
    fn of(record: &Record) -> Self {
        Self {
            version: FOLDER_VERSION,
            how: record.how,
            events: record.history.len(),
            reports: record.reports.len(),
            complete: record.complete,
            unplanned: record.unplanned.clone(),
            told_unknown: record.told_unknown,
            miscast: record.miscast.clone(),
        }
    }
}

/// Writes the folder of a run. Without `to`, it is the first of `runs/<scenario>-<seed>`,
/// `runs/<scenario>-<seed>-2`, ... that does not exist. Returns where it is.
///
/// # Errors
/// `to` exists already, or it cannot be written.
pub fn write(record: &Record, environment: &Environment, to: Option<&Path>) -> io::Result<PathBuf> {
    let name = format!("{}-{}", record.scenario.name, record.scenario.seed);
    write_whole(to, &Path::new(DEFAULT_PARENT).join(name), |folder| fill(folder, record, environment))
}

/// Writes the folder of a run as the first of `wanted`, `wanted-2`, ... that does not exist. Returns where it is.
///
/// # Errors
/// It cannot be written.
pub fn write_at_first_free(record: &Record, environment: &Environment, wanted: &Path) -> io::Result<PathBuf> {
    write_whole(None, wanted, |folder| fill(folder, record, environment))
}

/// Has a folder filled beside its place and moves it there; without `to`, to the first of `default`, `default-2`, ...
/// that does not exist.
pub(crate) fn write_whole(
    to: Option<&Path>,
    default: &Path,
    fill: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let temporary = beside(to.unwrap_or(default))?;
    let written = fill(&temporary).and_then(|()| match to {
        Some(to) => place(&temporary, to).map(|()| to.to_owned()),
        None => place_at_first_free(&temporary, default),
    });
    if written.is_err() {
        // What is left of it is of no use; that it cannot be removed either is not the news.
        let _ = fs::remove_dir_all(&temporary);
    }
    written
}

/// Whether something is at this place that a run folder must not replace: anything but an empty folder.
#[must_use]
pub fn is_taken(place: &Path) -> bool {
    match fs::read_dir(place) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => place.symlink_metadata().is_ok(),
    }
}

/// A new folder beside this path, on the same file system.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", parent.display()));
    fs::create_dir_all(parent).map_err(named)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = parent.join(format!(".{name}.{}.{:08x}", std::process::id(), rand::random::<u32>()));
    fs::create_dir(&temporary).map_err(named)?;
    Ok(temporary)
}

fn fill(folder: &Path, record: &Record, environment: &Environment) -> io::Result<()> {
    fs::write(folder.join("scenario.toml"), record.scenario.to_toml())?;
    fs::write(folder.join("environment.json"), json::text(environment))?;
    fs::write(folder.join("harness.json"), json::text(&Harness::of(record)))?;
    lines(&folder.join("history.ndjson"), &record.history)?;
    fs::write(folder.join("counts.json"), json::text(&record.counted))?;
    lines(&folder.join("reports.ndjson"), &record.reports)?;
    fs::write(folder.join("verdict.json"), json::verdict(&record.verdict))?;
    fs::write(folder.join("report.txt"), table::plain(record, usize::MAX))
}

fn lines<T: Serialize>(path: &Path, records: &[T]) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    for record in records {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")?;
    }
    file.into_inner()?.sync_all()
}

/// Moves the finished folder to its place, where nothing may be yet.
fn place(temporary: &Path, to: &Path) -> io::Result<()> {
    // A rename would take the place of an empty folder.
    if to.exists() {
        return Err(exists_already(to));
    }
    fs::rename(temporary, to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            exists_already(to)
        }
        kind => io::Error::new(kind, format!("{}: {error}", to.display())),
    })
}

fn exists_already(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{} exists already: give another --out", path.display()),
    )
}

fn place_at_first_free(temporary: &Path, first: &Path) -> io::Result<PathBuf> {
    let mut place_here = first.to_owned();
    for number in 2_u32.. {
        match place(temporary, &place_here) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                place_here = PathBuf::from(format!("{}-{number}", first.display()));
            }
            placed => return placed.map(|()| place_here),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}: too many runs", first.display())))
}
