//! How phases come: gathering before the first (SPEC F5); pace and jumps (F4, F9); the append window (A2); patience, the time
//! for which phases wait for a process, and its end (F3); and the time after a restart of the server, in which none drains.
//!
//! # Restarts
//! A restart breaks every connection, so for a while each process is missing through no fault of its own. From
//! [`Machine::restart`] on every awaited member is *away*, until it is heard of again: by a hello, by an access that
//! is accepted or was accepted before, or by its decision. A member that is not awaited any more is not away either.
//! As long as a member is away, and at most for the time that the restart gives, no patience drains: a phase that is
//! open counts as opened when that time ends, and so does one that opens meanwhile. Phases wait and are executed as
//! usual (F2): only the price of waiting is off.
//!
//! While processes gather, all n are awaited and so away, and the join timeout does not end before the time to
//! reconnect does (F5): a process that could not connect during the outage must have its chance to join.
//!
//! An instance that is finished or closed has no phase and no patience (F10). A restart changes nothing there, not even
//! its history.
//!
//! ## What the history shows
//! [`Event::Restarted`], and how each member came back: mostly by an event of its own ([`Event::Session`],
//! [`Event::Accepted`], [`Event::Decided`]). An access that is sent again has none, so a member that came back with
//! one is recorded as [`Event::Rejoined`].

use std::time::Duration;

use crate::history::{Event, push_event};
use crate::params::{AppendWindow, LONGEST_DURATION};
use crate::scheduler::PhaseOrder;
use crate::types::{Phase, ProcessId, Time, WarpId};

use super::member::{self, Member};
use super::state::{Machine, OpenPhase, Rejoin, State};

impl<S: PhaseOrder> Machine<S> {
    /// Opens, passes over and executes phases as long as anything may go on.
    pub(super) fn advance(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.state == State::Gathering && self.all_have_joined() {
            self.end_gathering(events);
        }
        if self.state != State::Running {
            return;
        }
        while self.warps.ready() > 0 {
            if self.open_phase.is_none() && !self.open(now, events) {
                return;
            }
            let warp = &self.warps[self.warp];
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
        let warp = &self.warps[self.warp];
        let since = self.drains_from(now);
        self.open_phase = Some(OpenPhase { since, wake: wake(since, warp.least_patience) });
        self.changed = true;
        self.opened_phases = self.opened_phases.saturating_add(1);
        true
    }

    /// The earliest moment at which the next phase may open (F9).
    pub(super) fn opens_at(&self) -> Time {
        self.last_step.map_or(Time::ZERO, |step| step.after_nanos(self.pace))
    }

    /// All phases before `phase` have passed.
    pub(super) fn go_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.warp = self.schedule.warp_of(phase);
    }

    /// The first phase from the current one on whose warp is live, counting `also` as live.
    pub(super) fn next_live_phase(&mut self, also: Option<WarpId>) -> Phase {
        if also == Some(self.warp) || self.warps[self.warp].is_live() {
            return self.phase;
        }
        let live = self.schedule.next_phase_among(self.phase, self.warps.live());
        match also {
            Some(warp) if self.warps.live().is_empty() => self.schedule.next_phase_of(warp, self.phase),
            Some(warp) => live.min(self.schedule.next_phase_of(warp, self.phase)),
            None => live,
        }
    }

    /// Whether this phase, which has come, may append (A2).
    pub(super) fn window_is_open(&self, phase: Phase) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.schedule.is_first(phase),
            AppendWindow::Open => true,
        }
    }

    /// Whether the list is to be sealed by now (A2): once every warp has had its first phase, or with the last of n
    /// entries.
    pub(super) fn is_seal_due(&self) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.schedule.all_began_before(self.phase),
            AppendWindow::Open => self.list.len() == self.list.limit(),
        }
    }

    /// Seals the list when it is due (A2).
    pub(super) fn seal_if_due(&mut self, events: &mut Vec<Event>) {
        if self.sealed.is_some() || !self.is_seal_due() {
            return;
        }
        self.sealed = Some(self.phase);
        events.push(Event::Sealed { phase: self.phase, length: self.list.len() });
        for process in std::mem::take(&mut self.early_reports) {
            self.compare_report(process, events);
        }
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

    /// A process joins, unless it has; the first join starts the join timeout (F5).
    pub(super) fn join(&mut self, now: Time, process: ProcessId, events: &mut Vec<Event>) {
        if !self.members[process.index()].has_joined() {
            self.join_now(now, process, events);
        }
    }

    fn join_now(&mut self, now: Time, process: ProcessId, events: &mut Vec<Event>) {
        self.members[process.index()].join();
        self.joined += 1;
        push_event(events, || Event::Joined { process });
        if self.state == State::Gathering && self.join_deadline.is_none() {
            self.join_deadline = Some(self.drains_from(now.after(self.params.spec().join_timeout)));
        }
    }

    pub(super) fn all_have_joined(&self) -> bool {
        self.joined == self.params.processes()
    }

    /// Ends gathering: phase 1 may open, and a process that has not joined is not awaited (F5).
    fn end_gathering(&mut self, events: &mut Vec<Event>) {
        self.state = State::Running;
        self.join_deadline = None;
        events.push(Event::GatheringEnded { joined: self.joined });
        if !self.all_have_joined() {
            for process in ProcessId::all(self.params.processes()) {
                if !self.members[process.index()].has_joined() {
                    self.give_up_on(process, events);
                }
            }
        }
    }
}

