//! Medians of the rounds, and in units of the floors.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use clap::ValueEnum as _;
use serde::Serialize;

use super::variant::{Timing, Variant};
use crate::serve::Layout;
use crate::summary::{Summary, quantile};
use crate::table::table;

/// Rounds of an instance: the processes append in the first and read in the second.
const ROUNDS: f64 = 2.0;

/// The turns of one candidate.
pub(super) struct Series {
    pub(super) variant: Variant,
    pub(super) rounds: Vec<Vec<Timing>>,
}

impl Series {
    pub(super) fn new(variant: Variant) -> Self {
        Self { variant, rounds: Vec::new() }
    }

    /// A quantile of each round, in microseconds.
    fn quantile(&self, at: f64, figure: impl Fn(&Timing) -> Duration + Copy) -> Vec<f64> {
        let each = |round: &Vec<Timing>| quantile(round.iter().map(figure).collect(), at).map(micros);
        self.rounds.iter().filter_map(each).collect()
    }

    fn medians(&self) -> Vec<f64> {
        self.quantile(0.5, |timing| timing.decide)
    }
}

/// Microseconds, to a tenth.
fn micros(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e7).round() / 10.0
}

/// The raw results.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    layout: String,
    rounds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    candidates: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    /// Summary of the medians of the rounds, like those below.
    median_us: Option<Summary>,
    p99_us: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with_create_us: Option<Summary>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    of: BTreeMap<&'static str, Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogRow>,
    samples_us: Vec<Vec<f64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    create_us: Vec<Vec<f64>>,
}

/// The cost of the log for an instance.
#[derive(Debug, Serialize)]
struct LogRow {
    of_memory: Summary,
    syncs_per_round: Option<Summary>,
    commits_per_round: Option<Summary>,
}

impl LogRow {
    fn new(series: &Series, all: &[Series]) -> Option<Self> {
        let medians = |variant| all.iter().find(|other| other.variant == variant).map(Series::medians);
        let (ours, memory) = (series.medians(), medians(series.variant.in_memory()?)?);
        let per_round = |unit| {
            let added = ours.iter().zip(&memory).map(|(ours, memory)| ours - memory);
            Summary::of(added.zip(medians(unit)?).map(|(added, unit)| added / unit / ROUNDS))
        };
        Some(Self {
            of_memory: Summary::of(ours.iter().zip(&memory).map(|(ours, memory)| ours / memory))?,
            syncs_per_round: per_round(Variant::Sync),
            commits_per_round: per_round(Variant::Commit),
        })
    }

    fn cells(&self) -> [String; 3] {
        let cell = |summary: Option<Summary>| {
            summary.map_or(String::new(), |it| format!("{:.2} ({:.2}..{:.2})", it.median, it.min, it.max))
        };
        [cell(Some(self.of_memory)), cell(self.syncs_per_round), cell(self.commits_per_round)]
    }
}

impl Row {
    fn new(series: &Series, all: &[Series]) -> Self {
        let baselines = series.variant.baselines();
        let ratio = |baseline: &Series| {
            Summary::of(
                series.medians().into_iter().zip(baseline.medians()).map(|(ours, baseline)| ours / baseline),
            )
        };
        let baselines = all.iter().filter(|other| baselines.contains(&other.variant));
        let of = baselines.filter_map(|baseline| Some((baseline.variant.name(), ratio(baseline)?))).collect();
        let each = |figure: fn(&Timing) -> Duration| {
            series
                .rounds
                .iter()
                .map(|round| round.iter().map(|timing| micros(figure(timing))).collect())
                .collect()
        };
        let is_floor = series.variant.baselines().is_empty();
        let log = LogRow::new(series, all);
        let with_create = || Summary::of(series.quantile(0.5, |timing| timing.create + timing.decide));
        Self {
            name: series.variant.name(),
            median_us: Summary::of(series.medians()),
            p99_us: Summary::of(series.quantile(0.99, |timing| timing.decide)),
            with_create_us: if is_floor { None } else { with_create() },
            of,
            log,
            samples_us: each(|timing| timing.decide),
            create_us: if is_floor { Vec::new() } else { each(|timing| timing.create) },
        }
    }

