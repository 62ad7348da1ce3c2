//! The StickyCAS object: a list to which values are added one by one and in which nothing ever changes
//! (paper, section 4 and Algorithm 2; SPEC A1, A3, R2). It holds the list of every instance.
//!
//! # What the paper does
//!
//! Algorithm 2 keeps an array of cells, all NULL, and a counter. All processes of a warp run an append in
//! lock step: they read the counter as k, then the content of cell k as m, and unless k is past the limit
//! they advance the counter by CAS(k, k + 1) and then write the cell by CAS(m, value). One CAS on the cell
//! wins; the others fail.
//!
//! Out of lock step this breaks in two ways; `tests/loom_algorithm_2.rs` shows both, in every interleaving:
//!
//! - A process is delayed between reading the counter and reading cell k. If another process writes the cell
//!   meanwhile, the first one reads its value as m, and its CAS(m, value) replaces it: Algorithm 2 does not
//!   check whether the CAS on the counter won. Every overwrite comes from this gap. A delay between reading
//!   the cell and the CAS is harmless: the cell has changed, so the CAS fails.
//! - A process that crashes between its two CAS has advanced the counter past a cell that it never wrote. If
//!   no other process was in that phase, the cell stays empty for ever: a hole.
//!
//! (Also, as printed, it reads cell k before it checks k against the limit.)
//!
//! # What is changed, and why
//!
//! 1. A cell is written by a compare-exchange **from empty only**, never from a content that was read. So no
//!    entry is ever overwritten, however late a writer comes.
//! 2. The cell comes **first, the counter second**. The counter passes a cell only when it is full, so there
//!    is no hole, wherever a writer stops.
//! 3. The next caller **helps**: a winner, a loser and a caller that begins a phase all advance the counter
//!    past a full cell. A writer that crashed between cell and counter delays no other, and its value counts.
//! 4. Reading the counter is an operation of its own, [`StickyCas::turn`], done once for a whole phase. That
//!    is the lock step of the paper: all appends of a phase name the same position (A1), whatever the threads
//!    that carry them out do. A [`Turn`] cannot be forged, and an old one is harmless: its cell is full.
//!
//! # Invariants
//!
//! - The counter only grows, by one at a time, and every cell below it is full.
//! - A full cell never changes. At most one cell is full at or above the counter, namely the next one.
//!
//! # Linearization points
//!
//! The list is the cells below the counter. An append that succeeds takes effect when the counter passes its
//! cell, by whichever thread; one that fails, right after that. `len`, `get`, `iter` and `range` take effect
//! when they load the counter; `turn` when the counter had the value that it returns, which was so during the
//! call. So every reader sees a prefix of one list (R2).
//!
//! Every operation is wait-free: there is no loop. A turn is a load of the counter, a load of a cell and at
//! most one compare-exchange; an append is a load and at most two compare-exchanges; a read is a load of the
//! counter and one per entry.
//!
//! # Memory orderings
//!
//! | access | ordering | reason |
//! | --- | --- | --- |
//! | write of a cell | release | a thread that loads the pointer sees the value behind it |
//! | load of a cell, to read it | acquire | the other side of that |
//! | load of a cell, to see whether it is full | relaxed | the value is not looked at |
//! | advance of the counter | release | a thread that sees the counter past a cell finds the cell full |
//! | load of the counter | acquire | the other side of that, for every advance up to the one seen: each is an exchange on the last |
//!
//! A loser that finds the cell full with a relaxed load may still advance the counter: its load comes before
//! its release, so a thread that acquires the counter finds the cell full too.
//!
//! `tests/loom_sticky_cas.rs` runs the object under a checker, in every interleaving of two and three
//! threads:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p stickycas-model --release \
//!     --test loom_sticky_cas --test loom_algorithm_2
//! ```
//!
//! # What is left out
//!
//! The machine decides which appends may come at all, which of a phase is first (A2, A4), and how many
//! entries one read returns (R1). The object has no operation that removes, replaces or reorders (A3).

mod cell;

use std::fmt;
use std::hash::{Hash, Hasher};

use self::cell::Cells;
use crate::access::AppendAnswer;
use crate::sync::{AtomicU32, Ordering};
use crate::types::Position;

/// A totally ordered list of at most `limit` values, each written once (A1, A3), for use by many threads
/// through a shared reference.
///
/// May be shared between threads when `T` may be both sent and shared.
///
/// ```
/// use stickycas_model::access::AppendAnswer;
/// use stickycas_model::sticky_cas::StickyCas;
/// use stickycas_model::types::Position;
///
/// let list = StickyCas::with_limit(2);
/// let turn = list.turn(); // one phase
/// assert_eq!(turn.append("a"), AppendAnswer::Success(Position::new(0)));
/// assert_eq!(turn.append("b"), AppendAnswer::Failed);
/// assert_eq!(list.turn().append("c"), AppendAnswer::Success(Position::new(1))); // the next
/// assert_eq!(list.turn().append("d"), AppendAnswer::LimitReached);
/// assert!(list.iter().eq(&["a", "c"]));
/// ```
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<stickycas_model::sticky_cas::StickyCas<std::cell::Cell<u8>>>();
/// ```
pub struct StickyCas<T> {
    cells: Cells<T>,
    /// Every cell below it is full. Algorithm 2: `counter_sh`, from 0 here.
    counter: AtomicU32,
}

