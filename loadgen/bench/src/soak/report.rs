//! Whether the run is flat, and the latency of accesses beside checkpoints.

use std::io::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::Options;
use super::samples::{Observations, Sample};
use crate::summary::{Summary, quantile};
use crate::table::table;

/// By how much the last third may exceed the middle one, as a share of it.
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
    trends: Trends,
    with_checkpoints: Latency,
    without: Latency,
    samples: Columns,
}

#[derive(Debug, Serialize)]
struct Trends {
    disk_bytes: Option<Trend>,
    rss_bytes: Option<Trend>,
}

/// The thirds of the run: the first warms up, the others are compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Trend {
    /// The most in each third.
    first_most: f64,
    middle_most: f64,
    last_most: f64,
    /// The rise of the line that fits the last two thirds best, from their beginning to their end, as a share
    /// of their mean.
    rise: f64,
    flat: bool,
}

impl Trend {
    /// Of these values at these moments; `None` if there are fewer than three.
    #[allow(clippy::cast_precision_loss)]
    fn of(values: &[(f64, f64)]) -> Option<Self> {
        let third = values.len() / 3;
        let most =
            |values: &[(f64, f64)]| Summary::of(values.iter().map(|(_, value)| *value)).map(|it| it.max);
        let (first, rest) = values.split_at(third);
        let (middle, last) = rest.split_at(third.min(rest.len()));
        let (first_most, middle_most, last_most) = (most(first)?, most(middle)?, most(last)?);
        let count = rest.len() as f64;
        let mean = |figure: fn(&(f64, f64)) -> f64| rest.iter().map(figure).sum::<f64>() / count;
        let (mean_at, mean_value) = (mean(|it| it.0), mean(|it| it.1));
        let products = rest.iter().map(|(at, value)| (at - mean_at) * (value - mean_value));
        let squares = rest.iter().map(|(at, _)| (at - mean_at).powi(2));
        let slope = products.sum::<f64>() / squares.sum::<f64>();
        let rise = slope * (rest.last()?.0 - rest.first()?.0) / mean_value;
        let flat = last_most <= (1.0 + FLAT) * middle_most && rise <= FLAT;
        Some(Self { first_most, middle_most, last_most, rise, flat })
    }
}

/// Accesses of some of the samples.
#[derive(Debug, Default, Serialize)]
struct Latency {
    /// Samples in which accesses were answered.
    samples: usize,
    accesses: usize,
    median_us: Option<f64>,
    p99_us: Option<f64>,
    most_us: Option<f64>,
}

impl Latency {
    fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        let samples: Vec<&Sample> = samples.filter(|sample| !sample.accesses.is_empty()).collect();
        let all: Vec<Duration> = samples.iter().flat_map(|sample| sample.accesses.iter().copied()).collect();
        let at = |share| quantile(all.clone(), share).map(micros);
        Self {
            samples: samples.len(),
            accesses: all.len(),
            median_us: at(0.5),
            p99_us: at(0.99),
            most_us: at(1.0),
        }
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let millis = |value: Option<f64>| value.map_or(String::new(), |value| format!("{:.2}", value / 1e3));
        let counts = [name.to_owned(), self.samples.to_string(), self.accesses.to_string()];
        counts.into_iter().chain([self.median_us, self.p99_us, self.most_us].map(millis)).collect()
    }
}

/// All samples, column by column.
#[derive(Debug, Serialize)]
struct Columns {
    /// The ends of the samples, since the start.
    until_s: Vec<f64>,
    disk_bytes: Vec<u64>,
    rss_bytes: Vec<u64>,
    checkpoints: Vec<f64>,
    accesses: Vec<usize>,
    p99_us: Vec<Option<f64>>,
}

impl Columns {
    fn of(samples: &[Sample]) -> Self {
        Self {
            until_s: samples.iter().map(|it| (it.until.as_secs_f64() * 1e3).round() / 1e3).collect(),
            disk_bytes: samples.iter().map(|it| it.disk_bytes).collect(),
            rss_bytes: samples.iter().map(|it| it.rss_bytes).collect(),
            checkpoints: samples.iter().map(|it| it.checkpoints).collect(),
            accesses: samples.iter().map(|it| it.accesses.len()).collect(),
            p99_us: samples.iter().map(|it| quantile(it.accesses.clone(), 0.99).map(micros)).collect(),
        }
    }
}

