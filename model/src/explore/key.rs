//! The key of a state: everything on which the future of a run depends, packed into one number.
//!
//! The packing is exact: two states have the same key only if they agree in all that is packed. Nothing is
//! hashed, so no state can be lost to a collision.
//!
//! Left out is the rest of the machine and of a view: numbers of accesses and phases, the winner of an entry
//! and its phase, kept answers, counts of offences, the answer to an append, except that a process has won as
//! long as that keeps it from winning again. No later answer depends on them. The tests of [`crate::explore`]
//! compare with a search that leaves out nothing.

use super::search_state::{CorrectProcess, SearchState, Slot, WarpProgress};
use super::setup::{ScheduleClass, Space};
use crate::params::AppendWindow;
use crate::process::Act;
use crate::types::{ProcessId, WarpId};

/// A state, as one number.
pub(super) type Key = u128;

/// Digits of different radix, one after the other.
#[derive(Default)]
struct KeyBuilder(Key);

impl KeyBuilder {
    fn push(&mut self, digit: u64, radix: u64) {
        // In release builds too: two states under one key would be a hole in what is proved.
        assert!(digit < radix, "a digit is below its radix");
        self.0 = self.0 * Key::from(radix) + Key::from(digit);
    }
}

impl Space {
    /// The key of a state: all that its future depends on.
    pub(super) fn key(&self, state: &SearchState) -> Key {
        let mut packed = KeyBuilder::default();
        if self.setup.schedule != ScheduleClass::Any {
            packed.push(state.rounds.into(), self.round_radix());
        }
        if self.setup.validity {
            packed.push(state.correct_values().into(), 1 << self.setup.values);
        }
        self.pack_list(&mut packed, state);
        let mut warps: Vec<Key> = self.warps.iter().map(|warp| self.warp_key(state, *warp)).collect();
        let alike = self.params.processes() / self.params.warp_size();
        if self.setup.symmetry && !self.setup.schedule.has_fixed_order() {
            warps[..alike as usize].sort_unstable();
        }
        for (warp, key) in self.warps.iter().zip(warps) {
            packed.0 = packed.0 * self.warp_radix(*warp).unwrap_or(Key::MAX) + key;
        }
        packed.0
    }

    /// Whether every key fits.
    pub(super) fn keys_fit(&self) -> bool {
        let values = if self.setup.validity { 1 << self.setup.values } else { 1 };
        let list = Key::from(self.setup.values + 1).checked_pow(self.params.list_limit());
        let rest = list.and_then(|list| list.checked_mul(values)?.checked_mul(self.round_radix().into()));
        self.warps
            .iter()
            .try_fold(rest, |all, warp| Some(all?.checked_mul(self.warp_radix(*warp)?)))
            .flatten()
            .is_some()
    }

    /// Rounds count only where something is due by a round.
    fn round_radix(&self) -> u64 {
        match self.setup.schedule {
            ScheduleClass::Any => 1,
            ScheduleClass::RoundBased
            | ScheduleClass::FirstRound
            | ScheduleClass::Ascending
            | ScheduleClass::Descending => {
                let accesses = self.params.append_rounds() + self.params.reads();
                u64::from(accesses) + u64::from(self.setup.late) + 2
            }
        }
    }

    /// The values of the list, each one more than its index; 0 behind the last.
    fn pack_list(&self, packed: &mut KeyBuilder, state: &SearchState) {
        let list = state.machine.list();
        let mut digits: Vec<u64> =
            list.iter().map(|entry| u64::from(self.index_of(&entry.value)) + 1).collect();
        if self.setup.lists_as_counts {
            digits.sort_unstable();
        }
        digits.resize(list.limit() as usize, 0);
        for digit in digits {
            packed.push(digit, u64::from(self.setup.values) + 1);
        }
    }

