//! One run after another, in the same memory: with its whole history, or with no more than the verdict takes.

use super::plan::SimPlan;
use super::sim_run::SimRun;
use crate::history::Recorded;
use crate::judge::{StreamingJudge, VerdictSummary};
use crate::machine::Entry;
use crate::process::Report;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOutcome {
    /// Everything that happened at the instance.
    pub history: Vec<Recorded>,
    /// What the processes that joined say, in order.
    pub reports: Vec<Report>,
    /// The list at the end.
    pub list: Vec<Entry>,
}

/// Runs until every process has come to its end that does so by itself, as all correct ones do, or nothing can
/// happen any more.
///
/// A run that goes on for much longer than any should is given up; who has not decided by then reports so.
#[must_use]
pub fn run(plan: &SimPlan) -> SimOutcome {
    Simulator::new(plan).run(plan)
}

/// Makes one run after another, as [`run`] makes them, in the same memory.
pub struct Simulator {
    sim_run: SimRun,
    judge: StreamingJudge,
    reports: Vec<Report>,
}

impl Simulator {
    /// With memory for such runs; it takes others as well.
    #[must_use]
    pub fn new(plan: &SimPlan) -> Self {
        Self {
            sim_run: SimRun::new(plan),
            judge: StreamingJudge::new(&plan.params, &plan.cast),
            reports: Vec::new(),
        }
    }

    /// Runs it and keeps the whole history.
    #[must_use]
    pub fn run(&mut self, plan: &SimPlan) -> SimOutcome {
        let mut history = Vec::new();
        self.sim_run.set(plan);
        self.sim_run.play(|at, events| history.extend(events.drain(..).map(|event| Recorded { at, event })));
        let mut reports = Vec::new();
        self.sim_run.report(&mut reports);
        SimOutcome { history, reports, list: self.sim_run.list().iter().cloned().collect() }
    }

    /// Runs the plan and keeps no more than the verdict takes. What is expected of the run follows from its cast.
    #[must_use]
    pub fn summary(&mut self, plan: &SimPlan) -> VerdictSummary {
        let Self { sim_run, judge, reports } = self;
        sim_run.set(plan);
        judge.begin(&plan.params, &plan.cast);
        sim_run.play(|at, events| events.iter().for_each(|event| judge.observe(at, event)));
        sim_run.report(reports);
        judge.summary(&plan.params, &plan.cast, plan.seed, reports)
    }
}
