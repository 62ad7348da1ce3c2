//! The possible contents of a disk after a loss of power.
//!
//! A disk may do what no sync has made durable in any order, in part, or not at all. So a loss of power
//! between two syncs leaves any subset of the changes in between. Those before an earlier moment are a subset
//! of those before the next sync, and the facts that clients were told only grow: it is enough to lose power
//! right before each sync, and at the end.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::{Change, SECTOR};

/// Everything that was done to a disk.
#[derive(Clone, Debug)]
pub(crate) struct Tape {
    start: Vec<u8>,
    operations: Vec<Operation>,
}

#[derive(Clone, Debug)]
enum Operation {
    /// A change, and the most of it that may be on the disk: less than all if the write failed.
    Change(Change, Kept),
    Sync,
}

/// The part of a change that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    Whole,
    /// The first bytes.
    Prefix(usize),
    /// All but the first bytes.
    Suffix(usize),
    /// This one sector.
    Sector(usize),
    /// All sectors but this one.
    AllButSector(usize),
}

impl Kept {
    /// The ranges of a write of so many bytes that are on the disk; some may be empty.
    pub(super) fn ranges(self, length: usize) -> [Range<usize>; 2] {
        let sector = |number: usize| {
            let start = (number * SECTOR).min(length);
            start..(start + SECTOR).min(length)
        };
        match self {
            Self::Nothing => [0..0, 0..0],
            Self::Whole => [0..length, 0..0],
            Self::Prefix(bytes) => [0..bytes.min(length), 0..0],
            Self::Suffix(bytes) => [bytes.min(length)..length, 0..0],
            Self::Sector(number) => [sector(number), 0..0],
            Self::AllButSector(number) => [0..sector(number).start, sector(number).end..length],
        }
    }
}

/// A moment at which power may be lost.
#[derive(Debug)]
pub(crate) struct PowerLoss<'a> {
    /// The length of the tape then.
    pub(crate) position: usize,
    /// The content that syncs had made durable.
    pub(crate) durable: &'a [u8],
    /// The changes that no sync had made durable.
    pub(crate) unsynced: Vec<&'a Change>,
    /// The most that can have been kept of each of these.
    most: Vec<Kept>,
}

impl Tape {
    pub(super) fn new(start: Vec<u8>) -> Self {
        Self { start, operations: Vec::new() }
    }

    pub(super) fn change(&mut self, change: Change) {
        self.operations.push(Operation::Change(change, Kept::Whole));
    }

    pub(super) fn change_in_part(&mut self, change: Change, kept: Kept) {
        self.operations.push(Operation::Change(change, kept));
    }

    pub(super) fn sync(&mut self) {
        self.operations.push(Operation::Sync);
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// The content of the disk if it stops when so much is on the tape: all changes that syncs had made
    /// durable by then, and of each unsynced change the part that `keep` says.
    pub(crate) fn image_at(&self, position: usize, mut keep: impl FnMut(&Change) -> Kept) -> Vec<u8> {
        let mut content = self.start.clone();
        let is_sync = |operation: &Operation| matches!(operation, Operation::Sync);
        let synced = self.operations[..position].iter().rposition(is_sync).unwrap_or(0);
        for (change, kept) in self.changes(0, synced) {
            change.apply(&mut content, kept);
        }
        for (change, most) in self.changes(synced, position) {
            change.apply(&mut content, most.and(keep(change)));
        }
        content
    }

    /// Visits the moments at which power may be lost that are worth a look: right before each sync, and at
    /// the end.
    pub(crate) fn power_losses(&self, mut visit: impl FnMut(PowerLoss<'_>)) {
        let mut durable = self.start.clone();
        let mut since = 0;
        for (position, operation) in self.operations.iter().enumerate() {
            if let Operation::Sync = operation {
                visit(self.power_loss(since, position, &durable));
                for (change, kept) in self.changes(since, position) {
                    change.apply(&mut durable, kept);
                }
                since = position + 1;
            }
        }
        visit(self.power_loss(since, self.operations.len(), &durable));
    }

    fn power_loss<'a>(&'a self, since: usize, position: usize, durable: &'a [u8]) -> PowerLoss<'a> {
        let (unsynced, most) = self.changes(since, position).unzip();
        PowerLoss { position, durable, unsynced, most }
    }

    fn changes(&self, since: usize, until: usize) -> impl Iterator<Item = (&Change, Kept)> {
        self.operations[since..until].iter().filter_map(|operation| match operation {
            Operation::Change(change, kept) => Some((change, *kept)),
            Operation::Sync => None,
        })
    }
}

impl PowerLoss<'_> {
    /// The content of the disk if so much of each unsynced change was kept.
    pub(crate) fn image(&self, kept: &[Kept]) -> Vec<u8> {
        let mut content = self.durable.to_vec();
        for ((change, kept), most) in self.unsynced.iter().zip(kept).zip(&self.most) {
            change.apply(&mut content, most.and(*kept));
        }
        content
    }

    /// Ways in which one of the unsynced writes is torn, with the others kept or not: `each` for every write.
    pub(crate) fn torn(&self, each: usize, seed: u64) -> Vec<Vec<Kept>> {
        let mut random = StdRng::seed_from_u64(seed ^ self.position as u64);
        let mut torn = Vec::new();
        for (index, change) in self.unsynced.iter().enumerate() {
            let Change::Write { data, .. } = change else { continue };
            for way in 0..each {
                let others = [Kept::Nothing, Kept::Whole][way % 2];
                let mut kept = vec![others; self.unsynced.len()];
                if way >= 4 {
                    kept.fill_with(|| if random.random() { Kept::Whole } else { Kept::Nothing });
                }
                let (byte, sector) =
                    (random.random_range(0..data.len()), random.random_range(0..data.len().div_ceil(SECTOR)));
                kept[index] = match random.random_range(0..4) {
                    0 => Kept::Prefix(byte),
                    1 => Kept::Suffix(byte),
                    2 => Kept::Sector(sector),
                    _ => Kept::AllButSector(sector),
                };
                torn.push(kept);
            }
        }
        torn
    }
}

impl Kept {
    /// The smaller of two parts: the most that can have been kept, and the part that the disk has kept of it.
    fn and(self, other: Self) -> Self {
        if self == Self::Whole || other == Self::Nothing { other } else { self }
    }
}

/// The subsets of so many unsynced changes that are kept: every subset of up to eight; of more none, all, all
/// but one, one alone, and `random` subsets.
pub(crate) fn choices(changes: usize, random: usize, seed: u64) -> Vec<Vec<Kept>> {
    const EVERY_SUBSET: usize = 8;
    let kept = |is_kept: &dyn Fn(usize) -> bool| -> Vec<Kept> {
        (0..changes).map(|index| if is_kept(index) { Kept::Whole } else { Kept::Nothing }).collect()
    };
    if changes <= EVERY_SUBSET {
        return (0..1_usize << changes).map(|subset| kept(&|index| subset >> index & 1 == 1)).collect();
    }
    let mut chosen = vec![kept(&|_| false), kept(&|_| true)];
    let mut generator = StdRng::seed_from_u64(seed);
    for number in 0..random {
        let one = generator.random_range(0..changes);
        let subset: Vec<bool> = (0..changes).map(|_| generator.random()).collect();
        chosen.push(match number % 4 {
            0 => kept(&|index| index != one),
            1 => kept(&|index| index == one),
            _ => kept(&|index| subset[index]),
        });
    }
    chosen
}
