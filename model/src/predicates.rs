//! The predicates by which evidence of a run is checked, each once, under the ids of SPEC.
//!
//! [`crate::invariants`] asks them of a history, [`crate::judge`] of reports and decisions, and the load
//! generator of what the processes of an instance were answered. The machine does not use them: see
//! [`crate::invariants`]. The mode (D1) is [`crate::process::mode`], and the bounds are in [`crate::bounds`].

use std::ops::Range;

use crate::access::ReadAnswer;
use crate::bounds::{self, Premise, Property};
use crate::params::{AppendWindow, Params};
use crate::types::{Phase, Position, WarpId};

/// W1: a process acts in phases of its own warp.
#[must_use]
pub fn is_phase_of(scheduled: WarpId, warp: WarpId) -> bool {
    scheduled == warp
}

/// W1, F1, F7: phases come one after the other, and with them the accesses of a process.
#[must_use]
pub fn comes_after(later: Phase, earlier: Phase) -> bool {
    later > earlier
}

/// V4, F6: whether this is the first phase of its warp. A process is punctual if it had an access executed in
/// that one.
#[must_use]
pub fn is_first_of_warp(params: &Params, phase: Phase) -> bool {
    // Every order has each warp once in W phases.
    phase.get() <= u64::from(params.warps())
}

/// K1: whether this is one of the first q phases of its warp, in which it may append under `first_access`.
#[must_use]
pub fn is_append_phase(params: &Params, phase: Phase) -> bool {
    phase.get() <= u64::from(params.warps()) * u64::from(params.append_rounds())
}

/// K2: whether a process appends again after an append that failed in this phase.
#[must_use]
pub fn appends_again(params: &Params, phase: Phase) -> bool {
    phase.get() <= u64::from(params.warps()) * u64::from(params.append_rounds() - 1)
}

/// K3, F6: whether a correct process is late: it won no append under `first_access`, and missed one of the
/// first q phases of its warp. `own_phases` is how many phases its warp has had, `used` in how many of the
/// first q it had an access executed.
#[must_use]
pub fn is_late(params: &Params, won: bool, own_phases: u64, used: u64) -> bool {
    let wins_count = params.spec().append_window == AppendWindow::FirstAccess;
    !(won && wins_count) && used < own_phases.min(params.append_rounds().into())
}

/// R1: how many entries a read from `start` returns of a list of this length.
#[must_use]
pub fn entries_read(params: &Params, start: Position, length: u32) -> u32 {
    length.saturating_sub(start.get()).min(params.read_size())
}

/// A2, K1: the list has room for so many entries.
#[must_use]
pub fn has_room(params: &Params, length: u32) -> bool {
    length <= params.list_limit()
}

/// A1, A3: a list of this length has an entry at this position. An entry is added behind every list from
/// before its phase, and every later list has it.
#[must_use]
pub fn has_entry(length: u32, position: Position) -> bool {
    position.get() < length
}

/// F2, R2: two reads of one phase show the list as it stood when the phase began.
#[must_use]
pub fn is_same_list(one: &ReadAnswer, other: &ReadAnswer) -> bool {
    one.length == other.length && one.sealed == other.sealed
}

/// A2, A3: a list may become another one in a later phase: it grows, unless it is sealed.
#[must_use]
pub fn may_become(earlier: &ReadAnswer, later: &ReadAnswer) -> bool {
    if earlier.sealed { is_same_list(earlier, later) } else { earlier.length <= later.length }
}

/// D1: the entries that one life of a process was given, by the answers to its reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntriesGiven {
    /// It was given all entries before this position.
    end: u32,
    /// Others, in order: a life may receive the answer to a read that an earlier one sent. Nearly always
    /// none.
    later: Vec<Range<u32>>,
    /// How many of the reads that Algorithm 1 as printed makes one after the other were answered.
    reads: u32,
    /// The length of the sealed list, once a read told it.
    sealed: Option<u32>,
}

