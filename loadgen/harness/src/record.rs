//! The record of a run.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::detect;
use stickycas_model::history::Recorded;
use stickycas_model::judge::{Case, Expectations, Explanation, Outcome, Verdict, explain, judge};
use stickycas_model::process::Report;
use stickycas_model::sim;

use crate::scenario::Scenario;

/// How a scenario was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    /// In the simulator.
    Simulated,
    /// Over the network, each process a child process.
    ChildProcesses,
    /// Over the network, each process a task of this process.
    Tasks,
    /// Over the network, with processes that others started.
    Judged,
    /// Not by this program: it stands in the log of a server (file `dump.rs`).
    Dumped,
}

impl fmt::Display for ExecutionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Simulated => "in the simulator",
            Self::ChildProcesses => "over the network, a child process each",
            Self::Tasks => "over the network, a task each",
            Self::Judged => "over the network, started by others",
            Self::Dumped => "from the log of a server",
        })
    }
}

/// The record of a run, in the simulator or over the network: everything that the report formats need.
#[derive(Clone, Debug)]
pub struct Record {
    /// The scenario that was run.
    pub scenario: Scenario,
    /// The mode of the run.
    pub how: ExecutionMode,
    /// The events of the instance.
    pub history: Vec<Recorded>,
    /// Whether the history goes to the end of the run and lacks nothing.
    pub complete: bool,
    /// The server's counts in the course of the run; none without wire attacks.
    pub counted: RunCounts,
    /// The processes' reports at their end, in order. Those of Byzantine processes prove nothing (V5).
    pub reports: Vec<Report>,
    /// The events that the harness observed and that were not planned.
    pub anomalies: Vec<String>,
    /// How many processes report that they were told that the instance is unknown (F11).
    pub told_unknown: usize,
    /// Which correct processes were seen to play another part than the scenario gives them.
    pub role_mismatches: Vec<String>,
    /// The verdict on the run.
    pub verdict: Verdict,
}

impl Record {
    /// Judges what was collected.
    #[must_use]
    pub fn judged(
        scenario: Scenario,
        how: ExecutionMode,
        history: Vec<Recorded>,
        complete: bool,
        counted: RunCounts,
        mut reports: Vec<Report>,
    ) -> Self {
        reports.sort_by_key(|report| report.process);
        let run = Run { how, complete, counted: &counted, reports: &reports, role_mismatches: &[] };
        let verdict = with_case(&scenario, &history, run, judge);
        Self {
            scenario,
            how,
            history,
            complete,
            counted,
            reports,
            anomalies: Vec::new(),
            told_unknown: 0,
            role_mismatches: Vec::new(),
            verdict,
        }
    }

    /// The same run with what the harness observed that was not planned: it proves nothing any more, unless
    /// it shows something worse.
    #[must_use]
    pub fn with_anomalies(mut self, anomalies: Vec<String>) -> Self {
        if !anomalies.is_empty() && self.verdict.verdict == Outcome::Valid {
            self.verdict.verdict = Outcome::Unknown;
        }
        self.verdict.reasons.extend(anomalies.iter().cloned());
        self.anomalies.extend(anomalies);
        self
    }

    /// The same run with the correct processes that played another part: it was not the scenario that was
    /// run, so the run proves nothing, unless the server broke a rule.
    #[must_use]
    pub fn with_role_mismatches(mut self, role_mismatches: Vec<String>) -> Self {
        if role_mismatches.is_empty() {
            return self;
        }
        self.role_mismatches.extend(role_mismatches);
        self.verdict = self.judge_again(judge);
        let anomalies = std::mem::take(&mut self.anomalies);
        self.with_anomalies(anomalies)
    }

    /// The verdict with what leads to it.
    #[must_use]
    pub fn explained(&self) -> Explanation {
        // With what the harness saw.
        Explanation { verdict: self.verdict.clone(), ..self.judge_again(explain) }
    }

    /// Puts the run before the judge.
    fn judge_again<T>(&self, to_record: impl FnOnce(&Case<'_>) -> T) -> T {
        let Self { scenario, how, history, complete, counted, reports, role_mismatches, .. } = self;
        let run = Run { how: *how, complete: *complete, counted, reports, role_mismatches };
        with_case(scenario, history, run, to_record)
    }
}

/// The facts about a run that the judge needs beside its scenario and its history.
#[derive(Clone, Copy)]
struct Run<'a> {
    how: ExecutionMode,
    complete: bool,
    counted: &'a RunCounts,
    reports: &'a [Report],
    role_mismatches: &'a [String],
}

/// Puts a run before the judge.
fn with_case<T>(
    scenario: &Scenario,
    history: &[Recorded],
    run: Run<'_>,
    to_record: impl FnOnce(&Case<'_>) -> T,
) -> T {
    let Scenario { params, truth, seed, .. } = scenario;
    let Run { how, complete, counted, reports, role_mismatches } = run;
    let detection = detect(params, truth, *seed, history, counted);
    let expected = Expectations {
        assumed: how == ExecutionMode::Dumped,
        started_elsewhere: how == ExecutionMode::Judged,
        role_mismatches: role_mismatches.to_vec(),
        ..Expectations::new(truth, &detection)
    };
    to_record(&Case {
        params: Arc::clone(params),
        truth,
        expected: &expected,
        history,
        complete,
        reports,
        fired: detection.fired,
    })
}

/// Runs a scenario in this thread under a virtual clock, and judges it. The same scenario and seed give the
/// same record, event by event.
///
/// There is no wire in it: of a scenario that [needs the network](Scenario::check_simulable) the attackers
/// never join, and so it proves nothing.
#[must_use]
pub fn simulate(scenario: &Scenario) -> Record {
    let outcome = sim::run(&scenario.plan());
    // Nothing is lost on the way from the machine to here, so the history is complete.
    let (history, reports) = (outcome.history, outcome.reports);
    Record::judged(scenario.clone(), ExecutionMode::Simulated, history, true, RunCounts::default(), reports)
}
