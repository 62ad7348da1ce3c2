//! The step: one phase, executed at once over the accesses that wait from its warp (SPEC F2, A1 to A5, R1).

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::Event;
use crate::params::{AppendWindow, Arbiter};
use crate::scheduler::arbiter_hash;
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time, Value};

use super::kept::Kept;
use super::member::{Session, Taken};
use super::queues::Waiting;
use super::warp::Lines;
use super::{Entry, Machine, note};

/// Buffers that every step uses again.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    appends: Vec<Append>,
    reads: Vec<Read>,
}

/// An append that competes in the phase.
#[derive(Clone, Debug)]
struct Append {
    process: ProcessId,
    number: AccessNumber,
    session: Session,
    value: Value,
    accepted: u64,
    /// Outside the append window it never competes, and this stands.
    answer: AppendAnswer,
}

/// A read of the phase.
#[derive(Clone, Copy, Debug)]
struct Read {
    process: ProcessId,
    number: AccessNumber,
    session: Session,
    start: Position,
}

impl Read {
    fn new(process: ProcessId, taken: Taken) -> Self {
        let Taken { number, session, content, .. } = taken;
        Self { process, number, session, start: Position::new(content) }
    }
}

/// The list as all reads of a phase see it: as it was when the phase began, whatever its appends did (F2).
#[derive(Clone, Copy)]
struct Seen {
    phase: Phase,
    length: u32,
    sealed: bool,
}

impl Machine {
    /// Executes the open phase: every member of its warp with an access waiting has its first one executed.
    pub(super) fn step(&mut self, now: Time, events: &mut Vec<Event>) {
        let phase = self.phase;
        let seen = Seen { phase, length: self.list.len(), sealed: self.sealed.is_some() };
        let warp = self.warp;
        note(events, || Event::Stepped { phase, warp, length: seen.length });
        let tally = &mut self.warps[self.warp.index()];
        events.reserve(tally.ready as usize);
        if std::mem::take(&mut tally.appends) {
            self.execute(seen, events);
        } else {
            self.execute_reads(seen, events);
        }

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

    /// A phase without appends: each read is answered as it is taken off.
    fn execute_reads(&mut self, seen: Seen, events: &mut Vec<Event>) {
        self.take_first_of_each(|machine, process, taken| {
            machine.answer_read(Read::new(process, taken), seen, events);
        });
    }

    /// A phase with appends: they are answered first.
    fn execute(&mut self, seen: Seen, events: &mut Vec<Event>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let Scratch { appends, reads } = &mut scratch;
        self.take_first_of_each(|machine, process, taken| {
            if !taken.append {
                return reads.push(Read::new(process, taken));
            }
            let Waiting { op, session, accepted } = machine.queues.take(taken.content);
            if let Op::Append(value) = op {
                let (number, answer) = (taken.number, AppendAnswer::LimitReached);
                appends.push(Append { process, number, session, value, accepted, answer });
            }
        });
        self.compete(appends, events);
        for read in reads.drain(..) {
            self.answer_read(read, seen, events);
        }
        self.scratch = scratch;
    }

    /// Takes the first waiting access of each member in the line of the open phase's warp off its queue, in order.
    /// Who has another one stays in the line.
    #[inline]
    fn take_first_of_each(&mut self, mut take: impl FnMut(&mut Self, ProcessId, Taken)) {
        let warp = self.warp.index();
        let start = Lines::start(&self.params, self.warp);
        let lined_up = std::mem::take(&mut self.warps[warp].lined_up) as usize;
        let (mut stay, mut done, mut missing) = (0_u32, 0, 0);
        for place in start..start + lined_up {
            let process = self.lines.get(place);
            let member = &mut self.members[process.index()];
            // A member that left is still in the line.
            let Some(taken) = member.pop(&mut self.queues) else { continue };
            if member.waiting() == 0 {
                done += 1;
                missing += u32::from(member.is_awaited());
            } else {
                self.warps[warp].appends |= member.appends();
                self.lines.set(start + stay as usize, process);
                stay += 1;
            }
            take(self, process, taken);
        }
        let tally = &mut self.warps[warp];
        tally.lined_up = stay;
        tally.ready -= done;
        tally.missing += missing;
        self.ready -= done;
    }

    #[inline(always)]
    fn answer_read(&mut self, read: Read, seen: Seen, events: &mut Vec<Event>) {
        let Read { process, number, session, start } = read;
        let answer = Answer::Read(self.read(start, seen.length, seen.sealed));
        let kept = Kept { phase: seen.phase, content: start.get(), session, append: false };
        self.answer(process, number, kept, answer, events);
    }

    /// All appends of the phase name the same position. They compete for it on the list itself, in the
    /// arbiter's order, and at most one wins (A1, A4, A5).
    fn compete(&mut self, appends: &mut Vec<Append>, events: &mut Vec<Event>) {
        if appends.is_empty() {
            return;
        }
        self.arbitrate(appends);
        let phase = self.phase;
        if self.window_is_open(phase) {
            let turn = self.list.turn();
            for Append { process, value, answer, .. } in appends.iter_mut() {
                *answer = turn.append(Entry { value: value.clone(), process: *process, phase });
            }
        }
        for Append { process, number, session, value, answer, .. } in appends.drain(..) {
            let content = value.fingerprint();
            if let AppendAnswer::Success(position) = answer {
                note(events, || Event::Added { position, process, phase, value });
            }
            self.rare[process.index()].append.get_or_insert(phase);
            let kept = Kept { phase, content, session, append: true };
            self.answer(process, number, kept, Answer::Append(answer), events);
        }
    }

    /// Puts the appends of the phase in the order in which they compete (A4). Only the first can win, so
    /// the order of the others does not matter.
    fn arbitrate(&self, appends: &mut [Append]) {
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

    /// Whether this phase, which has come, may append (A2).
    pub(super) fn window_is_open(&self, phase: Phase) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.calendar.is_first(phase),
            AppendWindow::Open => true,
        }
    }

    /// Answers an executed access, and keeps the answer for those who ask again (F8b).
    // Inlined, so that each kind of answer is written where it belongs and not first put together elsewhere.
    #[inline(always)]
    fn answer(
        &mut self,
        process: ProcessId,
        number: AccessNumber,
        kept: Kept,
        answer: Answer,
        events: &mut Vec<Event>,
    ) {
        debug_assert_eq!(self.answer_of(process, kept), answer, "an answer follows from what is kept");
        self.answers.keep(process, number, kept);
        note(events, || Event::Answered { process, number, phase: kept.phase, answer });
    }
}
