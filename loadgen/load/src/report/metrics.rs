//! A load while it runs, for Prometheus: its own figures, in the text format (OpenMetrics).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use stickycas_model::judge::Outcome;

use crate::engine::LoadProgress;
use crate::figures::answered;
use crate::measure::Measure;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets of instance latency, in seconds.
const BOUNDS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, f64::INFINITY];

/// Counters, by the value of their label.
type Counters = Vec<(String, u64)>;

/// The figures until the last second, without those of the warm-up.
#[derive(Debug, Default)]
struct Snapshot {
    in_flight: u64,
    starts: Counters,
    ended: Counters,
    verdicts: Counters,
    accesses: u64,
    /// Seconds of all instances together, how many they are, and how many there are in each bucket.
    latency: (f64, u64, Vec<(f64, u64)>),
}

/// See the module. Clones show the same load.
#[derive(Clone, Debug, Default)]
pub struct LoadMetrics(Arc<Mutex<Snapshot>>);

impl LoadMetrics {
    /// Takes the figures of this moment.
    pub fn update(&self, progress: &LoadProgress<'_>) {
        let (recorder, judged) = (progress.recorder, progress.judged);
        let starts = recorder.starts;
        let mut ended = BTreeMap::new();
        let mut accesses = 0;
        for (label, histogram) in &recorder.histograms {
            match label.measure {
                Measure::Instance => *ended.entry(label.ended.to_string()).or_default() += histogram.len(),
                Measure::Append | Measure::Read if label.ended.is_answer() => accesses += histogram.len(),
                _ => {}
            }
        }
        let instance = answered(&recorder.histograms, Measure::Instance);
        let mut buckets: Vec<(f64, u64)> = BOUNDS.iter().map(|bound| (*bound, 0)).collect();
        for step in instance.iter_recorded() {
            let seconds = step.value_iterated_to() as f64 / 1e9;
            let bucket = buckets.iter_mut().find(|(bound, _)| seconds <= *bound);
            bucket.expect("the last bucket takes everything").1 += step.count_at_value();
        }
        let starts = [("planned", starts.planned), ("late", starts.late), ("dropped", starts.dropped)];
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Snapshot {
            in_flight: recorder.seconds.last().map_or(0, |second| second.in_flight),
            starts: starts.map(|(kind, count)| (kind.to_owned(), count)).into(),
            ended: ended.into_iter().collect(),
            verdicts: Outcome::ALL.map(|verdict| (verdict.to_string(), judged.of(verdict))).into(),
            accesses,
            latency: (instance.mean() * instance.len() as f64 / 1e9, instance.len(), buckets),
        };
    }

    /// The text.
    ///
    /// # Errors
    /// None that is known: writing to memory does not fail.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for LoadMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Snapshot { in_flight, starts, ended, verdicts, accesses, latency } =
            &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, help, label, rows) in [
            ("starts", "Starts, by kind: planned, of these late, and dropped", "kind", starts),
            ("instances", "Instances that ended, by outcome", "outcome", ended),
            ("verdicts", "Instances that were judged, by verdict", "verdict", verdicts),
        ] {
            let name = format!("stickycas_load_{name}");
            let mut metric = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            for (value, count) in rows {
                metric
                    .encode_family(&[(label, value.as_str())])?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let (name, help) = ("stickycas_load_accesses", "Accesses that were answered");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(accesses, None)?;
        let (name, help) = ("stickycas_load_in_flight", "Instances under way");
        encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(in_flight)?;
        let (name, help) =
            ("stickycas_load_instance_latency_seconds", "From the planned start to the last decision");
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let (sum, count, buckets) = latency;
        metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::measure::{Histograms, Label, OperationOutcome, record};
    use crate::recorder::{Recorder, Starts};
    use crate::verdicts::VerdictCounts;

    #[test]
    fn the_text_has_counters_and_a_histogram_of_the_latency() {
        let mut taken = Histograms::new();
        for (ended, millis) in [
            (OperationOutcome::Done, 3),
            (OperationOutcome::Done, 4),
            (OperationOutcome::Done, 30_000),
            (OperationOutcome::Stalled, 1),
        ] {
            record(&mut taken, Label::own(Measure::Instance, ended), Duration::from_millis(millis));
        }
        let mut recorder = Recorder::new(UNIX_EPOCH);
        recorder.second(Duration::from_secs(1), &taken, Starts { planned: 6, late: 2, dropped: 1 }, 5);
        let judged = VerdictCounts { valid: 3, unknown: 1, ..VerdictCounts::default() };
        let metrics = LoadMetrics::default();
        metrics.update(&LoadProgress { recorder: &recorder, judged: &judged, phase: 1 });
        let text = metrics.text().unwrap();
        for line in [
            "stickycas_load_starts_total{kind=\"late\"} 2",
            "stickycas_load_instances_total{outcome=\"done\"} 3",
            "stickycas_load_instances_total{outcome=\"stalled\"} 1",
            "stickycas_load_verdicts_total{verdict=\"valid\"} 3",
            "stickycas_load_in_flight 5",
            "stickycas_load_instance_latency_seconds_bucket{le=\"0.002\"} 0",
            "stickycas_load_instance_latency_seconds_bucket{le=\"0.005\"} 2",
            "stickycas_load_instance_latency_seconds_bucket{le=\"10.0\"} 2",
            "stickycas_load_instance_latency_seconds_bucket{le=\"+Inf\"} 3",
            "stickycas_load_instance_latency_seconds_count 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
