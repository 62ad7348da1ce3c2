//! The result of a load: the one record that all formats start from, `result.json` in its folder. Its schema
//! is `docs/schema/load-result.schema.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stickycas_harness::exit::Exit;
use stickycas_harness::host::Host;
use stickycas_model::judge::Outcome;

use super::baseline::{Comparison, compare};
use super::engine::{CutShort, LoadOutcome};
use super::fail_if::{Checked, FailIf};
use super::figures::{Figures, Metric};
use super::measure::Messages;
use super::profile::{Pacing, Profile};
use super::recorder::Recorder;
use super::server::ServerSide;
use super::verdicts::{Evidence, VerdictCounts};

/// Version of the form of a result. Raised when a field changes its meaning or goes away.
pub const RESULT_VERSION: u32 = 1;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`RESULT_VERSION`].
    pub version: u32,
    /// The verdict on the instances, taken together.
    pub verdict: Outcome,
    /// How many of them show what.
    pub judged: VerdictCounts,
    /// Conditions that held and so failed the run.
    pub failed: Vec<Checked>,
    /// Conditions that did not hold, and so did not fail it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed: Vec<Checked>,
    /// Whether and how it ended before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
    /// Name of the profile.
    pub name: String,
    /// From which everything was drawn; of several generators, that of the first.
    #[serde(with = "stickycas_model::seed_text")]
    pub seed: u64,
    /// When it began, in UTC, RFC 3339.
    pub began: String,
    /// Seconds from there to the beginning of the time in which rates count.
    #[serde(default)]
    pub measured_from: f64,
    /// Everything that was measured.
    pub figures: Figures,
    /// The first message of each way to be refused or to fail, in the warm-up or after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub messages: Messages,
    /// Why its figures may say less than they seem to, if results were merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Beside an earlier result, if one was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baseline: Vec<Comparison>,
    /// Where the load was put on from, one for each generator.
    pub hosts: Vec<Host>,
    /// The server's side of the load, as each generator was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerSide>,
    /// The profiles with nothing left to defaults or draws, one for each generator.
    pub profiles: Vec<String>,
}

/// The file of a [`LoadResult`] in its folder.
pub const RESULT_FILE: &str = "result.json";
/// The file of the HDR log.
pub const LOG_FILE: &str = "latencies.hlog";
/// The file of what happened second by second.
pub const SECONDS_FILE: &str = "seconds.csv";

/// A result with what is too large for one file of JSON.
#[derive(Debug)]
pub struct Measurement {
    /// The result.
    pub result: LoadResult,
    /// All latencies, what happened second by second, and the HDR log.
    pub recorder: Recorder,
    /// Some of the instances that were not valid.
    pub evidence: Vec<Evidence>,
}

impl Measurement {
    /// Of a load that was put on from here.
    #[must_use]
    pub fn of(profile: &Profile, loaded: LoadOutcome, server: Option<String>) -> Self {
        let LoadOutcome { recorder, figures, judged, messages, evidence, server: side, cut_short } = loaded;
        let (failed, passed) = check(&conditions(profile), &figures);
        let result = LoadResult {
            version: RESULT_VERSION,
            verdict: judged.verdict(),
            judged,
            failed,
            passed,
            cut_short,
            name: profile.name.clone(),
            seed: profile.seed,
            began: humantime::format_rfc3339_millis(recorder.began).to_string(),
            measured_from: profile.warm_up.as_secs_f64(),
            figures,
            messages,
            warnings: Vec::new(),
            baseline: Vec::new(),
            hosts: vec![Host::here(server)],
            servers: side.into_iter().collect(),
            profiles: vec![profile.to_toml()],
        };
        Self { result, recorder, evidence }
    }
}

/// The conditions of a profile; that hardly any instance failed or was refused; and of an open loop, that it
/// kept its schedule. A profile that allows all of them to fail has no such condition.
pub(super) fn conditions(profile: &Profile) -> Vec<FailIf> {
    let mut conditions = profile.fail_if.clone();
    let mut at_most = |metric: Metric, share: f64| {
        if share < 1.0 {
            let condition = format!("{metric} > {share}");
            conditions.push(condition.parse().expect("it names a figure and a number"));
        }
    };
    at_most(Metric::ErrorRate, profile.max_errors);
    if let Pacing::Open(open) = &profile.pacing {
        at_most(Metric::MissedRate, open.max_missed);
    }
    conditions
}

/// The conditions that fail a run with these figures, and those that do not. A run in which no instance came
/// to its end fails, which no flag can allow to be otherwise.
#[must_use]
pub fn check(conditions: &[FailIf], figures: &Figures) -> (Vec<Checked>, Vec<Checked>) {
    let (mut failed, mut passed) = (Vec::new(), Vec::new());
    for condition in conditions {
        let value = figures.value(condition.figure);
        // A condition on a figure that was not measured fails the run.
        let fails = value.is_none_or(|value| condition.is_met(value));
        let checked = Checked { condition: condition.to_string(), value };
        if fails { &mut failed } else { &mut passed }.push(checked);
    }
    if figures.counts.done == 0 {
        failed.push(Checked { condition: "instances < 1".to_owned(), value: None });
    }
    (failed, passed)
}

