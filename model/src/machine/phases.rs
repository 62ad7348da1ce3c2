//! How phases come and are executed: gathering before the first (SPEC F5); pace and jumps (F4, F9); the step,
//! which executes a phase at once over the accesses that wait from its warp (F2, A1 to A5, R1); patience, the
//! time for which phases wait for a process, and its end (F3); and the time after a restart of the server, in
//! which none drains.
//!
//! # Restarts
//! A restart breaks every connection, so for a while each process is missing through no fault of its own.
//! From [`Machine::restart`] on every awaited member is *away*, until it is heard of again: by a hello, by an
//! access that is accepted or was accepted before, or by its decision. A member that is not awaited any more
//! is not away either. As long as a member is away, and at most for the time that the restart gives, no
//! patience drains: a phase that is open counts as opened when that time ends, and so does one that opens
//! meanwhile. Phases wait and are executed as usual (F2): only the price of waiting is off.
//!
//! While processes gather, all n are awaited and so away, and the join timeout does not end before the time
//! to reconnect does (F5): a process that could not connect during the outage must have its chance to join.
//!
//! An instance that is finished or closed has no phase and no patience (F10). A restart changes nothing
//! there, not even its history.
//!
//! ## What the history shows
//! [`Event::Restarted`], and how each member came back: mostly by an event of its own ([`Event::Session`],
//! [`Event::Accepted`], [`Event::Decided`]). An access that is sent again has none, so a member that came
//! back with one is recorded as [`Event::Rejoined`].

use std::time::Duration;

use crate::access::{Answer, AppendAnswer, Op, Refusal};
use crate::history::{Event, push_event};
use crate::params::LONGEST_DURATION;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time};

use super::answer_cache::CachedAnswer;
use super::competition::{self, CompetingAppend};
use super::member::{self, DueAccess, Member};
use super::phase_cursor::OpenPhase;
use super::queues::{OptionalSession, WaitingAccess};
use super::{Machine, State};

/// Members are away since a restart of the server (F3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejoin {
    /// Patience drains again from then on, also if a member is still away.
    pub(super) until: Time,
    /// How many members are away. Not 0.
    pub(super) away: u32,
}

/// The appends and the reads of a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct StepBuffers {
    appends: Vec<CompetingAppend>,
    reads: Vec<DueRead>,
}

/// A read of the phase.
#[derive(Clone, Copy, Debug)]
struct DueRead {
    process: ProcessId,
    number: AccessNumber,
    session: OptionalSession,
    start: Position,
}

impl DueRead {
    fn new(process: ProcessId, access: DueAccess) -> Self {
        let DueAccess { number, session, content, .. } = access;
        Self { process, number, session, start: Position::new(content) }
    }
}

/// The list when the phase began, as all its reads see it, before its appends (F2).
#[derive(Clone, Copy)]
struct PhaseStart {
    phase: Phase,
    length: u32,
    sealed: bool,
}

