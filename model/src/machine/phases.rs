//! How phases open, wait and pass: pace and jumps (SPEC F4, F9).

use crate::history::Event;
use crate::scheduler::PhaseOrder;
use crate::types::{Phase, Time, WarpId};

use super::patience::wake;
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
        if self.state == State::Gathering && self.all_have_joined() {
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

    /// Opens the next phase, unless the pace forbids it yet (F9); an access must be waiting somewhere. The dead
    /// phases before it pass now, at the moment when it may open, and not earlier (F4, F9): a warp in which an access
    /// has come meanwhile still has its phase.
    fn open(&mut self, now: Time, events: &mut Vec<Event>) -> bool {
        if now < self.opens_at() {
            return false;
        }
        let phase = self.next_live_phase(None);
        self.go_to(phase);
        self.seal_if_due(events);
        let warp = &self.warps[self.warp.index()];
        let since = self.drains_from(now);
        self.open_phase = Some(OpenPhase { since, wake: wake(since, warp.least_patience) });
        self.changed = true;
        self.opened_phases = self.opened_phases.saturating_add(1);
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

    /// Updates the set of live warps from a warp's tallies.
    pub(super) fn update_live(&mut self, warp: WarpId) {
        if self.warps[warp.index()].is_live() {
            self.live.insert(warp);
        } else {
            self.live.remove(warp);
        }
    }
}
