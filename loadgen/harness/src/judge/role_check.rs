//! Whether correct processes play the part that the scenario gives them: in one life, and with its proposal in their
//! first access.

use std::collections::BTreeMap;

use stickycas_model::access::Op;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{ProcessId, Value};

use crate::scenario::Scenario;

/// What a process is seen to do.
#[derive(Clone, Debug, Default)]
struct ObservedRole<'a> {
    /// The first access that was accepted.
    first: Option<&'a Op>,
    /// It appended after its first access.
    appended_again: bool,
    incarnation: Option<u64>,
    lives: u64,
}

/// Correct processes that play otherwise than the scenario has it.
#[derive(Debug)]
pub(super) struct RoleCheck<'a> {
    scenario: &'a Scenario,
    played: BTreeMap<ProcessId, ObservedRole<'a>>,
}

impl<'a> RoleCheck<'a> {
    /// What each process is seen to do in a history.
    pub(super) fn seen(scenario: &'a Scenario, history: &'a [Recorded]) -> Self {
        let mut played: BTreeMap<ProcessId, ObservedRole<'a>> = BTreeMap::new();
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

    /// The processes that demonstrably play another part; `said`: what processes say that they proposed.
    pub(super) fn role_mismatches(&self, said: &BTreeMap<ProcessId, Value>) -> Vec<String> {
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

    /// The processes that were started again, and in a complete history those that never acted.
    pub(super) fn anomalies(&self, complete: bool) -> Vec<String> {
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

impl<'a> ObservedRole<'a> {
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

#[cfg(test)]
mod tests {
    use stickycas_model::types::{AccessNumber, Position, SessionId, Time};

    use super::*;

    const SCENARIO: &str = r#"
        name = "three"
        [instance]
        processes = 3
        warp_size = 1
        read_size = 3
        [proposals]
        values = ["tea", "tea", "tea"]
    "#;

    fn scenario(more: &str) -> Scenario {
        let text = SCENARIO.replacen("name", &format!("{more}\nname"), 1);
        Scenario::parse("three.toml", &text, Some(1)).unwrap()
    }

    fn id(process: u32) -> ProcessId {
        ProcessId::new(process).unwrap()
    }

    fn append(process: u32, number: u64, value: &str) -> Event {
        accepted(process, number, Op::Append(Value::parse(value).unwrap()))
    }

    fn accepted(process: u32, number: u64, op: Op) -> Event {
        let number = AccessNumber::new(number).unwrap();
        Event::Accepted { process: id(process), number, session: None, op }
    }

    fn session(process: u32, session: u32, incarnation: u64) -> Event {
        Event::Session { process: id(process), session: SessionId::new(session).unwrap(), incarnation }
    }

    /// What is said of a complete history in which all three append tea first, after these events.
    fn told(scenario: &Scenario, before: Vec<Event>, after: Vec<Event>) -> (Vec<String>, Vec<String>) {
        let all = (1..=3).map(|process| append(process, 1, "tea"));
        let events = before.into_iter().chain(all).chain(after);
        let history: Vec<Recorded> = events.map(|event| Recorded { at: Time::ZERO, event }).collect();
        let parts = RoleCheck::seen(scenario, &history);
        (parts.role_mismatches(&BTreeMap::new()), parts.anomalies(true))
    }

    #[test]
    fn of_those_who_play_their_part_nothing_is_said() {
        let reconnected = vec![session(2, 1, 7), session(2, 2, 7)];
        assert_eq!(told(&scenario(""), reconnected, Vec::new()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn who_reads_first_plays_another_part() {
        let (role_mismatches, _) =
            told(&scenario(""), vec![accepted(3, 1, Op::Read { start: Position::new(0) })], Vec::new());
        assert_eq!(role_mismatches, ["process 3 is correct and did not append in its first access (D1)"]);
    }

    #[test]
    fn who_appends_again_plays_another_part() {
        let (role_mismatches, _) = told(&scenario(""), Vec::new(), vec![append(2, 2, "tea")]);
        assert_eq!(role_mismatches, ["process 2 is correct and appended after its first access (D1)"]);
    }

    #[test]
    fn a_second_life_must_be_planned() {
        let restarted = || vec![session(2, 1, 7), session(2, 2, 8)];
        let (_, anomalies) = told(&scenario(""), restarted(), Vec::new());
        assert_eq!(anomalies, ["process 2 was started again, which the plan does not name (V4)"]);
        let (_, anomalies) = told(&scenario("faulty = [2]"), restarted(), Vec::new());
        assert!(anomalies.is_empty(), "{anomalies:?}");
    }

    #[test]
    fn who_never_acts_is_named_once_the_history_is_whole() {
        let scenario = scenario("");
        let parts = RoleCheck::seen(&scenario, &[]);
        assert!(parts.anomalies(false).is_empty());
        assert_eq!(parts.anomalies(true).len(), 3);
    }
}
