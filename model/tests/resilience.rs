//! How good the bounds are (SPEC K4): runs of which no process can tell which of several it is in, so that
//! one of them decides a value of no correct process; an algorithm that gets round the second of these
//! arguments; and the cast that breaks one append round and not p of them.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stickycas_model::access::{Access, Op};
use stickycas_model::bounds::strong_validity;
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::detect;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::judge::{Case, Expectations, Observed, Outcome, Verdict, judge};
use stickycas_model::machine::Machine;
use stickycas_model::params::{Arbiter, Params, ParamsSpec};
use stickycas_model::sim::{SimOutcome, SimPlan, run};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Time, Value, WarpId};

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

fn params(n: u32, p: u32, append_rounds: u32, arbiter: Arbiter) -> Arc<Params> {
    let spec = ParamsSpec { append_rounds, arbiter, ..ParamsSpec::new(n, p, n) };
    Arc::new(Params::try_new(spec).unwrap())
}

/// A run in which processes 1, 2, 3, ... propose these values, and those named are Byzantine and do as if
/// they were correct; and its verdict.
fn outcome(params: &Arc<Params>, proposals: &[&str], byzantine: &[ProcessId]) -> (SimOutcome, Verdict) {
    let assignment = |(process, proposal): (ProcessId, &&str)| {
        let role = match byzantine.contains(&process) {
            true => Role::Byzantine(format!("collude(value={proposal})").parse().unwrap()),
            false => Role::Correct,
        };
        Assignment { role, proposal: value(proposal) }
    };
    let processes = ProcessId::all(params.processes());
    let truth = GroundTruth::new(processes.zip(proposals).map(assignment).collect());
    let plan = SimPlan { params: Arc::clone(params), truth, seed: 1 };
    let outcome = run(&plan);
    let detection = detect(params, &plan.truth, plan.seed, &outcome.history, &RunCounts::default());
    let verdict = judge(&Case {
        params: Arc::clone(params),
        truth: &plan.truth,
        expected: &Expectations::new(&plan.truth, &detection),
        history: &outcome.history,
        complete: true,
        reports: &outcome.reports,
        fired: detection.fired,
    });
    (outcome, verdict)
}

/// The decision of S0, and of each S_j whether strong validity broke. Whoever is correct in S_j and proposes
/// the same as in S0 reports the same, decision and entries.
fn indistinguishable(params: &Arc<Params>, s0: &[&str], others: &[(Vec<&str>, Vec<ProcessId>)]) {
    let (first, verdict) = outcome(params, s0, &[]);
    let decision = verdict.decision.unwrap();
    let mut broken = 0;
    for (proposals, byzantine) in others {
        let (outcome, verdict) = outcome(params, proposals, byzantine);
        assert_eq!(outcome.list, first.list);
        for (process, report) in ProcessId::all(params.processes()).zip(&outcome.reports) {
            let same = proposals[process.index()] == s0[process.index()];
            if same && !byzantine.contains(&process) {
                assert_eq!(report, &first.reports[process.index()]);
            }
        }
        assert_eq!(verdict.decision, Some(decision.clone()));
        assert_eq!(verdict.distinct_correct_proposals, others.len() as u64 - 1, "|Vc|");
        assert_eq!(verdict.strong_validity_promised, byzantine.is_empty());
        if verdict.strong_validity == Observed::Violated {
            assert_eq!(verdict.verdict, Outcome::Outside, "{:?}", verdict.reasons);
            broken += 1;
        }
    }
    assert_eq!(broken, 1, "the group that proposes the decision");
}

/// K4 (i): n = 6, f = 2, |Vc| = 2: f*(|Vc|+1) = n. Three groups of two, in any number of append rounds.
#[test]
fn nobody_can_tell_a_byzantine_group_from_a_correct_one() {
    let s0 = ["a", "a", "b", "b", "c", "c"];
    let groups = ["a", "b", "c"].map(|of| {
        let group = ProcessId::all(6).zip(s0).filter(|(_, proposal)| *proposal == of);
        (s0.to_vec(), group.map(|(process, _)| process).collect())
    });
    for append_rounds in 1..=3 {
        indistinguishable(&params(6, 3, append_rounds, Arbiter::Uniform), &s0, &groups);
    }
}

