//! Who may do what: hellos, accesses, decisions, the close (SPEC F5 to F8, F10).

use crate::access::{Access, Op, Refusal};
use crate::history::{Event, Offence, OffenceKind};
use crate::params::AppendWindow;
use crate::process::mode;
use crate::types::{AccessNumber, ProcessId, SessionId, Time, Value};

use super::kept::Known;
use super::member::{MemberStatus, Session};
use super::{Admission, MAX_SESSIONS, Machine, State, Welcome, note};

impl Machine {
    /// What a process may know of itself (F8e).
    ///
    /// # Panics
    /// If the parameters do not have this process.
    #[must_use]
    pub fn member(&self, process: ProcessId) -> MemberStatus {
        let (member, rare) = (&self.members[process.index()], &self.rare[process.index()]);
        MemberStatus {
            session: member.session.get(),
            next: member.next,
            waiting: member.queue(&self.queues).map(|(number, _, op)| (number, op)).collect(),
            append: rare.append.map(|phase| (phase, self.append_answer(process, phase))),
            decided: self.decision(process).cloned(),
        }
    }

    /// What a process decided, if it has.
    pub(super) fn decision(&self, process: ProcessId) -> Option<&Value> {
        let left = self.members[process.index()].has_left();
        left.then(|| &self.decisions[self.rare[process.index()].decision as usize])
    }

    /// A process opens a session, which replaces its older one (F8e, F8f).
    pub(super) fn open_session(
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
        let member = &mut self.members[process.index()];
        member.session = Session::new(Some(session));
        member.forget_refusal();
        note(events, || Event::Session { process, session, incarnation });
        let MemberStatus { next, waiting, append, decided, .. } = self.member(process);
        Ok(Welcome { session, next, waiting, append, decided })
    }

    /// A process joins, unless it has; the first join starts the join timeout (F5).
    fn join(&mut self, now: Time, process: ProcessId, events: &mut Vec<Event>) {
        if !self.members[process.index()].has_joined() {
            self.join_now(now, process, events);
        }
    }

    fn join_now(&mut self, now: Time, process: ProcessId, events: &mut Vec<Event>) {
        self.members[process.index()].join();
        self.joined += 1;
        note(events, || Event::Joined { process });
        if self.state == State::Gathering && self.join_deadline.is_none() {
            self.join_deadline = Some(now.after(self.params.spec().join_timeout));
        }
    }

    /// Whether an access is what a correct process sends: the next one, while phases come. It is admitted without
    /// further questions; [`Machine::admit`] would find the same.
    pub(super) fn is_plain(&self, access: &Access) -> bool {
        let member = &self.members[access.process.index()];
        access.number == member.next
            && (access.session.is_none() || access.session == member.session.get())
            && matches!(self.state, State::Gathering | State::Running)
            && !member.has_left()
            && u32::from(member.waiting()) < self.params.spec().pipeline
            && !access.no_wait
    }

    /// Accepts an access, or says what became of it before, or refuses it (F8).
    pub(super) fn admit_or_refuse(
        &mut self,
        now: Time,
        access: &Access,
        events: &mut Vec<Event>,
    ) -> Result<Admission, Refusal> {
        let (process, session, number) = (access.process, access.session, access.number);
        match self.admit(now, access, events) {
            Ok(Admission::Accepted) => {
                self.accept(now, access, events);
                Ok(Admission::Accepted)
            }
            Ok(admission) => Ok(admission),
            Err(refusal) => {
                // Neither a unary call nor an older session is the stream that counts.
                let member = &mut self.members[process.index()];
                if session.is_some() && session == member.session.get() {
                    member.note_refusal();
                }
                Err(self.refuse(process, Some(number), refusal, events))
            }
        }
    }

