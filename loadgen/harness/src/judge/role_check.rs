//! Whether correct processes play the part that the scenario gives them, as far as that is no matter of
//! Algorithm 1, which the model judges: they act, in one life, and say that they propose what it has.

use std::collections::{BTreeMap, BTreeSet};

use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{ProcessId, Value};

use crate::scenario::Scenario;

/// Correct processes that play otherwise than the scenario has it.
#[derive(Debug)]
pub(super) struct RoleCheck<'a> {
    scenario: &'a Scenario,
    /// The processes of which an access was accepted.
    acted: BTreeSet<ProcessId>,
    /// The processes that have had more than one life.
    restarted: BTreeSet<ProcessId>,
}

impl<'a> RoleCheck<'a> {
    /// The observed behaviour of each process in a history.
    pub(super) fn seen(scenario: &'a Scenario, history: &[Recorded]) -> Self {
        let (mut acted, mut restarted) = (BTreeSet::new(), BTreeSet::new());
        let mut lives: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for recorded in history {
            match &recorded.event {
                Event::Accepted { process, .. } => drop(acted.insert(*process)),
                Event::Session { process, incarnation, .. } => {
                    // An incarnation that is not told is another life.
                    let before = lives.insert(*process, *incarnation);
                    if before.is_some_and(|before| *incarnation == 0 || before != *incarnation) {
                        restarted.insert(*process);
                    }
                }
                _ => {}
            }
        }
        Self { scenario, acted, restarted }
    }

    /// The processes that sent no access and report another proposal than planned. `said`: the reported
    /// proposals.
    pub(super) fn role_mismatches(&self, said: &BTreeMap<ProcessId, Value>) -> Vec<String> {
        let other = |process: ProcessId| {
            let planned = &self.scenario.truth.assignment(process)?.proposal;
            let proposed =
                said.get(&process).filter(|said| !self.acted.contains(&process) && *said != planned)?;
            Some(format!(
                "process {process} is correct and proposed {proposed}, where the scenario has {planned}"
            ))
        };
        self.correct().filter_map(other).collect()
    }

    /// The processes that were started again, and in a complete history those that never acted.
    pub(super) fn anomalies(&self, complete: bool) -> Vec<String> {
        let idle = self.correct().filter(|process| complete && !self.acted.contains(process));
        let again = self.correct().filter(|process| self.restarted.contains(process));
        let idle = idle.map(|process| {
            format!("process {process} is correct and did not append in its first access (D1)")
        });
        let again = again
            .map(|process| format!("process {process} was started again, which the plan does not name (V4)"));
        idle.chain(again).collect()
    }

    /// Correct processes that the plan does not make faulty.
    fn correct(&self) -> impl Iterator<Item = ProcessId> {
        let truth = &self.scenario.truth;
        truth.correct().filter(|process| !truth.faulty().contains(process))
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::access::Op;
    use stickycas_model::types::{AccessNumber, SessionId, Time};

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

    fn append(process: u32, value: &str) -> Event {
        let op = Op::Append(Value::parse(value).unwrap());
        Event::Accepted { process: id(process), number: AccessNumber::FIRST, session: None, op }
    }

    fn session(process: u32, session: u32, incarnation: u64) -> Event {
        Event::Session { process: id(process), session: SessionId::new(session).unwrap(), incarnation }
    }

    /// The findings on a complete history in which all three append tea first, after these events.
    fn told(scenario: &Scenario, before: Vec<Event>) -> (Vec<String>, Vec<String>) {
        let all = (1..=3).map(|process| append(process, "tea"));
        let events = before.into_iter().chain(all);
        let history: Vec<Recorded> = events.map(|event| Recorded { at: Time::ZERO, event }).collect();
        let parts = RoleCheck::seen(scenario, &history);
        (parts.role_mismatches(&BTreeMap::new()), parts.anomalies(true))
    }

    #[test]
    fn of_those_who_play_their_part_nothing_is_said() {
        let reconnected = vec![session(2, 1, 7), session(2, 2, 7)];
        assert_eq!(told(&scenario(""), reconnected), (Vec::new(), Vec::new()));
    }

    #[test]
    fn who_says_that_it_proposes_something_else_plays_another_part() {
        let scenario = scenario("");
        let parts = RoleCheck::seen(&scenario, &[]);
        let said =
            BTreeMap::from([(id(1), Value::parse("tea").unwrap()), (id(3), Value::parse("ale").unwrap())]);
        let mismatches = parts.role_mismatches(&said);
        assert_eq!(mismatches, ["process 3 is correct and proposed ale, where the scenario has tea"]);
    }

    #[test]
    fn a_second_life_must_be_planned() {
        let restarted = || vec![session(2, 1, 7), session(2, 2, 8)];
        let (_, anomalies) = told(&scenario(""), restarted());
        assert_eq!(anomalies, ["process 2 was started again, which the plan does not name (V4)"]);
        let (_, anomalies) = told(&scenario("faulty = [2]"), restarted());
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
