//! The figures of a load: percentiles, counts and rates, each with a name by which conditions look at it.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stickycas_program::files::nearest;

use super::measure::{Histograms, Label, Measure, OperationOutcome, Party, empty};

/// Percentiles of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half took no longer.
    pub p50: u64,
    /// 9 of 10 took no longer.
    pub p90: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    pub p999: u64,
    /// 9,999 of 10,000.
    pub p9999: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// Of a histogram.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: histogram.max(),
        }
    }

    /// One of its [`POINTS`].
    fn at(&self, point: &str) -> Option<f64> {
        Some(match point {
            "p50" => self.p50 as f64,
            "p90" => self.p90 as f64,
            "p99" => self.p99 as f64,
            "p99.9" => self.p999 as f64,
            "p99.99" => self.p9999 as f64,
            "max" => self.max as f64,
            "mean" => self.mean,
            _ => return None,
        })
    }
}

/// The points of latencies by their names.
const POINTS: [&str; 7] = ["p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"];

/// The latencies under one label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Of what, by whom, how it ended.
    #[serde(flatten)]
    pub label: Label,
    /// Their percentiles.
    #[serde(flatten)]
    pub latency: Latency,
}

/// How many instances did what, without those of the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Starts that were planned and came.
    pub planned: u64,
    /// Starts of an open loop that came too late.
    pub late: u64,
    /// Starts of an open loop that did not come, as too many instances were under way.
    pub dropped: u64,
    /// Instances that began.
    pub begun: u64,
    /// Of these, in which every correct process came to its end.
    pub done: u64,
    /// Of these, that were refused, wholly or at some access.
    pub refused: u64,
    /// Of these, in which nothing happened any more.
    pub stalled: u64,
    /// Of these, that the end of the load cut off.
    pub cut_off: u64,
    /// Of these, that failed otherwise.
    pub failed: u64,
}

impl Counts {
    /// Starts missed: late or dropped.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.late + self.dropped
    }

    /// The share of starts that were missed.
    #[must_use]
    pub fn missed_rate(&self) -> f64 {
        share(self.missed(), self.planned + self.dropped)
    }

    /// Instances that began and did not come to their end.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.refused + self.stalled + self.cut_off + self.failed
    }

    /// The same as a share.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        share(self.errors(), self.begun)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Everything that was measured, as numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds between warm-up and drain.
    pub seconds: f64,
    /// Instances that came to their end in a second, of these seconds.
    pub rate: f64,
    /// Accesses answered in a second, likewise.
    pub access_rate: f64,
    /// How many instances did what.
    pub counts: Counts,
    /// The latencies, label by label, in order.
    pub latencies: Vec<Row>,
    /// The latencies of all answers to correct processes, whatever the answer: conditions look at these.
    pub answered: Vec<Answered>,
}

/// The latencies of all answers to one kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Of what.
    pub measure: Measure,
    /// Their percentiles.
    #[serde(flatten)]
    pub latency: Latency,
}

impl Figures {
    /// Of these histograms; `counts` holds what they do not: starts.
    #[must_use]
    pub fn of(histograms: &Histograms, counts: Counts, seconds: f64, counted: (u64, u64)) -> Self {
        let per_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
        let answered = |measure| {
            let latency = Latency::of(&answered(histograms, measure));
            (latency.count > 0).then_some(Answered { measure, latency })
        };
        Self {
            seconds,
            rate: per_second(counted.0),
            access_rate: per_second(counted.1),
            counts: with_ends(counts, histograms),
            latencies: histograms
                .iter()
                .map(|(label, histogram)| Row { label: *label, latency: Latency::of(histogram) })
                .collect(),
            answered: Measure::ALL.into_iter().filter_map(answered).collect(),
        }
    }

    /// The latencies of all answers that correct processes had to such requests, if there were any.
    #[must_use]
    pub fn latency(&self, measure: Measure) -> Option<&Latency> {
        let found = self.answered.iter().find(|answered| answered.measure == measure);
        found.map(|answered| &answered.latency)
    }

