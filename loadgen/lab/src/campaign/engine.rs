//! Runs the cells of a campaign in the simulator, on so many threads.
//!
//! Cells are cut into pieces of about equal cost, so that one large cell keeps all cores busy as well as many
//! small ones do, and so that an interrupt is heard soon. The counts of a piece depend on nothing but its
//! seeds, and their sums are the same in whatever order the pieces come: so are the results.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_harness::scenario::FileError;

use stickycas_model::judge::{Outcome, Property};

use super::cell::Counts;
use super::plan::{Campaign, CellPlan};
use crate::batch::{Tally, count, pieces};
use crate::workers;

/// Messages of a piece, if its cell has as many: a small part of a second.
const PIECE: u64 = 200_000;

/// Runs these cells of a campaign on so many threads. `tell` is told how many more runs of a cell are done,
/// and with the last of them what was counted. False if it was told to stop before all were done: a cell that
/// was stopped in its middle is run again from the start. An error of `tell` ends it as well.
///
/// # Errors
/// If a cell is no scenario, or what `tell` returns.
pub fn run(
    campaign: &Campaign,
    cells: &[&CellPlan],
    jobs: NonZeroUsize,
    stop: &AtomicBool,
    mut tell: impl FnMut(&CellPlan, u64, Option<Counts>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let templates =
        cells.iter().map(|cell| campaign.template(cell)).collect::<Result<Vec<_>, FileError>>()?;
    let pieces = cells.iter().enumerate().flat_map(|(index, cell)| {
        let runs = (PIECE / cell.messages()).max(1);
        pieces(cell.seeds.clone(), runs).map(move |seeds| (index, seeds))
    });
    let mut counted = vec![Tally::default(); cells.len()];
    workers::for_each(
        jobs,
        pieces.take_while(|_| !stop.load(Ordering::Relaxed)),
        |(index, seeds)| (index, count(&templates[index], seeds, stop)),
        |(index, tally)| {
            let (cell, tally) = (cells[index], tally?);
            counted[index] = std::mem::take(&mut counted[index]).and(&tally);
            let whole = (counted[index].runs == cell.runs()).then(|| Counts::from(&counted[index]));
            tell(cell, tally.runs, whole)
        },
    )?;
    Ok(cells.iter().zip(&counted).all(|(cell, counted)| counted.runs == cell.runs()))
}

impl From<&Tally> for Counts {
    fn from(tally: &Tally) -> Self {
        let (verdicts, properties) = (&tally.verdicts, &tally.properties);
        let phases = tally.last_decision_phase;
        Self {
            runs: tally.runs,
            valid: verdicts.of(Outcome::Valid).runs,
            outside: verdicts.of(Outcome::Outside).runs,
            unknown: verdicts.of(Outcome::Unknown).runs,
            violation: verdicts.of(Outcome::Violation).runs,
            agreement_broken: properties.of(Property::Agreement).broken.runs,
            termination_broken: properties.of(Property::Termination).broken.runs,
            weak_broken: properties.of(Property::WeakValidity).broken.runs,
            common_broken: properties.of(Property::CommonValidity).broken.runs,
            strong_broken: properties.of(Property::StrongValidity).broken.runs,
            common_promised: properties.of(Property::CommonValidity).promised,
            strong_promised: properties.of(Property::StrongValidity).promised,
            first_phase: phases.map(|phases| phases.least),
            last_phase: phases.map(|phases| phases.most),
            culprits: tally.culprits,
            named: tally.named,
            blamed: tally.blamed,
            accused: tally.accused_correct,
            example: properties.of(Property::StrongValidity).broken.first_seed,
        }
    }
}
