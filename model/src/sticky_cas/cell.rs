//! Cells that are written once, from empty only. All unsafe code of the model is in this file.
//!
//! A cell is a pointer: null while it is empty, then a boxed value, for good. One compare-exchange from null
//! writes it, so a writer never waits for another one. (`std::sync::OnceLock` does: while one thread
//! initialises it, the others block. A writer that stopped there would stop every other.)
//!
//! There is no operation that empties, replaces or takes out a value (SPEC A3); only dropping all cells frees
//! what they hold.

#![allow(
    unsafe_code,
    reason = "a cell that is written once, without waiting, needs a pointer that owns its value"
)]

use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

use crate::sync::{AtomicPtr, Ordering};

/// A fixed number of cells, filled from the first one on, without a gap.
///
/// Invariant: each pointer is null or came from [`Box::into_raw`], and once it is not null it never changes.
pub(super) struct Cells<T> {
    cells: Box<[AtomicPtr<T>]>,
    // `AtomicPtr` may be sent and shared whatever it points to. These cells own their values and take them in
    // through a shared reference, just as write-once cells of std do, so they may be sent and shared when
    // those may.
    owns: PhantomData<OnceLock<T>>,
}

impl<T> Cells<T> {
    /// This many empty cells. Cheap however many: the memory is zeroed, not written.
    pub(super) fn empty(count: u32) -> Self {
        Self { cells: null_pointers(count as usize), owns: PhantomData }
    }

    /// How many cells there are, empty ones included. Made from a `u32`, so it fits one.
    pub(super) fn count(&self) -> u32 {
        self.cells.len() as u32
    }

    /// Whether this cell is full. `false` for a cell that does not exist.
    pub(super) fn is_full(&self, index: usize) -> bool {
        // Relaxed: the value is not looked at.
        self.cells.get(index).is_some_and(|cell| !cell.load(Ordering::Relaxed).is_null())
    }

    /// The value of this cell. `None` if it is empty or does not exist.
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        // Acquire: pairs with the release of `write_once`, so the value is seen as it was written.
        let value = self.cells.get(index)?.load(Ordering::Acquire);
        // SAFETY: by the invariant, `value` is null or points to a boxed value. No thread changes or frees it
        // while `self` is borrowed: only `drop` does, and that needs `self` exclusively.
        unsafe { value.as_ref() }
    }

    /// Writes this cell if it is empty; whether it did. Allocates nothing if the cell is found full.
    ///
    /// Panics if there is no such cell.
    pub(super) fn write_once(&self, index: usize, value: T) -> bool {
        if self.is_full(index) {
            return false;
        }
        let value = Box::into_raw(Box::new(value));
        // Release: publishes the value to `get`. Relaxed when it fails: the loser does not look at the value.
        let written =
            self.cells[index].compare_exchange(ptr::null_mut(), value, Ordering::Release, Ordering::Relaxed);
        if written.is_err() {
            // SAFETY: `value` was made by `Box::into_raw` above, and as the exchange failed no other thread
            // has it.
            drop(unsafe { Box::from_raw(value) });
        }
        written.is_ok()
    }
}

impl<T> Drop for Cells<T> {
    fn drop(&mut self) {
        // There is no gap, so what is behind the first empty cell need not even be looked at.
        for cell in &self.cells {
            // Relaxed: `self` is exclusive, so every write happened before.
            let value = cell.load(Ordering::Relaxed);
            if value.is_null() {
                break;
            }
            // SAFETY: by the invariant, `value` came from `Box::into_raw`. No reference to it is left, since
            // `get` borrows `self`, and no cell is visited twice.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

#[cfg(not(loom))]
fn null_pointers<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    // SAFETY: `AtomicPtr` has the bit validity of a raw pointer, and a raw pointer of zeroes is null.
    unsafe { Box::new_zeroed_slice(count).assume_init() }
}

// The checker's pointers are not plain memory.
#[cfg(loom)]
fn null_pointers<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect()
}
