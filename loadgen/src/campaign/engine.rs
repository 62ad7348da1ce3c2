//! Runs the cells of a campaign in the simulator, on so many threads.
//!
//! Cells are cut into pieces of about equal cost, so that one large cell keeps all cores busy as well as many small
//! ones do, and so that an interrupt is heard soon. What a piece counts depends on nothing but its seeds, and counts
//! add up the same in whatever order they come: so do the results.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;

use super::cell::Counts;
use super::plan::{Campaign, CellPlan};
use super::tally::tally;
use crate::scenario::ScenarioError;

/// Messages of a piece, if its cell has as many: a small part of a second.
const PIECE: u64 = 200_000;

/// Some runs of a cell.
#[derive(Debug)]
struct Piece<'a> {
    cell: &'a CellPlan,
    /// The cell as a scenario.
    text: &'a str,
    seeds: Range<u64>,
}

/// What the engine tells while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// So many runs of this cell are done.
    Ran(&'a CellPlan, u64),
    /// This cell is done, and this is what was counted.
    Done(&'a CellPlan, Counts),
}

/// Runs these cells of a campaign on so many threads, and tells how far it is. False if it was told to stop before
/// all were done. What `tell` refuses ends it as well.
///
/// # Errors
/// If a cell is no scenario, or what `tell` returns.
pub fn run(
    campaign: &Campaign,
    cells: &[&CellPlan],
    jobs: NonZeroUsize,
    stop: &AtomicBool,
    mut tell: impl FnMut(Progress<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let texts: Vec<String> = cells.iter().map(|cell| campaign.scenario(cell)).collect();
    let pieces: Vec<Piece<'_>> =
        cells.iter().zip(&texts).flat_map(|(cell, text)| pieces(cell, text)).collect();
    let mut pending = Pending::of(&pieces);
    let next = AtomicUsize::new(0);
    // No queue: who works is never far ahead of what is written down.
    let (send, receive) = mpsc::sync_channel(jobs.get());
    let (pieces, next) = (&pieces, &next);
    thread::scope(|scope| {
        for _ in 0..jobs.get().min(pieces.len()) {
            let send = send.clone();
            scope.spawn(move || work(pieces, next, stop, &send));
        }
        drop(send);
        receive.into_iter().try_for_each(|(piece, counted): Counted| {
            let (Piece { cell, .. }, counts) = (&pieces[piece], counted?);
            tell(Progress::Ran(cell, counts.runs))?;
            match pending.add(cell, &counts) {
                Some(whole) => tell(Progress::Done(cell, whole)),
                None => Ok(()),
            }
        })
    })?;
    Ok(pending.is_empty())
}

/// What was counted of each piece, by its index.
type Counted = (usize, Result<Counts, ScenarioError>);

/// Takes one piece after the other until there is none left, or it is told to stop, or nobody listens any more.
fn work(pieces: &[Piece<'_>], next: &AtomicUsize, stop: &AtomicBool, send: &SyncSender<Counted>) {
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let Some(Piece { text, seeds, .. }) = pieces.get(index) else { return };
        let Some(counted) = tally(text, seeds.clone(), stop).transpose() else { return };
        if send.send((index, counted)).is_err() {
            return;
        }
    }
}

/// A cell, cut up.
fn pieces<'a>(cell: &'a CellPlan, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
    let runs = (PIECE / cell.messages()).max(1);
    let Range { start, end } = cell.seeds;
    let step = usize::try_from(runs).unwrap_or(usize::MAX);
    (start..end).step_by(step).map(move |first| Piece { cell, text, seeds: first..(first + runs).min(end) })
}

/// Cells of which some pieces are still to come: how many, and what has been counted so far.
struct Pending(BTreeMap<u64, (u64, Counts)>);

impl Pending {
    fn of(pieces: &[Piece<'_>]) -> Self {
        let mut pending = BTreeMap::<u64, (u64, Counts)>::new();
        for piece in pieces {
            pending.entry(piece.cell.number).or_default().0 += 1;
        }
        Self(pending)
    }

    /// Adds what was counted of one more piece; the whole, if it was the last.
    fn add(&mut self, cell: &CellPlan, counts: &Counts) -> Option<Counts> {
        let (left, whole) = self.0.get_mut(&cell.number)?;
        *whole = whole.with(counts);
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
