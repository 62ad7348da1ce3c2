//! The step: one phase, executed at once over the accesses that wait from its warp (SPEC F2, A1 to A5, R1).

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::{Event, push_event};
use crate::params::Arbiter;
use crate::scheduler::{PhaseOrder, arbiter_hash};
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time};

use super::answer_cache::CachedAnswer;
use super::member::DueAccess;
use super::queues::WaitingAccess;
use super::state::{CompetingAppend, DueRead, Entry, Machine, StepBuffers};

/// The list when the phase began, as all its reads see it, before its appends (F2).
#[derive(Clone, Copy)]
struct PhaseStart {
    phase: Phase,
    length: u32,
    sealed: bool,
}

impl<S: PhaseOrder> Machine<S> {
    /// Executes the open phase: every member of its warp with an access waiting has its first one executed.
    pub(super) fn step(&mut self, now: Time, events: &mut Vec<Event>) {
        let phase = self.phase;
        let start = PhaseStart { phase, length: self.list.len(), sealed: self.sealed.is_some() };
        let warp = self.warp;
        push_event(events, || Event::Stepped { phase, warp, length: start.length });
        events.reserve(self.warps[warp].ready as usize);
        if self.warps.take_appends(warp) {
            self.execute(start, events);
        } else {
            self.execute_reads(start, events);
        }

        self.open_phase = None;
        self.last_step = Some(now);
        self.go_to(phase.next());
        self.seal_if_due(events);
    }

    /// The entries from `start` on as a read of a list of this length returns them (R1).
    pub(super) fn read(&self, start: Position, length: u32, sealed: bool) -> ReadAnswer {
        let count = length.saturating_sub(start.get()).min(self.params.read_size());
        ReadAnswer { start, count, length, sealed }
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
        self.pop_first_of_each(|machine, process, due| {
            if !due.append {
                return reads.push(DueRead::new(process, due));
            }
            let WaitingAccess { op, session, accepted } = machine.queues.take(due.content);
            if let Op::Append(value) = op {
                let (number, answer) = (due.number, AppendAnswer::LimitReached);
                appends.push(CompetingAppend { process, number, session, value, accepted, answer });
            }
        });
        self.compete(appends, events);
        for read in reads.drain(..) {
            self.answer_read(read, start, events);
        }
        self.step_buffers = step_buffers;
    }

    /// Removes the first waiting access of each member in the ready queue of the open phase's warp, in order. A
    /// member with another access stays in the queue.
    #[inline]
    fn pop_first_of_each(&mut self, mut take: impl FnMut(&mut Self, ProcessId, DueAccess)) {
        let warp = self.warp;
        let (mut done, mut missing) = (0, 0);
        for place in self.warps.take_queue(warp) {
            let process = self.warps.queued(place);
            let member = &mut self.members[process.index()];
            // A member that left is still in the queue.
            let Some(due) = member.pop(&mut self.queues) else { continue };
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
    /// arbiter's order, and at most one wins (A1, A4, A5).
    fn compete(&mut self, appends: &mut Vec<CompetingAppend>, events: &mut Vec<Event>) {
        if appends.is_empty() {
            return;
        }
        self.arbitrate(appends);
        let phase = self.phase;
        if self.window_is_open(phase) {
            let turn = self.list.turn();
            for CompetingAppend { process, value, answer, .. } in appends.iter_mut() {
                *answer = turn.append(Entry { value: value.clone(), process: *process, phase });
            }
        }
        for CompetingAppend { process, number, session, value, answer, .. } in appends.drain(..) {
            let content = value.fingerprint();
            if let AppendAnswer::Success(position) = answer {
                push_event(events, || Event::Added { position, process, phase, value });
            }
            self.cold_members[process.index()].append.get_or_insert(phase);
            let cached = CachedAnswer { phase, content, session, append: true };
            self.answer(process, number, cached, Answer::Append(answer), events);
        }
    }

    /// Puts the appends of the phase in the order in which they compete (A4). Only the first can win, so
    /// the order of the others does not matter.
    fn arbitrate(&self, appends: &mut [CompetingAppend]) {
        let seed = self.params.spec().seed;
        let first = match self.params.spec().arbiter {
            Arbiter::FirstCome => appends.iter().enumerate().min_by_key(|(_, append)| append.accepted),
            Arbiter::Uniform => appends
                .iter()
                .enumerate()
                .min_by_key(|(_, append)| (arbiter_hash(seed, self.phase, append.process), append.process)),
            Arbiter::Priority(_) => {
                appends.iter().enumerate().min_by_key(|(_, append)| self.ranks[append.process.index()])
            }
        };
        if let Some((first, _)) = first {
            appends.swap(0, first);
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
        self.answers.insert(process, number, cached);
        push_event(events, || Event::Answered { process, number, phase: cached.phase, answer });
    }
}
