//! How phases open, wait and pass: gathering, patience, pace, jumps, the seal (SPEC F3 to F5, F9, A2).

use crate::history::Event;
use crate::params::AppendWindow;
use crate::scheduler::PhaseOrder;
use crate::types::{Phase, ProcessId, Time, WarpId};

use super::member;
use super::state::{Machine, OpenPhase, State};

impl<S: PhaseOrder> Machine<S> {
    /// The earliest moment at which the next phase may open (F9).
    pub(super) fn opens_at(&self) -> Time {
        self.last_step.map_or(Time::ZERO, |step| step.after_nanos(self.pace))
    }

    /// Lets everything happen that is due before `now`, or with `inclusive` also what is due exactly now.
    pub(super) fn let_time_pass(&mut self, now: Time, inclusive: bool, events: &mut Vec<Event>) {
        while let Some(due) = self.deadline().filter(|&due| due < now || (inclusive && due == now)) {
            match (self.state, self.open_phase) {
                (State::Gathering, _) => self.end_gathering(events),
                (_, Some(open_phase)) => {
                    self.spend_patience(now.nanos_since(open_phase.since), inclusive, events);
                }
                // The pace is over: the phase is open since then, even if no input came at that moment.
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
            if self.open_phase.is_none() && !self.open(now, events) {
                return;
            }
            let warp = &self.warps[self.warp.index()];
            if warp.missing > 0 {
                return;
            }
            if warp.ready > 0 {
                self.step(now, events);
            } else {
                // The members for which it was open are not awaited any more: it passes without a step (F4).
                self.open_phase = None;
            }
        }
        self.stand_still(now, events);
    }

    /// Ends gathering: phase 1 may open, and a process that has not joined is not awaited (F5).
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

    /// Opens the next phase, unless the pace forbids it yet (F9); an access must be waiting somewhere. The dead phases
    /// before it pass now, at the moment when it may open, and not earlier (F4, F9): a warp in which an access has
    /// come meanwhile still has its phase.
    fn open(&mut self, now: Time, events: &mut Vec<Event>) -> bool {
        if now < self.opens_at() {
            return false;
        }
        let phase = self.next_live_phase(None);
        self.go_to(phase);
        self.seal_if_due(events);
        let warp = &self.warps[self.warp.index()];
        self.open_phase = Some(OpenPhase { since: now, wake: wake(now, warp.least_patience) });
        true
    }

    /// All phases before `phase` have passed.
    pub(super) fn go_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.warp = self.schedule.warp_of(phase);
    }

    /// The first phase from the current one on whose warp is live, counting `also` as live.
    pub(super) fn next_live_phase(&mut self, also: Option<WarpId>) -> Phase {
        if also == Some(self.warp) || self.warps[self.warp.index()].is_live() {
            return self.phase;
        }
        let live = self.schedule.next_phase_among(self.phase, &self.live);
        match also {
            Some(warp) if self.live.is_empty() => self.schedule.next_phase_of(warp, self.phase),
            Some(warp) => live.min(self.schedule.next_phase_of(warp, self.phase)),
            None => live,
        }
    }

    /// Nothing waits any more while a phase is open: it closes again without a step, and the patience that it has cost so
    /// far is spent (F4).
    fn stand_still(&mut self, now: Time, events: &mut Vec<Event>) {
        let Some(open_phase) = self.open_phase.take() else { return };
        let held = now.nanos_since(open_phase.since);
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

    /// The timer of an open phase fired: whose patience was shorter is not awaited any more.
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
        if let Some(open_phase) = &mut self.open_phase {
            open_phase.wake = wake(open_phase.since, least_missing);
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

    /// Removes a member from the tallies of awaited members.
    pub(super) fn await_no_more(&mut self, process: ProcessId, missing: bool) {
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        tally.awaited -= 1;
        tally.missing -= u32::from(missing);
        self.update_live(warp);
    }

    /// Updates the set of live warps from a warp's tallies.
    pub(super) fn update_live(&mut self, warp: WarpId) {
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
            AppendWindow::FirstAccess => self.schedule.all_began_before(self.phase),
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

/// When the first patience of a open_phase is spent; `None` if all is endless.
fn wake(since: Time, patience: u64) -> Option<Time> {
    (patience != member::ENDLESS).then(|| since.after_nanos(patience))
}
