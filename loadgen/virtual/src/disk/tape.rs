//! Everything that was done to a disk, and so the contents that it may have after a loss of power.
//!
//! A disk may do what no sync of the file has made durable in any order, in part, or not at all. So a loss of
//! power between two syncs leaves any subset of the changes in between. Those before an earlier moment are a
//! subset of those before the next sync, and the facts that clients were told only grow: it is enough to lose
//! power right before each sync, and at the end.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use stickycas_model::random::SplitMix64;

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;

/// The content of each file of a disk.
pub(super) type Content = [Vec<u8>; 2];

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape {
    start: Content,
    operations: Vec<Operation>,
    /// The place from which on power may be lost: a log that is made is there as a whole or not at all.
    from: usize,
}

#[derive(Clone, Debug)]
enum Operation {
    /// A change, and the most of it that may be on the disk: less than all if the write failed.
    Change(Change, Kept),
    /// Of the file with this number.
    Sync(usize),
}

/// One change of a disk.
#[derive(Clone)]
pub(super) struct Change {
    /// The number of the file.
    pub(super) file: usize,
    pub(super) what: What,
}

/// What is changed in a file.
#[derive(Clone)]
pub(super) enum What {
    Write { offset: usize, data: Arc<[u8]> },
    SetLen(usize),
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

/// An operation that was told to have succeeded, and that the disk has not done. Syncs and changes are
/// counted from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lie {
    Sync(usize),
    /// This sync and all later ones.
    SyncsFrom(usize),
    Change(usize),
}

/// A moment at which power may be lost.
#[derive(Debug)]
pub(crate) struct PowerLoss<'a> {
    /// The length of the tape then.
    pub(crate) position: usize,
    /// The content that syncs had made durable.
    durable: &'a Content,
    /// The changes that no sync had made durable, and the most that can have been kept of each.
    unsynced: Vec<(&'a Change, Kept)>,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}: ", self.file)?;
        match &self.what {
            What::Write { offset, data } => write!(f, "{}@{offset}", data.len()),
            What::SetLen(length) => write!(f, "length {length}"),
        }
    }
}

impl Change {
    /// Does as much of the change as was kept.
    pub(super) fn apply(&self, content: &mut Content, kept: Kept) {
        let content = &mut content[self.file];
        match &self.what {
            What::SetLen(length) if kept != Kept::Nothing => content.resize(*length, 0),
            What::SetLen(_) => {}
            What::Write { offset, data } => {
                for range in kept.ranges(data.len()).into_iter().filter(|range| !range.is_empty()) {
                    let end = offset + range.end;
                    if content.len() < end {
                        content.resize(end, 0);
                    }
                    content[offset + range.start..end].copy_from_slice(&data[range]);
                }
            }
        }
    }

    /// The length that the content has at least behind it.
    pub(super) fn end(&self) -> usize {
        match &self.what {
            What::Write { offset, data } => offset + data.len(),
            What::SetLen(length) => *length,
        }
    }
}

impl Kept {
    /// The ranges of a write of so many bytes that are on the disk; some may be empty.
    fn ranges(self, length: usize) -> [Range<usize>; 2] {
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

    /// The smaller of two parts: the most that can have been kept, and the part that the disk has kept of it.
    fn and(self, other: Self) -> Self {
        if self == Self::Whole || other == Self::Nothing { other } else { self }
    }

    /// A part of a write of so many bytes: it is torn.
    pub(crate) fn torn(bytes: usize, random: &mut SplitMix64) -> Self {
        let (byte, sector) = (random.index(bytes.max(1)), random.index(bytes.div_ceil(SECTOR).max(1)));
        [Self::Prefix(byte), Self::Suffix(byte), Self::Sector(sector), Self::AllButSector(sector)]
            [random.index(4)]
    }
}

impl Tape {
    /// Of a disk with this content.
    pub(super) fn new(start: Content) -> Self {
        Self { start, ..Self::default() }
    }

    pub(super) fn change(&mut self, change: Change, most: Kept) {
        self.operations.push(Operation::Change(change, most));
    }

    pub(super) fn sync(&mut self, file: usize) {
        self.operations.push(Operation::Sync(file));
    }

