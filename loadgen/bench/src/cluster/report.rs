//! Medians, ranges and ratios, as tables and as raw results.

use std::io::Write as _;

use serde::Serialize;

use super::counts::Counts;
use super::is_cluster;
use super::turn::{Kind, Outcome, Variant};
use crate::stopwatch::Sample;
use crate::summary::Summary;
use crate::table::table;

/// The turns of one candidate.
pub(crate) struct Series {
    pub(crate) variant: Variant,
    pub(crate) turns: Vec<Outcome>,
}

impl Series {
    pub(crate) fn new(variant: Variant) -> Self {
        Self { variant, turns: Vec::new() }
    }

    /// This figure of each turn.
    fn each<'a>(&'a self, figure: impl Fn(&Sample) -> Option<f64> + 'a) -> impl Iterator<Item = f64> + 'a {
        self.turns.iter().filter_map(move |turn| figure(&turn.sample))
    }
}

/// The raw results.
#[derive(Debug, Serialize)]
pub(crate) struct Results<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    rounds: u32,
    load: [Option<f64>; 2],
    candidates: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: String,
    in_flight: usize,
    rate: Option<Summary>,
    cost_us: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers_cost_us: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etcd_cost_us: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_naive: Option<Ratio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_durable: Option<Ratio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_memory: Option<Ratio>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    log: Option<LogRow>,
    samples: &'a [Outcome],
}

/// Ours in units of theirs, within rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    /// Instances per second.
    rate: Summary,
    /// Their processor time for each access in units of ours: the ratio of the rates on a machine without
    /// other load.
    cost: Option<Summary>,
}

/// The rates and costs of the logs in etcd.
#[derive(Clone, Copy, Debug, Serialize)]
struct LogRow {
    writes_per_second: Option<Summary>,
    reads_per_second: Option<Summary>,
    batches_per_write: Option<Summary>,
    steps_per_write: Option<Summary>,
    bytes_per_write: Option<Summary>,
    commit_us: Option<Summary>,
}

impl Ratio {
    /// `None`: the other one has had no turn.
    fn new(ours: &Series, kind: Kind, all: &[Series]) -> Option<Self> {
        if ours.variant.kind != Kind::Cluster {
            return None;
        }
        let theirs = all.iter().find(|other| other.variant == ours.variant.of(kind))?;
        let rate = |series: &Series| series.each(|sample| Some(sample.instance_rate())).collect::<Vec<_>>();
        let cost = |series: &Series| series.each(Sample::cost).collect::<Vec<_>>();
        Some(Self { rate: over(&rate(ours), &rate(theirs))?, cost: over(&cost(theirs), &cost(ours)) })
    }

    fn cell(ratio: Option<Self>) -> String {
        ratio.map_or(String::new(), |Self { rate, cost }| {
            let cost = cost.map(|cost| format!(" ({:.2})", cost.median)).unwrap_or_default();
            format!("{:.2}{cost}", rate.median)
        })
    }
}

/// Ratios within rounds.
fn over(ours: &[f64], theirs: &[f64]) -> Option<Summary> {
    Summary::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

impl LogRow {
    fn new(series: &Series) -> Option<Self> {
        if !is_cluster(series.variant.kind) {
            return None;
        }
        let of = |figure: fn(&Counts, f64) -> f64| {
            let turns = series.turns.iter();
            Summary::of(turns.filter_map(|turn| Some(figure(&turn.counts?, turn.sample.wall.as_secs_f64()))))
        };
        let of_writes = |figure: fn(&Counts, f64) -> f64| {
            if series.variant.kind == Kind::Cluster { of(figure) } else { None }
        };
        Some(Self {
            writes_per_second: of(|counts, wall| counts.writes / wall),
            reads_per_second: of(|counts, wall| counts.reads() / wall),
            batches_per_write: of_writes(|counts, _| counts.log.commits / counts.writes),
            steps_per_write: of_writes(|counts, _| counts.log.steps / counts.writes),
            bytes_per_write: of_writes(|counts, _| counts.log.bytes / counts.writes),
            commit_us: of_writes(|counts, _| counts.log.sync_s * 1e6 / counts.log.commits),
        })
    }

    fn cells(&self) -> Vec<String> {
        vec![
            median(self.writes_per_second, 0),
            median(self.batches_per_write, 1),
            median(self.steps_per_write, 0),
            median(self.bytes_per_write, 0),
            median(self.commit_us.map(in_millis), 1),
            median(self.reads_per_second, 0),
        ]
    }
}

fn in_millis(Summary { median, min, max }: Summary) -> Summary {
    Summary { median: median / 1e3, min: min / 1e3, max: max / 1e3 }
}

fn median(summary: Option<Summary>, digits: usize) -> String {
    summary.map_or(String::new(), |summary| format!("{:.digits$}", summary.median))
}

impl<'a> Results<'a> {
    pub(crate) fn new(
        series: &'a [Series],
        rounds: u32,
        disk: Option<String>,
        load: [Option<f64>; 2],
    ) -> Self {
        let row = |one: &'a Series| Row {
            name: one.variant.name(),
            in_flight: one.variant.in_flight,
            rate: Summary::of(one.each(|sample| Some(sample.instance_rate()))),
            cost_us: Summary::of(one.each(Sample::cost)),
            servers_cost_us: Summary::of(one.each(Sample::server_cost)),
            etcd_cost_us: Summary::of(one.each(Sample::etcd_cost)),
            of_naive: Ratio::new(one, Kind::Naive, series),
            of_durable: Ratio::new(one, Kind::Durable, series),
            of_memory: Ratio::new(one, Kind::Memory, series),
            log: LogRow::new(one),
            samples: &one.turns,
        };
        Self { disk, rounds, load, candidates: series.iter().map(row).collect() }
    }

    /// Prints the tables, in Markdown.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let header = [
            "candidate",
            "instances/s",
            "min",
            "max",
            "CPU us/access",
            "servers",
            "etcd",
            "times naive (by CPU)",
            "of durable (by CPU)",
            "of memory (by CPU)",
        ];
        let rows = self.candidates.iter().map(|row| {
            let range = row.rate.unwrap_or(Summary { median: 0.0, min: 0.0, max: 0.0 });
            vec![
                row.name.clone(),
                median(row.rate, 0),
                format!("{:.0}", range.min),
                format!("{:.0}", range.max),
                median(row.cost_us, 2),
                median(row.servers_cost_us, 2),
                median(row.etcd_cost_us, 2),
                Ratio::cell(row.of_naive),
                Ratio::cell(row.of_durable),
                Ratio::cell(row.of_memory),
            ]
        });
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", table(header.map(str::to_owned).into(), rows))?;
        let logs = self.candidates.iter().filter_map(|row| {
            Some(std::iter::once(row.name.clone()).chain(row.log?.cells()).collect::<Vec<_>>())
        });
        let header = [
            "log in etcd",
            "transactions/s",
            "batches/transaction",
            "steps/transaction",
            "bytes/transaction",
            "commit ms",
            "confirming reads/s",
        ];
        writeln!(out, "\n{}", table(header.map(str::to_owned).into(), logs))?;
        if let [Some(before), Some(after)] = self.load {
            writeln!(out, "\nload of the machine: {before:.1} before, {after:.1} after")?;
        }
        Ok(())
    }
}
