//! The contents of the final history, and the knowledge of a process from its answers.

use std::collections::{BTreeMap, BTreeSet};

use stickycas_client::MemberState;
use stickycas_client::raw::Told;
use stickycas_model::access::{Answer, AppendAnswer};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{AccessNumber, Phase, ProcessId, Value};

/// The contents of a history.
#[derive(Default)]
pub(super) struct Shown<'a> {
    pub(super) list: Vec<(ProcessId, Phase, &'a Value)>,
    pub(super) accepted: BTreeMap<(ProcessId, AccessNumber), u32>,
    pub(super) answered: BTreeMap<(ProcessId, AccessNumber), Vec<(Phase, Answer)>>,
    pub(super) withdrawn: BTreeSet<(ProcessId, AccessNumber)>,
    pub(super) decided: BTreeMap<ProcessId, &'a Value>,
    pub(super) sealed: Option<u32>,
    pub(super) over: bool,
    pub(super) restarted: usize,
    /// Accesses that waited when the server was started again, once for each start.
    pub(super) waited: u64,
    pub(super) impatient: BTreeSet<ProcessId>,
    pub(super) joined: BTreeSet<ProcessId>,
    /// Of each session, which life of the client opened it.
    pub(super) lives: BTreeMap<ProcessId, Vec<u64>>,
}

impl<'a> Shown<'a> {
    pub(super) fn of(history: &'a [Recorded]) -> Self {
        let mut shown = Self::default();
        let mut waiting = BTreeSet::new();
        for Recorded { event, .. } in history {
            match event {
                Event::Added { process, phase, value, .. } => shown.list.push((*process, *phase, value)),
                Event::Accepted { process, number, .. } => {
                    *shown.accepted.entry((*process, *number)).or_default() += 1;
                    waiting.insert((*process, *number));
                }
                Event::Answered { process, number, phase, answer } => {
                    shown.answered.entry((*process, *number)).or_default().push((*phase, *answer));
                    waiting.remove(&(*process, *number));
                }
                Event::Withdrawn { process, number } => {
                    shown.withdrawn.insert((*process, *number));
                    waiting.remove(&(*process, *number));
                }
                Event::Decided { process, value } => drop(shown.decided.insert(*process, value)),
                Event::Sealed { length, .. } => shown.sealed = Some(*length),
                Event::Finished | Event::Closed => shown.over = true,
                Event::Restarted { .. } => {
                    shown.restarted += 1;
                    shown.waited += waiting.len() as u64;
                }
                Event::PatienceSpent { process } => drop(shown.impatient.insert(*process)),
                Event::Joined { process } => drop(shown.joined.insert(*process)),
                Event::Session { process, incarnation, .. } => {
                    shown.lives.entry(*process).or_default().push(*incarnation);
                }
                _ => {}
            }
        }
        shown
    }
}

/// The state of a process, as far as its answers have shown it at some moment.
#[derive(Default)]
pub(super) struct KnownMember {
    /// The last access that was answered.
    pub(super) answered: u64,
    /// Its next access, by its welcome or by Get.
    pub(super) next: u64,
    pub(super) waiting: BTreeSet<AccessNumber>,
    /// Its append: the one that won, or else the last within the append rounds.
    pub(super) append: Option<(Phase, AppendAnswer)>,
    pub(super) decided: Option<Value>,
}

impl KnownMember {
    /// Takes in an answer to the process, on its stream or to a call.
    pub(super) fn learn(&mut self, told: &Told, append_rounds: u32) {
        match told {
            Told::Welcome(own) => self.take(own, append_rounds),
            Told::Answered { number, phase, answer, .. } => {
                // A read of an instance that is over has no number of its own.
                let Some(phase) = phase else { return };
                self.answered = self.answered.max(number.get());
                if let Answer::Append(answer) = answer {
                    let rounds = if number.get() <= append_rounds.into() { append_rounds } else { 1 };
                    self.note_append((*phase, *answer), rounds);
                }
            }
            Told::Decided(value) => self.decided = Some(value.clone()),
        }
    }

    fn note_append(&mut self, now: (Phase, AppendAnswer), append_rounds: u32) {
        if self.append.is_none_or(|before| may_follow(before, now, append_rounds)) {
            self.append = Some(now);
        }
    }

    pub(super) fn take(&mut self, own: &MemberState, append_rounds: u32) {
        self.next = self.next.max(own.next.get());
        self.waiting.extend(own.waiting.iter().map(|(number, _)| *number));
        own.append.into_iter().for_each(|now| self.note_append(now, append_rounds));
        self.decided = self.decided.take().or_else(|| own.decided.clone());
    }
}

/// Whether an append may take the place of an earlier one of its process: of one that did not win, if there
/// are several append rounds (K2).
pub(super) fn may_follow(
    before: (Phase, AppendAnswer),
    now: (Phase, AppendAnswer),
    append_rounds: u32,
) -> bool {
    append_rounds > 1 && !matches!(before.1, AppendAnswer::Success(_)) && now.0 > before.0
}
