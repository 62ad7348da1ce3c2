//! Every simulated instance passes, and every change of what was seen that cannot be true is caught.

use std::sync::Arc;

use stickycas_harness::Scenario;
use stickycas_model::access::Answer;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::process::Report;
use stickycas_model::sim;

use super::*;

struct Case {
    params: Arc<Params>,
    truth: GroundTruth,
    seen: Vec<ProcessObservation>,
}

impl Case {
    fn judged(&self) -> Finding {
        judge(&self.params, &self.truth, &self.seen)
    }

    /// The same with something changed.
    fn changed(mut self, change: impl FnOnce(&mut Vec<ProcessObservation>)) -> Finding {
        change(&mut self.seen);
        self.judged()
    }
}

/// What the correct processes of a simulated run saw.
fn simulated(scenario: &str, seed: u64) -> Case {
    let scenario = Scenario::parse("a.toml", scenario, Some(seed)).unwrap();
    let sim::SimOutcome { history, reports, list } = sim::run(&scenario.plan());
    let list: Vec<Value> = list.iter().map(|entry| entry.value.clone()).collect();
    let seen = |report: &Report| ProcessObservation {
        process: report.process,
        accesses: history.iter().filter_map(|recorded| answered(recorded, report.process, &list)).collect(),
        decision: report.decision.clone(),
        refused: None,
    };
    let correct: BTreeSet<ProcessId> = scenario.truth.correct().collect();
    let seen = reports.iter().filter(|report| correct.contains(&report.process)).map(seen).collect();
    Case { params: scenario.params, truth: scenario.truth, seen }
}

fn answered(recorded: &Recorded, me: ProcessId, list: &[Value]) -> Option<AnsweredAccess> {
    match recorded.event {
        Event::Answered { process, phase, answer: Answer::Append(answer), .. } if process == me => {
            Some(AnsweredAccess::Append { phase, answer })
        }
        Event::Answered { process, phase, answer: Answer::Read(answer), .. } if process == me => {
            let entries =
                list.iter().skip(answer.start.index()).take(answer.count as usize).cloned().collect();
            Some(AnsweredAccess::Read { phase: Some(phase), answer, entries })
        }
        _ => None,
    }
}

/// 12 processes in 4 warps of 3, three reads each, proposals that differ.
const PLAIN: &str =
    "name = \"a\"\n[instance]\nprocesses = 12\nwarp_size = 3\nread_size = 2\n[proposals]\ndistinct = 3\n";

fn plain() -> Case {
    simulated(PLAIN, 5)
}

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

/// The reads of a process, to be changed.
fn reads(
    seen: &mut ProcessObservation,
) -> impl Iterator<Item = (&mut Option<Phase>, &mut ReadAnswer, &mut Vec<Value>)> {
    seen.accesses.iter_mut().filter_map(|access| match access {
        AnsweredAccess::Read { phase, answer, entries } => Some((phase, answer, entries)),
        AnsweredAccess::Append { .. } => None,
    })
}

/// The winners, in the order of their phases.
fn winners(seen: &mut [ProcessObservation]) -> Vec<(&mut Phase, &mut Position)> {
    let mut winners: Vec<_> = seen
        .iter_mut()
        .filter_map(|seen| match seen.accesses.first_mut() {
            Some(AnsweredAccess::Append { phase, answer: AppendAnswer::Success(position) }) => {
                Some((phase, position))
            }
            _ => None,
        })
        .collect();
    winners.sort();
    winners
}

#[track_caller]
fn violates(rule: &str, finding: &Finding) {
    assert_eq!(finding.outcome, Outcome::Violation, "{:?}", finding.reasons);
    assert!(finding.reasons.iter().any(|reason| reason.starts_with(rule)), "{rule}: {:?}", finding.reasons);
}