/// Microseconds, to a tenth.
fn micros(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e7).round() / 10.0
}

impl Findings {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn new(options: &Options, disk: Option<String>, observed: &Observations) -> Self {
        let trend = |figure: fn(&Sample) -> u64| {
            let samples = observed.samples.iter();
            let values: Vec<_> =
                samples.map(|sample| (sample.until.as_secs_f64(), figure(sample) as f64)).collect();
            Trend::of(&values)
        };
        let latency = |wanted| {
            let samples = observed.beside_checkpoints().filter(move |(_, beside)| *beside == wanted);
            Latency::of(samples.map(|(sample, _)| sample))
        };
        Self {
            instances: options.instances,
            live: options.live,
            in_flight: options.in_flight,
            retention: options.retention.clone(),
            disk,
            wall_s: observed.wall.as_secs_f64(),
            trends: Trends { disk_bytes: trend(|it| it.disk_bytes), rss_bytes: trend(|it| it.rss_bytes) },
            with_checkpoints: latency(true),
            without: latency(false),
            samples: Columns::of(&observed.samples),
        }
    }

    /// Prints the tables, in Markdown.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let mib = |bytes: f64| format!("{:.1}", bytes / f64::from(1 << 20));
        let head = ["most MiB", "first third", "middle third", "last third", "rise, of the mean", "flat"];
        let rows = [("disk in use", &self.trends.disk_bytes), ("RSS", &self.trends.rss_bytes)];
        let rows = rows.into_iter().filter_map(|(name, trend)| {
            let Trend { first_most, middle_most, last_most, rise, flat } = *trend.as_ref()?;
            let figures = [first_most, middle_most, last_most].map(mib);
            let judged = [format!("{:.1} %", 100.0 * rise), if flat { "yes" } else { "no" }.to_owned()];
            Some([name.to_owned()].into_iter().chain(figures).chain(judged).collect())
        });
        writeln!(out, "{} instances in {:.0} s\n", self.instances, self.wall_s)?;
        writeln!(out, "{}", table(head.map(str::to_owned).into(), rows))?;
        let head = ["samples", "count", "accesses", "median ms", "p99 ms", "most ms"];
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
    fn a_run_is_flat_if_what_comes_after_its_first_third_does_not_grow() {
        let trend = |values: &[f64]| {
            let values: Vec<_> = (0_u8..).map(f64::from).zip(values.iter().copied()).collect();
            Trend::of(&values)
        };
        let flat = trend(&[1.0, 2.0, 100.0, 110.0, 100.0, 110.0]).unwrap();
        assert_eq!((flat.first_most, flat.middle_most, flat.last_most), (2.0, 110.0, 110.0));
        assert!(flat.flat && (flat.rise - 0.12 / 2.1).abs() < 1e-9, "{flat:?}");
        assert!(trend(&[1.0, 2.0, 100.0, 110.0, 50.0, 60.0]).unwrap().flat, "it may shrink");
        let peak = trend(&[1.0, 2.0, 3.0, 100.0, 100.0, 100.0, 100.0, 112.0, 80.0]).unwrap();
        assert!(!peak.flat && peak.rise < FLAT, "{peak:?}");
        let rising = trend(&[1.0, 2.0, 3.0, 80.0, 90.0, 100.0, 100.0, 105.0, 105.0]).unwrap();
        assert!(!rising.flat && rising.last_most < (1.0 + FLAT) * rising.middle_most, "{rising:?}");
        assert_eq!(trend(&[1.0, 2.0]), None);
    }

    #[test]
    fn latencies_are_of_all_accesses_of_their_samples() {
        let sample = |millis: &[u64]| Sample {
            accesses: millis.iter().copied().map(Duration::from_millis).collect(),
            ..Sample::default()
        };
        let samples = [sample(&[1, 2, 3]), sample(&[]), sample(&[4])];
        let latency = Latency::of(samples.iter());
        assert_eq!((latency.samples, latency.accesses, latency.most_us), (2, 4, Some(4_000.0)));
        assert_eq!(Latency::of([].iter()).p99_us, None);
    }
}
