//! Rates and latencies of the commits, and the rates in units of those of the server's engine.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::summary::{Summary, quantile};
use crate::table::table;

/// The candidate that the others are compared with.
const SERVERS_ENGINE: &str = "redb";

/// The turns of one candidate with batches of one size.
pub(super) struct Series {
    name: &'static str,
    batch_bytes: usize,
    /// How many times fewer commits a turn has than with the smallest batches.
    pub(super) fewer: u32,
    /// By round: how long each commit took.
    pub(super) rounds: Vec<Vec<Duration>>,
}

impl Series {
    pub(super) fn new(name: &'static str, batch_bytes: usize, fewer: u32) -> Self {
        Self { name, batch_bytes, fewer, rounds: Vec::new() }
    }

    /// Commits per second, by round.
    #[allow(clippy::cast_precision_loss)]
    fn rates(&self) -> impl Iterator<Item = f64> + '_ {
        self.rounds.iter().map(|round| round.len() as f64 / round.iter().sum::<Duration>().as_secs_f64())
    }

    /// A quantile of each round, in microseconds.
    fn micros(&self, at: f64) -> Option<Summary> {
        let each = |round: &Vec<Duration>| Some(quantile(round.clone(), at)?.as_secs_f64() * 1e6);
        Summary::of(self.rounds.iter().filter_map(each))
    }
}

/// The raw results.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    rounds: u32,
    candidates: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    batch_bytes: usize,
    rate: Option<Summary>,
    median_us: Option<Summary>,
    p99_us: Option<Summary>,
    bytes_per_second: Option<Summary>,
    of_redb: Option<Summary>,
}

impl Row {
    #[allow(clippy::cast_precision_loss)]
    fn new(series: &Series, all: &[&Series]) -> Self {
        let same_size = all.iter().filter(|other| other.batch_bytes == series.batch_bytes);
        let ours = same_size.clone().find(|other| other.name == SERVERS_ENGINE);
        let of_redb = ours
            .filter(|ours| ours.name != series.name)
            .and_then(|ours| Summary::of(series.rates().zip(ours.rates()).map(|(other, ours)| other / ours)));
        Self {
            name: series.name,
            batch_bytes: series.batch_bytes,
            rate: Summary::of(series.rates()),
            median_us: series.micros(0.5),
            p99_us: series.micros(0.99),
            bytes_per_second: Summary::of(series.rates().map(|rate| rate * series.batch_bytes as f64)),
            of_redb,
        }
    }

    fn cells(&self) -> Vec<String> {
        let cell = |value: Option<Summary>, digits: usize| {
            value.map_or(String::new(), |it| {
                format!("{:.digits$} ({:.digits$}..{:.digits$})", it.median, it.min, it.max)
            })
        };
        vec![
            format!("{} {} KiB", self.name, self.batch_bytes >> 10),
            cell(self.rate, 0),
            cell(self.median_us, 0),
            cell(self.p99_us, 0),
            self.bytes_per_second.map_or(String::new(), |it| format!("{:.1}", it.median / 1e6)),
            cell(self.of_redb, 2),
        ]
    }
}

impl Results {
    pub(super) fn new(disk: Option<String>, rounds: u32, series: &[&Series]) -> Self {
        Self { disk, rounds, candidates: series.iter().map(|one| Row::new(one, series)).collect() }
    }

    /// Prints the table, in Markdown.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let header = ["engine, batch", "commits/s", "median us", "p99 us", "MB/s", "rate, of redb"];
        let rows = self.candidates.iter().map(Row::cells);
        writeln!(std::io::stdout().lock(), "{}", table(header.map(str::to_owned).to_vec(), rows))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_compared_with_that_of_the_server_by_size() {
        let series = |name, bytes, millis: &[u64]| {
            let rounds = millis.iter().map(|millis| vec![Duration::from_millis(*millis); 4]).collect();
            Series { name, batch_bytes: bytes, fewer: 1, rounds }
        };
        let all = [
            series("redb", 1_000, &[4, 40]),
            series("redb", 9_000, &[1, 1]),
            series("segments", 1_000, &[2, 10]),
        ];
        let all: Vec<&Series> = all.iter().collect();
        let row = Row::new(all[2], &all);
        assert_eq!(row.of_redb.map(|it| (it.min.round(), it.max.round())), Some((2.0, 4.0)));
        assert_eq!(row.rate.map(|it| (it.min.round(), it.max.round())), Some((100.0, 500.0)));
        assert_eq!(row.bytes_per_second.map(|it| it.max.round()), Some(500_000.0));
        assert!(Row::new(all[0], &all).of_redb.is_none());
    }
}
