//! Medians, ranges and ratios, as tables and as raw results.

use std::collections::BTreeMap;
use std::io::Write;

use clap::ValueEnum as _;
use serde::Serialize;

use super::variant::Variant;
use crate::serve::{Launch, Layout};
use crate::stopwatch::Sample;
use crate::summary::Summary;
use crate::table::table;

/// The turns of one candidate with one server.
pub(crate) struct Series {
    pub(crate) variant: Variant,
    /// The name of the server, if it is that of another build.
    server: Option<String>,
    pub(crate) launch: Launch,
    pub(crate) samples: Vec<Sample>,
}

impl Series {
    pub(crate) fn new(variant: Variant, server: Option<String>, launch: Launch) -> Self {
        Self { variant, server, launch, samples: Vec::new() }
    }

    /// Candidate and server, for errors.
    pub(crate) fn name(&self) -> String {
        let server = self.server.as_ref().map(|server| format!(" with {server}"));
        self.variant.name() + &server.unwrap_or_default()
    }

    /// This figure of each sample, by round.
    fn each<'a>(&'a self, figure: impl Fn(&Sample) -> f64 + 'a) -> impl Iterator<Item = f64> + 'a {
        self.samples.iter().map(figure)
    }

    /// Microseconds of processor time per access, by round; none if the system does not tell.
    fn costs(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().filter_map(Sample::cost)
    }

    /// The server's part of [`Self::costs`].
    fn server_costs(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().filter_map(Sample::server_cost)
    }
}

/// The conditions of the whole run.
pub(crate) struct Conditions {
    pub(crate) layout: Layout,
    pub(crate) rounds: u32,
    pub(crate) disk: Option<String>,
}

/// The raw results.
#[derive(Debug, Serialize)]
pub(crate) struct Results<'a> {
    layout: String,
    rounds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<&'a str>,
    candidates: Vec<Row<'a>>,
}

/// One candidate with one server.
#[derive(Debug, Serialize)]
struct Row<'a> {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(rename = "floor", skip_serializing_if = "Option::is_none")]
    baseline: Option<String>,
    in_flight: usize,
    /// Accesses per second.
    rate: Option<Summary>,
    /// Instances per second.
    instance_rate: Option<Summary>,
    /// Microseconds of processor time per access.
    cost_us: Option<Summary>,
    /// The part of it that the server took, if it is a program of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cost_us: Option<Summary>,
    /// In units of the first server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_first_server: Option<OfServer>,
    /// The rate in units of the floor's in the same round.
    of_floor: Option<Summary>,
    /// The processor time per access of the floor in units of ours in the same round: the ratio of the rates
    /// on a machine without other load.
    of_floor_by_cost: Option<Summary>,
    /// The cost of the log, if there is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    log: Option<LogRow>,
    /// By candidate of etcd.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    of_etcd: BTreeMap<String, OfEtcd>,
    samples: &'a [Sample],
}

/// The log of one candidate.
#[derive(Clone, Copy, Debug, Serialize)]
struct LogRow {
    commit_rate: Summary,
    accesses_per_commit: Summary,
    commit_us: Summary,
    log_bytes_each: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_memory: Option<OfServer>,
}

impl LogRow {
    fn new(series: &Series, all: &[Series]) -> Option<Self> {
        let summary =
            |figure: fn(&Sample) -> Option<f64>| Summary::of(series.samples.iter().filter_map(figure));
        let in_memory = series.variant.in_memory();
        let memory =
            all.iter().find(|other| Some(other.variant) == in_memory && other.server == series.server);
        Some(Self {
            commit_rate: summary(Sample::commit_rate)?,
            accesses_per_commit: summary(Sample::accesses_per_commit)?,
            commit_us: summary(Sample::commit_micros)?,
            log_bytes_each: summary(Sample::log_bytes_each)?,
            of_memory: memory.and_then(|memory| OfServer::new(series, memory)),
        })
    }