/// K4 (ii): n = 9, p = 3, f = 1, |Vc| = 2: f*(|Vc|+1) = W. Three groups of one warp each; in S_j the winner
/// of group j is Byzantine, and the losers propose another value, which nobody sees.
#[test]
fn with_one_append_phase_nobody_sees_what_a_loser_proposes() {
    let s0 = ["a", "a", "a", "b", "b", "b", "c", "c", "c"];
    let winners = [2, 4, 9].map(|winner| ProcessId::new(winner).unwrap());
    let params = params(9, 3, 1, Arbiter::Priority(winners.to_vec()));
    let others = winners.map(|winner| {
        let mut proposals = s0.to_vec();
        let other = ["a", "b", "c"].into_iter().find(|other| *other != s0[winner.index()]).unwrap();
        let losers = params.members(params.warp_of(winner)).filter(|process| *process != winner);
        losers.for_each(|loser| proposals[loser.index()] = other);
        (proposals, vec![winner])
    });
    indistinguishable(&params, &s0, &others);
}

/// K4 (ii) where |Vc| + 1 groups are more than there are warps: n = 6, p = 3, f = 1, |Vc| = 2. The third
/// group has no warp; a loser of the first proposes its value.
#[test]
fn a_group_without_a_warp_is_of_losers() {
    let winners = [1, 4].map(|winner| ProcessId::new(winner).unwrap());
    let params = params(6, 3, 1, Arbiter::Priority(winners.to_vec()));
    let s0 = ["a", "c", "a", "b", "b", "b"];
    let others = [
        (vec!["a", "c", "b", "b", "b", "b"], vec![winners[0]]),
        (vec!["a", "c", "a", "b", "a", "a"], vec![winners[1]]),
        (vec!["a", "a", "a", "b", "b", "b"], Vec::new()),
    ];
    indistinguishable(&params, &s0, &others);
}

/// What a process of K4 (iii) does in its first phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Appends,
    Reads,
    Nothing,
}

/// How many entries stand after the first phases of all warps.
fn entries(params: &Arc<Params>, first: &[First]) -> u32 {
    let (mut machine, mut events) = (Machine::new(Arc::clone(params)), Vec::new());
    for process in ProcessId::all(params.processes()) {
        machine.hello(Time::ZERO, process, 1, &mut events).unwrap();
    }
    for (process, first) in ProcessId::all(params.processes()).zip(first) {
        let op = match first {
            First::Appends => Op::Append(value("1")),
            First::Reads => Op::Read { start: Position::new(0) },
            First::Nothing => continue,
        };
        let access = Access { process, session: None, number: AccessNumber::FIRST, op, no_wait: false };
        machine.access(Time::ZERO, access, &mut events).unwrap();
    }
    while machine.waiting() > 0 {
        machine.tick(machine.deadline().unwrap(), &mut events);
    }
    machine.list().len()
}

/// K4 (iii): who proposes 1 appends, who proposes 0 only reads, and all decide 1 if more than f entries
/// stand. Algorithm 1 allows fewer Byzantine processes than f here.
#[test]
fn silence_as_a_message_gets_round_the_second_argument() {
    for (n, p, f) in [(4, 2, 1), (6, 3, 1), (8, 4, 1), (9, 3, 2)] {
        let params = params(n, p, 1, Arbiter::FirstCome);
        assert!(strong_validity(&params, f.into(), 1).is_err());
        let mut decided = BTreeSet::new();
        for byzantine in (0..1_u32 << n).filter(|set| set.count_ones() == f) {
            // Of the correct processes, those in the set propose 1.
            for proposals in (0..1_u32 << n).filter(|set| set & byzantine == 0) {
                // Of the Byzantine ones, those in the set append.
                for appends in (0..1_u32 << n).filter(|set| set & !byzantine == 0) {
                    for others in [First::Reads, First::Nothing] {
                        let first = (0..n).map(|process| match () {
                            () if (proposals | appends) >> process & 1 == 1 => First::Appends,
                            () if byzantine >> process & 1 == 1 => others,
                            () => First::Reads,
                        });
                        let decision = entries(&params, &first.collect::<Vec<_>>()) > f;
                        let proposed = if decision { proposals } else { !proposals & !byzantine };
                        let one = proposed & ((1 << n) - 1) != 0;
                        assert!(one, "n = {n}: {byzantine:b} {proposals:b} {appends:b} decide {decision}");
                        decided.insert(decision);
                    }
                }
            }
        }
        assert_eq!(decided, BTreeSet::from([false, true]));
    }
}

