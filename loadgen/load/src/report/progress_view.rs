//! How a load stands while it runs, on standard error: a view that is drawn over itself in a terminal, a line
//! each second elsewhere.

use std::time::Duration;

use indicatif::ProgressBar;
use stickycas_harness::progress;
use stickycas_model::bounds;

use super::words::time_or_none;
use crate::engine::LoadProgress;
use crate::figures::{Latency, answered};
use crate::measure::Measure;
use crate::profile::Profile;
use crate::recorder::Second;

/// Reasons of errors that are shown.
const REASONS: usize = 4;
/// Of less than so much of a second nothing is told: its rates would be anything.
const LEAST_OF_A_SECOND: f64 = 0.5;

/// See the module.
#[derive(Debug)]
pub struct ProgressView {
    /// `None` if standard error is no terminal.
    bar: Option<ProgressBar>,
    warm_up: Duration,
    /// W*(q+c): the phases of an instance in which no process misses one.
    phases: u64,
}

impl ProgressView {
    /// Of a load with this profile.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        let length = profile.duration.map_or(0, |whole| whole.as_secs());
        let bar = progress::bar(length, "{elapsed_precise} {bar:60}\n{msg}");
        let phases = bounds::phase_bound(&profile.params, 0).get();
        Self { bar, warm_up: profile.warm_up, phases }
    }

    /// Shows how far it is; `tell` writes a line where no view is drawn.
    pub fn show(&self, progress: &LoadProgress<'_>, tell: impl FnOnce(&str)) {
        let Some(second) = progress.recorder.seconds.last() else { return };
        if second.length < LEAST_OF_A_SECOND {
            return;
        }
        let (now, errors) = (self.now(progress, second), errors(progress));
        match &self.bar {
            Some(bar) => {
                bar.set_position(Duration::from_secs_f64(second.second).as_secs());
                let lines = [now, until_now(progress), errors].map(|parts| parts.join("  "));
                bar.set_message(lines.join("\n"));
            }
            None => tell(&format!("{:6.1} s  {}", second.second, [now, errors].concat().join("  "))),
        }
    }

    /// How much there was in this second, and the phase of the last answer.
    fn now(&self, progress: &LoadProgress<'_>, second: &Second) -> Vec<String> {
        let in_flight = format!("{} in flight", second.in_flight);
        // With several instances each is in a phase of its own.
        let phase = (second.in_flight == 1).then(|| format!("phase {} of {}", progress.phase, self.phases));
        if second.second <= self.warm_up.as_secs_f64() + second.length / 2.0 {
            return ["warming up".to_owned(), in_flight].into_iter().chain(phase).collect();
        }
        let Second { done, accesses, length, p50_ms, p99_ms, .. } = *second;
        let rate = |count: u64, of: &str| format!("{:.0} {of}/s", count as f64 / length);
        let missed = second.late + second.dropped;
        let missed = (missed > 0).then(|| format!("{missed} missed"));
        let points = [("p50", p50_ms), ("p99", p99_ms)];
        let nanos = |millis: f64| (done > 0).then_some(millis * 1e6);
        let points = points.map(|(name, millis)| format!("{name} {}", time_or_none(nanos(millis))));
        let rates = [rate(done, "instances"), rate(accesses, "accesses"), in_flight];
        rates.into_iter().chain(phase).chain(missed).chain(points).collect()
    }
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The latencies and the verdicts of everything until now.
fn until_now(progress: &LoadProgress<'_>) -> Vec<String> {
    let Latency { count, p50, p90, p99, p999, max, .. } =
        Latency::of(&answered(&progress.recorder.histograms, Measure::Instance));
    let points = [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("max", max)];
    let nanos = |nanos: u64| (count > 0).then_some(nanos as f64);
    let points = points.map(|(name, point)| format!("{name} {}", time_or_none(nanos(point))));
    std::iter::once("all".to_owned()).chain(points).chain([progress.judged.line()]).collect()
}

/// The refusals and failures until now, by reason, the most frequent first.
fn errors(progress: &LoadProgress<'_>) -> Vec<String> {
    let failed = progress.recorder.histograms.iter().filter(|(label, _)| !label.ended.is_answer());
    let mut failed: Vec<_> = failed.map(|(label, histogram)| (histogram.len(), label)).collect();
    failed.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let named = failed.iter().take(REASONS);
    named.map(|(count, label)| format!("{count} x {}: {}", label.measure.name(), label.ended)).collect()
}
