//! Gathering, before phase 1: processes join until all have, or until the join timeout (SPEC F5).

use crate::history::Event;
use crate::scheduler::PhaseOrder;
use crate::types::{ProcessId, Time};

use super::events::push_event;
use super::state::{Machine, State};

impl<S: PhaseOrder> Machine<S> {
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
    pub(super) fn end_gathering(&mut self, events: &mut Vec<Event>) {
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