    fn cells(&self) -> Vec<String> {
        let memory = self.of_memory;
        vec![
            memory.map_or(String::new(), |memory| ratio(&memory.rate)),
            memory.and_then(|memory| memory.server_cost_us).map_or(String::new(), |cost| ratio(&cost)),
            format!("{:.0}", self.commit_rate.median),
            format!("{:.0}", self.accesses_per_commit.median),
            format!("{:.0}", self.commit_us.median),
            format!("{:.0}", self.log_bytes_each.median),
        ]
    }
}

/// Figures of a server in units of those of another one.
#[derive(Clone, Copy, Debug, Serialize)]
struct OfServer {
    /// Accesses per second, within the same round.
    rate: Summary,
    /// Processor time of the server per access, within the same round.
    server_cost_us: Option<Summary>,
}

impl OfServer {
    fn new(series: &Series, other: &Series) -> Option<Self> {
        let rate = over(series.each(Sample::rate), other.each(Sample::rate))?;
        Some(Self { rate, server_cost_us: over(series.server_costs(), other.server_costs()) })
    }

    /// In units of the first server of the same candidate, unless it is that.
    fn of_first(series: &Series, all: &[Series]) -> Option<Self> {
        let first = all.iter().find(|other| other.variant == series.variant)?;
        if first.server == series.server { None } else { Self::new(series, first) }
    }
}

/// Our figures and those of a candidate of etcd.
#[derive(Clone, Copy, Debug, Serialize)]
struct OfEtcd {
    /// Our instances per second in units of those of etcd, within the same round.
    rate: Summary,
    /// The processor time per access of etcd in units of ours, within the same round.
    cost: Option<Summary>,
}

impl OfEtcd {
    fn new(ours: &Series, etcd: &Series) -> Option<Self> {
        let rate = over(ours.each(Sample::instance_rate), etcd.each(Sample::instance_rate))?;
        Some(Self { rate, cost: over(etcd.costs(), ours.costs()) })
    }

    fn cell(&self) -> String {
        let cost = self.cost.map(|cost| format!(" ({:.1})", cost.median)).unwrap_or_default();
        format!("{:.1}{cost}", self.rate.median)
    }
}

/// Ratios within rounds.
fn over(ours: impl Iterator<Item = f64>, theirs: impl Iterator<Item = f64>) -> Option<Summary> {
    Summary::of(ours.zip(theirs).map(|(ours, theirs)| ours / theirs))
}

impl<'a> Row<'a> {
    fn new(series: &'a Series, all: &[Series]) -> Self {
        let variant = series.variant;
        let same_server = all.iter().filter(|other| other.server == series.server);
        let baseline = same_server.clone().find(|other| Some(other.variant) == variant.baseline());
        let etcd = all.iter().filter(|other| variant.is_ours() && other.variant.is_etcd());
        let of_etcd = etcd.filter_map(|etcd| Some((etcd.variant.name(), OfEtcd::new(series, etcd)?)));
        Self {
            name: variant.name(),
            server: series.server.as_deref(),
            baseline: variant.baseline().map(Variant::name),
            in_flight: variant.in_flight(),
            rate: Summary::of(series.each(Sample::rate)),
            instance_rate: Summary::of(series.each(Sample::instance_rate)),
            cost_us: Summary::of(series.costs()),
            server_cost_us: Summary::of(series.server_costs()),
            of_first_server: OfServer::of_first(series, all),
            of_floor: baseline
                .and_then(|baseline| over(series.each(Sample::rate), baseline.each(Sample::rate))),
            of_floor_by_cost: baseline.and_then(|baseline| over(baseline.costs(), series.costs())),
            log: LogRow::new(series, all),
            of_etcd: of_etcd.collect(),
            samples: &series.samples,
        }
    }