    /// Whether an access may be accepted, or what became of it before.
    fn admit(&mut self, now: Time, access: &Access, events: &mut Vec<Event>) -> Result<Admission, Refusal> {
        let member = &self.members[access.process.index()];
        if let Some(given) = access.session
            && member.session.get() != Some(given)
        {
            return Err(Refusal::OlderSession { given, current: member.session.get() });
        }
        if access.number < member.next {
            match self.known(access.process, access.number, &access.op) {
                Known::Waiting => return Ok(Admission::AlreadyWaiting),
                Known::Answered(phase, answer) => {
                    return Ok(Admission::AnsweredBefore { phase, answer });
                }
                Known::Other(_) | Known::Forgotten => {}
            }
        }
        // Outside phases numbers mean nothing any more: nothing is accepted, so nothing can be repeated.
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

    /// A new access bears the next number. Any other is refused; what is more than an old duplicate is also
    /// an offence (F8c, F8d).
    #[cold]
    fn out_of_order(&mut self, access: &Access, events: &mut Vec<Event>) -> Refusal {
        let Access { process, session, number, ref op, .. } = *access;
        let member = &self.members[process.index()];
        let (expected, was_refused) = (member.next, member.was_refused());
        if number > expected {
            if session.is_some() && !was_refused {
                let detail = format!("access number {number} skips ahead of {expected}");
                self.accuse(process, OffenceKind::Malformed, Some(number), detail, events);
            }
            return Refusal::OutOfOrder { given: number, expected };
        }
        match self.known(process, number, op) {
            Known::Other(first) => {
                if session.is_some() && first.get() == session {
                    let detail = format!("access {number} was another one first; now {}", describe(op));
                    self.accuse(process, OffenceKind::OtherContent, Some(number), detail, events);
                }
                Refusal::OtherContent(number)
            }
            _ => Refusal::OutOfOrder { given: number, expected },
        }
    }

    /// With `no_wait`, the process's phase must be open, or open with this very access (F7).
    fn check_turn(&mut self, now: Time, process: ProcessId) -> Result<(), Refusal> {
        let warp = self.params.warp_of(process);
        let member = &self.members[process.index()];
        let free = member.waiting() == 0;
        let gathered = match self.state {
            State::Gathering => self.joined + u32::from(!member.has_joined()) == self.params.processes(),
            State::Running | State::Finished | State::Closed => true,
        };
        if !gathered {
            let next = self.calendar.next_phase_of(warp, self.phase);
            return Err(Refusal::NotYourPhase { current: None, next });
        }
        let opens = match self.hold {
            Some(_) => self.phase,
            None => self.next_live_phase(Some(warp)),
        };
        let at_once = self.hold.is_some() || now >= self.opens_at();
        if free && at_once && self.calendar.warp_of(opens) == warp {
            return Ok(());
        }
        let next = self.calendar.next_phase_of(warp, opens);
        Err(Refusal::NotYourPhase { current: Some(opens), next })
    }

    /// An access is accepted: it stays until its phase, whatever becomes of its caller (F8a).
    pub(super) fn accept(&mut self, now: Time, access: &Access, events: &mut Vec<Event>) {
        let Access { process, session, number, ref op, .. } = *access;
        self.join(now, process, events);
        // Written field by field: an operation copied as a whole would wait for the last copy to reach memory.
        match op {
            Op::Read { start } => {
                let start = *start;
                note(events, || Event::Accepted { process, number, session, op: Op::Read { start } });
            }
            Op::Append(value) => {
                let value = value.clone();
                note(events, || Event::Accepted { process, number, session, op: Op::Append(value) });
                if number > AccessNumber::FIRST {
                    let detail = format!("append with access number {number}: {}", describe(op));
                    self.accuse(process, OffenceKind::LateAppend, Some(number), detail, events);
                }
            }
        }
        let member = &mut self.members[process.index()];
        let was_missing = member.is_missing();
        if session.is_some() {
            member.forget_refusal();
        }
        member.push(&mut self.queues, session, op, self.accepted);
        let first = member.waiting() == 1;
        self.accepted += 1;
        if first {
            self.note_ready(now, process, was_missing, matches!(op, Op::Append(_)), events);
        }
    }

    /// A member that had nothing waiting has something now.
    fn note_ready(
        &mut self,
        now: Time,
        process: ProcessId,
        was_missing: bool,
        appends: bool,
        events: &mut Vec<Event>,
    ) {
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        self.lines.push(&self.params, warp, tally, process);
        tally.ready += 1;
        tally.appends |= appends;
        tally.missing -= u32::from(was_missing);
        if tally.is_live() && tally.awaited == 0 && tally.ready == 1 {
            self.live.insert(warp);
        }
        self.ready += 1;
        if let (true, Some(hold)) = (was_missing && warp == self.warp, self.hold) {
            self.drain(process, now.nanos_since(hold.since), events);
        }
    }

    /// A process reports its decision and leaves (F10, D3).
    pub(super) fn leave(
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
            let detail = format!("decided {} first, now {}", brief(first), brief(&value));
            self.accuse(process, OffenceKind::SecondDecision, None, detail, events);
            return Err(self.refuse(process, None, Refusal::OtherDecision, events));
        }
        if self.state == State::Closed {
            return Err(self.refuse(process, None, Refusal::Closed, events));
        }
        self.join(now, process, events);
        let report = value.clone();
        note(events, || Event::Decided { process, value: report });
        let missing = self.members[process.index()].is_missing();
        let awaited = self.members[process.index()].is_awaited();
        self.withdraw(process, events);
        self.members[process.index()].leave();
        self.rare[process.index()].decision = self.left();
        self.decisions.push(value);
        if awaited {
            self.await_no_more(process, missing);
        }
        if self.sealed() {
            self.compare_report(process, events);
        } else if self.params.spec().append_window == AppendWindow::FirstAccess {
            self.early_reports.push(process);
        }
        if self.left() == self.params.processes() {
            self.state = State::Finished;
            self.hold = None;
            events.push(Event::Finished);
        }
        Ok(())
    }