#[test]
fn what_is_seen_of_simulated_instances_is_valid() {
    let byzantine = "[[faults]]\ncount = 1\nstrategy = \"collude(value=0)\"\n";
    let late = PLAIN.replace("[instance]", "late = [2, 7]\n[instance]");
    let shuffled =
        PLAIN.replace("read_size = 2", "read_size = 2\norder = \"shuffled\"\narbiter = \"uniform\"");
    let rounds = PLAIN.replace("read_size = 2", "read_size = 2\nappend_rounds = 2\narbiter = \"uniform\"");
    let late_in_rounds = rounds.replace("[instance]", "late = [2, 7]\n[instance]");
    let colluding_in_rounds = format!("{rounds}{byzantine}");
    let one_value = PLAIN.replace("distinct = 3", "distinct = 1");
    let colluding = format!("{one_value}{byzantine}");
    for scenario in [PLAIN, &shuffled, &late, &colluding, &rounds, &late_in_rounds, &colluding_in_rounds] {
        for seed in 0..40 {
            let finding = simulated(scenario, seed).judged();
            assert_eq!(finding.outcome, Outcome::Valid, "{scenario} {seed}: {:?}", finding.reasons);
        }
    }
}

#[test]
fn a_process_that_stops_appending_is_caught() {
    let rounds = PLAIN.replace("read_size = 2", "read_size = 2\nappend_rounds = 2");
    let finding = simulated(&rounds, 5).changed(|seen| {
        let loser = seen.iter_mut().find(|seen| won(&seen.accesses[0]).is_none()).unwrap();
        loser.accesses.remove(1);
    });
    violates("K2", &finding);
}

#[test]
fn what_nobody_promised_is_outside() {
    let colluding = format!("{PLAIN}[[faults]]\ncount = 4\nstrategy = \"collude(value=0)\"\n")
        .replace("read_size = 2", "read_size = 2\narbiter = \"byzantine_first\"");
    let finding = simulated(&colluding, 1).judged();
    assert_eq!(finding.outcome, Outcome::Outside);
    assert!(finding.reasons[0].starts_with("strong validity"), "{:?}", finding.reasons);
}

#[test]
fn the_paper_as_printed_may_disagree_and_is_outside() {
    let scenario = include_str!("../../../../examples/scenarios/late-append-open.toml");
    let finding = simulated(scenario, 1).judged();
    assert_eq!(finding.outcome, Outcome::Outside, "{:?}", finding.reasons);
    assert!(finding.reasons[0].starts_with("agreement"), "{:?}", finding.reasons);
}

#[test]
fn who_has_not_decided_makes_an_instance_prove_nothing() {
    let finding = plain().changed(|seen| seen[3].decision = None);
    assert_eq!(finding.outcome, Outcome::Unknown);
    let finding = plain().changed(|seen| drop(seen.pop()));
    assert_eq!(finding.reasons, ["1 correct processes have not decided"]);
}

#[test]
fn two_values_at_one_position_are_caught() {
    violates("R2", &plain().changed(|seen| reads(&mut seen[4]).next().unwrap().2[0] = value("z")));
}

#[test]
fn a_value_that_its_winner_did_not_propose_is_caught() {
    let everywhere = |seen: &mut Vec<ProcessObservation>| {
        for seen in seen {
            for (_, answer, entries) in reads(seen) {
                if answer.start.get() == 0 && !entries.is_empty() {
                    entries[0] = value("z");
                }
            }
        }
    };
    violates("A3", &plain().changed(everywhere));
}

#[test]
fn two_winners_of_a_phase_and_a_position_won_twice_are_caught() {
    let second_winner = |seen: &mut Vec<ProcessObservation>| {
        let lost = seen[..3].iter_mut().find_map(|seen| match seen.accesses.first_mut() {
            Some(AnsweredAccess::Append { answer: answer @ AppendAnswer::Failed, .. }) => Some(answer),
            _ => None,
        });
        *lost.unwrap() = AppendAnswer::Success(Position::new(7));
    };
    violates("A1", &plain().changed(second_winner));
    violates("A1", &plain().changed(|seen| *winners(seen)[1].1 = Position::new(0)));
    let swapped = |seen: &mut Vec<ProcessObservation>| {
        let mut winners = winners(seen);
        (*winners[0].1, *winners[1].1) = (Position::new(1), Position::new(0));
    };
    violates("A1", &plain().changed(swapped));
}

