//! Each strategy in the simulator: it is observed, it is blamed for exactly the offences that it defines, and
//! inside the bound no other process suffers from it (SPEC section 8, B1 to B3).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stickycas_model::byzantine::{Reader, Strategy};
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::{Detection, detect};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::{Event, OffenceKind};
use stickycas_model::judge::{self, Case, Outcome, Verdict};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec};
use stickycas_model::sim;
use stickycas_model::types::{ProcessId, Seed, Value};

/// Every strategy, some of them with more than one set of arguments.
const ALL: [&str; 23] = [
    "absent",
    "silent",
    "crash@1",
    "crash(access=3)",
    "empty",
    "distinct",
    "collude(value=0)",
    "mimic(value=b)",
    "mixed(collude=0, mimic=b)",
    "late-append(access=2, value=0)",
    "late-append(access=3, value=0)",
    "repeat-append",
    "repeat-append(value=0)",
    "reader",
    "stall",
    "stall(conduct=liar)",
    "adaptive(phase=1, then=collude(value=0))",
    "adaptive(phase=8, then=silent)",
    "adaptive(phase=9, then=repeat-append)",
    "adaptive(phase=8, then=stall(conduct=crash(access=4)))",
    "liar",
    "liar(value=b)",
    "adaptive(phase=9, then=stall(conduct=liar))",
];

/// The processes that play a strategy.
const CULPRITS: [u32; 2] = [2, 5];

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

fn process(number: u32) -> ProcessId {
    ProcessId::new(number).unwrap()
}

/// Seven processes, a warp each, two of them Byzantine: f*(|Vc|+1)*p = 2*(2+1)*1 = 6 < 7 = n, and c = 3.
fn plan(strategy: &str, window: AppendWindow, order: Order, seed: u64) -> sim::SimPlan {
    let strategy: Strategy = strategy.parse().unwrap();
    let assignment = |(number, proposal)| {
        let byzantine = CULPRITS.contains(&number);
        let role = if byzantine { Role::Byzantine(strategy.clone()) } else { Role::Correct };
        Assignment { role, proposal: value(proposal) }
    };
    let assignments = (1..).zip(["a", "c", "a", "b", "d", "a", "a"]).map(assignment).collect();
    let mut spec = ParamsSpec::new(7, 1, 3);
    (spec.append_window, spec.order, spec.seed) = (window, order, Seed::new(seed));
    sim::SimPlan {
        params: Arc::new(Params::try_new(spec).unwrap()),
        truth: GroundTruth::new(assignments),
        seed,
    }
}

/// The same processes in warps of p with p append rounds, in which each correct one wins, and the Byzantine
/// ones win first: T = n.
fn in_rounds(plan: sim::SimPlan, p: u32) -> sim::SimPlan {
    let arbiter = Arbiter::Priority(CULPRITS.map(process).to_vec());
    let spec = ParamsSpec { warp_size: p, append_rounds: p, arbiter, ..plan.params.spec().clone() };
    sim::SimPlan { params: Arc::new(Params::try_new(spec).unwrap()), ..plan }
}

fn detected(plan: &sim::SimPlan, truth: &GroundTruth, outcome: &sim::SimOutcome) -> Detection {
    detect(&plan.params, truth, plan.seed, &outcome.history, &RunCounts::default())
}

/// A run of a plan, held against what `ground truth` says was to happen.
fn judged(plan: &sim::SimPlan, truth: &GroundTruth) -> (sim::SimOutcome, Verdict) {
    let outcome = sim::run(plan);
    let Detection { fired, .. } = detected(plan, truth, &outcome);
    let verdict = judge::judge(&Case {
        params: Arc::clone(&plan.params),
        truth,
        expected: &judge::Expectations {
            attacks: fired.keys().cloned().collect(),
            ..judge::Expectations::default()
        },
        history: &outcome.history,
        complete: true,
        reports: &outcome.reports,
        fired,
    });
    (outcome, verdict)
}

fn everyone_correct(plan: &sim::SimPlan) -> sim::SimPlan {
    let correct = |(_, assignment): (_, &Assignment)| Assignment {
        role: Role::Correct,
        proposal: assignment.proposal.clone(),
    };
    sim::SimPlan { truth: GroundTruth::new(plan.truth.assignments().map(correct).collect()), ..plan.clone() }
}

fn kinds(verdict: &Verdict, process: ProcessId) -> BTreeSet<OffenceKind> {
    verdict.blame.get(&process).map_or_else(BTreeSet::new, |kinds| kinds.keys().copied().collect())
}

#[test]
fn all_names_are_among_them() {
    let tried: BTreeSet<&str> = ALL.iter().map(|text| text.parse::<Strategy>().unwrap().name()).collect();
    assert_eq!(tried, BTreeSet::from(Strategy::ALL_NAMES));
}