    /// How many have left.
    fn left(&self) -> u32 {
        u32::try_from(self.decisions.len()).unwrap_or(u32::MAX)
    }

    /// Takes back what waits of a process that leaves, or of everybody at the close (F10).
    fn withdraw(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if member.waiting() == 0 {
            return;
        }
        self.rare[process.index()].withdrawn = member.waiting();
        while let Some(taken) = member.pop(&mut self.queues) {
            taken.drop(&mut self.queues);
            events.push(Event::Withdrawn { process, number: taken.number });
        }
        self.ready -= 1;
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        tally.ready -= 1;
        if tally.ready == 0 {
            tally.lined_up = 0;
        }
        self.note_life_of(warp);
    }

    /// Closes the instance: everything that waits is withdrawn (F10).
    pub(super) fn withdraw_all(&mut self, events: &mut Vec<Event>) {
        if self.state == State::Closed {
            return;
        }
        for process in ProcessId::all(self.params.processes()) {
            self.withdraw(process, events);
        }
        self.state = State::Closed;
        self.hold = None;
        events.push(Event::Closed);
    }

    /// Compares a reported decision with the mode of the sealed list (D3). Under `open` different
    /// decisions can be honest (SPEC section 9), so nothing is compared.
    pub(super) fn compare_report(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        if self.params.spec().append_window != AppendWindow::FirstAccess {
            return;
        }
        let Self { list, sealed_mode, .. } = self;
        sealed_mode.get_or_insert_with(|| mode(list.iter().map(|entry| &entry.value)).cloned());
        let mode = self.sealed_mode.as_ref().and_then(Option::as_ref);
        let report = self.decision(process);
        if report != mode {
            let say = |value: Option<&Value>| value.map_or("nothing".to_owned(), brief);
            let detail = format!("reports {}, the sealed list decides {}", say(report), say(mode));
            self.accuse(process, OffenceKind::FalseDecision, None, detail, events);
        }
    }

    /// Records a refusal and hands it on.
    fn refuse(
        &mut self,
        process: ProcessId,
        number: Option<AccessNumber>,
        refusal: Refusal,
        events: &mut Vec<Event>,
    ) -> Refusal {
        if self.offences.record_refusal(process) {
            events.push(Event::Refused { process, number, why: refusal.to_string() });
        }
        refusal
    }

    fn accuse(
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
    pub(super) fn file(&mut self, offence: Offence, events: &mut Vec<Event>) {
        let phase = (self.state != State::Gathering).then_some(self.phase);
        self.offences.file(Offence { phase, ..offence }, events);
    }
}

fn describe(op: &Op) -> String {
    match op {
        Op::Append(value) => format!("append {}", brief(value)),
        Op::Read { start } => format!("read from {start}"),
    }
}

/// A value as it is quoted in an offence: the record of misbehaviour must not grow with what the misbehaving
/// send.
fn brief(value: &Value) -> String {
    const LONGEST: usize = 64;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], value.as_bytes().len()),
    }
}