    fn cells(&self) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.1}"));
        let of = |names: [&str; 2]| {
            let ratio = names.iter().find_map(|name| self.of.get(name));
            ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.median))
        };
        vec![
            self.name.to_owned(),
            number(self.median_us.map(|summary| summary.median)),
            number(self.median_us.map(|summary| summary.min)),
            number(self.median_us.map(|summary| summary.max)),
            number(self.p99_us.map(|summary| summary.median)),
            number(self.with_create_us.map(|summary| summary.median)),
            of([Variant::Message.name(), Variant::Call.name()]),
            of([Variant::Messages.name(), Variant::Calls.name()]),
        ]
    }
}

impl Results {
    pub(super) fn new(layout: Layout, rounds: u32, disk: Option<String>, series: &[Series]) -> Self {
        let layout = layout.to_possible_value();
        Self {
            layout: layout.map(|layout| layout.get_name().to_owned()).unwrap_or_default(),
            rounds,
            disk,
            candidates: series.iter().map(|one| Row::new(one, series)).collect(),
        }
    }

    /// Prints the table, in Markdown.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let header = [
            "candidate",
            "median us",
            "min",
            "max",
            "p99 us",
            "with create",
            "of one alone",
            "of 32 at once",
        ];
        let rows = self.candidates.iter().map(Row::cells);
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", table(header.map(str::to_owned).to_vec(), rows))?;
        let logs = self.candidates.iter().filter_map(|row| {
            Some(std::iter::once(row.name.to_owned()).chain(row.log.as_ref()?.cells()).collect())
        });
        let logs: Vec<Vec<String>> = logs.collect();
        if !logs.is_empty() {
            let header = ["log on disk", "of memory", "more, in syncs a round", "in commits a round"];
            writeln!(out, "\n{}", table(header.map(str::to_owned).to_vec(), logs))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(variant: Variant, rounds: &[[u64; 3]]) -> Series {
        let timing = |micros: &u64| Timing {
            create: Duration::from_micros(10 * micros),
            decide: Duration::from_micros(*micros),
        };
        Series { variant, rounds: rounds.iter().map(|round| round.iter().map(timing).collect()).collect() }
    }

    #[test]
    fn what_a_log_adds_is_told_in_syncs_of_the_same_round() {
        let all = [
            series(Variant::Attach { ahead: false, durable: false }, &[[10, 10, 99], [30, 30, 99]]),
            series(Variant::Sync, &[[5, 5, 9], [10, 10, 99]]),
            series(Variant::Commit, &[[10, 10, 99], [20, 20, 99]]),
            series(Variant::Attach { ahead: false, durable: true }, &[[30, 30, 99], [90, 90, 99]]),
        ];
        let row = Row::new(&all[3], &all).log.unwrap();
        assert_eq!(row.of_memory, Summary { median: 3.0, min: 3.0, max: 3.0 });
        assert_eq!(row.syncs_per_round, Some(Summary { median: 2.5, min: 2.0, max: 3.0 }));
        assert_eq!(row.commits_per_round, Some(Summary { median: 1.25, min: 1.0, max: 1.5 }));
        assert!(Row::new(&all[0], &all).log.is_none());
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // In the second round the machine was ten times as slow, for all candidates.
        let baseline = series(Variant::Message, &[[10, 10, 99], [100, 100, 999]]);
        let ours = series(Variant::Attach { ahead: false, durable: false }, &[[30, 1, 30], [400, 1, 400]]);
        let all = [baseline, ours];
        let row = Row::new(&all[1], &all);
        assert_eq!(row.of["message"], Summary { median: 3.5, min: 3.0, max: 4.0 });
        assert_eq!(row.median_us, Some(Summary { median: 215.0, min: 30.0, max: 400.0 }));
        assert_eq!(row.with_create_us.map(|summary| summary.max), Some(4_400.0));
        assert_eq!(row.samples_us, [[30.0, 1.0, 30.0], [400.0, 1.0, 400.0]]);
        let baseline = Row::new(&all[0], &all);
        assert!(
            baseline.of.is_empty() && baseline.with_create_us.is_none(),
            "a floor is measured against nothing"
        );
    }
}
