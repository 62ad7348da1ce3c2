//! The results of every subcommand, in one form: rows with figures, printed in lines and written as JSON.
//!
//! | key | meaning |
//! | --- | --- |
//! | `format`, `version` | `stickycas-bench`, and a number that grows when a key changes its meaning or goes |
//! | `measured` | the subcommand; the header of its module tells its rows, figures and conditions |
//! | `at` | when the run ended, UTC |
//! | `host`, `rustc` | the machine, the version and command line of this program, the compiler |
//! | `programs` | other programs that took part, by name, with their versions |
//! | `conditions` | the options that matter; `disk`: the kind of file system under logs and data |
//! | `rows` | of each row its `name`, its `figures`, `of`, and `detail`, which only some subcommands have |
//! | `figures` | by name: `median`, `min`, `max`, and the `turns` in their order |
//! | `of` | by the name of another row: the figures that both have, ours in units of theirs in the same round, as `median`, `min` and `max` |
//!
//! Units are at the end of the names: `_s` seconds, `_ms`, `_us`, `_bytes`; `_per_s` is a rate. The first,
//! uncounted round is left out.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use stickycas_harness::atomic_files::replace_file;
use stickycas_harness::host::Host;

use crate::servers;

const FORMAT: &str = "stickycas-bench";
const VERSION: u32 = 3;

/// What all subcommands ask for.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Write the results there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The directory for logs and the data of etcd while they are written; by default that of temporary
    /// files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// The server's program; by default beside this one.
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
}

impl Common {
    /// The directory for logs and data.
    pub(crate) fn disk(&self) -> PathBuf {
        self.disk.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Prints the rows, and writes the document if it is wanted. `etcd`: its version, if it took part.
    pub(crate) fn report(
        &self,
        measured: &'static str,
        etcd: Option<String>,
        mut conditions: Value,
        rows: Vec<Row>,
    ) -> anyhow::Result<ExitCode> {
        conditions["disk"] = servers::file_system(&self.disk()).into();
        let results = Results { measured, etcd, conditions, rows };
        write!(io::stdout().lock(), "{results}")?;
        if let Some(path) = &self.json {
            replace_file(path, results.document()?.as_bytes()).with_context(|| path.display().to_string())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The figures of one turn, by name, in the order of the columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Vec<(&'static str, f64)>);

impl Figures {
    /// Adds a figure.
    pub(crate) fn with(self, name: &'static str, value: f64) -> Self {
        self.maybe(name, Some(value))
    }

    /// Adds a figure if there is one.
    pub(crate) fn maybe(mut self, name: &'static str, value: Option<f64>) -> Self {
        self.0.extend(value.map(|value| (name, value)));
        self
    }

    /// Adds a number of bytes, or of something else that is counted.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn count(self, name: &'static str, value: u64) -> Self {
        self.with(name, value as f64)
    }

    /// Adds a quantile of these times, in milliseconds; nothing if there are none.
    pub(crate) fn quantile_ms(self, name: &'static str, times: &[Duration], at: f64) -> Self {
        self.maybe(name, quantile(times, at).map(|time| time.as_secs_f64() * 1e3))
    }

    /// The figure with this name.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = self.0.iter().map(|(name, value)| format!("{name} {}", short(*value)));
        f.write_str(&figures.collect::<Vec<_>>().join(", "))
    }
}

/// A candidate, or another thing that was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The rows that it is compared with, where they are there.
    pub(crate) over: Vec<String>,
    pub(crate) turns: Vec<Figures>,
    /// What has no number.
    pub(crate) detail: Option<Value>,
}

impl Row {
    /// One that was measured once.
    pub(crate) fn once(name: impl Into<String>, figures: Figures) -> Self {
        Self { name: name.into(), turns: vec![figures], ..Self::default() }
    }

    fn names(&self) -> Vec<&'static str> {
        self.turns.first().map(|turn| turn.0.iter().map(|(name, _)| *name).collect()).unwrap_or_default()
    }

    pub(crate) fn values(&self, figure: &str) -> Vec<f64> {
        self.turns.iter().filter_map(|turn| turn.get(figure)).collect()
    }

    /// Ours in units of theirs, by figure.
    fn of(&self, other: &Self) -> BTreeMap<&'static str, Summary> {
        let ratio = |figure| {
            let turns = self.turns.iter().zip(&other.turns);
            let ratios = turns.filter_map(|(ours, theirs)| Some(ours.get(figure)? / theirs.get(figure)?));
            Some((figure, Summary::of(ratios.filter(|it| it.is_finite()))?))
        };
        self.names().into_iter().filter_map(ratio).collect()
    }
}

/// Median, least and largest of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of these values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Some(Self { median, min, max })
    }
}

impl fmt::Display for Summary {
    /// `median (min..max)`, or one number if there is no range.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, min, max } = self;
        if min.total_cmp(max).is_eq() {
            return f.write_str(&short(*median));
        }
        write!(f, "{} ({}..{})", short(*median), short(*min), short(*max))
    }
}

/// To about three digits, and never less than whole ones.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// The quantile of these durations, one of them; `None` if there are none.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(crate) fn quantile(durations: &[Duration], quantile: f64) -> Option<Duration> {
    let mut durations = durations.to_vec();
    durations.sort_unstable();
    let rank = (durations.len() as f64 * quantile).ceil() as usize;
    durations.get(rank.saturating_sub(1)).copied()
}

