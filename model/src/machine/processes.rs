//! The inputs of processes and of the creator: accesses, and which of them are accepted, answered at once or
//! refused (SPEC F7, F8); sessions (F8e, F8f); decisions and the close (F10, D3). An accepted access goes on
//! in `phases`, and so does a process that joins.

use crate::access::{Access, Answer, AppendAnswer, Op, ReadAnswer, Refusal};
use crate::history::{Event, Offence, OffenceKind, push_event};
use crate::params::AppendWindow;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value};

use super::answer_cache::CachedAnswer;
use super::input::{Admission, Welcome};
use super::member::MemberStatus;
use super::offences::{brief_value, describe};
use super::queues::{MAX_SESSIONS, OptionalSession};
use super::{Machine, State};

// The steps that all inputs have in common.
impl<S: PhaseOrder> Machine<S> {
    /// Files an offence of a message that the server refused before it reached the machine (B2), under the
    /// phase that is open or next.
    ///
    /// # Panics
    /// If the parameters do not have the offence's process.
    pub fn file_offence(&mut self, now: Time, offence: Offence, events: &mut Vec<Event>) {
        self.take(now, events, |machine, _, events| {
            // The server has refused an access, so the later accesses on its stream are out of order through
            // no fault of the process (F8d). If it came by a unary call, this excuses more than it must.
            if offence.number.is_some() {
                machine.changed |= machine.members[offence.process].mark_refused();
            }
            machine.file(offence, events);
        });
    }

    /// All that is due at `now` or was due before happens. See [`Machine::deadline`].
    pub fn tick(&mut self, now: Time, events: &mut Vec<Event>) {
        let before = events.len();
        let now = self.catch_up(now, true, events);
        self.settle(now, before, events);
    }

    /// Takes an input: all that was due before it happens first, then the input, then all that follows from
    /// it. Returns what its sender is answered at once.
    pub(super) fn take<R>(
        &mut self,
        now: Time,
        events: &mut Vec<Event>,
        input: impl FnOnce(&mut Self, Time, &mut Vec<Event>) -> R,
    ) -> R {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        let answer = input(self, now, events);
        self.settle(now, before, events);
        answer
    }

    /// All that was due before `now` happens; with `inclusive` also all that is due exactly then. Returns the
    /// moment of the input, which is never earlier than that of the one before.
    pub(super) fn catch_up(&mut self, now: Time, inclusive: bool, events: &mut Vec<Event>) -> Time {
        let now = now.max(self.now);
        self.now = now;
        self.let_time_pass(now, inclusive, events);
        now
    }

    /// All that follows from an input happens. `before` is how many events there were when it came.
    pub(super) fn settle(&mut self, now: Time, before: usize, events: &mut Vec<Event>) {
        self.advance(now, events);
        self.changed |= events.len() > before;
    }

    /// Counts a refusal, records it while the bound allows, and returns it.
    pub(super) fn refuse(
        &mut self,
        process: ProcessId,
        number: Option<AccessNumber>,
        refusal: Refusal,
        events: &mut Vec<Event>,
    ) -> Refusal {
        if self.offences.count_refusal(process) {
            events.push(Event::Refused { process, number, why: refusal.to_string() });
        }
        refusal
    }

    /// Files an offence of a process, perhaps of its access with this number (B2).
    pub(super) fn accuse(
        &mut self,
        process: ProcessId,
        kind: OffenceKind,
        number: Option<AccessNumber>,
        detail: String,
        events: &mut Vec<Event>,
    ) {
        self.file(Offence { process, kind, number, phase: None, detail }, events);
    }

    /// Files an offence under the phase that is open or next.
    fn file(&mut self, offence: Offence, events: &mut Vec<Event>) {
        let phase = (self.state != State::Gathering).then_some(self.phases.phase());
        self.offences.file(Offence { phase, ..offence }, events);
    }
}

