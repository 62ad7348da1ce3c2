//! The way of an access into the machine: which accesses are accepted, answered at once, or refused (SPEC F7, F8, F10), and
//! what the machine knows of an access number that was used before (F8b to F8d). An accepted access goes on in `phases`.

use crate::access::{Access, Answer, AppendAnswer, Op, Refusal};
use crate::history::{Event, OffenceKind, push_event};
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time};

use super::answer_cache::CachedAnswer;
use super::input::Admission;
use super::member::Member;
use super::offences::describe;
use super::queues::OptionalSession;
use super::state::{Machine, State};

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

    /// Whether an access is one that a correct process sends: the next one, while phases come. It is admitted without
    /// further checks; [`Machine::admit`] would come to the same.
    fn is_plain(&self, access: &Access) -> bool {
        let member = &self.members[access.process.index()];
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
        // Written field by field: the copy of a whole operation would wait for the copy before it to reach memory.
        match op {
            Op::Read { start } => {
                let start = *start;
                push_event(events, || Event::Accepted { process, number, session, op: Op::Read { start } });
            }
            Op::Append(value) => {
                let value = value.clone();
                push_event(events, || Event::Accepted { process, number, session, op: Op::Append(value) });
                if number > AccessNumber::FIRST {
                    let detail = format!("append with access number {number}: {}", describe(op));
                    self.accuse(process, OffenceKind::LateAppend, Some(number), detail, events);
                }
            }
        }
        let member = &mut self.members[process.index()];
        let was_missing = member.is_missing();
        if session.is_some() {
            member.clear_refused();
        }
        member.push(&mut self.queues, session, op, self.accepted);
        let first = member.waiting() == 1;
        self.accepted += 1;
        if first {
            let warp = self.params.warp_of(process);
            self.warps.add_ready(warp, process, was_missing, matches!(op, Op::Append(_)));
            if was_missing
                && warp == self.warp
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
                if self.members[process.index()].is_away() {
                    events.push(Event::Rejoined { process });
                    self.come_back(process);
                }
                Ok(admission)
            }
            Err(refusal) => {
                // Only a refusal on the current session excuses later accesses (F8d).
                let member = &mut self.members[process.index()];
                if session.is_some() && session == member.session.get() {
                    self.changed |= member.mark_refused();
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

    /// A new access must bear the next number. Any other number is refused; unless it is an old duplicate or excused,
    /// that is also an offence (F8c, F8d).
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
            let next = self.schedule.next_phase_of(warp, self.phase);
            return Err(Refusal::NotYourPhase { current: None, next });
        }
        let opens = match self.open_phase {
            Some(_) => self.phase,
            None => self.next_live_phase(Some(warp)),
        };
        let at_once = self.open_phase.is_some() || now >= self.opens_at();
        if free && at_once && self.schedule.warp_of(opens) == warp {
            return Ok(());
        }
        let next = self.schedule.next_phase_of(warp, opens);
        if free && at_once && self.state == State::Gathering && self.all_pass_before(next) {
            return Ok(());
        }
        Err(Refusal::NotYourPhase { current: Some(opens), next })
    }

    /// Whether all phases before this one pass in the step with which the last process joins: each as soon as the one
    /// before it, because every awaited member of its warp has an access waiting.
    fn all_pass_before(&mut self, phase: Phase) -> bool {
        let mut before = (self.phase.get()..phase.get()).filter_map(Phase::new);
        self.pace == 0 && before.all(|phase| self.warps[self.schedule.warp_of(phase)].missing == 0)
    }

    /// The fate of a number of this process below its next (F8b to F8d).
    #[cold]
    fn look_up(&self, process: ProcessId, number: AccessNumber, op: &Op) -> Lookup {
        let member = &self.members[process.index()];
        if let Some((_, session, first)) = member.queue(&self.queues).find(|(waiting, ..)| *waiting == number)
        {
            return if first == *op { Lookup::Waiting } else { Lookup::OtherContent(session) };
        }
        match self.answers.get(process, number, self.executed(process, member)) {
            Some(cached) if cached.answers(op) => {
                Lookup::Answered(cached.phase, self.answer_from(process, cached))
            }
            Some(cached) => Lookup::OtherContent(cached.session),
            None => Lookup::Forgotten,
        }
    }

    /// The number of the last access of a process that was executed, 0 if none was: they are executed in order.
    pub(super) fn executed(&self, process: ProcessId, member: &Member) -> u64 {
        let not_executed =
            u64::from(member.waiting()) + u64::from(self.cold_members[process.index()].withdrawn);
        member.next.get() - 1 - not_executed
    }

    /// The numbers of the answers that are kept of a process whose last executed access is `last`.
    pub(super) fn cached_numbers(&self, last: u64) -> impl Iterator<Item = AccessNumber> + use<S> {
        let first = last.saturating_sub(self.params.spec().pipeline.into()) + 1;
        (first..=last).filter_map(AccessNumber::new)
    }

    /// The whole answer that follows from what is kept of it.
    pub(super) fn answer_from(&self, process: ProcessId, cached: CachedAnswer) -> Answer {
        if cached.append {
            return Answer::Append(self.append_answer(process, cached.phase));
        }
        let sealed = self.sealed.is_some_and(|since| since <= cached.phase);
        Answer::Read(self.read(Position::new(cached.content), self.length_at(cached.phase), sealed))
    }

    /// The answer of an append of this process in this phase.
    pub(super) fn append_answer(&self, process: ProcessId, phase: Phase) -> AppendAnswer {
        let length = self.length_at(phase);
        if !self.window_is_open(phase) || length == self.list.limit() {
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

    /// The length of the list when this phase began: each entry knows the phase that added it, and they are in order.
    fn length_at(&self, phase: Phase) -> u32 {
        let (mut low, mut high) = (0, self.list.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.list.get(Position::new(middle)) {
                Some(entry) if entry.phase < phase => low = middle + 1,
                _ => high = middle,
            }
        }
        low
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
