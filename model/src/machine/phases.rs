//! How phases open, wait and pass: gathering, patience, pace, jumps, the seal (SPEC F3 to F5, F9, A2).

use crate::history::Event;
use crate::params::AppendWindow;
use crate::types::{Phase, ProcessId, Time, WarpId};

use super::{Machine, State, member};

/// A phase that is open and waits for members of its warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Since when; the patience of whoever is missing drains from here on.
    pub(super) since: Time,
    /// When to look whose patience is spent. Never later than the first; `None` if nobody's can be.
    pub(super) wake: Option<Time>,
}

impl Machine {
    /// The earliest moment at which the next phase may open (F9).
    pub(super) fn opens_at(&self) -> Time {
        self.last_step.map_or(Time::ZERO, |step| step.after_nanos(self.pace))
    }

    /// Lets everything happen that is due before `now`, or with `inclusive` also what is due exactly now.
    pub(super) fn let_time_pass(&mut self, now: Time, inclusive: bool, events: &mut Vec<Event>) {
        while let Some(due) = self.deadline().filter(|&due| due < now || (inclusive && due == now)) {
            match (self.state, self.hold) {
                (State::Gathering, _) => self.end_gathering(events),
                (_, Some(hold)) => self.spend_patience(now.nanos_since(hold.since), inclusive, events),
                // The pace is over: the phase is open since then, whether or not anybody noticed.
                (_, None) => {
                    self.open(due, events);
                }
            }
            self.advance(now, events);
        }
    }

    /// Opens, passes over and executes phases as long as anything may go on.
    pub(super) fn advance(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.state == State::Gathering && self.joined == self.params.processes() {
            self.end_gathering(events);
        }
        if self.state != State::Running {
            return;
        }
        while self.ready > 0 {
            if self.hold.is_none() && !self.open(now, events) {
                return;
            }
            let warp = &self.warps[self.warp.index()];
            if warp.missing > 0 {
                return;
            }
            if warp.ready > 0 {
                self.step(now, events);
            } else {
                // Whoever it was open for is not awaited any more: it passes without a step (F4).
                self.hold = None;
            }
        }
        self.stand_still(now, events);
    }

    /// Ends gathering: phase 1 may open, and nobody who has not joined is awaited (F5).
    fn end_gathering(&mut self, events: &mut Vec<Event>) {
        self.state = State::Running;
        self.join_deadline = None;
        events.push(Event::GatheringEnded { joined: self.joined });
        if self.joined < self.params.processes() {
            for process in ProcessId::all(self.params.processes()) {
                if !self.members[process.index()].has_joined() {
                    self.give_up_on(process, events);
                }
            }
        }
    }

    /// Passes over dead phases and opens the next one (F4), unless the pace forbids it yet (F9). Something
    /// must be waiting.
    fn open(&mut self, now: Time, events: &mut Vec<Event>) -> bool {
        if now < self.opens_at() {
            return false;
        }
        let phase = self.next_live_phase(None);
        self.go_to(phase);
        self.seal_if_due(events);
        let warp = &self.warps[self.warp.index()];
        self.hold = Some(Hold { since: now, wake: wake(now, warp.least_patience) });
        true
    }

    /// All phases before `phase` have passed.
    pub(super) fn go_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.warp = self.calendar.warp_of(phase);
    }

    /// The first phase from the current one on whose warp is live, counting `also` as live.
    pub(super) fn next_live_phase(&mut self, also: Option<WarpId>) -> Phase {
        if also == Some(self.warp) || self.warps[self.warp.index()].is_live() {
            return self.phase;
        }
        let live = self.calendar.next_phase_among(self.phase, &self.live);
        match also {
            Some(warp) if self.live.is_empty() => self.calendar.next_phase_of(warp, self.phase),
            Some(warp) => live.min(self.calendar.next_phase_of(warp, self.phase)),
            None => live,
        }
    }

    /// Nothing waits any more while a phase is open: it is put back, and what it cost so far is booked (F4).
    fn stand_still(&mut self, now: Time, events: &mut Vec<Event>) {
        let Some(hold) = self.hold.take() else { return };
        let held = now.nanos_since(hold.since);
        for process in self.params.members(self.warp) {
            if self.members[process.index()].is_missing() {
                self.drain(process, held, events);
            }
        }
    }

    /// Books the time for which the open phase waited for `process`, whose patience may end with it (F3).
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

    /// The timer of an open phase fired: whose patience was shorter than the hold is not awaited any more.
    fn spend_patience(&mut self, held: u64, inclusive: bool, events: &mut Vec<Event>) {
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
        if let Some(hold) = &mut self.hold {
            hold.wake = wake(hold.since, least_missing);
        }
    }

    /// Awaits a process no more: its patience is spent, or it has not joined in time (F3, F5).
    fn give_up_on(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if !member.is_awaited() {
            return;
        }
        let missing = member.is_missing();
        member.give_up();
        events.push(Event::PatienceSpent { process });
        self.await_no_more(process, missing);
    }

    /// Takes a member off the tallies of those awaited.
    pub(super) fn await_no_more(&mut self, process: ProcessId, missing: bool) {
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        tally.awaited -= 1;
        tally.missing -= u32::from(missing);
        self.note_life_of(warp);
    }

    /// Keeps the set of live warps in step with a warp's tallies.
    pub(super) fn note_life_of(&mut self, warp: WarpId) {
        if self.warps[warp.index()].is_live() {
            self.live.insert(warp);
        } else {
            self.live.remove(warp);
        }
    }

    /// Seals the list when it is due (A2): once every warp has had its first phase, or with the last of n
    /// entries.
    pub(super) fn seal_if_due(&mut self, events: &mut Vec<Event>) {
        let due = match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.calendar.all_began_before(self.phase),
            AppendWindow::Open => self.list.len() == self.list.limit(),
        };
        if !due || self.sealed.is_some() {
            return;
        }
        self.sealed = Some(self.phase);
        events.push(Event::Sealed { phase: self.phase, length: self.list.len() });
        for process in std::mem::take(&mut self.early_reports) {
            self.compare_report(process, events);
        }
    }
}

/// When the first patience of a hold is spent; `None` if all is endless.
fn wake(since: Time, patience: u64) -> Option<Time> {
    (patience != member::ENDLESS).then(|| since.after_nanos(patience))
}