// Accesses.
impl<S: PhaseOrder> Machine<S> {
    /// A process sends an access (F8).
    ///
    /// # Errors
    /// Why the access is refused; it has then changed nothing but the record of refusals and offences.
    ///
    /// # Panics
    /// If the parameters do not have the access's process.
    #[expect(clippy::needless_pass_by_value, reason = "like every input, an access is handed over")]
    pub fn access(
        &mut self,
        now: Time,
        access: Access,
        events: &mut Vec<Event>,
    ) -> Result<Admission, Refusal> {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        // Nearly all accesses take this short way.
        if self.is_plain(&access) {
            self.accept(now, &access, events);
            self.advance(now, events);
            self.changed = true;
            return Ok(Admission::Accepted);
        }
        let admission = self.admit_or_refuse(now, &access, events);
        self.settle(now, before, events);
        admission
    }

    /// Whether an access is one that a correct process sends: the next one, while phases come. It is admitted
    /// without further checks; [`Machine::admit`] would come to the same.
    fn is_plain(&self, access: &Access) -> bool {
        let member = &self.members[access.process];
        access.number == member.next
            && (access.session.is_none() || access.session == member.session.get())
            && matches!(self.state, State::Gathering | State::Running)
            && member.is_here()
            && u32::from(member.waiting()) < self.params.spec().pipeline
            && !access.no_wait
    }

    /// An access is accepted: it stays until its phase, even if its caller goes away (F8a).
    fn accept(&mut self, now: Time, access: &Access, events: &mut Vec<Event>) {
        let Access { process, session, number, ref op, .. } = *access;
        self.join(now, process, events);
        // Written field by field: the copy of a whole operation would wait for the copy before it to reach
        // memory.
        match op {
            Op::Read { start } => {
                let start = *start;
                push_event(events, || Event::Accepted { process, number, session, op: Op::Read { start } });
            }
            Op::Append(value) => {
                let appended = value.clone();
                push_event(events, || Event::Accepted { process, number, session, op: Op::Append(appended) });
                if self.members.is_to_check(number)
                    && let Some(detail) = self.members.check_append(process, number, value)
                {
                    self.accuse(process, OffenceKind::LateAppend, Some(number), detail, events);
                }
            }
        }
        let (was_missing, first) = self.members.push(process, session, op, self.accepted);
        self.accepted += 1;
        if first {
            let warp = self.params.warp_of(process);
            self.warps.add_ready(warp, process, was_missing, matches!(op, Op::Append(_)));
            if was_missing
                && warp == self.phases.warp()
                && let Some(held) = self.open_phase.and_then(|open_phase| open_phase.held(now))
            {
                self.drain(process, held, events);
            }
        }
    }

    /// Accepts an access, or says what became of it before, or refuses it (F8).
    fn admit_or_refuse(
        &mut self,
        now: Time,
        access: &Access,
        events: &mut Vec<Event>,
    ) -> Result<Admission, Refusal> {
        let (process, session, number) = (access.process, access.session, access.number);
        match self.admit(now, access, events) {
            Ok(Admission::Accepted) => {
                self.come_back(process);
                self.accept(now, access, events);
                Ok(Admission::Accepted)
            }
            Ok(admission) => {
                if self.members[process].is_away() {
                    events.push(Event::Rejoined { process });
                    self.come_back(process);
                }
                Ok(admission)
            }
            Err(refusal) => {
                // Only a refusal on the current session excuses later accesses (F8d).
                let member = &mut self.members[process];
                if session.is_some() && session == member.session.get() {
                    self.changed |= member.mark_refused();
                }
                Err(self.refuse(process, Some(number), refusal, events))
            }
        }
    }

