//! Runs the cells of a campaign in the simulator, on so many threads.
//!
//! Cells are cut into pieces of about equal cost, so that one large cell keeps all cores busy as well as many
//! small ones do, and so that an interrupt is heard soon. The counts of a piece depend on nothing but its
//! seeds, and their sums are the same in whatever order the pieces come: so are the results.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_harness::scenario::{FileError, Template};

use stickycas_model::judge::{Outcome, Property};

use super::cell::Counts;
use super::plan::{Campaign, CellPlan};
use crate::batch::{Tally, count, pieces};
use crate::workers;

/// Messages of a piece, if its cell has as many: a small part of a second.
const PIECE: u64 = 200_000;

/// Some runs of a cell.
#[derive(Debug)]
struct Piece<'a> {
    cell: &'a CellPlan,
    template: &'a Template,
    seeds: Range<u64>,
}

impl<'a> Piece<'a> {
    /// Runs it, and counts. A piece that was stopped in its middle is not counted: its cell is run again from
    /// the start.
    fn count(&self, stop: &AtomicBool) -> Result<(&'a CellPlan, Option<Tally>), FileError> {
        let tally = count(self.template, self.seeds.clone(), stop)?;
        Ok((self.cell, (tally.runs == self.seeds.end - self.seeds.start).then_some(tally)))
    }
}

/// A message of the engine while it runs.
#[derive(Debug)]
pub enum CellProgress<'a> {
    /// So many runs of this cell are done.
    Ran(&'a CellPlan, u64),
    /// This cell is done, and this is what was counted.
    Done(&'a CellPlan, Counts),
}

/// Runs these cells of a campaign on so many threads, and tells how far it is. False if it was told to stop
/// before all were done. An error of `tell` ends it as well.
///
/// # Errors
/// If a cell is no scenario, or what `tell` returns.
pub fn run(
    campaign: &Campaign,
    cells: &[&CellPlan],
    jobs: NonZeroUsize,
    stop: &AtomicBool,
    mut tell: impl FnMut(CellProgress<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let templates = cells.iter().map(|cell| campaign.template(cell)).collect::<Result<Vec<_>, _>>()?;
    let pieces: Vec<Piece<'_>> =
        cells.iter().zip(&templates).flat_map(|(cell, template)| pieces_of(cell, template)).collect();
    let mut pending = Pending::of(&pieces);
    let unless_stopped = pieces.iter().take_while(|_| !stop.load(Ordering::Relaxed));
    workers::for_each(
        jobs,
        unless_stopped,
        |piece| piece.count(stop),
        |counted| {
            let (cell, Some(tally)) = counted? else { return Ok(()) };
            tell(CellProgress::Ran(cell, tally.runs))?;
            match pending.add(cell, &tally) {
                Some(whole) => tell(CellProgress::Done(cell, Counts::from(&whole))),
                None => Ok(()),
            }
        },
    )?;
    Ok(pending.is_empty())
}

/// A cell, cut up.
fn pieces_of<'a>(cell: &'a CellPlan, template: &'a Template) -> impl Iterator<Item = Piece<'a>> {
    let runs = (PIECE / cell.messages()).max(1);
    pieces(cell.seeds.clone(), runs).map(move |seeds| Piece { cell, template, seeds })
}

/// Cells of which some pieces are still to come: how many, and what has been counted so far.
struct Pending(BTreeMap<u64, (u64, Tally)>);

impl Pending {
    fn of(pieces: &[Piece<'_>]) -> Self {
        let mut pending = BTreeMap::<u64, (u64, Tally)>::new();
        for piece in pieces {
            pending.entry(piece.cell.number).or_default().0 += 1;
        }
        Self(pending)
    }

    /// Adds what was counted of one more piece; the whole, if it was the last.
    fn add(&mut self, cell: &CellPlan, tally: &Tally) -> Option<Tally> {
        let (left, whole) = self.0.get_mut(&cell.number)?;
        *whole = std::mem::take(whole).and(tally);
        *left -= 1;
        if *left > 0 {
            return None;
        }
        self.0.remove(&cell.number).map(|(_, whole)| whole)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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
