//! The step: one phase, executed at once over the accesses that wait from its warp (SPEC F2, A1 to A5, R1).

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::Event;
use crate::params::{AppendWindow, Arbiter};
use crate::scheduler::arbiter_hash;
use crate::types::{Phase, Position, ProcessId, Time, Value};

use super::member::{self, Waiting};
use super::{Entry, Machine};

/// Buffers that every step uses again.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    queue: Vec<ProcessId>,
    appends: Vec<Append>,
    reads: Vec<(ProcessId, Waiting)>,
}

/// An append that competes in the phase.
#[derive(Clone, Debug)]
struct Append {
    process: ProcessId,
    value: Value,
    waiting: Waiting,
    /// Outside the append window it never competes, and this stands.
    answer: AppendAnswer,
}

impl Machine {
    /// Executes the open phase: every member of its warp with an access waiting has its first one executed.
    pub(super) fn step(&mut self, now: Time, events: &mut Vec<Event>) {
        let phase = self.phase;
        let (length, sealed) = (self.list.len(), self.sealed);
        events.push(Event::Stepped { phase, warp: self.warp, length });
        let mut scratch = std::mem::take(&mut self.scratch);
        self.collect(&mut scratch);
        self.compete(&mut scratch.appends, events);
        // Reads see the list as it was when the phase began, whatever its appends did (F2).
        for (process, waiting) in scratch.reads.drain(..) {
            if let Op::Read { start } = waiting.op {
                let answer = self.read(start, length, sealed);
                self.answer(process, &waiting, Answer::Read(answer), 0, events);
            }
        }
        self.scratch = scratch;

        self.hold = None;
        self.last_step = Some(now);
        self.note_life_of(self.warp);
        self.go_to(phase.next());
        self.seal_if_due(events);
    }

    /// The entries from `start` on as a read of a list of this length returns them (R1).
    pub(super) fn read(&self, start: Position, length: u32, sealed: bool) -> ReadAnswer {
        let count = length.saturating_sub(start.get()).min(self.params.read_size());
        ReadAnswer { start, count, length, sealed }
    }

    /// Takes the first waiting access of each ready member off its queue.
    fn collect(&mut self, scratch: &mut Scratch) {
        let Scratch { queue, appends, reads } = scratch;
        let tally = &mut self.warps[self.warp.index()];
        std::mem::swap(&mut tally.queue, queue);
        for process in queue.drain(..) {
            let member = &mut self.members[process.index()];
            // A member that left is still in the queue.
            let Some(waiting) = member.waiting.pop_front() else { continue };
            if member.waiting.is_empty() {
                tally.ready -= 1;
                tally.missing += u32::from(member.is_awaited());
                self.ready -= 1;
            } else {
                tally.queue.push(process);
            }
            match &waiting.op {
                Op::Append(value) => {
                    let value = value.clone();
                    appends.push(Append { process, value, waiting, answer: AppendAnswer::LimitReached });
                }
                Op::Read { .. } => reads.push((process, waiting)),
            }
        }
    }

    /// All appends of the phase name the same position. They compete for it on the list itself, in the
    /// arbiter's order, and at most one wins (A1, A4, A5).
    fn compete(&mut self, appends: &mut Vec<Append>, events: &mut Vec<Event>) {
        if appends.is_empty() {
            return;
        }
        self.arbitrate(appends);
        let phase = self.phase;
        if self.window_is_open() {
            let turn = self.list.turn();
            for Append { process, value, answer, .. } in appends.iter_mut() {
                *answer = turn.append(Entry { value: value.clone(), process: *process, phase });
            }
        }
        for Append { process, value, waiting, answer } in appends.drain(..) {
            let fingerprint = member::fingerprint(&value);
            if let AppendAnswer::Success(position) = answer {
                events.push(Event::Added { position, process, phase, value });
            }
            self.answer(process, &waiting, Answer::Append(answer), fingerprint, events);
        }
    }

    /// Puts the appends of the phase in the order in which they compete (A4). Only the first can win, so
    /// the order of the others does not matter.
    fn arbitrate(&self, appends: &mut [Append]) {
        let seed = self.params.spec().seed;
        let first = match self.params.spec().arbiter {
            Arbiter::FirstCome => {
                appends.iter().enumerate().min_by_key(|(_, append)| append.waiting.accepted)
            }
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

    /// Whether the open phase may append (A2).
    fn window_is_open(&self) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.calendar.is_first(self.phase),
            AppendWindow::Open => true,
        }
    }

    /// Answers an executed access, and keeps the answer for those who ask again (F8b).
    fn answer(
        &mut self,
        process: ProcessId,
        waiting: &Waiting,
        answer: Answer,
        fingerprint: u32,
        events: &mut Vec<Event>,
    ) {
        let phase: Phase = self.phase;
        let limit = self.params.spec().pipeline;
        self.members[process.index()].keep(waiting, phase, answer, fingerprint, limit);
        events.push(Event::Answered { process, number: waiting.number, phase, answer });
    }
}