    /// Whether an access may be accepted, or what became of it before.
    fn admit(&mut self, now: Time, access: &Access, events: &mut Vec<Event>) -> Result<Admission, Refusal> {
        let member = &self.members[access.process];
        if let Some(given) = access.session
            && member.session.get() != Some(given)
        {
            return Err(Refusal::OlderSession { given, current: member.session.get() });
        }
        if access.number < member.next {
            match self.look_up(access.process, access.number, &access.op) {
                Lookup::Waiting => return Ok(Admission::AlreadyWaiting),
                Lookup::Answered(phase, answer) => {
                    return Ok(Admission::AnsweredBefore { phase, answer });
                }
                Lookup::OtherContent(_) | Lookup::Forgotten => {}
            }
        }
        // Outside phases the number does not matter: no access is accepted any more.
        if let (State::Finished | State::Closed, Op::Read { start }) = (self.state, &access.op) {
            let read = self.read(*start, self.list.len(), self.sealed());
            return Ok(Admission::ReadOutsidePhases(read));
        }
        if self.state == State::Closed {
            return Err(Refusal::Closed);
        }
        if member.has_left() {
            return Err(Refusal::Left);
        }
        if access.number != member.next {
            return Err(self.out_of_order(access, events));
        }
        let limit = self.params.spec().pipeline;
        if u32::from(member.waiting()) >= limit {
            let detail = format!("more than {limit} accesses waiting");
            self.accuse(access.process, OffenceKind::QuotaExceeded, Some(access.number), detail, events);
            return Err(Refusal::TooManyWaiting(limit));
        }
        if access.no_wait {
            self.check_turn(now, access.process)?;
        }
        Ok(Admission::Accepted)
    }

    /// A new access must bear the next number. Any other number is refused; unless it is an old duplicate or
    /// excused, that is also an offence (F8c, F8d).
    #[cold]
    fn out_of_order(&mut self, access: &Access, events: &mut Vec<Event>) -> Refusal {
        let Access { process, session, number, ref op, .. } = *access;
        let member = &self.members[process];
        let (expected, was_refused) = (member.next, member.was_refused());
        if number > expected {
            if session.is_some() && !was_refused {
                let detail = format!("access number {number} skips ahead of {expected}");
                self.accuse(process, OffenceKind::Malformed, Some(number), detail, events);
            }
            return Refusal::OutOfOrder { given: number, expected };
        }
        match self.look_up(process, number, op) {
            Lookup::OtherContent(first) => {
                if session.is_some() && first.get() == session {
                    let detail = format!("access {number} was another one first; now {}", describe(op));
                    self.accuse(process, OffenceKind::OtherContent, Some(number), detail, events);
                }
                Refusal::OtherContent(number)
            }
            _ => Refusal::OutOfOrder { given: number, expected },
        }
    }

    /// The fate of a number of this process below its next (F8b to F8d).
    #[cold]
    fn look_up(&self, process: ProcessId, number: AccessNumber, op: &Op) -> Lookup {
        if let Some((_, session, first)) =
            self.members.queue(process).find(|(waiting, ..)| *waiting == number)
        {
            return if first == *op { Lookup::Waiting } else { Lookup::OtherContent(session) };
        }
        match self.members.kept_answer(process, number) {
            Some(cached) if cached.answers(op) => {
                Lookup::Answered(cached.phase, self.answer_from(process, cached))
            }
            Some(cached) => Lookup::OtherContent(cached.session),
            None => Lookup::Forgotten,
        }
    }

    /// The entries from `start` on as a read of a list of this length returns them (R1).
    pub(super) fn read(&self, start: Position, length: u32, sealed: bool) -> ReadAnswer {
        let count = length.saturating_sub(start.get()).min(self.params.read_size());
        ReadAnswer { start, count, length, sealed }
    }

    /// The whole answer that follows from what is kept of it.
    pub(super) fn answer_from(&self, process: ProcessId, cached: CachedAnswer) -> Answer {
        if cached.append {
            return Answer::Append(self.append_answer(process, cached.phase));
        }
        let sealed = self.list.is_sealed_at(cached.phase);
        Answer::Read(self.read(Position::new(cached.content), self.list.length_at(cached.phase), sealed))
    }