#[test]
fn inside_the_bound_each_is_observed_and_blamed_exactly() {
    for text in ALL {
        for order in [Order::Ascending, Order::Descending, Order::Shuffled] {
            for (seed, p) in
                (0..20).map(|seed| (seed, 1)).chain((0..10).map(|seed| (seed, 2 + seed as u32 % 2)))
            {
                let plan = in_rounds(plan(text, AppendWindow::FirstAccess, order, seed), p);
                let (outcome, verdict) = judged(&plan, &plan.truth);
                let at = format!("{text}, {order:?}, seed {seed}, p = q = {p}");
                assert_eq!(verdict.verdict, Outcome::Valid, "{at}: {:?}", verdict.reasons);
                assert_eq!(verdict.decision, Some(value("a")), "{at}");
                assert_eq!(verdict.decisions.len(), 5, "{at}");
                let Detection { attackers: seen, offences, .. } = detected(&plan, &plan.truth, &outcome);
                // A report may come when all correct processes have ended, and with them the run.
                if !text.contains("liar") {
                    assert_eq!(seen, CULPRITS.map(process).into(), "{at}");
                }
                for (process, _) in plan.truth.assignments() {
                    let expected = offences.get(&process).cloned().unwrap_or_default();
                    assert_eq!(kinds(&verdict, process), expected, "{at}: process {process}");
                }
            }
        }
    }
}

/// With q = 3 all of this is within the append rounds: to win late, to withhold until the last round, and to
/// append on after a win are no offences, and another value in each round is one.
#[test]
fn within_the_append_rounds_only_another_value_is_an_offence() {
    let run = |text: &str| {
        let plan = in_rounds(plan(text, AppendWindow::FirstAccess, Order::Ascending, 1), 3);
        let (outcome, verdict) = judged(&plan, &plan.truth);
        let won = outcome.list.iter().filter(|entry| entry.process == process(2)).count();
        let offences = verdict.blame.get(&process(2)).map(|kinds| kinds[&OffenceKind::LateAppend]);
        (won, offences, verdict.fired.values().sum::<u64>())
    };
    assert_eq!(run("late-append(access=2, value=0)"), (1, None, 2));
    assert_eq!(run("late-append(access=3, value=0)"), (1, None, 2));
    // The instance has c = 3, so it appends in six accesses, of which the last three are late.
    assert_eq!(run("repeat-append(value=0)"), (1, Some(3), 2));
    assert_eq!(run("repeat-append"), (1, Some(5), 2));
}

#[test]
fn where_all_are_correct_no_strategy_is_observed() {
    // In three append rounds processes 2 and 5 append three times: they win last. Process 2 proposes c.
    let others = ["late-append(access=2, value=c)", "late-append(access=3, value=c)"];
    for (text, p) in ALL.into_iter().chain(others).flat_map(|text| [(text, 1), (text, 3)]) {
        let plan = plan(text, AppendWindow::FirstAccess, Order::Ascending, 1);
        let arbiter = Arbiter::Priority([1, 3, 4, 6].map(process).to_vec());
        let spec = ParamsSpec { arbiter, ..in_rounds(plan.clone(), p).params.spec().clone() };
        let claimed = sim::SimPlan { params: Arc::new(Params::try_new(spec).unwrap()), ..plan };
        let (outcome, verdict) = judged(&everyone_correct(&claimed), &claimed.truth);
        assert!(detected(&claimed, &claimed.truth, &outcome).attackers.is_empty(), "{text}, p = {p}");
        assert_eq!(verdict.verdict, Outcome::Unknown, "{text}, p = {p}: {:?}", verdict.reasons);
        assert!(verdict.blame.is_empty(), "{text}, p = {p}");
    }
}

#[test]
fn a_lie_is_an_offence_only_under_first_access() {
    let plan = plan("liar(value=b)", AppendWindow::Open, Order::Ascending, 1);
    let (_, verdict) = judged(&plan, &plan.truth);
    assert_eq!(verdict.verdict, Outcome::Valid, "{:?}", verdict.reasons);
    assert_eq!(verdict.fired, BTreeMap::from([("liar".to_owned(), 2)]));
    assert!(verdict.blame.is_empty());
}

#[test]
fn a_liar_who_is_told_the_truth_lies_all_the_same() {
    for truth in ["a", "lie"] {
        let mut plan = plan(&format!("liar(value={truth})"), AppendWindow::FirstAccess, Order::Ascending, 1);
        let assignments = plan
            .truth
            .assignments()
            .map(|(_, assignment)| Assignment { proposal: value(truth), ..assignment.clone() });
        plan.truth = GroundTruth::new(assignments.collect());
        let (_, verdict) = judged(&plan, &plan.truth);
        assert_eq!(verdict.decision, Some(value(truth)));
        assert_eq!(verdict.blame.len(), 2, "{truth}");
    }
}

