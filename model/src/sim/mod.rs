//! A whole run in one thread: the same machine that the server runs, and the same processes that the clients
//! run, under a virtual clock. A seed repeats it event by event.
//!
//! What the network decides in real life is drawn here: of all that processes have ready to send, the next
//! message to arrive is drawn at random, as long as there is any. So within the rules of the machine every
//! order of acceptance can come up. Messages take no time and none is lost; only waiting does: when nothing is
//! left to arrive, the clock jumps to the machine's next deadline.
//!
//! [`run`] keeps the whole history. A [`Simulator`] makes one run after another in the same memory and can do
//! without: then a [judge looks on](StreamingJudge) and only the [`VerdictSummary`] are left.
//!
//! What is left out: connections that break and clients that restart. [`crate::player`] covers them, and the
//! network shows them.

mod replay;
mod stage;

use std::sync::Arc;

pub use self::replay::{Difference, replay};
use self::stage::Stage;
use crate::cast::Cast;
use crate::history::Recorded;
use crate::judge::{StreamingJudge, VerdictSummary};
use crate::machine::Entry;
use crate::params::Params;
use crate::process::Report;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// Who plays what. A process that it does not name never joins.
    pub cast: Cast,
    /// From which the order of arrival is drawn, and what strategies draw.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
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
pub fn run(plan: &Plan) -> Outcome {
    Simulator::new(plan).run(plan)
}

/// Makes one run after another, as [`run`] makes them, in the same memory.
pub struct Simulator {
    stage: Stage,
    judge: StreamingJudge,
    reports: Vec<Report>,
}

impl Simulator {
    /// With memory for such runs; it takes others as well.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            stage: Stage::new(plan),
            judge: StreamingJudge::new(&plan.params, &plan.cast),
            reports: Vec::new(),
        }
    }

    /// Runs it and keeps the whole history.
    #[must_use]
    pub fn run(&mut self, plan: &Plan) -> Outcome {
        let mut history = Vec::new();
        self.stage.set(plan);
        self.stage.play(|at, events| history.extend(events.drain(..).map(|event| Recorded { at, event })));
        let mut reports = Vec::new();
        self.stage.report(&mut reports);
        Outcome { history, reports, list: self.stage.list().iter().cloned().collect() }
    }

    /// Runs it and keeps no more than the verdict takes. What is expected of it
    /// follows from its cast.
    #[must_use]
    pub fn summary(&mut self, plan: &Plan) -> VerdictSummary {
        let Self { stage, judge, reports } = self;
        stage.set(plan);
        judge.begin(&plan.params, &plan.cast);
        stage.play(|at, events| events.iter().for_each(|event| judge.observe(at, event)));
        stage.report(reports);
        judge.summary(&plan.params, &plan.cast, plan.seed, reports)
    }
}