    /// The answer of an append of this process in this phase.
    pub(super) fn append_answer(&self, process: ProcessId, phase: Phase) -> AppendAnswer {
        let length = self.list.length_at(phase);
        if !self.phases.window_is_open(phase, length == self.list.limit()) {
            return AppendAnswer::LimitReached;
        }
        let position = Position::new(length);
        match self.list.get(position) {
            Some(entry) if entry.phase == phase && entry.process == process => {
                AppendAnswer::Success(position)
            }
            _ => AppendAnswer::Failed,
        }
    }
}

/// An access number that was used before, compared with the access that bears it now.
enum Lookup {
    /// The same access waits.
    Waiting,
    /// The same access was executed.
    Answered(Phase, Answer),
    /// Another access had this number, on this session (none: a unary call).
    OtherContent(OptionalSession),
    /// The access was withdrawn, or its answer is not kept any more.
    Forgotten,
}

// Sessions, decisions and the close.
impl<S: PhaseOrder> Machine<S> {
    /// A process opens a session, which replaces its older one (F8e, F8f).
    ///
    /// # Errors
    /// If the process has opened [`MAX_SESSIONS`].
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
        self.take(now, events, |machine, now, events| {
            let session = machine.session(process).map_or(SessionId::FIRST, SessionId::next);
            if session.get() > MAX_SESSIONS {
                return Err(machine.refuse(process, None, Refusal::TooManySessions(MAX_SESSIONS), events));
            }
            machine.join(now, process, events);
            machine.come_back(process);
            let member = &mut machine.members[process];
            member.session = OptionalSession::new(Some(session));
            member.clear_refused();
            push_event(events, || Event::Session { process, session, incarnation });
            let MemberStatus { next, waiting, append, decided, .. } = machine.member(process);
            Ok(Welcome { session, next, waiting, append, decided })
        })
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
        if let Some(first) = self.members.decision(process) {
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
        let missing = self.members[process].is_missing();
        let awaited = self.members[process].is_awaited();
        self.withdraw(process, events);
        self.members.leave(process, value);
        if awaited {
            self.await_no_more(process, missing);
        }
        if self.sealed() {
            self.compare_report(process, events);
        } else if self.params.spec().append_window == AppendWindow::FirstAccess {
            self.members.report_early(process);
        }
        if self.members.decided() == self.params.processes() {
            self.state = State::Finished;
            self.open_phase = None;
            events.push(Event::Finished);
        }
        Ok(())
    }

    /// Compares a reported decision with the mode of the sealed list (D3). Under `open` correct processes can
    /// decide differently (SPEC section 9), so nothing is compared.
    pub(super) fn compare_report(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        if self.params.spec().append_window != AppendWindow::FirstAccess {
            return;
        }
        let mode = self.list.mode();
        let report = self.members.decision(process);
        if report != mode {
            let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), brief_value);
            let detail = format!("reports {}, the sealed list decides {}", say(report), say(mode));
            self.accuse(process, OffenceKind::FalseDecision, None, detail, events);
        }
    }

    /// The creator closes the instance; everything that waits is withdrawn (F10).
    pub fn close(&mut self, now: Time, events: &mut Vec<Event>) {
        self.take(now, events, |machine, _, events| {
            if machine.state == State::Closed {
                return;
            }
            for process in ProcessId::all(machine.params.processes()) {
                machine.withdraw(process, events);
            }
            machine.state = State::Closed;
            machine.open_phase = None;
            machine.end_rejoin();
            events.push(Event::Closed);
        });
    }

    /// Withdraws the waiting accesses of a process that leaves, or of each process at the close (F10).
    fn withdraw(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        if self.members[process].waiting() == 0 {
            return;
        }
        let numbers = self.members.withdraw(process);
        events.extend(numbers.map(|number| Event::Withdrawn { process, number }));
        self.warps.withdraw(self.params.warp_of(process));
    }
}