#[test]
fn a_mix_has_each_of_its_cases_among_its_draws() {
    let mixed: Strategy = "mixed(collude=0, mimic=b)".parse().unwrap();
    let mut firsts = BTreeSet::new();
    for seed in 0..40 {
        let plan = plan(&mixed.to_string(), AppendWindow::FirstAccess, Order::Ascending, seed);
        for recorded in sim::run(&plan).history {
            match recorded.event {
                Event::Added { process, value, .. } if process.get() == 2 => {
                    firsts.insert(value.to_string());
                }
                Event::Offence(offence) if offence.process.get() == 2 => {
                    firsts.insert(format!("{:?}", offence.kind));
                }
                _ => {}
            }
        }
    }
    assert_eq!(firsts, ["0", "b", "byzantine-2", "Malformed"].map(str::to_owned).into());
}

#[test]
fn a_reader_appends_the_runner_up_or_its_proposal() {
    let appended = |n, proposals: &[&str], reader: u32| {
        let assignment = |(number, proposal): (u32, &&str)| {
            let role =
                if number == reader { Role::Byzantine(Strategy::Reader(Reader)) } else { Role::Correct };
            Assignment { role, proposal: value(proposal) }
        };
        let mut spec = ParamsSpec::new(n, 1, n);
        spec.append_window = AppendWindow::Open;
        let truth = GroundTruth::new((1..).zip(proposals).map(assignment).collect());
        let plan = sim::SimPlan { params: Arc::new(Params::try_new(spec).unwrap()), truth, seed: 1 };
        sim::run(&plan).list.iter().find(|entry| entry.process.get() == reader).unwrap().value.clone()
    };
    assert_eq!(
        appended(6, &["a", "b", "b", "c", "a", "z"], 6),
        value("b"),
        "a and b stand twice, a is the mode"
    );
    assert_eq!(appended(3, &["a", "a", "z"], 3), value("z"));
}

#[test]
fn a_corrupted_process_is_correct_until_its_phase() {
    let corrupted_from = |phase: u64| {
        let text = format!("adaptive(phase={phase}, then=repeat-append(value=0))");
        let plan = plan(&text, AppendWindow::FirstAccess, Order::Ascending, 1);
        let (outcome, verdict) = judged(&plan, &plan.truth);
        let first = outcome.list.iter().find(|entry| entry.process.get() == 5).unwrap().value.clone();
        (first, verdict.blame.get(&process(5)).map(|kinds| kinds[&OffenceKind::LateAppend]))
    };
    // Process 5 acts in phases 5, 12, 19 and 26, and has its append and three reads to make.
    assert_eq!(corrupted_from(5), (value("0"), Some(3)));
    assert_eq!(corrupted_from(6), (value("d"), Some(3)));
    assert_eq!(corrupted_from(12), (value("d"), Some(3)));
    assert_eq!(corrupted_from(13), (value("d"), Some(2)));
    assert_eq!(corrupted_from(27), (value("d"), None));
}

#[test]
fn a_corrupted_process_lies_from_its_phase_on_only() {
    let lies_from = |phase: u64| {
        let plan = plan(
            &format!("adaptive(phase={phase}, then=liar)"),
            AppendWindow::FirstAccess,
            Order::Ascending,
            1,
        );
        let (outcome, verdict) = judged(&plan, &plan.truth);
        let seen = detected(&plan, &plan.truth, &outcome).attackers;
        (kinds(&verdict, process(2)), kinds(&verdict, process(5)), seen)
    };
    let lie = || BTreeSet::from([OffenceKind::FalseDecision]);
    // Process 2 decides after phase 23, before phase 24 is over; process 5 after phase 26.
    assert_eq!(lies_from(23), (lie(), lie(), CULPRITS.map(process).into()));
    assert_eq!(lies_from(24), (lie(), lie(), CULPRITS.map(process).into()));
    assert_eq!(lies_from(25), (BTreeSet::new(), lie(), [process(5)].into()));
    assert_eq!(lies_from(27), (BTreeSet::new(), lie(), [process(5)].into()));
    assert_eq!(lies_from(28), (BTreeSet::new(), BTreeSet::new(), BTreeSet::new()));
}

#[test]
fn patience_lost_to_who_stalls_or_crashes_is_lost_once() {
    for text in ["silent", "crash@1", "stall"] {
        let plan = plan(text, AppendWindow::FirstAccess, Order::Ascending, 1);
        let (outcome, verdict) = judged(&plan, &plan.truth);
        let took = outcome.history.last().unwrap().at.as_nanos();
        assert!(took <= 2_000_000_000, "{text}: two of them, with a second each, took {took} ns");
        assert_eq!(verdict.verdict, Outcome::Valid, "{text}: {:?}", verdict.reasons);
    }
}
