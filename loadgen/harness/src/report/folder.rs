//! The folder of a run: everything that is known of it, enough to judge it again and to replay it.
//!
//! | file | content |
//! | --- | --- |
//! | `scenario.toml` | the scenario as it was run, nothing left to defaults or draws |
//! | `environment.json` | the place, the time and the mode |
//! | `harness.json` | the facts that only the harness knows ([`Harness`]) |
//! | `history.ndjson` | the history, one event a line, in order |
//! | `counts.json` | the server's counts in the course of the run, which show whether wire attacks fired |
//! | `reports.ndjson` | the processes' reports at their end, one a line |
//! | `verdict.json` | the verdict |
//! | `report.txt` | the same for people |
//!
//! It is written beside its place and then moved there, so a folder that exists is whole. [`Folder`] is one
//! read back.

mod read;

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::read::{Folder, newest_run};
use super::{json, table};
use crate::atomic_files::write_folder;
use crate::environment::Environment;
use crate::record::{ExecutionMode, Record};

/// The observations of the harness. Every run folder has this file.
const HARNESS_FILE: &str = "harness.json";

/// Where run folders go by default.
pub const DEFAULT_PARENT: &str = "runs";

/// Version of the form of run folders. Raised when a file changes its meaning or goes away. 2: in
/// `history.ndjson`, `incarnation` is a text.
pub const FOLDER_VERSION: u32 = 2;

/// The facts about a run that only the harness knows: `harness.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harness {
    /// [`FOLDER_VERSION`].
    pub version: u32,
    /// How the scenario was run.
    pub how: ExecutionMode,
    /// Lines of `history.ndjson`.
    pub events: usize,
    /// Lines of `reports.ndjson`.
    pub reports: usize,
    /// Whether the history goes to the end of the run and lacks nothing.
    pub complete: bool,
    /// The events that were not planned.
    #[serde(rename = "unplanned")]
    pub anomalies: Vec<String>,
    /// How many processes report that they were told that the instance is unknown (F11).
    #[serde(default)]
    pub told_unknown: usize,
    /// Which correct processes were seen to play another part than the scenario gives them.
    #[serde(default, rename = "miscast")]
    pub role_mismatches: Vec<String>,
}

impl Harness {
    fn of(record: &Record) -> Self {
        Self {
            version: FOLDER_VERSION,
            how: record.how,
            events: record.history.len(),
            reports: record.reports.len(),
            complete: record.complete,
            anomalies: record.anomalies.clone(),
            told_unknown: record.told_unknown,
            role_mismatches: record.role_mismatches.clone(),
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
    write_folder(to, &Path::new(DEFAULT_PARENT).join(name), |folder| fill(folder, record, environment))
}

/// Writes the folder of a run as the first of `wanted`, `wanted-2`, ... that does not exist. Returns where it
/// is.
///
/// # Errors
/// It cannot be written.
pub fn write_at_first_free(record: &Record, environment: &Environment, wanted: &Path) -> io::Result<PathBuf> {
    write_folder(None, wanted, |folder| fill(folder, record, environment))
}

fn fill(folder: &Path, record: &Record, environment: &Environment) -> io::Result<()> {
    fs::write(folder.join("scenario.toml"), record.scenario.to_toml())?;
    fs::write(folder.join("environment.json"), json::text(environment))?;
    fs::write(folder.join(HARNESS_FILE), json::text(&Harness::of(record)))?;
    lines(&folder.join("history.ndjson"), &record.history)?;
    fs::write(folder.join("counts.json"), json::text(&record.counted))?;
    lines(&folder.join("reports.ndjson"), &record.reports)?;
    fs::write(folder.join("verdict.json"), json::text(&record.verdict))?;
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
