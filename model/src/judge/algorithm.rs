//! Algorithm 1 beside the record (SPEC D1): whether what a process sent, and when it decided, is what a
//! correct process does. Only events count, never what a process says that it read.
//!
//! A new life of a process has lost what earlier lives read, and the answers to accesses that these had sent
//! come to it. A client that does not name its life may be either, so both are possible until its next read
//! shows which.

use std::iter::once;

use crate::access::{AppendAnswer, Op, ReadAnswer};
use crate::params::Params;
use crate::predicates::{EntriesGiven, appends_again};
use crate::types::{AccessNumber, Phase, Position, Value};

/// One process beside Algorithm 1, by the record.
#[derive(Clone, Debug, Default)]
pub(super) struct AlgorithmRecord {
    /// The value that its first access appends.
    proposed: Option<Value>,
    /// No append is due any more: one won, or came in its warp's q-th phase or later (K2).
    appends_ended: bool,
    /// It has read.
    has_read: bool,
    /// The number of the last access that was accepted.
    accepted: u64,
    life: Life,
    /// The other lives that it may be in.
    possible_lives: Vec<Life>,
    /// The first access that Algorithm 1 does not have, and the index of its event.
    deviation: Option<(usize, Deviation)>,
    /// Its first accesses are not on record, so nothing can be said of it.
    is_incomplete: bool,
}

/// A life of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Life {
    /// The accesses up to this number were sent by earlier lives.
    inherited: u64,
    given: EntriesGiven,
}

/// An access that Algorithm 1 does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deviation {
    /// Its first access reads.
    ReadFirst,
    /// This access appends, and is not its first; with several append rounds, it is not one of the first q,
    /// or comes behind a read (K2).
    AppendedAgain(AccessNumber),
    /// This access appends another value than its first.
    AppendedOther(AccessNumber),
    /// This access reads, and all appends before it failed before the q-th phase of its warp (K2).
    ReadInsteadOfAppend(AccessNumber),
    /// It read from here, where its next read was to start there; `None`: where it had all that it takes to
    /// decide.
    ReadFrom(Position, Option<Position>),
}

impl AlgorithmRecord {
    /// An access was accepted, by the event with this index.
    pub(super) fn accepted(&mut self, params: &Params, index: usize, number: AccessNumber, op: &Op) {
        self.is_incomplete |= number.get() != self.accepted + 1;
        self.accepted = number.get();
        let is_first = number == AccessNumber::FIRST;
        match op {
            Op::Append(value) if is_first => self.proposed = Some(value.clone()),
            Op::Append(_) if self.has_read || number.get() > params.append_rounds().into() => {
                self.deviates(index, Deviation::AppendedAgain(number));
            }
            Op::Append(value) if self.proposed.as_ref() != Some(value) => {
                self.deviates(index, Deviation::AppendedOther(number));
            }
            Op::Append(_) => {}
            Op::Read { .. } if is_first => self.deviates(index, Deviation::ReadFirst),
            Op::Read { .. } => self.has_read = true,
        }
    }

    /// An append was answered, in this phase.
    pub(super) fn append_answered(&mut self, params: &Params, phase: Phase, answer: AppendAnswer) {
        self.appends_ended |= answer != AppendAnswer::Failed || !appends_again(params, phase);
    }

    /// A read was answered, by the event with this index.
    pub(super) fn read_answered(
        &mut self,
        params: &Params,
        index: usize,
        number: AccessNumber,
        answer: &ReadAnswer,
    ) {
        let fits = |life: &Life| {
            number.get() <= life.inherited || life.given.next_start(params) == Some(answer.start)
        };
        if !self.appends_ended && self.proposed.is_some() {
            self.deviates(index, Deviation::ReadInsteadOfAppend(number));
        }
        if !fits(&self.life) {
            let due = self.life.given.next_start(params);
            match self.possible_lives.iter().position(fits) {
                Some(other) => self.life = self.possible_lives.swap_remove(other),
                None => self.deviates(index, Deviation::ReadFrom(answer.start, due)),
            }
        }
        self.possible_lives.retain(fits);
        for life in once(&mut self.life).chain(&mut self.possible_lives) {
            life.given.take_in(params, answer);
        }
    }

    fn deviates(&mut self, index: usize, deviation: Deviation) {
        self.deviation.get_or_insert((index, deviation));
    }

    /// A session opens. `before`: the incarnation of the session before, if there was one; 0 names no life.
    pub(super) fn session(&mut self, before: Option<u64>, incarnation: u64) {
        let unnamed = |incarnation: Option<u64>| incarnation.is_none_or(|incarnation| incarnation == 0);
        let new = Life { inherited: self.accepted, given: EntriesGiven::default() };
        if unnamed(before) || unnamed(Some(incarnation)) {
            if self.accepted > 0 && !self.possible_lives.contains(&new) {
                self.possible_lives.push(new);
            }
        } else if before != Some(incarnation) {
            self.life = new;
            self.possible_lives.clear();
        }
    }

    /// How its accesses differ from Algorithm 1, if it is to propose this value: the index of the event that
    /// shows it, and a sentence.
    pub(super) fn deviation(&self, proposal: &Value) -> Option<(Option<usize>, String)> {
        if self.is_incomplete {
            return None;
        }
        if let Some(proposed) = self.proposed.as_ref().filter(|proposed| *proposed != proposal) {
            return Some((None, format!("proposed {proposed}, where the scenario has {proposal}")));
        }
        let (index, deviation) = self.deviation?;
        let says = match deviation {
            Deviation::ReadFirst => "did not append in its first access".to_owned(),
            Deviation::AppendedAgain(number) => format!("appended again, in its access {number}"),
            Deviation::AppendedOther(number) => {
                format!("appended another value in its access {number}")
            }
            Deviation::ReadInsteadOfAppend(number) => {
                format!("read in its access {number}, where it was to append again")
            }
            Deviation::ReadFrom(start, Some(due)) => {
                format!("read from {start}, where its next read was to start at {due}")
            }
            Deviation::ReadFrom(start, None) => {
                format!("read from {start}, where it had read all that it takes to decide")
            }
        };
        Some((Some(index), says))
    }

    /// The entries that each life that it may be in was given; nothing if that is not known.
    pub(super) fn given(&self) -> impl Iterator<Item = &EntriesGiven> {
        once(&self.life).chain(&self.possible_lives).filter(|_| !self.is_incomplete).map(|life| &life.given)
    }
}