// Patience (F3).
impl<S: PhaseOrder> Machine<S> {
    /// No access waits any more while a phase is open: the phase closes again without a step, and the patience that
    /// it has cost so far is spent (F4).
    fn stand_still(&mut self, now: Time, events: &mut Vec<Event>) {
        self.drain_missing(now, events);
        self.open_phase = None;
    }

    /// Takes the time for which the open phase, if there is one, has waited for its missing members off their patience.
    fn drain_missing(&mut self, now: Time, events: &mut Vec<Event>) {
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
            self.warps.lower_patience(self.params.warp_of(process), member.patience);
        }
    }

    /// The timer of an open phase fired: missing members whose patience is spent are not awaited any more.
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
        self.warps.set_patience(self.warp, least);
        if let Some(open_phase) = &mut self.open_phase {
            open_phase.wake = wake(open_phase.since, least_missing);
        }
    }

    /// The process is not awaited any more: its patience is spent, or it has not joined in time (F3, F5).
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
        self.warps.await_no_more(self.params.warp_of(process), missing);
        self.come_back(process);
    }
}

/// When the first patience of an open phase is spent; `None` if all is endless.
pub(super) fn wake(since: Time, patience: u64) -> Option<Time> {
    (patience != member::ENDLESS).then(|| since.after_nanos(patience))
}

// The time to reconnect after a restart (F3).
impl<S: PhaseOrder> Machine<S> {
    /// The server has restarted: no patience drains until all that are awaited have reconnected, or the time to
    /// reconnect is over (F3). A second restart begins it anew. More than a day counts as a day.
    pub fn restart(&mut self, now: Time, rejoin: Duration, events: &mut Vec<Event>) {
        self.take(now, events, |machine, now, events| {
            if !machine.has_ended() {
                let rejoin = rejoin.min(LONGEST_DURATION);
                events.push(Event::Restarted { rejoin });
                machine.drain_missing(now, events);
                machine.send_away(now.after(rejoin));
            }
        });
    }

    /// Every awaited member is away, and no patience drains before `until`.
    fn send_away(&mut self, until: Time) {
        let mut away = 0;
        for member in self.members.iter_mut().filter(|member| member.is_awaited()) {
            member.go_away();
            away += 1;
        }
        self.rejoin = (away > 0).then_some(Rejoin { until, away });
        self.join_deadline = self.join_deadline.map(|deadline| deadline.max(until));
        if self.rejoin.is_some() {
            self.drain_from(until);
        }
    }

    /// From when on the patience of members drains that are missing at `now`.
    pub(super) fn drains_from(&self, now: Time) -> Time {
        self.rejoin.map_or(now, |rejoin| rejoin.until.max(now))
    }

    /// The open phase counts as opened then.
    fn drain_from(&mut self, since: Time) {
        let least = self.warps[self.warp].least_patience;
        if let Some(open_phase) = &mut self.open_phase {
            (open_phase.since, open_phase.wake) = (since, wake(since, least));
        }
    }

    /// A member is heard of again, or not awaited any more. If it was the last one away, patience drains from now on.
    pub(super) fn come_back(&mut self, process: ProcessId) {
        let member = &mut self.members[process.index()];
        if !member.is_away() {
            return;
        }
        member.come_back();
        let Some(rejoin) = &mut self.rejoin else { return };
        rejoin.away -= 1;
        if rejoin.away > 0 {
            return;
        }
        self.rejoin = None;
        if self.open_phase.is_some_and(|open_phase| self.now < open_phase.since) {
            self.drain_from(self.now);
        }
    }

    /// No member is away any more: the instance is closed.
    pub(super) fn end_rejoin(&mut self) {
        if self.rejoin.take().is_some() {
            self.members.iter_mut().for_each(Member::come_back);
        }
    }
}