    /// The log was made by now.
    pub(super) fn begin_here(&mut self) {
        self.from = self.len();
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// The content of the disk if its server is gone when so much is on the tape, and everything is kept.
    pub(super) fn whole_at(&self, position: usize) -> Content {
        let mut content = self.start.clone();
        for operation in &self.operations[..position] {
            if let Operation::Change(change, kept) = operation {
                change.apply(&mut content, *kept);
            }
        }
        content
    }

    /// The tape as it was at this place.
    pub(super) fn until(&self, position: usize) -> Self {
        let operations = self.operations[..position].to_vec();
        Self { start: self.start.clone(), operations, from: self.from }
    }

    /// The place of the last sync of this file; the end if there is none.
    pub(super) fn last_sync(&self, file: usize) -> usize {
        let is_sync = |operation: &Operation| matches!(operation, Operation::Sync(of) if *of == file);
        self.operations.iter().rposition(is_sync).unwrap_or(self.len())
    }

    /// How many syncs are on it.
    pub(crate) fn syncs(&self) -> usize {
        self.operations.iter().filter(|operation| matches!(operation, Operation::Sync(_))).count()
    }

    /// How many changes are on it.
    pub(crate) fn changes_made(&self) -> usize {
        self.len() - self.syncs()
    }

    /// The tape of a disk that has lied, and the place of the lie.
    pub(crate) fn with(&self, lie: Lie) -> (Self, usize) {
        let (mut lied, mut place) = (self.clone(), None);
        let (mut syncs, mut changes) = (0, 0);
        for (position, operation) in lied.operations.iter_mut().enumerate() {
            let is_lie = match (&*operation, lie) {
                (Operation::Sync(_), Lie::Sync(sync)) => syncs == sync,
                (Operation::Sync(_), Lie::SyncsFrom(sync)) => syncs >= sync,
                (Operation::Change(..), Lie::Change(change)) => changes == change,
                _ => false,
            };
            match operation {
                Operation::Sync(_) => syncs += 1,
                Operation::Change(..) => changes += 1,
            }
            if is_lie {
                place.get_or_insert(position);
                let nothing = Change { file: 0, what: What::SetLen(0) };
                *operation = Operation::Change(nothing, Kept::Nothing);
            }
        }
        (lied, place.unwrap_or(self.len()))
    }

    /// Visits the moments from this place on at which power may be lost that are worth a look: right before
    /// each sync, and at the end. Those are numbered from 0; `wanted` says of which ones.
    pub(crate) fn power_losses(&self, wanted: impl Fn(usize) -> bool, mut visit: impl FnMut(PowerLoss<'_>)) {
        let (mut durable, mut unsynced, mut number) = (self.start.clone(), Vec::new(), 0);
        for position in 0..=self.len() {
            let synced = match self.operations.get(position) {
                Some(Operation::Change(change, kept)) => {
                    unsynced.push((change, *kept));
                    continue;
                }
                Some(Operation::Sync(file)) => Some(*file),
                None => None,
            };
            if position >= self.from {
                if wanted(number) {
                    visit(PowerLoss { position, durable: &durable, unsynced: unsynced.clone() });
                }
                number += 1;
            }
            for (change, kept) in unsynced.extract_if(.., |(change, _)| Some(change.file) == synced) {
                change.apply(&mut durable, kept);
            }
        }
    }

    /// The number of the moments at which power may be lost.
    pub(crate) fn count_losses(&self) -> usize {
        let syncs = self.operations.iter().skip(self.from).filter(|it| matches!(it, Operation::Sync(_)));
        syncs.count() + 1
    }
}

impl PowerLoss<'_> {
    /// The content of the disk if so much of each unsynced change was kept.
    pub(super) fn image(&self, kept: &[Kept]) -> Content {
        let mut content = self.durable.clone();
        for ((change, most), kept) in self.unsynced.iter().zip(kept) {
            change.apply(&mut content, most.and(*kept));
        }
        content
    }

    /// Every change is kept.
    pub(crate) fn whole(&self) -> Vec<Kept> {
        vec![Kept::Whole; self.unsynced.len()]
    }

    /// A drawn way in which the unsynced changes are kept: all, none, all but one, one alone, any subset; and
    /// in half of the cases one of the writes is torn.
    pub(crate) fn draw(&self, random: &mut SplitMix64) -> Vec<Kept> {
        let changes = self.unsynced.len();
        if changes == 0 {
            return Vec::new();
        }
        let (way, one) = (random.below(6), random.index(changes));
        let mut kept: Vec<Kept> = (0..changes)
            .map(|index| {
                let is_kept = match way {
                    0 => false,
                    1 => true,
                    2 => index != one,
                    3 => index == one,
                    _ => random.below(2) == 0,
                };
                if is_kept { Kept::Whole } else { Kept::Nothing }
            })
            .collect();
        if random.below(2) == 0 {
            let torn = random.index(changes);
            if let What::Write { data, .. } = &self.unsynced[torn].0.what {
                kept[torn] = Kept::torn(data.len(), random);
            }
        }
        kept
    }

    /// The subsets of the unsynced changes: every subset of up to `most_changes`, and otherwise none and all.
    pub(crate) fn subsets(&self, most_changes: usize) -> Vec<Vec<Kept>> {
        let changes = self.unsynced.len();
        let subset = |bits: usize| -> Vec<Kept> {
            let kept = |index: usize| if bits >> index & 1 == 1 { Kept::Whole } else { Kept::Nothing };
            (0..changes).map(kept).collect()
        };
        match changes {
            0 => vec![Vec::new()],
            _ if changes <= most_changes => (0..1_usize << changes).map(subset).collect(),
            _ => vec![subset(0), self.whole()],
        }
    }

    /// The number of changes that no sync had made durable.
    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: usize, text: &str) -> Change {
        Change { file: 0, what: What::Write { offset, data: text.as_bytes().into() } }
    }

