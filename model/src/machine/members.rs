//! The processes of an instance: their accesses that wait, their answers that are kept, and their decisions.

use std::collections::BTreeMap;
use std::mem;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use crate::access::Op;
use crate::params::{Params, Patience};
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Value};

use super::answer_cache::{AnswerCache, CachedAnswer};
use super::checkpoint::{KeptAnswer, MemberCheckpoint, WaitingCheckpoint};
use super::member::{self, ColdMember, DueAccess, Member};
use super::offences::brief_value;
use super::queues::{AccessQueues, OptionalSession, WaitingAccess};

/// See the module. A method panics if the parameters do not have the process.
#[derive(Clone, Debug, Default)]
pub(super) struct Members {
    /// By process.
    members: Vec<Member>,
    /// By process.
    cold_members: Vec<ColdMember>,
    queues: AccessQueues,
    answers: AnswerCache,
    joined: u32,
    /// The decisions of the processes that left, in order.
    decisions: Vec<Value>,
    /// q (K1).
    append_rounds: u64,
    /// The values with which later appends of the same processes among their first q accesses are compared
    /// (B2).
    first_appends: BTreeMap<ProcessId, Value>,
    /// The processes that reported a decision before the list was sealed, which is compared then (D3).
    early_reports: Vec<ProcessId>,
}

impl Index<ProcessId> for Members {
    type Output = Member;

    #[inline]
    fn index(&self, process: ProcessId) -> &Member {
        &self.members[process.index()]
    }
}

impl IndexMut<ProcessId> for Members {
    #[inline]
    fn index_mut(&mut self, process: ProcessId) -> &mut Member {
        &mut self.members[process.index()]
    }
}

impl Members {
    /// The members of a new instance, with this patience, in the memory of these.
    pub(super) fn reset(&mut self, params: &Params, patience: u64) {
        let processes = params.processes();
        self.members.clear();
        self.members.resize(processes as usize, Member::new(patience));
        self.cold_members.clear();
        self.cold_members.resize(processes as usize, ColdMember::default());
        self.queues.clear();
        self.answers.reset(processes, params.spec().pipeline);
        self.joined = 0;
        self.decisions.clear();
        self.early_reports.clear();
        self.append_rounds = params.append_rounds().into();
        self.first_appends.clear();
    }

