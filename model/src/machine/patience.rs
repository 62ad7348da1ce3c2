//! Patience (SPEC F3): the time for which phases wait for a process, and its end.

use crate::history::Event;
use crate::scheduler::PhaseOrder;
use crate::types::{ProcessId, Time};

use super::member;
use super::state::Machine;

impl<S: PhaseOrder> Machine<S> {
    /// No access waits any more while a phase is open: the phase closes again without a step, and the patience that
    /// it has cost so far is spent (F4).
    pub(super) fn stand_still(&mut self, now: Time, events: &mut Vec<Event>) {
        self.drain_missing(now, events);
        self.open_phase = None;
    }

    /// Takes the time for which the open phase, if there is one, has waited for its missing members off their patience.
    pub(super) fn drain_missing(&mut self, now: Time, events: &mut Vec<Event>) {
        let Some(held) = self.open_phase.and_then(|open_phase| open_phase.held(now)) else { return };
        for process in self.params.members(self.warp) {
            if self.members[process.index()].is_missing() {
                self.drain(process, held, events);
            }
        }
    }

    /// Takes the time for which the open phase waited for `process` off its patience, which may end with it (F3).
    pub(super) fn drain(&mut self, process: ProcessId, held: u64, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if member.patience == member::ENDLESS {
            return;
        }
        member.patience = member.patience.saturating_sub(held);
        if member.patience == 0 {
            self.give_up_on(process, events);
        } else {
            let warp = &mut self.warps[self.params.warp_of(process).index()];
            warp.least_patience = warp.least_patience.min(member.patience);
        }
    }

    /// The timer of an open phase fired: missing members whose patience is spent are not awaited any more.
    pub(super) fn spend_patience(&mut self, held: u64, inclusive: bool, events: &mut Vec<Event>) {
        let (mut least, mut least_missing) = (member::ENDLESS, member::ENDLESS);
        for process in self.params.members(self.warp) {
            let member = &self.members[process.index()];
            let missing = member.is_missing();
            if missing && (member.patience < held || (inclusive && member.patience == held)) {
                self.give_up_on(process, events);
            } else if member.is_awaited() {
                least = least.min(member.patience);
                least_missing = least_missing.min(if missing { member.patience } else { member::ENDLESS });
            }
        }
        self.warps[self.warp.index()].least_patience = least;
        if let Some(open_phase) = &mut self.open_phase {
            open_phase.wake = wake(open_phase.since, least_missing);
        }
    }

    /// The process is not awaited any more: its patience is spent, or it has not joined in time (F3, F5).
    pub(super) fn give_up_on(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if !member.is_awaited() {
            return;
        }
        let missing = member.is_missing();
        member.give_up();
        events.push(Event::PatienceSpent { process });
        self.await_no_more(process, missing);
    }

    /// Removes a member from the tallies of awaited members.
    pub(super) fn await_no_more(&mut self, process: ProcessId, missing: bool) {
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        tally.awaited -= 1;
        tally.missing -= u32::from(missing);
        self.update_live(warp);
        self.come_back(process);
    }
}

/// When the first patience of an open phase is spent; `None` if all is endless.
pub(super) fn wake(since: Time, patience: u64) -> Option<Time> {
    (patience != member::ENDLESS).then(|| since.after_nanos(patience))
}