    /// "ab" is durable, then "c" and "d" are written and not synced.
    fn tape() -> Tape {
        let mut tape = Tape::new(Content::default());
        tape.change(write(0, "a"), Kept::Whole);
        tape.change(write(1, "b"), Kept::Whole);
        tape.sync(0);
        tape.change(write(2, "c"), Kept::Whole);
        tape.change(write(3, "d"), Kept::Whole);
        tape
    }

    /// The contents that a disk with this tape may have at the end.
    fn at_the_end(tape: &Tape) -> Vec<String> {
        let (mut contents, last) = (Vec::new(), tape.count_losses() - 1);
        tape.power_losses(
            |number| number == last,
            |loss| {
                contents = loss.subsets(8).iter().map(|kept| loss.image(kept)).collect();
            },
        );
        let text = |[content, _]: Content| String::from_utf8(content).unwrap().replace('\0', "_");
        contents.into_iter().map(text).collect()
    }

    #[test]
    fn every_subset_of_what_is_not_synced_may_be_kept() {
        assert_eq!(at_the_end(&tape()), ["ab", "abc", "ab_d", "abcd"]);
    }

    #[test]
    fn a_sync_is_of_one_file() {
        let mut tape = tape();
        tape.sync(1);
        assert_eq!(at_the_end(&tape), ["ab", "abc", "ab_d", "abcd"]);
        tape.sync(0);
        assert_eq!(at_the_end(&tape), ["abcd"]);
    }

    #[test]
    fn a_lie_leaves_out_what_was_synced() {
        let (lied, place) = tape().with(Lie::Sync(0));
        assert_eq!(place, 2);
        assert!(at_the_end(&lied).contains(&"abcd".to_owned()));
        assert!(at_the_end(&lied).contains(&String::new()), "nothing is durable");
        let (lied, place) = tape().with(Lie::Change(0));
        assert_eq!((place, at_the_end(&lied)[0].as_str()), (0, "_b"));
    }

    #[test]
    fn a_torn_write_is_there_in_part() {
        let data: Vec<u8> = (0..1_200).map(|byte| (byte / SECTOR) as u8 + 1).collect();
        let change = Change { file: 1, what: What::Write { offset: 0, data: data.into() } };
        let kept = |kept| {
            let mut content = [Vec::new(), vec![0; 1_200]];
            change.apply(&mut content, kept);
            [0, 600, 1_100].map(|at| content[1][at])
        };
        let torn = [Kept::Prefix(601), Kept::Suffix(601), Kept::Sector(1), Kept::AllButSector(1)].map(kept);
        assert_eq!(torn, [[1, 2, 0], [0, 0, 3], [0, 2, 0], [1, 0, 3]]);
        // Of a write that has failed no more is kept than it had done.
        assert_eq!(Kept::Prefix(5).and(Kept::Whole), Kept::Prefix(5));
    }
}