    /// The processes, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessId, &Member)> {
        (1..).filter_map(ProcessId::new).zip(&self.members)
    }

    /// The same, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut()
    }

    /// A process that has not joined joins (F5).
    pub(super) fn join(&mut self, process: ProcessId) {
        self[process].join();
        self.joined += 1;
    }

    /// How many processes have joined.
    pub(super) fn joined(&self) -> u32 {
        self.joined
    }

    /// Whether all have joined.
    pub(super) fn all_have_joined(&self) -> bool {
        self.joined as usize == self.members.len()
    }

    /// The next access of a process waits, as the `accepted`-th of the instance. Returns whether the process
    /// was missing until now, and whether nothing else of it waits.
    #[inline]
    pub(super) fn push(
        &mut self,
        process: ProcessId,
        session: Option<SessionId>,
        op: &Op,
        accepted: u64,
    ) -> (bool, bool) {
        let member = &mut self.members[process.index()];
        let was_missing = member.is_missing();
        if session.is_some() {
            member.clear_refused();
        }
        member.push(&mut self.queues, session, op, accepted);
        (was_missing, member.waiting() == 1)
    }

    /// Takes the first waiting access of a process off, and shows the process as it is then; `None` if
    /// nothing waits. If it is an append, it is still in the queues.
    #[inline]
    pub(super) fn pop(&mut self, process: ProcessId) -> Option<(DueAccess, &Member)> {
        let member = &mut self.members[process.index()];
        Some((member.pop(&mut self.queues)?, member))
    }

    /// Takes an append that was popped out of the queues.
    pub(super) fn take_append(&mut self, due: DueAccess) -> WaitingAccess {
        self.queues.take(due.content)
    }

    /// Takes all waiting accesses of a process off, and returns their numbers in order (F10).
    pub(super) fn withdraw(&mut self, process: ProcessId) -> impl Iterator<Item = AccessNumber> {
        self.cold_members[process.index()].withdrawn = self[process].waiting();
        std::iter::from_fn(move || {
            let (due, _) = self.pop(process)?;
            if due.append {
                self.take_append(due);
            }
            Some(due.number)
        })
    }

    /// The accesses of a process that wait, in order, with their numbers.
    pub(super) fn queue(
        &self,
        process: ProcessId,
    ) -> impl Iterator<Item = (AccessNumber, OptionalSession, Op)> {
        self[process].queue(&self.queues)
    }

    /// A process leaves with this decision (F10).
    pub(super) fn leave(&mut self, process: ProcessId, decision: Value) {
        self[process].leave();
        self.cold_members[process.index()].decision = self.decided();
        self.decisions.push(decision);
    }

    /// The decision of a process, if it has decided.
    pub(super) fn decision(&self, process: ProcessId) -> Option<&Value> {
        let left = self[process].has_left();
        left.then(|| &self.decisions[self.cold_members[process.index()].decision as usize])
    }

    /// The decisions of the processes that left, in order.
    pub(super) fn decisions(&self) -> &[Value] {
        &self.decisions
    }

    /// How many processes have decided.
    pub(super) fn decided(&self) -> u32 {
        u32::try_from(self.decisions.len()).unwrap_or(u32::MAX)
    }

    /// The decision that a process reported is compared when the list is sealed (D3).
    pub(super) fn report_early(&mut self, process: ProcessId) {
        self.early_reports.push(process);
    }

    /// The processes whose reports are to be compared when the list is sealed, in order.
    pub(super) fn early_reports(&self) -> &[ProcessId] {
        &self.early_reports
    }

    /// The same, to compare them now.
    pub(super) fn take_early_reports(&mut self) -> Vec<ProcessId> {
        mem::take(&mut self.early_reports)
    }

    /// The number of the last access of a process that was executed, 0 if none was: they are executed in
    /// order.
    pub(super) fn executed(&self, process: ProcessId) -> u64 {
        let member = &self[process];
        let withdrawn = self.cold_members[process.index()].withdrawn;
        member.next.get() - 1 - u64::from(member.waiting()) - u64::from(withdrawn)
    }

    /// Keeps the answer to an executed access (F8b).
    #[inline]
    pub(super) fn keep_answer(&mut self, process: ProcessId, number: AccessNumber, answer: CachedAnswer) {
        self.answers.insert(process, number, answer);
    }

    /// The answer to an access of a process; `None` if it is not kept.
    pub(super) fn kept_answer(&self, process: ProcessId, number: AccessNumber) -> Option<CachedAnswer> {
        self.answers.get(process, number, self.executed(process))
    }

    /// An append of a process is executed in this phase. Whether it wins is marked later.
    pub(super) fn note_append(&mut self, process: ProcessId, number: AccessNumber, phase: Phase) {
        let append = &mut self.cold_members[process.index()].append;
        if append.is_none()
            || (number.get() <= self.append_rounds && !self.members[process.index()].is_excluded())
        {
            *append = Some(phase);
        }
    }

    /// Whether an append with this number, which is accepted, is to be checked (B2): with one append round,
    /// no first access.
    #[inline]
    pub(super) fn is_to_check(&self, number: AccessNumber) -> bool {
        number.get() != self.append_rounds || !self.first_appends.is_empty()
    }

    /// Compares an append with the first one of its process, or keeps it as that for later ones. Returns how
    /// it is late or repeated; `None` if it is neither.
    #[cold]
    pub(super) fn check_append(
        &mut self,
        process: ProcessId,
        number: AccessNumber,
        value: &Value,
    ) -> Option<String> {
        if number.get() > self.append_rounds {
            return Some(format!("append with access number {number}: append {}", brief_value(value)));
        }
        match self.first_appends.get(&process) {
            Some(first) if first != value => {
                Some(format!("appended {} first, now {}", brief_value(first), brief_value(value)))
            }
            None if number.get() < self.append_rounds => {
                self.first_appends.insert(process, value.clone());
                None
            }
            _ => None,
        }
    }

    /// The phase of the append of a process that tells what became of its proposal.
    pub(super) fn append_phase(&self, process: ProcessId) -> Option<Phase> {
        self.cold_members[process.index()].append
    }

    /// The value of the first append of a process, as long as another one may have to be the same.
    fn first_append(&self, process: ProcessId) -> Option<&Value> {
        let is_compared = self[process].appends_are_compared(self.append_rounds);
        self.first_appends.get(&process).filter(|_| is_compared)
    }

    /// Forgets the first appends with which none is compared any more.
    pub(super) fn forget_first_appends(&mut self) {
        let (members, rounds) = (&self.members, self.append_rounds);
        self.first_appends.retain(|process, _| members[process.index()].appends_are_compared(rounds));
    }

    /// A process as data. `ended` is whether no phase opens any more.
    pub(super) fn checkpoint(&self, process: ProcessId, ended: bool) -> MemberCheckpoint {
        let (member, cold) = (&self[process], &self.cold_members[process.index()]);
        let patience = match member.patience {
            _ if ended || member.is_spent() => Patience::Finite(Duration::ZERO),
            member::ENDLESS => Patience::Endless,
            nanos => Patience::Finite(Duration::from_nanos(nanos)),
        };
        let last = self.executed(process);
        let kept = self.answers.numbers(last).filter_map(|number| self.answers.get(process, number, last));
        MemberCheckpoint {
            next: member.next,
            patience,
            joined: member.has_joined(),
            spent: member.is_spent(),
            refused: member.was_refused(),
            away: member.is_away(),
            session: member.session.get(),
            waiting: member.waiting_accesses(&self.queues).map(WaitingCheckpoint::from).collect(),
            answers: kept.map(KeptAnswer::from).collect(),
            append: cold.append,
            first_append: self.first_append(process).filter(|_| !ended).cloned(),
            decision: self.decision(process).cloned(),
            withdrawn: cold.withdrawn,
        }
    }

    /// The process of a new instance as a checkpoint that was checked has it.
    pub(super) fn restore(&mut self, process: ProcessId, given: MemberCheckpoint) {
        let MemberCheckpoint { next, session, append, withdrawn, .. } = given;
        let first = next.get() - given.waiting.len() as u64;
        let member = &mut self.members[process.index()];
        member.next = AccessNumber::new(first).expect("the number was checked");
        member.session = OptionalSession::new(session);
        for access in &given.waiting {
            member.push(&mut self.queues, access.session, &access.op, access.accepted);
        }
        if let Patience::Finite(patience) = given.patience {
            member.patience = member::nanos(patience);
        }
        if given.spent {
            member.give_up();
        }
        if given.refused {
            member.mark_refused();
        }
        if given.away {
            member.go_away();
        }
        let cold = &mut self.cold_members[process.index()];
        (cold.append, cold.withdrawn) = (append, withdrawn);
        self.first_appends.extend(given.first_append.map(|value| (process, value)));
        if given.joined {
            self.join(process);
        }
        if let Some(decision) = given.decision {
            self.leave(process, decision);
        }
        let numbers = self.answers.numbers(self.executed(process));
        for (number, kept) in numbers.zip(given.answers) {
            self.answers.insert(process, number, CachedAnswer::from(kept));
        }
    }
}
