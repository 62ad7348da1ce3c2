//! A run folder read back: everything that it takes to judge the run again, or what is wrong with it.

use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use stickycas_model::counts::RunCounts;
use stickycas_model::history::Recorded;
use stickycas_model::judge::VERDICT_VERSION;
use stickycas_model::process::Report;

use super::{FOLDER_VERSION, HARNESS_FILE, Harness};
use crate::exit::UsageError;
use crate::record::Record;
use crate::scenario::Scenario;

/// A run as its folder has it.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The scenario that was run.
    pub scenario: Scenario,
    /// The observations of the harness.
    pub harness: Harness,
    /// The events of the instance.
    pub history: Vec<Recorded>,
    /// The server's counts.
    pub counted: RunCounts,
    /// The processes' reports at their end.
    pub reports: Vec<Report>,
    /// The verdict, field by field, whatever fields it has.
    pub verdict: serde_json::Map<String, serde_json::Value>,
}

/// The oldest version of a folder that is read: all have the same fields, and numbers are read as texts are.
const OLDEST_FOLDER: u32 = 1;
/// The oldest version of a verdict that is read. See [`VERDICT_VERSION`].
const OLDEST_VERDICT: u32 = 1;

fn versions(range: &RangeInclusive<u32>) -> String {
    let (oldest, newest) = (range.start(), range.end());
    if oldest == newest { format!("version {newest}") } else { format!("versions {oldest} to {newest}") }
}

/// The run folder that a path names: itself, or the newest of the run folders in it.
#[must_use]
pub fn newest_run(path: &Path) -> PathBuf {
    if path.join(HARNESS_FILE).exists() {
        return path.to_owned();
    }
    let written =
        |folder: &PathBuf| folder.join(HARNESS_FILE).metadata().and_then(|file| file.modified()).ok();
    let inner = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = inner.filter_map(|folder| Some((written(&folder)?, folder))).max();
    newest.map_or_else(|| path.to_owned(), |(_, folder)| folder)
}

impl Folder {
    /// Reads a run folder.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        if !folder.is_dir() {
            let what = "no such folder: give the folder that a run wrote, such as runs/quickstart-21";
            return Err(wrong(folder, what));
        }
        let harness: Harness = of_version(folder, HARNESS_FILE, OLDEST_FOLDER..=FOLDER_VERSION)?;
        // Named before it is parsed: a folder without one is more likely no run folder.
        text(folder, "scenario.toml")?;
        let scenario = Scenario::load(&folder.join("scenario.toml"), None)?;
        let history = lines(folder, "history.ndjson", harness.events)?;
        let counted = json(folder, "counts.json")?;
        let reports = lines(folder, "reports.ndjson", harness.reports)?;
        let mut verdict: serde_json::Map<_, _> =
            of_version(folder, "verdict.json", OLDEST_VERDICT..=VERDICT_VERSION)?;
        // Older verdicts have a number.
        if let Some(seed) = verdict.get_mut("seed").filter(|seed| seed.is_u64()) {
            *seed = seed.to_string().into();
        }
        Ok(Self { scenario, harness, history, counted, reports, verdict })
    }

    /// The run, judged again.
    #[must_use]
    pub fn judged_again(&self) -> Record {
        let Self { scenario, harness, history, counted, reports, .. } = self.clone();
        let record = Record::judged(scenario, harness.how, history, harness.complete, counted, reports)
            .with_anomalies(harness.anomalies)
            .with_role_mismatches(harness.role_mismatches);
        Record { told_unknown: harness.told_unknown, ..record }
    }
}

fn text(folder: &Path, file: &'static str) -> Result<String, anyhow::Error> {
    let path = folder.join(file);
    fs::read_to_string(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            wrong(folder, format!("{file} is missing: this is no run folder, or a part of one"))
        }
        _ => wrong(&path, error),
    })
}

/// A file that is one JSON object.
fn json<T: DeserializeOwned>(folder: &Path, file: &'static str) -> Result<T, anyhow::Error> {
    let text = text(folder, file)?;
    serde_json::from_str(&text).map_err(|error| {
        let line = error.line().max(1);
        broken(&folder.join(file), line, text.lines().nth(line - 1).unwrap_or_default(), &error)
    })
}

/// A file that is one JSON object with a version.
fn of_version<T: DeserializeOwned>(
    folder: &Path,
    file: &'static str,
    wanted: RangeInclusive<u32>,
) -> Result<T, anyhow::Error> {
    // The version first: all other differences follow from it.
    let fields: serde_json::Map<String, serde_json::Value> = json(folder, file)?;
    match fields.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if !u32::try_from(found).is_ok_and(|found| wanted.contains(&found)) => {
            let what = format!(
                "version {found}, and this program reads {}: use the version of stickycas-loadgen that environment.json \
                 names, or run scenario.toml again",
                versions(&wanted)
            );
            Err(wrong(&folder.join(file), what))
        }
        _ => json(folder, file),
    }
}

/// A file that is one JSON object a line.
fn lines<T: DeserializeOwned>(
    folder: &Path,
    file: &'static str,
    wanted: usize,
) -> Result<Vec<T>, anyhow::Error> {
    let (path, text) = (folder.join(file), text(folder, file)?);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| broken(&path, number, line, &error))
    };
    let records: Vec<T> = (1..).zip(text.lines()).map(parse).collect::<Result<_, _>>()?;
    match records.len() {
        found if found == wanted => Ok(records),
        found => {
            let what = format!("{found} lines, and harness.json says {wanted}: lines were lost or added");
            Err(wrong(&path, what))
        }
    }
}

/// The most characters of a broken line that are shown.
const SHOWN_OF_A_LINE: usize = 160;

fn broken(path: &Path, line: usize, text: &str, error: &serde_json::Error) -> anyhow::Error {
    // Within a line of ours the number of the line that the parser names means nothing.
    let said = error.to_string();
    let reason = said.split(" at line ").next().unwrap_or(&said);
    let text: String = text.chars().take(SHOWN_OF_A_LINE).collect();
    let column = error.column();
    let path = path.display();
    UsageError(format!("{path}:{line}: {reason} (column {column})\n  {line} | {text}")).into()
}

/// What is wrong with a file or folder, and what to do where something can be done.
fn wrong(path: &Path, what: impl fmt::Display) -> anyhow::Error {
    UsageError(format!("{}: {what}", path.display())).into()
}
