//! A whole run in one thread: the same machine that the server runs, and the same processes that the clients
//! run, under a virtual clock. A seed repeats it event by event.
//!
//! The order of arrival, which a network decides, is drawn here: of all messages that processes have ready,
//! the next one to arrive is drawn at random, as long as there is any. So within the rules of the machine
//! every order of acceptance can come up. Messages take no time and none is lost; only waiting does: when
//! nothing is left to arrive, the clock jumps to the machine's next deadline.
//!
//! [`run`] keeps the whole history. A [`Simulator`] makes one run after another in the same memory and can do
//! without: then a [judge](crate::judge::StreamingJudge) reads the events and only the [`VerdictSummary`] is
//! left.
//!
//! Connections break only where the server restarts ([`run_with_restarts`]). Those that break one by one and
//! clients that restart are left out: [`crate::player`] covers them, and runs over the network show them.

mod replay;
mod sim_run;

use self::sim_run::SimRun;
use crate::history::Recorded;
use crate::judge::{StreamingJudge, VerdictSummary};
use crate::machine::Entry;
use crate::process::Report;

pub use self::replay::{Difference, Follower, replay, replay_observed};
pub use self::sim_run::{SimPlan, SimRestart};

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimOutcome {
    /// Everything that happened at the instance.
    pub history: Vec<Recorded>,
    /// The reports of the processes that joined, in order.
    pub reports: Vec<Report>,
    /// The list at the end.
    pub list: Vec<Entry>,
}

/// Runs until every process that comes to its end by itself has done so, as all correct ones do, or until
/// nothing can happen any more.
///
/// A run that takes far more inputs than correct processes need is stopped; a process that has not decided by
/// then says so in its report.
#[must_use]
pub fn run(plan: &SimPlan) -> SimOutcome {
    Simulator::new(plan).run(plan)
}

/// The same, with restarts of the server, in the order of their phases.
#[must_use]
pub fn run_with_restarts(plan: &SimPlan, restarts: &[SimRestart]) -> SimOutcome {
    Simulator::new(plan).run_with_restarts(plan, restarts)
}

/// Makes one run after another, as [`run`] makes them, in the same memory.
pub struct Simulator {
    sim_run: SimRun,
    judge: StreamingJudge,
    reports: Vec<Report>,
}

impl Simulator {
    /// With memory for runs of this plan's size; it takes others as well.
    #[must_use]
    pub fn new(plan: &SimPlan) -> Self {
        Self {
            sim_run: SimRun::new(plan),
            judge: StreamingJudge::new(&plan.params, &plan.truth),
            reports: Vec::new(),
        }
    }

    /// Runs the plan and keeps the whole history.
    #[must_use]
    pub fn run(&mut self, plan: &SimPlan) -> SimOutcome {
        self.run_with_restarts(plan, &[])
    }

    /// See [`run_with_restarts`].
    #[must_use]
    pub fn run_with_restarts(&mut self, plan: &SimPlan, restarts: &[SimRestart]) -> SimOutcome {
        let mut history = Vec::new();
        self.sim_run.prepare(plan);
        self.sim_run.restart_at(restarts);
        self.sim_run.run(|at, events| history.extend(events.drain(..).map(|event| Recorded { at, event })));
        let mut reports = Vec::new();
        self.sim_run.report(&mut reports);
        SimOutcome { history, reports, list: self.sim_run.list().iter().cloned().collect() }
    }

    /// Runs the plan and keeps no more than the verdict takes. The expectations of the run follow from its
    /// ground truth.
    #[must_use]
    pub fn summary(&mut self, plan: &SimPlan) -> VerdictSummary {
        let Self { sim_run, judge, reports } = self;
        // They hold the list of the run before.
        reports.clear();
        sim_run.prepare(plan);
        judge.begin(&plan.params, &plan.truth);
        sim_run.run(|at, events| events.iter().for_each(|event| judge.observe(at, event)));
        sim_run.report(reports);
        judge.summary(&plan.params, &plan.truth, plan.seed, reports)
    }
}
