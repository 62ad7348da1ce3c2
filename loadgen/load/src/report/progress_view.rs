//! How a load stands while it runs, on standard error: a view that is drawn over itself in a terminal, a line
//! each second elsewhere.

use std::fmt::Write as _;
use std::time::Duration;

use indicatif::ProgressBar;
use stickycas_harness::progress;

use super::table::time;
use crate::engine::LoadProgress;
use crate::figures::{Latency, answered};
use crate::measure::Measure;
use crate::profile::Profile;
use crate::recorder::Second;

/// Reasons of errors that are shown.
const REASONS: usize = 4;
/// Of less than so much of a second, no rate is told: it would be anything.
const LEAST_OF_A_SECOND: f64 = 0.5;

/// See the module.
#[derive(Debug)]
pub struct ProgressView {
    /// `None` if standard error is no terminal.
    bar: Option<ProgressBar>,
    warm_up: Duration,
    /// W*(1+c): the phases of an instance in which no process misses one.
    phases: u64,
}

impl ProgressView {
    /// Of a load with this profile.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        let length = profile.duration.map_or(0, |whole| whole.as_secs());
        let bar = progress::bar(length, "{elapsed_precise} {bar:60}\n{msg}");
        let params = &profile.params;
        let warm_up = profile.warm_up;
        Self { bar, warm_up, phases: u64::from(params.warps()) * (1 + u64::from(params.reads())) }
    }

    /// Shows how far it is; `tell` writes a line where no view is drawn.
    pub fn show(&self, progress: &LoadProgress<'_>, tell: impl FnOnce(&str)) {
        let Some(second) = progress.recorder.seconds().last() else { return };
        match &self.bar {
            Some(bar) => {
                bar.set_position(Duration::from_secs_f64(second.second).as_secs());
                bar.set_message(self.view(progress, second));
            }
            None => tell(&self.line(progress, second)),
        }
    }

    /// Several lines, each within 80 columns: this second, everything until now, the failures.
    fn view(&self, progress: &LoadProgress<'_>, second: &Second) -> String {
        let Latency { p50, p90, p99, p999, max, .. } =
            Latency::of(&answered(progress.recorder.histograms(), Measure::Instance));
        let points = [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p999), ("max", max)];
        let points = points.map(|(name, nanos)| format!("{name} {}", time(nanos as f64))).join("  ");
        let mut view = format!("  {}", self.rates(progress, second));
        let mut add = |line: String| write!(view, "\n  {line}").expect("writing to a string does not fail");
        if !self.is_warming_up(second) {
            add(format!("now  {}", now(second)));
            add(format!("all  {points}"));
        }
        let judged = progress.judged;
        add(format!(
            "judged {}: {} violations, {} outside, {} prove nothing, {} whole histories",
            judged.instances(),
            judged.violation,
            judged.outside,
            judged.unknown,
            judged.histories
        ));
        if let Some(errors) = errors(progress) {
            add(errors);
        }
        view
    }

    fn line(&self, progress: &LoadProgress<'_>, second: &Second) -> String {
        let errors = errors(progress).map_or_else(String::new, |errors| format!("  {errors}"));
        let now = if self.is_warming_up(second) { String::new() } else { format!("  {}", now(second)) };
        format!("{:6.1} s  {}{now}{errors}", second.second, self.rates(progress, second))
    }

    fn is_warming_up(&self, second: &Second) -> bool {
        second.second <= self.warm_up.as_secs_f64() + second.length / 2.0
    }

    /// How much there is, and the phase of the last answer.
    fn rates(&self, progress: &LoadProgress<'_>, second: &Second) -> String {
        let in_flight = second.in_flight;
        // With several instances each is in a phase of its own.
        let phase = match in_flight {
            1 => format!("  phase {} of {}", progress.phase, self.phases),
            _ => String::new(),
        };
        if self.is_warming_up(second) {
            return format!("warming up  {in_flight} in flight{phase}");
        }
        if second.length < LEAST_OF_A_SECOND {
            let Second { done, accesses, length, .. } = second;
            return format!("{done} instances, {accesses} accesses in {length:.2} s  {in_flight} in flight");
        }
        let per_second = |count: u64| count as f64 / second.length.max(1e-3);
        let (instances, accesses) = (per_second(second.done), per_second(second.accesses));
        let missed = match second.late + second.dropped {
            0 => String::new(),
            missed => format!("  {missed} missed"),
        };
        format!("{instances:.0} instances/s  {accesses:.0} accesses/s  {in_flight} in flight{phase}{missed}")
    }
}

/// Latencies of this second.
fn now(second: &Second) -> String {
    let Second { p50_ms, p99_ms, max_ms, .. } = *second;
    let points = [("p50", p50_ms), ("p99", p99_ms), ("max", max_ms)];
    points.map(|(name, millis)| format!("{name} {}", time(millis * 1e6))).join("  ")
}

impl Drop for ProgressView {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The refusals and failures until now, by reason.
fn errors(progress: &LoadProgress<'_>) -> Option<String> {
    let failed = progress.recorder.histograms().iter().filter(|(label, _)| !label.ended.is_answer());
    let mut failed: Vec<_> = failed.map(|(label, histogram)| (histogram.len(), label)).collect();
    failed.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let named = failed.iter().take(REASONS);
    let named = named.map(|(count, label)| format!("{count} x {}: {}", label.measure.name(), label.ended));
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}