/// The results of a run.
#[derive(Debug)]
struct Results {
    measured: &'static str,
    etcd: Option<String>,
    conditions: Value,
    rows: Vec<Row>,
}

/// A line for each row and each comparison.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |figures: &mut dyn Iterator<Item = (&'static str, Summary)>| {
            figures.map(|(name, summary)| format!("{name} {summary}")).collect::<Vec<_>>().join(", ")
        };
        for row in &self.rows {
            let names = row.names().into_iter();
            let mut figures = names.filter_map(|name| Some((name, Summary::of(row.values(name))?)));
            writeln!(f, "{}: {}", row.name, line(&mut figures))?;
        }
        for (ours, theirs, of) in self.comparisons() {
            writeln!(f, "{} of {}: {}", ours.name, theirs.name, line(&mut of.into_iter()))?;
        }
        Ok(())
    }
}

impl Results {
    fn comparisons(&self) -> impl Iterator<Item = (&Row, &Row, BTreeMap<&'static str, Summary>)> {
        self.rows.iter().flat_map(move |ours| {
            let theirs = self.rows.iter().filter(|theirs| ours.over.contains(&theirs.name));
            theirs.map(move |theirs| (ours, theirs, ours.of(theirs)))
        })
    }

    /// The document, with each row in a line of its own: rows can be compared by `diff`.
    fn document(&self) -> anyhow::Result<String> {
        let row = |row: &Row| {
            let figure = |name: &'static str| {
                let turns = row.values(name);
                let mut figure = serde_json::to_value(Summary::of(turns.clone()))?;
                figure["turns"] = turns.into();
                Ok((name.to_owned(), figure))
            };
            let figures = row.names().into_iter().map(figure);
            let figures: serde_json::Map<String, _> = figures.collect::<anyhow::Result<_>>()?;
            let of = self.comparisons().filter(|(ours, ..)| ours.name == row.name);
            let of: BTreeMap<_, _> = of.map(|(_, theirs, of)| (&theirs.name, of)).collect();
            let row = json!({ "name": row.name, "figures": figures, "of": of, "detail": row.detail });
            anyhow::Ok(format!("    {row}"))
        };
        let rows = self.rows.iter().map(row).collect::<anyhow::Result<Vec<_>>>()?.join(",\n");
        let head = serde_json::to_string_pretty(&json!({
            "format": FORMAT,
            "version": VERSION,
            "measured": self.measured,
            "at": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            "host": host(),
            "rustc": env!("STICKYCAS_BENCH_RUSTC"),
            "programs": self.etcd.iter().map(|version| ("etcd", version)).collect::<BTreeMap<_, _>>(),
            "conditions": self.conditions,
        }))?;
        let head = head.trim_end_matches("\n}");
        Ok(format!("{head},\n  \"rows\": [\n{rows}\n  ]\n}}\n"))
    }
}

/// This machine, and the name of the program without its path. A script that has just built the program can
/// give its commit in `STICKYCAS_COMMIT`.
fn host() -> Host {
    let mut host = Host::here(None);
    let commit = &mut host.platform.commit;
    *commit = std::env::var("STICKYCAS_COMMIT").ok().filter(|given| !given.is_empty()).or(commit.take());
    if let Some(program) = host.arguments.first_mut() {
        let name = PathBuf::from(&*program).file_name().map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, over: &[&str], rates: &[f64]) -> Row {
        let turns = rates.iter().map(|rate| Figures::default().with("rate_per_s", *rate));
        let over = over.iter().map(|name| (*name).to_owned()).collect();
        Row { name: name.to_owned(), over, turns: turns.collect(), detail: None }
    }

    #[test]
    fn a_row_is_compared_within_rounds_with_those_that_are_there() {
        let rows = vec![
            row("floor", &[], &[10.0, 40.0, 20.0]),
            row("ours", &["floor", "absent"], &[5.0, 10.0, 20.0]),
        ];
        let results = Results { measured: "wire", etcd: None, conditions: json!({"rounds": 3}), rows };
        let printed = results.to_string();
        assert!(printed.starts_with("floor: rate_per_s 20.0 (10.0..40.0)\n"), "{printed}");
        assert!(printed.ends_with("ours of floor: rate_per_s 0.500 (0.250..1.000)\n"), "{printed}");

        let text = results.document().unwrap();
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&found["format"], &found["conditions"]["rounds"]), (&FORMAT.into(), &3.into()));
        assert_eq!(found["rows"][1]["of"]["floor"]["rate_per_s"]["median"], 0.5);
        assert!(text.contains("[5.0,10.0,20.0]"), "samples stand in one line: {text}");
        let program = found["host"]["arguments"][0].as_str().unwrap();
        assert!(!program.is_empty() && !program.contains('/'), "{program}");
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(Summary::of([4.0, 1.0, 3.0, 2.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Summary::of([3.0, 1.0, 9.0]).map(|summary| summary.median), Some(3.0));
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_samples() {
        let samples: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(quantile(&samples, 0.5), Some(Duration::from_micros(100)));
        assert_eq!(quantile(&samples, 0.99), Some(Duration::from_micros(198)));
        assert_eq!(quantile(&samples, 1.0), Some(Duration::from_micros(200)));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
