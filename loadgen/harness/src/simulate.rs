//! A scenario in the simulator.

use stickycas_model::counts::RunCounts;
use stickycas_model::sim;

use crate::record::{ExecutionMode, Record};
use crate::scenario::Scenario;

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
