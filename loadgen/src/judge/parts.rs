//! Whether correct processes play the part that the scenario gives them: in one life, and with its proposal in their
//! first access.

use std::collections::BTreeMap;

use stickycas_model::access::Op;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{ProcessId, Value};

use crate::scenario::Scenario;

/// What a process is seen to do.
#[derive(Clone, Debug, Default)]
struct Played<'a> {
    /// The first access that was accepted.
    first: Option<&'a Op>,
    /// It appended after its first access.
    appended_again: bool,
    incarnation: Option<u64>,
    lives: u64,
}

/// Correct processes that play otherwise than the scenario has it.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    scenario: &'a Scenario,
    played: BTreeMap<ProcessId, Played<'a>>,
}

impl<'a> Parts<'a> {
    /// What each process is seen to do in a history.
    pub(super) fn seen(scenario: &'a Scenario, history: &'a [Recorded]) -> Self {
        let mut played: BTreeMap<ProcessId, Played<'a>> = BTreeMap::new();
        for recorded in history {
            match &recorded.event {
                Event::Accepted { process, op, .. } => played.entry(*process).or_default().act(op),
                Event::Session { process, incarnation, .. } => {
                    played.entry(*process).or_default().open(*incarnation);
                }
                _ => {}
            }
        }
        Self { scenario, played }
    }

    /// Who demonstrably plays another part; `said`: what processes say that they proposed.
    pub(super) fn miscast(&self, said: &BTreeMap<ProcessId, Value>) -> Vec<String> {
        self.correct().filter_map(|process| self.other_part(process, said)).collect()
    }

    fn other_part(&self, process: ProcessId, said: &BTreeMap<ProcessId, Value>) -> Option<String> {
        let planned = &self.scenario.cast.part(process)?.proposal;
        let played = self.played.get(&process);
        // What the server saw counts before what the process says.
        let proposed = match played.and_then(|played| played.first) {
            Some(Op::Read { .. }) => return Some(did_not_append(process)),
            Some(Op::Append(value)) => Some(value),
            None => said.get(&process),
        };
        if let Some(proposed) = proposed.filter(|proposed| *proposed != planned) {
            return Some(format!(
                "process {process} is correct and proposed {proposed}, where the scenario has {planned}"
            ));
        }
        let again = played.is_some_and(|played| played.appended_again);
        again.then(|| format!("process {process} is correct and appended after its first access (D1)"))
    }

    /// Who was started again, and in a complete history who never acted.
    pub(super) fn unplanned(&self, complete: bool) -> Vec<String> {
        let acted =
            |process: &ProcessId| self.played.get(process).is_some_and(|played| played.first.is_some());
        let idle = self.correct().filter(|process| complete && !acted(process)).map(did_not_append);
        let lives = |process: &ProcessId| self.played.get(process).map_or(0, |played| played.lives);
        let again = self.correct().filter(|process| lives(process) > 1);
        let again = again
            .map(|process| format!("process {process} was started again, which the plan does not name (V4)"));
        idle.chain(again).collect()
    }

    /// Correct processes that the plan does not make faulty.
    fn correct(&self) -> impl Iterator<Item = ProcessId> {
        let cast = &self.scenario.cast;
        cast.correct().filter(|process| !cast.faulty().contains(process))
    }
}

impl<'a> Played<'a> {
    fn act(&mut self, op: &'a Op) {
        self.appended_again |= self.first.is_some() && matches!(op, Op::Append(_));
        self.first.get_or_insert(op);
    }

    /// A session opens; an incarnation that is not told is another life.
    fn open(&mut self, incarnation: u64) {
        self.lives += u64::from(incarnation == 0 || self.incarnation != Some(incarnation));
        self.incarnation = Some(incarnation);
    }
}

fn did_not_append(process: ProcessId) -> String {
    format!("process {process} is correct and did not append in its first access (D1)")
}