impl EntriesGiven {
    /// Where its next read starts; `None` once it has read what it takes to decide.
    #[must_use]
    pub fn next_start(&self, params: &Params) -> Option<Position> {
        let start = match params.spec().append_window {
            AppendWindow::FirstAccess => {
                let most = params.counted_entries();
                let enough = self.sealed.map_or(most, |length| length.min(most));
                (self.end < enough).then_some(self.end)
            }
            AppendWindow::Open => {
                (self.reads < params.reads()).then(|| self.reads.saturating_mul(params.read_size()))
            }
        };
        start.map(Position::new)
    }

    /// Takes in the answer to its next read.
    pub fn take_in(&mut self, params: &Params, answer: &ReadAnswer) {
        let ReadAnswer { start, count, length, sealed } = *answer;
        let start = start.get();
        self.reads += u32::from(start == self.reads.saturating_mul(params.read_size()));
        self.sealed = self.sealed.or(sealed.then_some(length));
        let end = start.saturating_add(count);
        if start > self.end && count > 0 {
            let place = self.later.partition_point(|range| range.start < start);
            self.later.insert(place, start..end);
        } else if start <= self.end {
            self.end = self.end.max(end);
        }
        while let Some(first) = self.later.first().filter(|first| first.start <= self.end) {
            self.end = self.end.max(first.end);
            self.later.remove(0);
        }
    }

    /// The positions of the entries that a decision counts: those that it was given of the first T (W for q =
    /// 1), in order.
    pub fn counted(&self, params: &Params) -> impl Iterator<Item = usize> + Clone {
        let last = params.counted_entries();
        let mut next = 0;
        let all = std::iter::once(0..self.end).chain(self.later.iter().cloned());
        let positions = all.flat_map(move |range| {
            let from = range.start.max(next);
            next = next.max(range.end);
            from..range.end
        });
        positions.take_while(move |position| *position < last).map(|position| position as usize)
    }

    /// How many of the first entries it counts, where it counts no others.
    #[must_use]
    pub fn first_only(&self, params: &Params) -> Option<usize> {
        self.later.is_empty().then(|| self.end.min(params.counted_entries()) as usize)
    }
}

/// D2: how many of its own phases a process has missed that had so many accesses executed in them.
#[must_use]
pub fn missed_phases(own_phases: u64, executed: u64) -> u64 {
    own_phases.saturating_sub(executed)
}

/// D2: a process decides by the phase that is bound to it.
#[must_use]
pub fn is_in_time(decided: Phase, bound: Phase) -> bool {
    decided <= bound
}

/// The decisions of correct processes: all that agreement and the three validities ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// f: processes that are Byzantine, made faulty, or late.
    pub f: u64,
    /// |Vc|: different values that correct processes propose.
    pub values: u64,
    /// Different values that were decided.
    pub decided: usize,
    /// Each of them was proposed by a correct process.
    pub of_correct: bool,
    /// Each of them was proposed or appended by some process.
    pub of_some: bool,
}

/// A property other than termination, whether it held, and the premise that is missing where it was not
/// promised.
pub type DecisionProperty = (Property, bool, Result<(), Premise>);

impl Decisions {
    /// V2, V3: each property, in the order of [`Property::ALL`] without termination.
    pub fn properties(&self, params: &Params) -> [DecisionProperty; 4] {
        let Self { f, values, decided, of_correct, of_some } = *self;
        [
            (Property::Agreement, decided <= 1, agreement_promised(params)),
            // The mode of entries is an entry, and some process appended it.
            (Property::WeakValidity, of_some, Ok(())),
            (Property::CommonValidity, values != 1 || of_correct, bounds::common_validity(params, f)),
            (Property::StrongValidity, of_correct, bounds::strong_validity(params, f, values)),
        ]
    }
}

fn agreement_promised(params: &Params) -> Result<(), Premise> {
    match params.spec().append_window {
        AppendWindow::FirstAccess => Ok(()),
        AppendWindow::Open => Err(Premise::FirstAccess),
    }
}