    fn cells(&self) -> [String; 8] {
        [
            self.server.map_or(self.name.clone(), |server| format!("{} with {server}", self.name)),
            median(self.rate, 0),
            self.rate.map_or(String::new(), |rate| format!("{:.0}", rate.min)),
            self.rate.map_or(String::new(), |rate| format!("{:.0}", rate.max)),
            median(self.instance_rate, 0),
            median(self.cost_us, 2),
            median(self.of_floor, 2),
            median(self.of_floor_by_cost, 2),
        ]
    }

    /// The row of the table that compares servers.
    fn server_cells(&self) -> Option<[String; 6]> {
        let first = self.of_first_server.as_ref();
        Some([
            self.name.clone(),
            self.server?.to_owned(),
            median(self.rate, 0),
            first.map_or(String::new(), |first| ratio(&first.rate)),
            median(self.server_cost_us, 3),
            first.and_then(|first| first.server_cost_us).map_or(String::new(), |cost| ratio(&cost)),
        ])
    }
}

/// A ratio and its range.
fn ratio(summary: &Summary) -> String {
    format!("{:.3} ({:.3}..{:.3})", summary.median, summary.min, summary.max)
}

fn median(summary: Option<Summary>, digits: usize) -> String {
    summary.map_or(String::new(), |summary| format!("{:.digits$}", summary.median))
}

impl<'a> Results<'a> {
    pub(crate) fn new(conditions: &'a Conditions, series: &'a [Series]) -> Self {
        let layout = conditions.layout.to_possible_value();
        Self {
            layout: layout.map(|layout| layout.get_name().to_owned()).unwrap_or_default(),
            rounds: conditions.rounds,
            disk: conditions.disk.as_deref(),
            candidates: series.iter().map(|one| Row::new(one, series)).collect(),
        }
    }

    /// Prints the tables, in Markdown.
    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let header = [
            "candidate",
            "accesses/s",
            "min",
            "max",
            "instances/s",
            "CPU us/access",
            "of floor",
            "of floor by CPU",
        ];
        let rows = self.candidates.iter().map(|row| row.cells().to_vec());
        writeln!(out, "{}", table(header.map(str::to_owned).to_vec(), rows))?;
        self.print_logs(&mut out)?;
        let servers: Vec<Vec<String>> =
            self.candidates.iter().filter_map(|row| row.server_cells().map(Vec::from)).collect();
        if !servers.is_empty() {
            let header =
                ["candidate", "server", "accesses/s", "of first", "server CPU us/access", "of first"];
            writeln!(out, "\n{}", table(header.map(str::to_owned).to_vec(), servers))?;
        }
        self.print_etcd(&mut out)
    }

    /// Prints the costs of the logs.
    fn print_logs(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let rows = self.candidates.iter().filter_map(|row| {
            let name = row.cells()[0].clone();
            Some(std::iter::once(name).chain(row.log?.cells()).collect())
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if !rows.is_empty() {
            let header = [
                "log on disk",
                "rate, of memory",
                "server CPU, of memory",
                "commits/s",
                "accesses/commit",
                "us/commit",
                "log bytes/access",
            ];
            writeln!(out, "\n{}", table(header.map(str::to_owned).to_vec(), rows))?;
        }
        Ok(())
    }

    /// Instances per second in units of those of etcd.
    fn print_etcd(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let beside = self.candidates.iter().find(|row| !row.of_etcd.is_empty());
        let etcd: Vec<&String> = beside.map(|row| row.of_etcd.keys().collect()).unwrap_or_default();
        if !etcd.is_empty() {
            let header = ["instances/s, times those of (by CPU)".to_owned()].into_iter();
            let header = header.chain(etcd.iter().map(|&name| name.clone())).collect();
            let ours = self.candidates.iter().filter(|row| !row.of_etcd.is_empty());
            let rows = ours.map(|row| {
                let ratios =
                    etcd.iter().map(|&name| row.of_etcd.get(name).map_or(String::new(), OfEtcd::cell));
                [row.name.clone()].into_iter().chain(ratios).collect()
            });
            writeln!(out, "\n{}", table(header, rows))?;
        }
        Ok(())
    }
}
