//! The outcome of a plan: as a record, and for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use stickycas_harness::report::table::grid;
use stickycas_model::judge::{self, Property, Verdict};
use stickycas_model::types::{Phase, ProcessId};

use crate::plan::{Service, Step};

/// The outcome of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanOutcome {
    /// The plan.
    pub plan: String,
    /// The effect that it shows.
    pub about: String,
    /// The verdict that it expects.
    pub expect: judge::Outcome,
    /// The verdict of the judge.
    pub verdict: judge::Outcome,
    /// The same in one line for people.
    #[serde(skip)]
    pub headline: String,
    /// Whether everything was as planned.
    pub as_expected: bool,
    /// The differences, in words.
    #[serde(rename = "amiss")]
    pub mismatches: Vec<String>,
    /// The judge's reasons.
    pub reasons: Vec<String>,
    /// f, with those whom the plan made faulty or late.
    pub f: u64,
    /// Correct processes that missed their first phase.
    pub late: Vec<ProcessId>,
    /// The properties that were not promised, each with the premise that is missing.
    pub missing: BTreeMap<Property, String>,
    /// The steps that were done.
    pub steps: Vec<Done>,
    /// The servers of a cluster that have owned the instance, one after another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// The id of the instance.
    pub instance: String,
    /// The exit code of the judge.
    pub judge_exit: i64,
    /// The run folder.
    pub folder: PathBuf,
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    /// The operation.
    pub action: String,
    /// The containers; the server that an owner was stands in brackets.
    pub services: Vec<String>,
    /// The network of the step, if it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// When it was due.
    pub when: String,
    /// The last phase that was known to have come when it was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

impl Done {
    /// `services`: those of the step, each with the one that it stands for.
    pub(crate) fn new(step: &Step, services: &[(Service, Service)], phase: Option<Phase>) -> Self {
        let named = |(named, meant): &(Service, Service)| {
            if named == meant { named.to_string() } else { format!("{named} ({meant})") }
        };
        Self {
            action: step.action.to_string(),
            services: services.iter().map(named).collect(),
            network: step.network.clone(),
            when: step.when.to_string(),
            phase,
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { action, services, network, when, phase: _ } = self;
        let network = network.as_ref().map(|network| format!(" (network {network})")).unwrap_or_default();
        format!("{action} {}{network}: {when}", services.join(", "))
    }
}

/// The premises that are missing, by property.
pub(crate) fn missing(verdict: &Verdict) -> BTreeMap<Property, String> {
    let premise = |property| Some((property, verdict.finding(property).1?.to_owned()));
    Property::ALL.into_iter().filter_map(premise).collect()
}

impl PlanOutcome {
    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { plan, headline, mismatches, .. } = self;
        if self.as_expected {
            return format!("{plan}: {headline}, as expected");
        }
        format!("{plan}: {headline}: not as planned: {}", mismatches.join("; "))
    }
}

/// All of them for people: a row each.
#[must_use]
pub fn table(all: &[PlanOutcome]) -> String {
    let mut table = grid(["plan", "verdict", "f", "late", "not promised", "as planned"]);
    for done in all {
        let late: Vec<String> = done.late.iter().map(ToString::to_string).collect();
        let missing = done.missing.iter().map(|(property, premise)| format!("{property}: {premise}"));
        table.add_row([
            done.plan.clone(),
            done.verdict.title().to_owned(),
            done.f.to_string(),
            late.join(" "),
            missing.collect::<Vec<_>>().join("\n"),
            if done.as_expected { "yes".to_owned() } else { "no".to_owned() },
        ]);
    }
    let mut text = format!("{table}\n");
    for done in all.iter().filter(|done| !done.as_expected) {
        for mismatches in &done.mismatches {
            writeln!(text, "{}: {mismatches}", done.plan).expect("writing to a string does not fail");
        }
    }
    text
}
