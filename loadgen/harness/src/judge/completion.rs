//! Which processes have ended: by their reports, or by having left without one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stickycas_model::ground_truth::Role;
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::{ProcessId, Value};
use stickycas_proto::convert::report::ProcessReport;
use stickycas_proto::v1::RefusalReason;
use tokio::time::{Instant, sleep_until};

use super::report_service::{ReportService, Reports};
use crate::run::collect::InstanceProgress;
use crate::run::completion::{CompletionSource, ProcessEnding};
use crate::scenario::Scenario;

/// So long after its decision was seen a process is expected to report; then the decision stands for a
/// report. A client that finds the judge gone tries again within
/// [`RetryPolicy::longest`](stickycas_client::RetryPolicy).
pub const REPORT_GRACE: Duration = Duration::from_secs(6);
/// Between two lines that say how many have joined.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// The processes of an instance, as the judge knows of them.
pub(super) struct Completion<'a> {
    scenario: &'a Scenario,
    reports: Reports,
    /// The processes that have left, each with its decision and the time until which its report may come.
    decided: BTreeMap<ProcessId, (Value, Instant)>,
    /// The processes whose ends were returned.
    ended: BTreeSet<ProcessId>,
    /// Nothing more will be heard of the instance.
    lost: bool,
    /// Reports are waited for all the same.
    alone: bool,
    joined: u32,
    /// When to say how many have joined, if that is not known yet.
    tell_at: Option<Instant>,
    tell: fn(&str),
}

impl<'a> Completion<'a> {
    pub(super) fn new(scenario: &'a Scenario, reports_at: &ReportService, tell: fn(&str)) -> Self {
        Self {
            scenario,
            reports: reports_at.listen(),
            decided: BTreeMap::new(),
            ended: BTreeSet::new(),
            lost: false,
            alone: false,
            joined: 0,
            tell_at: None,
            tell,
        }
    }

    /// The next process whose end has not been told.
    fn fresh(&mut self) -> Option<ProcessEnding> {
        let ended = &self.ended;
        let reported = self.reports.look(|said| {
            let fresh = said.iter().find(|(process, _)| !ended.contains(process));
            fresh.map(|(process, said)| ending(*process, said))
        });
        let (scenario, now) = (self.scenario, Instant::now());
        let left = || {
            let mut left = self.decided.iter().filter(|(process, _)| !ended.contains(process));
            let (process, (value, _)) = left.find(|(_, (_, until))| *until <= now)?;
            Some(stand_in(scenario, *process, value))
        };
        let ending = reported.or_else(left)?;
        self.ended.insert(ending.process);
        Some(ending)
    }

    /// The next moment at which a process counts as having left without a report.
    fn next_grace(&self) -> Option<Instant> {
        let waiting = self.decided.iter().filter(|(process, _)| !self.ended.contains(process));
        waiting.map(|(_, (_, until))| *until).min()
    }

    fn tell_joined(&mut self) {
        let n = self.scenario.params.processes();
        (self.tell)(&format!("{} of {n} joined", self.joined));
        self.tell_at = None;
    }

    /// How all ended that did, by the last that they said.
    pub(super) fn endings(&mut self) -> Vec<ProcessEnding> {
        let mut endings: BTreeMap<ProcessId, ProcessEnding> = self
            .decided
            .iter()
            .map(|(process, (value, _))| (*process, stand_in(self.scenario, *process, value)))
            .collect();
        self.reports.look(|said| {
            endings.extend(said.iter().map(|(process, said)| (*process, ending(*process, said))));
        });
        endings.into_values().collect()
    }

    /// How many were told that the instance is unknown.
    pub(super) fn told_unknown(&mut self) -> usize {
        let told = |said: &&ProcessReport| said.refusal == Some(RefusalReason::InstanceUnknown);
        self.reports.look(|said| said.values().filter(told).count())
    }

    /// The proposals that processes report.
    pub(super) fn proposals(&mut self) -> BTreeMap<ProcessId, Value> {
        let proposal =
            |(process, said): (&ProcessId, &ProcessReport)| Some((*process, said.proposal.clone()?));
        self.reports.look(|said| said.iter().filter_map(proposal).collect())
    }

    /// From now on only reports are waited for.
    pub(super) fn go_on_without_the_instance(&mut self) {
        self.alone = true;
    }
}

impl CompletionSource for Completion<'_> {
    async fn next(&mut self) -> Option<ProcessEnding> {
        loop {
            if self.lost && !self.alone {
                return None;
            }
            if let Some(ending) = self.fresh() {
                return Some(ending);
            }
            let (grace, tell) = (self.next_grace(), self.tell_at);
            tokio::select! {
                () = self.reports.something_new() => {}
                () = at(grace) => {}
                () = at(tell) => self.tell_joined(),
            }
        }
    }

    fn happened(&mut self, happened: &InstanceProgress) -> anyhow::Result<()> {
        self.lost |= happened.lost.is_some();
        // An attack goes on when its process has left.
        let attacks = |process| {
            matches!(
                self.scenario.truth.assignment(process).map(|assignment| &assignment.role),
                Some(Role::Attacker(_))
            )
        };
        for (process, value) in happened.decided.iter().filter(|(process, _)| !attacks(**process)) {
            let until = || (value.clone(), Instant::now() + REPORT_GRACE);
            self.decided.entry(*process).or_insert_with(until);
        }
        if happened.joined != self.joined {
            self.joined = happened.joined;
            if self.joined == self.scenario.params.processes() {
                self.tell_joined();
            } else {
                self.tell_at.get_or_insert_with(|| Instant::now() + TELL_AGAIN);
            }
        }
        Ok(())
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn ending(process: ProcessId, said: &ProcessReport) -> ProcessEnding {
    ProcessEnding { process, report: Some(said.clone().into_report(process)), trouble: None }
}

/// The ending of a process that has left without a report. A correct one gets a report of its decision alone.
fn stand_in(scenario: &Scenario, process: ProcessId, decided: &Value) -> ProcessEnding {
    let report = || Report {
        process,
        decision: Some(decided.clone()),
        phase: None,
        from: Vec::new().into(),
        ended: ProcessEnd::Decided,
        unanswered: None,
    };
    let correct =
        scenario.truth.assignment(process).is_some_and(|assignment| assignment.role == Role::Correct);
    ProcessEnding { process, report: correct.then(report), trouble: None }
}