impl<T> StickyCas<T> {
    /// An empty list that takes this many values. Costs address space for the limit (8 bytes a value), memory
    /// only for what is appended.
    #[must_use]
    pub fn with_limit(limit: u32) -> Self {
        Self { cells: Cells::empty(limit), counter: AtomicU32::new(0) }
    }

    /// The most entries that the list can have.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.cells.count()
    }

    /// How many entries the list has.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.counter.load(Ordering::Acquire)
    }

    /// Whether the list has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry at this position, which never changes. `None` if none stands there yet.
    #[must_use]
    pub fn get(&self, position: Position) -> Option<&T> {
        // A cell at the counter may be full already: its entry does not stand before the counter has passed
        // it.
        (position.get() < self.len()).then(|| self.entry(position.get()))
    }

    /// The entries that stand now, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        self.range(Position::new(0), u32::MAX)
    }

    /// Of the entries that stand now, `count` from `start` on, or as many as there are (R1).
    pub fn range(
        &self,
        start: Position,
        count: u32,
    ) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator + Clone {
        let end = self.len().min(start.get().saturating_add(count));
        (start.get()..end).map(|position| self.entry(position))
    }

    /// Begins a phase: reads the counter once, for all appends of the phase (A1; Algorithm 2, first line of
    /// StickyCAS-append).
    ///
    /// If a writer stopped between cell and counter, its append is completed first.
    #[must_use]
    pub fn turn(&self) -> Turn<'_, T> {
        let counter = self.len();
        if !self.cells.is_full(counter as usize) {
            return Turn { list: self, position: Position::new(counter) };
        }
        self.advance_past(counter);
        // If another thread advanced it, perhaps further, the counter had this value during this call.
        Turn { list: self, position: Position::new(counter + 1) }
    }

    /// Advances the counter past this position, whose cell the caller has found full. Does nothing if it has
    /// been passed already.
    fn advance_past(&self, position: u32) {
        let advanced =
            self.counter.compare_exchange(position, position + 1, Ordering::Release, Ordering::Relaxed);
        debug_assert!(!matches!(advanced, Err(counter) if counter < position), "the counter went back");
    }

    /// The entry at a position that the counter has passed.
    fn entry(&self, position: u32) -> &T {
        self.cells.get(position as usize).expect("a cell below the counter is full")
    }
}

/// The right to append at one position: the counter as it was when a phase began.
///
/// Any number of appends may use it, from any number of threads; one of them wins. It can be kept for any
/// time: once its position is taken, it only ever fails.
pub struct Turn<'a, T> {
    list: &'a StickyCas<T>,
    position: Position,
}

impl<T> Turn<'_, T> {
    /// The position that every append of this turn names, which is the length of the list when the phase
    /// began.
    #[must_use]
    pub fn position(self) -> Position {
        self.position
    }

    /// StickyCAS-append (A1): adds the value at this turn's position, unless another append has.
    ///
    /// `LimitReached` if the position is past the last, `Success` for one append of all those that name the
    /// position, `Failed` for the others. A value that is not added is dropped.
    pub fn append(self, value: T) -> AppendAnswer {
        if self.at_limit() {
            return AppendAnswer::LimitReached;
        }
        let won = self.write(value);
        // The loser too: the winner may never come to it.
        self.list.advance_past(self.position.get());
        if won { AppendAnswer::Success(self.position) } else { AppendAnswer::Failed }
    }

    /// An append that stops for ever between its cell and the counter; whether it wrote the cell. For the
    /// checker.
    #[cfg(loom)]
    pub fn append_and_crash_before_the_counter(self, value: T) -> bool {
        !self.at_limit() && self.write(value)
    }

    fn at_limit(self) -> bool {
        self.position.get() >= self.list.limit()
    }

    /// Writes the cell if it is empty. Afterwards it is full in any case.
    fn write(self, value: T) -> bool {
        self.list.cells.write_once(self.position.index(), value)
    }
}

impl<T> Clone for Turn<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Turn<'_, T> {}

impl<T> fmt::Debug for Turn<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("position", &self.position).finish_non_exhaustive()
    }
}

/// A list of its own, with the same limit and the entries that stand now.
impl<T: Clone> Clone for StickyCas<T> {
    fn clone(&self) -> Self {
        let clone = Self::with_limit(self.limit());
        for entry in self.iter() {
            clone.turn().append(entry.clone());
        }
        clone
    }
}

impl<T: fmt::Debug> fmt::Debug for StickyCas<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<&T> = self.iter().collect();
        f.debug_struct("StickyCas").field("limit", &self.limit()).field("entries", &entries).finish()
    }
}

/// Equal limits and equal entries.
impl<T: PartialEq> PartialEq for StickyCas<T> {
    fn eq(&self, other: &Self) -> bool {
        self.limit() == other.limit() && self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for StickyCas<T> {}

impl<T: Hash> Hash for StickyCas<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let entries = self.iter();
        self.limit().hash(state);
        entries.len().hash(state);
        entries.for_each(|entry| entry.hash(state));
    }
}
