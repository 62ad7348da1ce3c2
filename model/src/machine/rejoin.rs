//! The time after a restart of the server, in which processes reconnect and no patience drains (SPEC F3).
//!
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
//! # What the history shows
//! [`Event::Restarted`], and how each member came back: mostly by an event of its own ([`Event::Session`],
//! [`Event::Accepted`], [`Event::Decided`]). An access that is sent again has none, so a member that came back with
//! one is recorded as [`Event::Rejoined`].

use std::time::Duration;

use crate::history::Event;
use crate::params::LONGEST_DURATION;
use crate::scheduler::PhaseOrder;
use crate::types::{ProcessId, Time};

use super::patience::wake;
use super::state::{Machine, Rejoin, State};

impl<S: PhaseOrder> Machine<S> {
    /// The server has restarted: no patience drains until all that are awaited have reconnected, or the time to
    /// reconnect is over (F3). A second restart begins it anew. More than a day counts as a day.
    pub fn restart(&mut self, now: Time, rejoin: Duration, events: &mut Vec<Event>) {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        if matches!(self.state, State::Gathering | State::Running) {
            let rejoin = rejoin.min(LONGEST_DURATION);
            events.push(Event::Restarted { rejoin });
            self.drain_missing(now, events);
            self.send_away(now.after(rejoin));
        }
        self.settle(now, before, events);
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
        let least = self.warps[self.warp.index()].least_patience;
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
            self.members.iter_mut().for_each(super::member::Member::come_back);
        }
    }
}