#[test]
fn a_phase_of_another_warp_and_phases_out_of_order_are_caught() {
    let earlier = |seen: &mut Vec<ProcessObservation>| *reads(&mut seen[0]).next().unwrap().0 = Phase::new(2);
    violates("W1", &plain().changed(earlier));
    let again = |seen: &mut Vec<ProcessObservation>| *reads(&mut seen[0]).next().unwrap().0 = Phase::new(1);
    violates("F7", &plain().changed(again));
}

#[test]
fn a_read_that_hides_entries_is_caught() {
    let fewer = |seen: &mut Vec<ProcessObservation>| drop(reads(&mut seen[2]).next().unwrap().2.pop());
    violates("R1", &plain().changed(fewer));
    // In the whole of its phase the list is said to be shorter, and so a reader of the next phase
    // contradicts.
    let shorter = |seen: &mut Vec<ProcessObservation>| {
        for seen in &mut seen[9..12] {
            let (_, answer, _) = reads(seen).next().unwrap();
            answer.length = 3;
        }
    };
    violates("A3", &plain().changed(shorter));
}

#[test]
fn different_lists_in_one_phase_are_caught() {
    violates("F2", &plain().changed(|seen| reads(&mut seen[1]).next().unwrap().1.sealed = false));
}

#[test]
fn an_entry_that_reads_deny_is_caught() {
    // The winner of the last warp claims a position beyond what all processes read afterwards.
    violates("F2", &plain().changed(|seen| *winners(seen)[3].1 = Position::new(9)));
}

#[test]
fn a_decision_that_is_not_the_mode_is_caught() {
    let other = |seen: &mut Vec<ProcessObservation>| {
        let decision = seen[6].decision.as_mut().unwrap();
        *decision = if *decision == value("v1") { value("v2") } else { value("v1") };
    };
    let finding = plain().changed(other);
    violates("D1", &finding);
    violates("agreement", &finding);
}

#[test]
fn a_decision_that_nobody_proposed_is_caught() {
    let finding = plain().changed(|seen| seen.iter_mut().for_each(|seen| seen.decision = Some(value("z"))));
    violates("weak validity", &finding);
    violates("strong validity", &finding);
}

#[test]
fn a_decision_from_a_part_of_the_list_is_caught() {
    let hasty = |seen: &mut Vec<ProcessObservation>| {
        let seen = &mut seen[0];
        seen.accesses.truncate(2);
        let first = reads(seen).next().unwrap().2.clone();
        seen.decision = mode(&first).cloned();
    };
    violates("D1", &plain().changed(hasty));
}

#[test]
fn a_read_that_starts_elsewhere_is_caught() {
    let elsewhere = |seen: &mut Vec<ProcessObservation>| {
        let (_, answer, entries) = reads(&mut seen[0]).next().unwrap();
        answer.start = Position::new(1);
        entries.remove(0);
        answer.count -= 1;
    };
    violates("D1: process 1 read from 1, where 0 was due", &plain().changed(elsewhere));
}

#[test]
fn a_decision_after_too_many_accesses_is_caught() {
    let slow = |seen: &mut Vec<ProcessObservation>| {
        let last = seen[0].accesses.last().unwrap().clone();
        let AnsweredAccess::Read { answer, entries, .. } = last else { panic!("it reads last") };
        for round in 3..=4 {
            let (answer, entries) = (answer, entries.clone());
            seen[0].accesses.push(AnsweredAccess::Read { phase: Phase::new(round * 4 + 1), answer, entries });
        }
    };
    violates("D2", &plain().changed(slow));
}

#[test]
fn refusals_of_correct_processes_violate_except_at_limits() {
    for (reason, outcome) in [
        (RefusalReason::DecisionDiffers, Outcome::Violation),
        (RefusalReason::NotAMember, Outcome::Violation),
        (RefusalReason::RateExceeded, Outcome::Valid),
        (RefusalReason::InstanceClosed, Outcome::Valid),
    ] {
        let mut case = plain();
        case.seen[3].refused = Some(ObservedRefusal { reason, why: "so it says".to_owned() });
        let finding = judge(&case.params, &case.truth, &case.seen);
        assert_eq!(finding.outcome, outcome, "{finding:?}");
    }
}