/// The adversary's cast: its processes win f appends, or all, and propose 0; the other winners, and then the
/// losers, propose a, b, ... in turn. Returns the order in which appends win, too.
fn adversary(n: u32, p: u32, q: u32, f: usize, values: usize) -> (Vec<&'static str>, Vec<ProcessId>) {
    let mut order: Vec<ProcessId> = ProcessId::all(n).collect();
    let place = |process: ProcessId| (process.get() - 1) % p;
    // In each warp one after the other, so that those who lose come last.
    order.sort_by_key(|process| (place(*process).min(q), *process));
    let mut proposals = vec!["0"; n as usize];
    for (process, value) in order[f..].iter().zip(["a", "b", "c"][..values].iter().cycle()) {
        proposals[process.index()] = value;
    }
    (proposals, order)
}

/// K3, in runs of all sizes: strong validity breaks exactly where it is not promised.
#[test]
fn the_bound_of_append_rounds_is_exact_in_runs() {
    let mut broken = BTreeMap::new();
    for (n, p) in (1..=7).flat_map(|n| (1..=n).map(move |p| (n, p))) {
        for (q, values) in (1..=p).flat_map(|q| (1..=3.min(n as usize)).map(move |values| (q, values))) {
            for f in 1..=n as usize - values {
                let (proposals, order) = adversary(n, p, q, f, values);
                let params = params(n, p, q, Arbiter::Priority(order.clone()));
                let (_, verdict) = outcome(&params, &proposals, &order[..f]);
                let at = format!("n = {n}, p = {p}, q = {q}, f = {f}, |Vc| = {values}");
                assert_eq!(verdict.distinct_correct_proposals, values as u64, "{at}");
                let holds = verdict.strong_validity == Observed::Held;
                assert_eq!(holds, verdict.strong_validity_promised, "{at}");
                let expected = if holds { Outcome::Valid } else { Outcome::Outside };
                assert_eq!(verdict.verdict, expected, "{at}: {:?}", verdict.reasons);
                *broken.entry((q, !holds)).or_insert(0) += 1;
            }
        }
    }
    assert!((1..=3).all(|q| broken[&(q, true)] > 20 && broken[&(q, false)] > 10), "{broken:?}");
}

/// n = 8, p = 4, |Vc| = 1, f = 3: 2*3 >= 2 = T for q = 1, and 2*3 < 8 = T for q = 4.
#[test]
fn three_byzantine_processes_break_one_append_round_and_not_four() {
    let byzantine = [1, 2, 5].map(|process| ProcessId::new(process).unwrap());
    let proposals = ["0", "0", "v", "v", "0", "v", "v", "v"];
    let judged = |append_rounds| {
        let params = params(8, 4, append_rounds, Arbiter::Priority(byzantine.to_vec()));
        let (outcome, verdict) = outcome(&params, &proposals, &byzantine);
        let mut won: BTreeMap<WarpId, usize> = BTreeMap::new();
        outcome.list.iter().for_each(|entry| *won.entry(params.warp_of(entry.process)).or_default() += 1);
        assert!(won.values().all(|won| *won == append_rounds as usize), "{won:?}");
        (verdict.verdict, verdict.decision.unwrap().to_string(), verdict.common_validity_promised)
    };
    assert_eq!(judged(1), (Outcome::Outside, "0".to_owned(), false));
    assert_eq!(judged(4), (Outcome::Valid, "v".to_owned(), true));
}
