//! Many runs of one scenario in the simulator, which differ by their seeds alone, counted.
//!
//! [`Runs`] makes one after the other in one thread; [`tally`] makes a range of them on several threads and adds up
//! what they show. No history is kept: each run can be had again, history and all, by simulating the scenario with its
//! seed. What is counted depends on nothing but the seeds, so it is the same on any number of threads.
//!
//! Whether the machine kept every rule of SPEC takes a history to see. One run in [`IN_FULL`] is therefore judged with
//! its whole history, like a single run; a rule that broke makes it a violation.

pub mod report;
mod tally;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use stickycas_model::judge::VerdictSummary;
use stickycas_model::sim::{self, Simulator};

pub use self::tally::{ALL_OUTCOMES, Extent, Properties, PropertyTally, Seen, Tally, Verdicts};
use stickycas_harness::scenario::{FileError, Template};
use stickycas_harness::simulate;

/// Of so many runs one is judged with its whole history: those whose seeds it divides.
pub const IN_FULL: u64 = 1_000;

/// Seeds that a thread takes at a time: enough that nobody waits for the others, few enough that an interrupt is heard
/// at once.
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

    /// What the run with this seed shows.
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

/// Runs the scenario once with each of these seeds, on so many threads, and adds up what the runs show. After each few
/// runs `ran` is told how many they were; once `stop` is set, what has been counted so far is returned.
///
/// # Errors
/// If the scenario cannot be had with one of the seeds.
pub fn tally(
    template: &Template,
    seeds: Range<u64>,
    jobs: NonZeroUsize,
    stop: &AtomicBool,
    ran: impl Fn(u64) + Sync,
) -> Result<Tally, FileError> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let (mut runs, mut tally) = (Runs::of(template), Tally::default());
        while !stop.load(Ordering::Relaxed) {
            let first = next.fetch_add(PIECE, Ordering::Relaxed);
            let piece = first..first.saturating_add(PIECE).min(seeds.end);
            if piece.is_empty() {
                break;
            }
            for seed in piece.clone() {
                // The others need not go on either.
                tally.add(
                    seed,
                    &runs.summary(seed).inspect_err(|_| next.store(seeds.end, Ordering::Relaxed))?,
                );
            }
            ran(piece.end - piece.start);
        }
        Ok(tally)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.get()).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_fold(Tally::default(), |sum, thread| {
            let counted = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(sum.and(&counted?))
        })
    })
}
