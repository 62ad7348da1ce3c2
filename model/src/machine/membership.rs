//! How processes open sessions and leave, and how the creator closes the instance (SPEC F8e, F8f, F10, D3). How they join is
//! part of `phases`.

use crate::access::Refusal;
use crate::history::{Event, OffenceKind, push_event};
use crate::params::AppendWindow;
use crate::process::mode;
use crate::scheduler::PhaseOrder;
use crate::types::{ProcessId, SessionId, Time, Value};

use super::input::Welcome;
use super::member::MemberStatus;
use super::offences::brief_value;
use super::queues::{MAX_SESSIONS, OptionalSession};
use super::state::{Machine, State};

impl<S: PhaseOrder> Machine<S> {
    /// The state of one process, as the machine tells it to that process (F8e).
    ///
    /// # Panics
    /// If the parameters do not have this process.
    #[must_use]
    pub fn member(&self, process: ProcessId) -> MemberStatus {
        let (member, cold) = (&self.members[process.index()], &self.cold_members[process.index()]);
        MemberStatus {
            session: member.session.get(),
            next: member.next,
            waiting: member.queue(&self.queues).map(|(number, _, op)| (number, op)).collect(),
            append: cold.append.map(|phase| (phase, self.append_answer(process, phase))),
            decided: self.decision(process).cloned(),
        }
    }

    /// Accesses of all processes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.members.iter().map(|member| usize::from(member.waiting())).sum()
    }

    /// The newest session of a process; `None` before its first.
    ///
    /// # Panics
    /// If the parameters do not have this process.
    #[must_use]
    pub fn session(&self, process: ProcessId) -> Option<SessionId> {
        self.members[process.index()].session.get()
    }

    /// The decision of a process, if it has decided.
    pub(super) fn decision(&self, process: ProcessId) -> Option<&Value> {
        let left = self.members[process.index()].has_left();
        left.then(|| &self.decisions[self.cold_members[process.index()].decision as usize])
    }

    /// A process opens a session, which replaces its older one (F8e, F8f).
    ///
    /// # Errors
    /// If the process has opened [`MAX_SESSIONS`](super::MAX_SESSIONS).
    ///
    /// # Panics
    /// If the parameters do not have this process.
    pub fn hello(
        &mut self,
        now: Time,
        process: ProcessId,
        incarnation: u64,
        events: &mut Vec<Event>,
    ) -> Result<Welcome, Refusal> {
        self.take(now, events, |machine, now, events| machine.open_session(now, process, incarnation, events))
    }

    fn open_session(
        &mut self,
        now: Time,
        process: ProcessId,
        incarnation: u64,
        events: &mut Vec<Event>,
    ) -> Result<Welcome, Refusal> {
        let member = &self.members[process.index()];
        let session = member.session.get().map_or(SessionId::FIRST, SessionId::next);
        if session.get() > MAX_SESSIONS {
            return Err(self.refuse(process, None, Refusal::TooManySessions(MAX_SESSIONS), events));
        }
        self.join(now, process, events);
        self.come_back(process);
        let member = &mut self.members[process.index()];
        member.session = OptionalSession::new(Some(session));
        member.clear_refused();
        push_event(events, || Event::Session { process, session, incarnation });
        let MemberStatus { next, waiting, append, decided, .. } = self.member(process);
        Ok(Welcome { session, next, waiting, append, decided })
    }

    /// A process reports its decision and leaves (F10, D3). The same decision again changes nothing.
    ///
    /// # Errors
    /// If the process decided on another value before, or the instance is closed.
    ///
    /// # Panics
    /// If the parameters do not have this process.
    pub fn decide(
        &mut self,
        now: Time,
        process: ProcessId,
        value: Value,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        self.take(now, events, |machine, now, events| machine.leave(now, process, value, events))
    }

    fn leave(
        &mut self,
        now: Time,
        process: ProcessId,
        value: Value,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        if let Some(first) = self.decision(process) {
            if *first == value {
                return Ok(());
            }
            let detail = format!("decided {} first, now {}", brief_value(first), brief_value(&value));
            self.accuse(process, OffenceKind::SecondDecision, None, detail, events);
            return Err(self.refuse(process, None, Refusal::OtherDecision, events));
        }
        if self.state == State::Closed {
            return Err(self.refuse(process, None, Refusal::Closed, events));
        }
        self.join(now, process, events);
        let report = value.clone();
        push_event(events, || Event::Decided { process, value: report });
        let missing = self.members[process.index()].is_missing();
        let awaited = self.members[process.index()].is_awaited();
        self.withdraw(process, events);
        self.members[process.index()].leave();
        self.cold_members[process.index()].decision = self.decided();
        self.decisions.push(value);
        if awaited {
            self.await_no_more(process, missing);
        }
        if self.sealed() {
            self.compare_report(process, events);
        } else if self.params.spec().append_window == AppendWindow::FirstAccess {
            self.early_reports.push(process);
        }
        if self.decided() == self.params.processes() {
            self.state = State::Finished;
            self.open_phase = None;
            events.push(Event::Finished);
        }
        Ok(())
    }

    /// Compares a reported decision with the mode of the sealed list (D3). Under `open` correct processes can decide
    /// differently (SPEC section 9), so nothing is compared.
    pub(super) fn compare_report(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        if self.params.spec().append_window != AppendWindow::FirstAccess {
            return;
        }
        let Self { list, sealed_mode, .. } = self;
        sealed_mode.get_or_insert_with(|| mode(list.iter().map(|entry| &entry.value)).cloned());
        let mode = self.sealed_mode.as_ref().and_then(Option::as_ref);
        let report = self.decision(process);
        if report != mode {
            let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), brief_value);
            let detail = format!("reports {}, the sealed list decides {}", say(report), say(mode));
            self.accuse(process, OffenceKind::FalseDecision, None, detail, events);
        }
    }

    /// The creator closes the instance; everything that waits is withdrawn (F10).
    pub fn close(&mut self, now: Time, events: &mut Vec<Event>) {
        self.take(now, events, |machine, _, events| machine.withdraw_all(events));
    }

    fn withdraw_all(&mut self, events: &mut Vec<Event>) {
        if self.state == State::Closed {
            return;
        }
        for process in ProcessId::all(self.params.processes()) {
            self.withdraw(process, events);
        }
        self.state = State::Closed;
        self.open_phase = None;
        self.end_rejoin();
        events.push(Event::Closed);
    }

    /// Withdraws the waiting accesses of a process that leaves, or of each process at the close (F10).
    fn withdraw(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if member.waiting() == 0 {
            return;
        }
        self.cold_members[process.index()].withdrawn = member.waiting();
        while let Some(taken) = member.pop(&mut self.queues) {
            taken.drop(&mut self.queues);
            events.push(Event::Withdrawn { process, number: taken.number });
        }
        self.warps.withdraw(self.params.warp_of(process));
    }
}
