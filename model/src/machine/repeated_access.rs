//! What the machine knows of an access number that was used before (SPEC F8b to F8d).

use crate::access::{Answer, AppendAnswer, Op};
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, Position, ProcessId};

use super::answer_cache::CachedAnswer;
use super::member::Member;
use super::session::OptionalSession;
use super::state::Machine;

/// An access number that was used before, compared with the access that bears it now.
pub(super) enum Lookup {
    /// The same access waits.
    Waiting,
    /// The same access was executed.
    Answered(Phase, Answer),
    /// Another access had this number, on this session (none: a unary call).
    OtherContent(OptionalSession),
    /// The access was withdrawn, or its answer is not kept any more.
    Forgotten,
}

impl<S: PhaseOrder> Machine<S> {
    /// What became of a number of this process below its next (F8b to F8d).
    #[cold]
    pub(super) fn look_up(&self, process: ProcessId, number: AccessNumber, op: &Op) -> Lookup {
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
