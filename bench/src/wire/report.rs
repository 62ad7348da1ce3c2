//! Medians, ranges and ratios, as a table and as JSON.

use std::io::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::Candidate;
use super::rig::Sample;

/// The turns of one candidate.
pub(crate) struct Series {
    pub(crate) candidate: Candidate,
    pub(crate) samples: Vec<Sample>,
}

impl Series {
    pub(crate) fn new(candidate: Candidate) -> Self {
        Self { candidate, samples: Vec::new() }
    }

    /// Accesses per second, by round.
    fn rates(&self) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss)]
        self.samples.iter().map(|sample| sample.accesses as f64 / sample.wall.as_secs_f64()).collect()
    }

    /// Microseconds of processor time per access, by round; empty where the system does not tell.
    fn costs(&self) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss)]
        let cost = |sample: &Sample| Some(sample.processor?.as_secs_f64() * 1e6 / sample.accesses as f64);
        self.samples.iter().filter_map(cost).collect()
    }
}

/// The middle one and the outermost ones.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Some(Self { median, min, max })
    }
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Row {
    candidate: String,
    rounds: usize,
    /// Accesses per second.
    rate: Option<Spread>,
    /// Microseconds of processor time per access.
    cost_us: Option<Spread>,
    /// The rate in units of the floor's in the same round.
    of_floor: Option<Spread>,
    /// The floor's processor time per access in units of ours in the same round: what the ratio would be on a
    /// machine that does nothing else.
    of_floor_by_cost: Option<Spread>,
}

impl Row {
    fn new(series: &Series, all: &[Series]) -> Self {
        let floor = series.candidate.floor();
        let floor = all.iter().find(|other| Some(other.candidate) == floor);
        let over = |ours: Vec<f64>, floor: Vec<f64>| {
            Spread::of(ours.into_iter().zip(floor).map(|(ours, floor)| ours / floor).collect())
        };
        Self {
            candidate: series.candidate.name(),
            rounds: series.samples.len(),
            rate: Spread::of(series.rates()),
            cost_us: Spread::of(series.costs()),
            of_floor: floor.and_then(|floor| over(series.rates(), floor.rates())),
            of_floor_by_cost: floor.and_then(|floor| over(floor.costs(), series.costs())),
        }
    }

    fn cells(&self) -> [String; 7] {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or(String::new(), |value| format!("{value:.digits$}"))
        };
        [
            self.candidate.clone(),
            number(self.rate.map(|rate| rate.median), 0),
            number(self.rate.map(|rate| rate.min), 0),
            number(self.rate.map(|rate| rate.max), 0),
            number(self.cost_us.map(|cost| cost.median), 2),
            number(self.of_floor.map(|ratio| ratio.median), 2),
            number(self.of_floor_by_cost.map(|ratio| ratio.median), 2),
        ]
    }
}

/// Prints the table, and with `json` a line of JSON.
pub(crate) fn print(series: &[Series], json: bool) -> anyhow::Result<()> {
    let rows: Vec<_> = series.iter().map(|one| Row::new(one, series)).collect();
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "candidate",
        "accesses/s",
        "min",
        "max",
        "CPU us/access",
        "of floor",
        "of floor by CPU",
    ]);
    for row in &rows {
        table.add_row(row.cells());
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{table}")?;
    if json {
        writeln!(out, "{}", serde_json::to_string(&rows)?)?;
    }
    Ok(())
}