    /// The value of a figure; `None` of a latency of which there is none.
    #[must_use]
    pub fn value(&self, figure: Metric) -> Option<f64> {
        Some(match figure {
            Metric::Latency(measure, point) => self.latency(measure)?.at(point)?,
            Metric::Rate => self.rate,
            Metric::AccessRate => self.access_rate,
            Metric::Errors => self.counts.errors() as f64,
            Metric::ErrorRate => self.counts.error_rate(),
            Metric::Stalled => self.counts.stalled as f64,
            Metric::Missed => self.counts.missed() as f64,
            Metric::MissedRate => self.counts.missed_rate(),
        })
    }

    /// The refusals and failures with their counts, the most frequent first.
    #[must_use]
    pub fn failures(&self) -> Vec<(Label, u64)> {
        let failed = self.latencies.iter().filter(|row| !row.label.ended.is_answer());
        let mut failed: Vec<(Label, u64)> = failed.map(|row| (row.label, row.latency.count)).collect();
        failed.sort_by_key(|(label, count)| (std::cmp::Reverse(*count), *label));
        failed
    }
}

/// One histogram of all answers that correct processes had to such requests.
#[must_use]
pub fn answered(histograms: &Histograms, measure: Measure) -> Histogram<u64> {
    let mut all = empty();
    let wanted =
        |label: &Label| label.measure == measure && label.party == Party::Correct && label.ended.is_answer();
    for (_, histogram) in histograms.iter().filter(|(label, _)| wanted(label)) {
        all.add(histogram).expect("a histogram that grows takes whatever another one holds");
    }
    all
}

/// Counts with how instances ended, which their histograms tell.
fn with_ends(mut counts: Counts, histograms: &Histograms) -> Counts {
    for (label, histogram) in histograms.iter().filter(|(label, _)| label.measure == Measure::Instance) {
        let ended = histogram.len();
        counts.begun += ended;
        *match label.ended {
            OperationOutcome::Done
            | OperationOutcome::Won
            | OperationOutcome::Lost
            | OperationOutcome::Limit => &mut counts.done,
            OperationOutcome::Refused(_) => &mut counts.refused,
            OperationOutcome::Stalled => &mut counts.stalled,
            OperationOutcome::CutOff => &mut counts.cut_off,
            OperationOutcome::Unreachable | OperationOutcome::Protocol | OperationOutcome::GaveUp => {
                &mut counts.failed
            }
        } += ended;
    }
    counts
}

/// The least likeness of a text and the name of a figure that is suggested in its place.
const LIKELY: f64 = 0.85;

/// A figure, by its name: `instance_p99`, `rate`, `error_rate`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// A point of the latencies of what correct processes were answered.
    Latency(Measure, &'static str),
    /// Instances that came to their end, per second.
    Rate,
    /// Accesses answered, per second.
    AccessRate,
    /// Instances that began and did not come to their end.
    Errors,
    /// The same as a share of those that began.
    ErrorRate,
    /// Instances in which nothing happened any more.
    Stalled,
    /// Starts that came too late or not at all.
    Missed,
    /// The same as a share of those planned.
    MissedRate,
}

impl Metric {
    const PLAIN: [(Self, &'static str); 7] = [
        (Self::Rate, "rate"),
        (Self::AccessRate, "access_rate"),
        (Self::Errors, "errors"),
        (Self::ErrorRate, "error_rate"),
        (Self::Stalled, "stalled"),
        (Self::Missed, "missed"),
        (Self::MissedRate, "missed_rate"),
    ];

    /// Whether its value is a time, in nanoseconds.
    #[must_use]
    pub const fn is_latency(self) -> bool {
        matches!(self, Self::Latency(..))
    }

    /// Whether it says how many instances came to no end.
    #[must_use]
    pub const fn is_of_errors(self) -> bool {
        matches!(self, Self::Errors | Self::ErrorRate)
    }

    /// Whether more of it is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::Rate | Self::AccessRate)
    }

