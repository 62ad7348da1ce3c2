//! Many runs of one scenario in the simulator, which differ by their seeds alone, counted.
//!
//! [`Runs`] makes one after the other in one thread; [`tally`] makes a range of them on several threads and
//! adds up their verdicts. No history is kept: each run can be had again, history and all, by simulating the
//! scenario with its seed. The counts depend on nothing but the seeds, so they are the same on any number of
//! threads.
//!
//! Whether the machine kept every rule of SPEC takes a history to see. One run in [`IN_FULL`] is therefore
//! judged with its whole history, like a single run; a rule that broke makes it a violation.

pub mod report;
mod tally;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_harness::scenario::{FileError, Template};
use stickycas_harness::simulate;
use stickycas_model::judge::VerdictSummary;
use stickycas_model::sim::{self, Simulator};

pub use self::tally::{Extent, OutcomeCount, Properties, PropertyTally, Tally, Verdicts};
use crate::workers;

/// Of so many runs one is judged with its whole history: those whose seeds it divides.
pub const IN_FULL: u64 = 1_000;

/// Seeds that a thread takes at a time: enough that threads do not wait for each other, few enough that an
/// interrupt is heard at once.
const PIECE: u64 = 256;

/// Runs of one scenario, one after the other in the same memory.
pub struct Runs<'a> {
    template: &'a Template,
    plan: sim::SimPlan,
    simulator: Simulator,
}

impl<'a> Runs<'a> {
    /// Of this scenario.
    #[must_use]
    pub fn of(template: &'a Template) -> Self {
        let plan = template.scenario().plan();
        let simulator = Simulator::new(&plan);
        Self { template, plan, simulator }
    }

    /// The verdict on the run with this seed, in short.
    ///
    /// # Errors
    /// If the scenario cannot be had with this seed.
    pub fn summary(&mut self, seed: u64) -> Result<VerdictSummary, FileError> {
        if seed.is_multiple_of(IN_FULL) {
            return Ok(VerdictSummary::from(&simulate(&self.template.with_seed(seed)?).verdict));
        }
        self.template.redraw(seed, &mut self.plan)?;
        Ok(self.simulator.summary(&self.plan))
    }
}

/// Runs the scenario once with each of these seeds, on so many threads, and adds up what the runs show. After
/// each few runs `ran` is told how many they were; once `stop` is set, what has been counted so far is
/// returned.
///
/// # Errors
/// If the scenario cannot be had with one of the seeds, or the threads cannot be started.
pub fn tally(
    template: &Template,
    seeds: Range<u64>,
    jobs: NonZeroUsize,
    stop: &AtomicBool,
    mut ran: impl FnMut(u64),
) -> anyhow::Result<Tally> {
    let mut sum = Tally::default();
    let unless_stopped = pieces(seeds, PIECE).take_while(|_| !stop.load(Ordering::Relaxed));
    workers::for_each(
        jobs,
        unless_stopped,
        |seeds| count(template, seeds, stop),
        |counted| {
            let counted = counted?;
            ran(counted.runs);
            sum = std::mem::take(&mut sum).and(&counted);
            Ok(())
        },
    )?;
    Ok(sum)
}

/// These seeds in pieces of so many.
pub(crate) fn pieces(seeds: Range<u64>, runs: u64) -> impl Iterator<Item = Range<u64>> + Send {
    let Range { start, end } = seeds;
    let step = usize::try_from(runs).unwrap_or(usize::MAX);
    (start..end).step_by(step).map(move |first| first..first.saturating_add(runs).min(end))
}

/// Runs a scenario once with each of these seeds, in this thread, until `stop` is set.
///
/// # Errors
/// If the scenario cannot be had with one of the seeds.
pub(crate) fn count(template: &Template, seeds: Range<u64>, stop: &AtomicBool) -> Result<Tally, FileError> {
    let (mut runs, mut tally) = (Runs::of(template), Tally::default());
    for seed in seeds.take_while(|_| !stop.load(Ordering::Relaxed)) {
        tally.add(seed, &runs.summary(seed)?);
    }
    Ok(tally)
}
