//! Which accesses are accepted, answered at once, or refused (SPEC F7, F8, F10).

use crate::access::{Access, Op, Refusal};
use crate::history::{Event, Offence, OffenceKind};
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, Time};

use super::events::push_event;
use super::input::Admission;
use super::offences::describe;
use super::repeated_access::Lookup;
use super::state::{Machine, State};

impl<S: PhaseOrder> Machine<S> {
    /// Whether an access is one that a correct process sends: the next one, while phases come. It is admitted without
    /// further checks; [`Machine::admit`] would come to the same.
    pub(super) fn is_plain(&self, access: &Access) -> bool {
        let member = &self.members[access.process.index()];
        access.number == member.next
            && (access.session.is_none() || access.session == member.session.get())
            && matches!(self.state, State::Gathering | State::Running)
            && member.is_here()
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
            let kind = OffenceKind::QuotaExceeded;
            self.file(
                Offence { process: access.process, kind, number: Some(access.number), phase: None, detail },
                events,
            );
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
                let kind = OffenceKind::Malformed;
                self.file(Offence { process, kind, number: Some(number), phase: None, detail }, events);
            }
            return Refusal::OutOfOrder { given: number, expected };
        }
        match self.look_up(process, number, op) {
            Lookup::OtherContent(first) => {
                if session.is_some() && first.get() == session {
                    let detail = format!("access {number} was another one first; now {}", describe(op));
                    let kind = OffenceKind::OtherContent;
                    self.file(Offence { process, kind, number: Some(number), phase: None, detail }, events);
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
        self.pace == 0 && before.all(|phase| self.warps[self.schedule.warp_of(phase).index()].missing == 0)
    }

    /// An access is accepted: it stays until its phase, even if its caller goes away (F8a).
    pub(super) fn accept(&mut self, now: Time, access: &Access, events: &mut Vec<Event>) {
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
                    let kind = OffenceKind::LateAppend;
                    self.file(Offence { process, kind, number: Some(number), phase: None, detail }, events);
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
            self.add_ready(now, process, was_missing, matches!(op, Op::Append(_)), events);
        }
    }

    /// A member without a waiting access has one now.
    fn add_ready(
        &mut self,
        now: Time,
        process: ProcessId,
        was_missing: bool,
        appends: bool,
        events: &mut Vec<Event>,
    ) {
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        self.ready_queues.push(&self.params, warp, tally, process);
        tally.ready += 1;
        tally.appends |= appends;
        tally.missing -= u32::from(was_missing);
        if tally.is_live() && tally.awaited == 0 && tally.ready == 1 {
            self.live.insert(warp);
        }
        self.ready += 1;
        if let (true, Some(open_phase)) = (was_missing && warp == self.warp, self.open_phase)
            && let Some(held) = open_phase.held(now)
        {
            self.drain(process, held, events);
        }
    }
}