    /// The part of the key that belongs to one warp and its members.
    pub(super) fn warp_key(&self, state: &SearchState, warp: WarpId) -> Key {
        let progress = state.progress[warp.index()];
        let code = |process: ProcessId| {
            let slot = &state.slots[process.index()];
            self.member_code(slot) * self.won_radix() + u64::from(self.won_counts(slot, progress))
        };
        let mut codes: Vec<u64> = self.params.members(warp).map(code).collect();
        if self.setup.symmetry {
            codes.sort_unstable();
        }
        let mut packed = KeyBuilder::default();
        for code in codes {
            packed.push(code, self.member_radix() * self.won_radix());
        }
        packed.push(u64::from(progress.began()), 2);
        packed.push(u64::from(progress.in_this_round && self.setup.schedule != ScheduleClass::Any), 2);
        packed.push(u64::from(progress.passed && self.passes), 2);
        packed.0
    }

    fn warp_radix(&self, warp: WarpId) -> Option<Key> {
        let members = u32::try_from(self.params.members(warp).count()).ok()?;
        Key::from(self.member_radix() * self.won_radix()).checked_pow(members)?.checked_mul(8)
    }

    /// With one append round there is no phase in which it counts who has won.
    fn won_radix(&self) -> u64 {
        u64::from(self.params.append_rounds().min(2))
    }

    /// Whether a later answer depends on it that this process has won: that of a further append in the window
    /// (K1); or whether it is late at the end (K3).
    fn won_counts(&self, slot: &Slot, progress: WarpProgress) -> bool {
        match slot {
            Slot::Empty => false,
            Slot::Byzantine { won, .. } => *won && progress.phases < self.params.append_rounds(),
            Slot::Correct(correct) => correct.missed > 0 && correct.has_won() && !correct.has_ended(),
        }
    }

    fn member_code(&self, slot: &Slot) -> u64 {
        match slot {
            Slot::Empty => 0,
            // A lean adversary is never silent.
            Slot::Byzantine { spent, .. } => {
                1 + u64::from(*spent && self.setup.adversary == super::Adversary::Full)
            }
            Slot::Correct(correct) => 3 + self.correct_code(correct),
        }
    }

    fn member_radix(&self) -> u64 {
        let (values, late) = (u64::from(self.setup.values), u64::from(self.setup.late) + 1);
        3 + 1 + 2 * values + values * late + self.holding_radix() * late
    }

    /// A correct process: it has decided, or has nothing to decide, or has still to append, or reads.
    fn correct_code(&self, correct: &CorrectProcess) -> u64 {
        let (values, late) = (u64::from(self.setup.values), u64::from(self.setup.late) + 1);
        let missed = u64::from(correct.missed).min(late - 1);
        match &correct.next {
            Act::Silent | Act::Crash => 0,
            Act::Decide(value) => 1 + 2 * u64::from(self.index_of(value)) + u64::from(correct.is_late()),
            Act::Access { .. } if correct.appends() => {
                1 + 2 * values + u64::from(correct.proposal) * late + missed
            }
            Act::Access { .. } => 1 + 2 * values + values * late + self.holding(correct) * late + missed,
        }
    }

    /// The entries that it holds, and its knowledge of the seal. The entries themselves stand in the list.
    fn holding(&self, correct: &CorrectProcess) -> u64 {
        let view = &correct.view;
        match self.setup.window {
            AppendWindow::FirstAccess => 2 * u64::from(view.end().get()) + u64::from(view.sealed),
            AppendWindow::Open => {
                let last = self.params.counted_entries();
                let counted = view.held().filter(|(position, _)| position.get() < last);
                let held = counted.fold(0, |held, (position, _)| held | 1 << position.get());
                view.reads << last | held
            }
        }
    }

    fn holding_radix(&self) -> u64 {
        let last = self.params.counted_entries();
        match self.setup.window {
            AppendWindow::FirstAccess => 2 * (u64::from(last) + 1),
            AppendWindow::Open => (u64::from(self.params.reads()) + 1) << last.min(32),
        }
    }
}