impl LoadResult {
    /// Compares it with an earlier result: a figure that is worse by more than this share fails the run.
    pub fn compare(&mut self, baseline: &Self, noise: f64) {
        self.baseline = compare(&baseline.figures, &self.figures, noise);
        for Comparison { figure, now, .. } in self.baseline.iter().filter(|compared| compared.worse) {
            let condition = format!("{figure} worse than the baseline by more than {} %", noise * 100.0);
            self.failed.push(Checked { condition, value: Some(*now) });
        }
    }

    /// Whether a promise broke or a condition was not kept.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.verdict == Outcome::Violation || !self.failed.is_empty()
    }

    /// By the verdict as for a run; not done if it was interrupted, failed if a condition was not kept.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match Exit::of(self.verdict, None) {
            Exit::Done if self.cut_short == Some(CutShort::Interrupted) => Exit::NotDone,
            Exit::Done if !self.failed.is_empty() => Exit::Failed,
            exit => exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Counts;
    use super::super::profile::Flags;
    use super::*;

    fn figures(planned: u64, late: u64) -> Figures {
        let counts = Counts { planned, late, begun: planned, done: planned, ..Counts::default() };
        Figures { rate: 90.0, counts, ..Figures::default() }
    }

    #[test]
    fn a_schedule_that_was_not_kept_fails_an_open_loop() {
        let flags = Flags::of(&[("rate", "5"), ("max-missed", "0.1")]);
        let conditions = conditions(&Profile::load(None, &flags).unwrap());
        assert_eq!(check(&conditions, &figures(100, 10)).0, []);
        let both = ["error_rate > 0.01", "missed_rate > 0.1"];
        let passed = check(&conditions, &figures(100, 10)).1.into_iter().map(|it| it.condition);
        assert_eq!(passed.collect::<Vec<_>>(), both, "each condition is in one of the lists");
        let failed = check(&conditions, &figures(100, 11)).0;
        assert_eq!(failed[0].condition, "missed_rate > 0.1");
    }

    #[test]
    fn a_load_in_which_no_instance_came_to_its_end_fails() {
        let anything = Flags::of(&[("max-errors", "1")]);
        let conditions = conditions(&Profile::load(None, &anything).unwrap());
        assert_eq!(check(&conditions, &figures(1, 0)).0, []);
        let nothing = [Checked { condition: "instances < 1".to_owned(), value: None }];
        assert_eq!(check(&conditions, &figures(0, 0)).0, nothing);
        let mut all_failed = figures(100, 0);
        (all_failed.counts.done, all_failed.counts.failed) = (0, 100);
        assert_eq!(check(&conditions, &all_failed).0, nothing);
    }

    #[test]
    fn errors_fail_a_load_above_its_own_limit_or_the_default() {
        let with = |flags: &[(&str, &str)]| {
            let conditions = conditions(&Profile::load(None, &Flags::of(flags)).unwrap());
            let counts = Counts { begun: 1_000, done: 989, refused: 11, ..Counts::default() };
            let figures = Figures { rate: 90.0, counts, ..Figures::default() };
            check(&conditions, &figures).0.into_iter().map(|it| it.condition).collect::<Vec<_>>()
        };
        assert_eq!(with(&[]), ["error_rate > 0.01"]);
        assert_eq!(with(&[("max-errors", "0.02")]), [""; 0]);
        assert_eq!(with(&[("fail-if", "errors > 11")]), [""; 0]);
        assert_eq!(with(&[("fail-if", "error_rate > 1%")]), ["error_rate > 1%"]);
        let both = [("fail-if", "errors > 11"), ("max-errors", "0.01")];
        assert_eq!(with(&both), ["error_rate > 0.01"], "who asks for both gets both");
    }

    #[test]
    fn the_worst_that_happened_is_the_exit_code() {
        let code = |verdict, cut_short, failed: &[Checked]| {
            let result = LoadResult {
                version: RESULT_VERSION,
                verdict,
                judged: VerdictCounts::default(),
                failed: failed.to_vec(),
                passed: Vec::new(),
                cut_short,
                name: "a".to_owned(),
                seed: 1,
                began: String::new(),
                measured_from: 0.0,
                figures: Figures::default(),
                messages: Messages::new(),
                warnings: Vec::new(),
                baseline: Vec::new(),
                hosts: Vec::new(),
                servers: Vec::new(),
                profiles: Vec::new(),
            };
            result.exit().code()
        };
        let failed = [Checked { condition: "errors > 0".to_owned(), value: Some(1.0) }];
        let interrupted = Some(CutShort::Interrupted);
        assert_eq!(code(Outcome::Violation, interrupted, &failed), 1);
        assert_eq!(code(Outcome::Unknown, None, &failed), 4);
        assert_eq!(code(Outcome::Valid, interrupted, &failed), 3);
        assert_eq!(code(Outcome::Outside, Some(CutShort::HardStop), &failed), 1);
        assert_eq!(code(Outcome::Valid, Some(CutShort::HardStop), &[]), 0);
    }

    #[test]
    fn what_could_not_be_measured_has_not_been_shown_to_hold() {
        let conditions = ["rate < 100", "instance_p99 > 5ms", "errors > 0"].map(|text| text.parse().unwrap());
        let failed = check(&conditions, &figures(1, 0)).0;
        assert_eq!(failed.len(), 2);
        assert_eq!((failed[0].value, failed[1].value), (Some(90.0), None));
    }
}