    /// The name that was most likely meant by a text that is none.
    pub(super) fn meant_by(text: &str) -> Option<String> {
        if POINTS.contains(&text) {
            return Some(format!("{}_{text}", Measure::Instance.name()));
        }
        let latency = |measure: Measure| POINTS.map(|point| format!("{}_{point}", measure.name()));
        let plain = Self::PLAIN.map(|(_, name)| name.to_owned());
        let names: Vec<String> = Measure::ALL.into_iter().flat_map(latency).chain(plain).collect();
        let (meant, likeness) = nearest(text, names.iter().map(String::as_str))?;
        (likeness >= LIKELY).then(|| meant.to_owned())
    }

    /// How names are made, for people.
    #[must_use]
    pub fn all_names() -> String {
        let measures = Measure::ALL.map(Measure::name).map(|name| format!("{name}_p50"));
        let plain = Self::PLAIN.map(|(_, name)| name.to_owned());
        format!("{}, {}; a latency has {}", measures.join(", "), plain.join(", "), POINTS.join(", "))
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Latency(measure, point) = self {
            return f.pad(&format!("{}_{point}", measure.name()));
        }
        let named = Self::PLAIN.into_iter().find(|(figure, _)| figure == self);
        f.pad(named.map_or("", |(_, name)| name))
    }
}

impl FromStr for Metric {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some((figure, _)) = Self::PLAIN.into_iter().find(|(_, name)| *name == text) {
            return Ok(figure);
        }
        let (measure, point) = text.rsplit_once('_').ok_or(())?;
        let measure = Measure::ALL.into_iter().find(|known| known.name() == measure).ok_or(())?;
        let point = POINTS.into_iter().find(|known| *known == point).ok_or(())?;
        Ok(Self::Latency(measure, point))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::measure::record;
    use super::*;

    #[test]
    fn every_figure_reads_back_as_it_is_named() {
        let latencies = Measure::ALL.into_iter().flat_map(|m| POINTS.map(|point| Metric::Latency(m, point)));
        for figure in Metric::PLAIN.into_iter().map(|(figure, _)| figure).chain(latencies) {
            assert_eq!(figure.to_string().parse(), Ok(figure));
        }
        assert!("watch_lag_p99.99".parse::<Metric>().is_ok());
        assert!("instance_p98".parse::<Metric>().is_err());
    }

    #[test]
    fn conditions_use_answers_to_correct_processes_only() {
        let mut histograms = Histograms::new();
        let mut add = |party, ended, millis| {
            let label = Label { measure: Measure::Append, party, ended };
            record(&mut histograms, label, Duration::from_millis(millis));
        };
        add(Party::Correct, OperationOutcome::Won, 1);
        add(Party::Correct, OperationOutcome::Lost, 3);
        add(Party::Byzantine, OperationOutcome::Won, 500);
        add(Party::Correct, OperationOutcome::Stalled, 900);
        let figures = Figures::of(&histograms, Counts::default(), 1.0, (0, 2));
        let max = figures.value("append_max".parse().unwrap()).unwrap();
        assert!((max / 3e6 - 1.0).abs() < 1e-3, "{max}");
        assert_eq!(figures.value("read_p50".parse().unwrap()), None);
        assert_eq!(figures.failures().len(), 1);
    }

    #[test]
    fn instances_are_counted_by_how_they_ended() {
        let mut histograms = Histograms::new();
        let ends = [
            OperationOutcome::Done,
            OperationOutcome::Done,
            OperationOutcome::Stalled,
            OperationOutcome::CutOff,
        ];
        for ended in ends {
            record(&mut histograms, Label::own(Measure::Instance, ended), Duration::from_millis(1));
        }
        let starts = Counts { planned: 9, late: 1, dropped: 1, ..Counts::default() };
        let figures = Figures::of(&histograms, starts, 2.0, (2, 0));
        assert_eq!((figures.counts.begun, figures.counts.done, figures.counts.errors()), (4, 2, 2));
        assert_eq!(figures.value(Metric::ErrorRate), Some(0.5));
        assert_eq!(figures.value(Metric::MissedRate), Some(0.2));
        assert_eq!(figures.value(Metric::Rate), Some(1.0));
    }
}