impl<S: PhaseOrder> Machine<S> {
    /// Opens, passes over and executes phases as long as anything may go on.
    pub(super) fn advance(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.state == State::Gathering && self.members.all_have_joined() {
            self.end_gathering(events);
        }
        if self.state != State::Running {
            return;
        }
        while self.warps.ready() > 0 {
            if self.open_phase.is_none() && !self.open(now, events) {
                return;
            }
            let warp = &self.warps[self.phases.warp()];
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
        // No access waits any more: an open phase closes again without a step, and the patience that it has
        // cost so far is spent (F4).
        self.drain_missing(now, events);
        self.open_phase = None;
    }

    /// Opens the next phase, unless the pace forbids it yet (F9); an access must be waiting somewhere. The
    /// dead phases before it pass now, at the moment when it may open, and not earlier (F4, F9): a warp in
    /// which an access has come meanwhile still has its phase.
    fn open(&mut self, now: Time, events: &mut Vec<Event>) -> bool {
        if now < self.opens_at() {
            return false;
        }
        let phase = self.phases.next_live(&self.warps, None);
        self.phases.go_to(phase);
        self.seal_if_due(events);
        let warp = &self.warps[self.phases.warp()];
        let since = self.drains_from(now);
        self.open_phase = Some(OpenPhase::new(since, warp.least_patience));
        self.changed = true;
        self.opened_phases = self.opened_phases.saturating_add(1);
        true
    }

    /// The earliest moment at which the next phase may open (F9).
    pub(super) fn opens_at(&self) -> Time {
        self.last_step.map_or(Time::ZERO, |step| step.after_nanos(self.pace))
    }

    /// With `no_wait`, the process's phase must be open, or open with this very access (F7).
    pub(super) fn check_turn(&mut self, now: Time, process: ProcessId) -> Result<(), Refusal> {
        let (warp, phase) = (self.params.warp_of(process), self.phases.phase());
        let member = &self.members[process];
        let free = member.waiting() == 0;
        let gathered = match self.state {
            State::Gathering => {
                self.members.joined() + u32::from(!member.has_joined()) == self.params.processes()
            }
            State::Running | State::Finished | State::Closed => true,
        };
        if !gathered {
            let next = self.phases.schedule.next_phase_of(warp, phase);
            return Err(Refusal::NotYourPhase { current: None, next });
        }
        let opens = match self.open_phase {
            Some(_) => phase,
            None => self.phases.next_live(&self.warps, Some(warp)),
        };
        let at_once = self.open_phase.is_some() || now >= self.opens_at();
        if free && at_once && self.phases.schedule.warp_of(opens) == warp {
            return Ok(());
        }
        let next = self.phases.schedule.next_phase_of(warp, opens);
        if free && at_once && self.state == State::Gathering && self.all_pass_before(next) {
            return Ok(());
        }
        Err(Refusal::NotYourPhase { current: Some(opens), next })
    }

    /// Whether all phases before this one pass in the step with which the last process joins: each as soon as
    /// the one before it, because every awaited member of its warp has an access waiting.
    fn all_pass_before(&mut self, phase: Phase) -> bool {
        let mut before = (self.phases.phase().get()..phase.get()).filter_map(Phase::new);
        self.pace == 0 && before.all(|phase| self.warps[self.phases.schedule.warp_of(phase)].missing == 0)
    }

    /// Seals the list when it is due (A2).
    pub(super) fn seal_if_due(&mut self, events: &mut Vec<Event>) {
        if self.sealed() || !self.phases.is_seal_due(self.list.is_full()) {
            return;
        }
        let phase = self.phases.phase();
        self.list.seal(phase);
        self.members.forget_first_appends();
        events.push(Event::Sealed { phase, length: self.list.len() });
        for process in self.members.take_early_reports() {
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
        if !self.members[process].has_joined() {
            self.join_now(now, process, events);
        }
    }

    fn join_now(&mut self, now: Time, process: ProcessId, events: &mut Vec<Event>) {
        self.members.join(process);
        push_event(events, || Event::Joined { process });
        if self.state == State::Gathering && self.join_deadline.is_none() {
            self.join_deadline = Some(self.drains_from(now.after(self.params.spec().join_timeout)));
        }
    }

    /// Ends gathering: phase 1 may open, and a process that has not joined is not awaited (F5).
    fn end_gathering(&mut self, events: &mut Vec<Event>) {
        self.state = State::Running;
        self.join_deadline = None;
        events.push(Event::GatheringEnded { joined: self.members.joined() });
        if !self.members.all_have_joined() {
            for process in ProcessId::all(self.params.processes()) {
                if !self.members[process].has_joined() {
                    self.give_up_on(process, events);
                }
            }
        }
    }
}

// The step.
impl<S: PhaseOrder> Machine<S> {
    /// Executes the open phase: every member of its warp with an access waiting has its first one executed.
    pub(super) fn step(&mut self, now: Time, events: &mut Vec<Event>) {
        let phase = self.phases.phase();
        let start = PhaseStart { phase, length: self.list.len(), sealed: self.sealed() };
        let warp = self.phases.warp();
        push_event(events, || Event::Stepped { phase, warp, length: start.length });
        events.reserve(self.warps[warp].ready as usize);
        if self.warps.take_appends(warp) {
            self.execute(start, events);
        } else {
            self.execute_reads(start, events);
        }

        self.open_phase = None;
        self.last_step = Some(now);
        self.phases.go_to(phase.next());
        self.seal_if_due(events);
    }

    /// A phase without appends: each read is answered as it is removed from its queue.
    fn execute_reads(&mut self, start: PhaseStart, events: &mut Vec<Event>) {
        self.pop_first_of_each(|machine, process, due| {
            machine.answer_read(DueRead::new(process, due), start, events);
        });
    }

    /// A phase with appends: they are answered first.
    fn execute(&mut self, start: PhaseStart, events: &mut Vec<Event>) {
        let mut step_buffers = std::mem::take(&mut self.step_buffers);
        let StepBuffers { appends, reads } = &mut step_buffers;
        let open = self.phases.window_is_open(start.phase, self.list.is_full());
        self.pop_first_of_each(|machine, process, due| {
            if !due.append {
                return reads.push(DueRead::new(process, due));
            }
            let WaitingAccess { op, session, accepted } = machine.members.take_append(due);
            if let Op::Append(value) = op {
                let (number, answer) = (due.number, AppendAnswer::LimitReached);
                let excluded = open && machine.members[process].is_excluded();
                appends.push(CompetingAppend { process, number, session, value, accepted, excluded, answer });
            }
        });
        self.compete(appends, open, events);
        for read in reads.drain(..) {
            self.answer_read(read, start, events);
        }
        self.step_buffers = step_buffers;
    }

    /// Removes the first waiting access of each member in the ready queue of the open phase's warp, in order.
    /// A member with another access stays in the queue.
    #[inline]
    fn pop_first_of_each(&mut self, mut take: impl FnMut(&mut Self, ProcessId, DueAccess)) {
        let warp = self.phases.warp();
        let (mut done, mut missing) = (0, 0);
        for place in self.warps.take_queue(warp) {
            let process = self.warps.queued(place);
            // A member that left is still in the queue.
            let Some((due, member)) = self.members.pop(process) else { continue };
            if member.waiting() == 0 {
                done += 1;
                missing += u32::from(member.is_awaited());
            } else {
                self.warps.keep(warp, process, member.appends());
            }
            take(self, process, due);
        }
        self.warps.end_step(warp, done, missing);
    }

    #[inline(always)]
    fn answer_read(&mut self, read: DueRead, at: PhaseStart, events: &mut Vec<Event>) {
        let DueRead { process, number, session, start } = read;
        let answer = Answer::Read(self.read(start, at.length, at.sealed));
        let cached = CachedAnswer { phase: at.phase, content: start.get(), session, append: false };
        self.answer(process, number, cached, answer, events);
    }

    /// All appends of the phase name the same position. They compete for it on the list itself, in the
    /// arbiter's order, and at most one wins (A1, A4, A5), if the append window is open.
    fn compete(&mut self, appends: &mut Vec<CompetingAppend>, open: bool, events: &mut Vec<Event>) {
        if appends.is_empty() {
            return;
        }
        let phase = self.phases.phase();
        self.arbiter.arrange(&self.params, phase, appends);
        if open {
            competition::compete(phase, &self.list, appends);
        }
        for CompetingAppend { process, number, session, value, answer, .. } in appends.drain(..) {
            let content = value.fingerprint();
            self.members.note_append(process, number, phase);
            if let AppendAnswer::Success(position) = answer {
                push_event(events, || Event::Added { position, process, phase, value });
                self.note_win(process);
            }
            let cached = CachedAnswer { phase, content, session, append: true };
            self.answer(process, number, cached, Answer::Append(answer), events);
        }
    }

    /// Answers an executed access, and keeps the answer in case that the access is sent again (F8b).
    // Inlined, so that each kind of answer is written to the event directly and not copied there.
    #[inline(always)]
    fn answer(
        &mut self,
        process: ProcessId,
        number: AccessNumber,
        cached: CachedAnswer,
        answer: Answer,
        events: &mut Vec<Event>,
    ) {
        debug_assert_eq!(self.answer_from(process, cached), answer, "an answer follows from what is kept");
        self.members.keep_answer(process, number, cached);
        push_event(events, || Event::Answered { process, number, phase: cached.phase, answer });
    }
}

// Patience (F3).
impl<S: PhaseOrder> Machine<S> {
    /// Takes the time for which the open phase, if there is one, has waited for its missing members off their
    /// patience.
    fn drain_missing(&mut self, now: Time, events: &mut Vec<Event>) {
        let Some(held) = self.open_phase.and_then(|open_phase| open_phase.held(now)) else { return };
        for process in self.params.members(self.phases.warp()) {
            if self.members[process].is_missing() {
                self.drain(process, held, events);
            }
        }
    }

    /// Takes the time for which the open phase waited for `process` off its patience, which may end with it
    /// (F3).
    pub(super) fn drain(&mut self, process: ProcessId, held: u64, events: &mut Vec<Event>) {
        let member = &mut self.members[process];
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
        for process in self.params.members(self.phases.warp()) {
            let member = &self.members[process];
            let missing = member.is_missing();
            if missing && (member.patience < held || (inclusive && member.patience == held)) {
                self.give_up_on(process, events);
            } else if member.is_awaited() {
                least = least.min(member.patience);
                least_missing = least_missing.min(if missing { member.patience } else { member::ENDLESS });
            }
        }
        self.warps.set_patience(self.phases.warp(), least);
        if let Some(open_phase) = &mut self.open_phase {
            *open_phase = OpenPhase::new(open_phase.since, least_missing);
        }
    }

    /// The process is not awaited any more: its patience is spent, or it has not joined in time (F3, F5).
    fn give_up_on(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        let member = &mut self.members[process];
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

// The time to reconnect after a restart (F3).
impl<S: PhaseOrder> Machine<S> {
    /// The server has restarted: no patience drains until all that are awaited have reconnected, or the time
    /// to reconnect is over (F3). A second restart begins it anew. More than a day counts as a day.
    pub fn restart(&mut self, now: Time, rejoin: Duration, events: &mut Vec<Event>) {
        self.take(now, events, |machine, now, events| {
            if !machine.state.has_ended() {
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
        let least = self.warps[self.phases.warp()].least_patience;
        if let Some(open_phase) = &mut self.open_phase {
            *open_phase = OpenPhase::new(since, least);
        }
    }

    /// A member is heard of again, or not awaited any more. If it was the last one away, patience drains from
    /// now on.
    pub(super) fn come_back(&mut self, process: ProcessId) {
        let member = &mut self.members[process];
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
