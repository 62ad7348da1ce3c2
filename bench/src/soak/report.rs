//! Thirds of the run, and the latency of accesses beside checkpoints.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::Options;
use super::seconds::{Observations, Second};
use crate::summary::{Summary, quantile};
use crate::table::table;

/// How far the last third may be from the middle one, as a share of it.
const FLAT: f64 = 0.1;

/// The raw results.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    instances: usize,
    live: usize,
    in_flight: usize,
    retention: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    wall_s: f64,
    thirds: Thirds,
    with_checkpoints: Latency,
    without: Latency,
    seconds: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Thirds {
    disk_bytes: Third,
    rss_bytes: Third,
}

/// Medians of the thirds of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Third {
    first: f64,
    middle: f64,
    last: f64,
    most: f64,
    flat: bool,
}

impl Third {
    /// Of these values, one for each second; `None` if there are fewer than three.
    fn of(values: &[f64]) -> Option<Self> {
        let third = values.len() / 3;
        let median = |values: &[f64]| Summary::of(values.iter().copied()).map(|it| it.median);
        let (first, rest) = values.split_at(third);
        let (middle, last) = rest.split_at(third.min(rest.len()));
        let (first, middle, last) = (median(first)?, median(middle)?, median(last)?);
        let most = values.iter().copied().fold(0.0, f64::max);
        Some(Self { first, middle, last, most, flat: (last - middle).abs() <= FLAT * middle })
    }
}

/// Accesses of some of the seconds.
#[derive(Debug, Default, Serialize)]
struct Latency {
    seconds: usize,
    accesses: usize,
    median_us: Option<f64>,
    p99_us: Option<f64>,
    most_us: Option<f64>,
}

impl Latency {
    fn of<'a>(seconds: impl Iterator<Item = &'a Second>) -> Self {
        let seconds: Vec<&Second> = seconds.filter(|second| !second.accesses.is_empty()).collect();
        let all: Vec<Duration> = seconds.iter().flat_map(|second| second.accesses.iter().copied()).collect();
        let at = |share| quantile(all.clone(), share).map(micros);
        Self {
            seconds: seconds.len(),
            accesses: all.len(),
            median_us: at(0.5),
            p99_us: at(0.99),
            most_us: at(1.0),
        }
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let millis = |value: Option<f64>| value.map_or(String::new(), |value| format!("{:.2}", value / 1e3));
        let counts = [name.to_owned(), self.seconds.to_string(), self.accesses.to_string()];
        counts.into_iter().chain([self.median_us, self.p99_us, self.most_us].map(millis)).collect()
    }
}

#[derive(Debug, Serialize)]
struct Row {
    /// Its end, since the start.
    until_s: f64,
    disk_bytes: u64,
    rss_bytes: u64,
    checkpoints: f64,
    accesses: usize,
    p99_us: Option<f64>,
}

/// Microseconds, to a tenth.
fn micros(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e7).round() / 10.0
}

impl Findings {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn new(options: &Options, disk: Option<String>, observed: &Observations) -> Self {
        let seconds = &observed.seconds;
        let thirds = |figure: fn(&Second) -> u64| {
            let values: Vec<f64> = seconds.iter().map(|second| figure(second) as f64).collect();
            let nothing = Third { first: 0.0, middle: 0.0, last: 0.0, most: 0.0, flat: false };
            Third::of(&values).unwrap_or(nothing)
        };
        let row = |second: &Second| Row {
            until_s: second.until.as_secs_f64(),
            disk_bytes: second.disk_bytes,
            rss_bytes: second.rss_bytes,
            checkpoints: second.checkpoints,
            accesses: second.accesses.len(),
            p99_us: quantile(second.accesses.clone(), 0.99).map(micros),
        };
        Self {
            instances: options.instances,
            live: options.live,
            in_flight: options.in_flight,
            retention: options.retention.clone(),
            disk,
            wall_s: observed.wall.as_secs_f64(),
            thirds: Thirds { disk_bytes: thirds(|it| it.disk_bytes), rss_bytes: thirds(|it| it.rss_bytes) },
            with_checkpoints: Latency::of(seconds.iter().filter(|it| it.checkpoints > 0.0)),
            without: Latency::of(seconds.iter().filter(|it| it.checkpoints == 0.0)),
            seconds: seconds.iter().map(row).collect(),
        }
    }

    /// Prints the tables, in Markdown.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        let head = ["MiB", "first third", "middle third", "last third", "most", "flat"];
        let rows = [("disk in use", &self.thirds.disk_bytes), ("RSS", &self.thirds.rss_bytes)];
        let rows = rows.map(|(name, third)| {
            let figures = [third.first, third.middle, third.last, third.most].map(mib);
            let flat = if third.flat { "yes" } else { "no" };
            [name.to_owned()].into_iter().chain(figures).chain([flat.to_owned()]).collect()
        });
        writeln!(out, "{} instances in {:.0} s\n", self.instances, self.wall_s)?;
        writeln!(out, "{}", table(head.map(str::to_owned).into(), rows))?;
        let head = ["seconds", "count", "accesses", "median ms", "p99 ms", "most ms"];
        let rows =
            [self.with_checkpoints.cells("with checkpoints"), self.without.cells("without checkpoints")];
        writeln!(out, "\n{}", table(head.map(str::to_owned).into(), rows))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_flat_if_its_last_third_is_like_the_middle() {
        let third = |values: &[f64]| Third::of(values).unwrap();
        let flat = third(&[1.0, 2.0, 100.0, 110.0, 105.0, 112.0]);
        assert_eq!((flat.first, flat.middle, flat.last, flat.most), (1.5, 105.0, 108.5, 112.0));
        assert!(flat.flat && !third(&[1.0, 100.0, 111.0]).flat && !third(&[1.0, 100.0, 89.0]).flat);
        assert_eq!(Third::of(&[1.0, 2.0]), None);
    }

    #[test]
    fn accesses_are_told_apart_by_the_checkpoints_of_their_second() {
        let second = |checkpoints, millis: &[u64]| Second {
            checkpoints,
            accesses: millis.iter().copied().map(Duration::from_millis).collect(),
            ..Second::default()
        };
        let seconds = [second(0.0, &[1, 2, 3]), second(7.0, &[50]), second(0.0, &[]), second(0.0, &[4])];
        let without = Latency::of(seconds.iter().filter(|it| it.checkpoints == 0.0));
        assert_eq!((without.seconds, without.accesses, without.most_us), (2, 4, Some(4_000.0)));
        assert_eq!(Latency::of(seconds.iter().skip(1).take(1)).p99_us, Some(50_000.0));
    }
}
