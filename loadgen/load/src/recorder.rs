//! Keeps what was measured, second by second: sums for the figures, a row for the plots, lines for the HDR
//! log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::{Deserialize, Serialize};

use super::figures::answered;
use super::measure::{Histograms, Label, Measure, merge};

/// The events of about a second: a row of `seconds.csv`. Latencies are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the start of the load to its end.
    pub second: f64,
    /// How long it was, in seconds.
    pub length: f64,
    /// Starts that were planned and came.
    pub planned: u64,
    /// Starts that came too late.
    pub late: u64,
    /// Starts that did not come.
    pub dropped: u64,
    /// Instances that came to their end.
    pub done: u64,
    /// Instances that began and did not.
    pub errors: u64,
    /// Accesses answered.
    pub accesses: u64,
    /// Instances under way at its end.
    pub in_flight: u64,
    /// Instance latency: half took no longer.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Starts until some moment, as in [`Second`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Starts {
    pub(super) planned: u64,
    pub(super) late: u64,
    pub(super) dropped: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Recorder {
    /// When the load began, by the clock on the wall.
    pub(super) began: SystemTime,
    /// The end of the last second.
    last: Duration,
    /// All starts until then.
    pub(super) starts: Starts,
    /// Everything.
    pub histograms: Histograms,
    /// Second by second.
    pub seconds: Vec<Second>,
    /// The HDR log, version 2 of its form.
    pub(super) log: Vec<u8>,
    /// The measurements that are not in the log yet, since when, and of how many seconds.
    pending: Histograms,
    pending_from: Duration,
    pending_seconds: u32,
    /// How many seconds an interval of the log spans: one at first, twice as many whenever so many more
    /// intervals have been written, so that a load of days does not fill the memory.
    span: u32,
    written: u32,
}

/// Intervals of the log of one span.
const INTERVALS: u32 = 600;

impl Recorder {
    pub(super) fn new(began: SystemTime) -> Self {
        let log = b"#[StickyCAS load generator: nanoseconds; tags are measure.party.end]\n\
                    #[Histogram log format version 1.3]\n"
            .to_vec();
        Self {
            began,
            last: Duration::ZERO,
            starts: Starts::default(),
            histograms: Histograms::new(),
            seconds: Vec::new(),
            log,
            pending: Histograms::new(),
            pending_from: Duration::ZERO,
            pending_seconds: 0,
            span: 1,
            written: 0,
        }
    }

    /// With everything in its log.
    pub(super) fn finished(mut self) -> Self {
        self.write(self.last);
        self
    }

    /// The second that ends now, so long after the start. `starts`: all until now.
    pub(super) fn second(&mut self, now: Duration, taken: &Histograms, starts: Starts, in_flight: u64) {
        let length = now.saturating_sub(self.last);
        let instance = answered(taken, Measure::Instance);
        let count = |measures: &[Measure], answered| {
            let wanted =
                |label: &Label| measures.contains(&label.measure) && label.ended.is_answer() == answered;
            taken.iter().filter(|(label, _)| wanted(label)).map(|(_, histogram)| histogram.len()).sum()
        };
        let millis = |nanos: u64| nanos as f64 / 1e6;
        self.seconds.push(Second {
            second: now.as_secs_f64(),
            length: length.as_secs_f64(),
            planned: starts.planned - self.starts.planned,
            late: starts.late - self.starts.late,
            dropped: starts.dropped - self.starts.dropped,
            done: instance.len(),
            errors: count(&[Measure::Instance], false),
            accesses: count(&[Measure::Append, Measure::Read], true),
            in_flight,
            p50_ms: millis(instance.value_at_quantile(0.5)),
            p99_ms: millis(instance.value_at_quantile(0.99)),
            max_ms: millis(instance.max()),
        });
        merge(&mut self.histograms, taken);
        merge(&mut self.pending, taken);
        (self.last, self.starts) = (now, starts);
        self.pending_seconds += 1;
        if self.pending_seconds >= self.span {
            self.write(now);
        }
    }

    /// Adds what is pending to the log.
    fn write(&mut self, now: Duration) {
        // Timestamps are absolute, so the log has no header that would come once in each interval.
        let from = (self.began + self.pending_from).duration_since(UNIX_EPOCH).unwrap_or_default();
        let length = now.saturating_sub(self.pending_from);
        let taken = std::mem::take(&mut self.pending);
        (self.pending_from, self.pending_seconds) = (now, 0);
        self.written += 1;
        if self.written.is_multiple_of(INTERVALS) {
            self.span = self.span.saturating_mul(2);
        }
        let mut serializer = V2DeflateSerializer::new();
        let mut writer = IntervalLogWriterBuilder::new()
            .begin_log_with(&mut self.log, &mut serializer)
            .expect("writing to memory does not fail");
        for (label, histogram) in &taken {
            let text = label.to_string();
            let tag = Tag::new(&text).expect("a label has neither blanks nor commas");
            writer
                .write_histogram(histogram, from, length, Some(tag))
                .expect("every histogram of ours can be written to memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::super::measure::{OperationOutcome, record};
    use super::*;

    #[test]
    fn the_log_of_a_long_load_has_longer_intervals() {
        let mut recorder = Recorder::new(UNIX_EPOCH);
        let seconds = 2_000;
        for second in 1..=seconds {
            let mut taken = Histograms::new();
            let label = Label::own(Measure::Create, OperationOutcome::Done);
            record(&mut taken, label, Duration::from_millis(second % 7 + 1));
            recorder.second(Duration::from_secs(second), &taken, Starts::default(), 0);
        }
        let recorder = recorder.finished();
        let intervals: Vec<(u64, u64)> = IntervalLogIterator::new(&recorder.log)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => {
                    Some((interval.start_timestamp().as_secs(), interval.duration().as_secs()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(&intervals[598..602], [(598, 1), (599, 1), (600, 2), (602, 2)]);
        assert_eq!(intervals.iter().map(|(_, length)| length).sum::<u64>(), seconds);
        assert_eq!(recorder.seconds.len() as u64, seconds);
        assert_eq!(recorder.histograms.values().next().unwrap().len(), seconds);
    }
}
