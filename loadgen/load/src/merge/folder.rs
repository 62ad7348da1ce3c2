//! A result folder, read back.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogHistogram, IntervalLogIterator, LogEntry};
use stickycas_harness::exit::UsageError;

use crate::measure::Label;
use crate::recorder::Second;
use crate::result::{LOG_FILE, LoadResult, RESULT_FILE, RESULT_VERSION, SECONDS_FILE};

/// See the module.
#[derive(Debug)]
pub(super) struct GeneratorResult {
    pub(super) folder: PathBuf,
    pub(super) result: LoadResult,
    pub(super) began: SystemTime,
    pub(super) seconds: Vec<Second>,
    /// Seconds since 1970, and what was recorded from then on.
    pub(super) intervals: Vec<(f64, Label, Histogram<u64>)>,
}

impl GeneratorResult {
    /// How many seconds after this moment it began.
    pub(super) fn offset(&self, began: SystemTime) -> f64 {
        self.began.duration_since(began).unwrap_or_default().as_secs_f64()
    }
}

/// The result in a folder, or in a file of its own.
///
/// # Errors
/// It cannot be read, or is of another version.
pub fn read_result(path: &Path) -> anyhow::Result<LoadResult> {
    let file = if path.is_dir() { path.join(RESULT_FILE) } else { path.to_owned() };
    let text =
        fs::read_to_string(&file).with_context(|| UsageError(format!("cannot read {}", file.display())))?;
    let result: LoadResult = serde_json::from_str(&text)
        .with_context(|| UsageError(format!("{} is no result of a load", file.display())))?;
    ensure!(
        result.version == RESULT_VERSION,
        UsageError(format!(
            "{} has version {}: this program reads version {RESULT_VERSION}",
            file.display(),
            result.version
        ))
    );
    Ok(result)
}

/// The result of one generator.
pub(super) fn read(folder: &Path) -> anyhow::Result<GeneratorResult> {
    let result = read_result(folder)?;
    let began = humantime::parse_rfc3339(&result.began)
        .with_context(|| format!("{}: when it began is no time", folder.display()))?;
    let file = folder.join(SECONDS_FILE);
    let mut rows = csv::Reader::from_path(&file)
        .with_context(|| UsageError(format!("cannot read {}", file.display())))?;
    let seconds = rows.deserialize().collect::<Result<_, _>>();
    let seconds = seconds.with_context(|| format!("{} is not what a load writes", file.display()))?;
    let file = folder.join(LOG_FILE);
    let log = fs::read(&file).with_context(|| UsageError(format!("cannot read {}", file.display())))?;
    let intervals =
        intervals(&log).with_context(|| format!("{} is not what a load writes", file.display()))?;
    Ok(GeneratorResult { folder: folder.to_owned(), result, began, seconds, intervals })
}

fn intervals(log: &[u8]) -> anyhow::Result<Vec<(f64, Label, Histogram<u64>)>> {
    let mut found = Vec::new();
    for entry in IntervalLogIterator::new(log) {
        let entry = entry.map_err(|error| anyhow!("{error:?}"))?;
        let LogEntry::Interval(interval) = entry else { continue };
        let label = label(&interval).context("an interval without a tag of ours")?;
        let bytes = BASE64_STANDARD.decode(interval.encoded_histogram())?;
        let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
        let histogram: Histogram<u64> = histogram.map_err(|error| anyhow!("{error:?}"))?;
        found.push((interval.start_timestamp().as_secs_f64(), label, histogram));
    }
    Ok(found)
}

fn label(interval: &IntervalLogHistogram<'_>) -> Option<Label> {
    interval.tag()?.as_str().parse().ok()
}
