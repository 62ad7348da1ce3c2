//! The judge of simulated runs: inside the bound nothing breaks, whichever processes are Byzantine and in
//! whatever order accesses arrive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use stickycas_model::byzantine::Strategy as Byzantine;
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::{Detection, detect};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::Event;
use stickycas_model::judge::{self, Case, Outcome, Property, Verdict, VerdictSummary};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::sim;
use stickycas_model::types::{Phase, ProcessId, Seed, Value};

fn case_of<'a>(
    plan: &'a sim::SimPlan,
    outcome: &'a sim::SimOutcome,
    expected: &'a judge::Expectations,
) -> Case<'a> {
    Case {
        params: Arc::clone(&plan.params),
        truth: &plan.truth,
        expected,
        history: &outcome.history,
        complete: true,
        reports: &outcome.reports,
        fired: detected(plan, outcome).fired,
    }
}

/// Judged by its whole history.
fn judged(plan: &sim::SimPlan, outcome: &sim::SimOutcome, expected: &judge::Expectations) -> Verdict {
    judge::judge(&case_of(plan, outcome, expected))
}

fn detected(plan: &sim::SimPlan, outcome: &sim::SimOutcome) -> Detection {
    detect(&plan.params, &plan.truth, plan.seed, &outcome.history, &RunCounts::default())
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let names = [
        "absent",
        "silent",
        "crash@2",
        "empty",
        "distinct",
        "collude(value=A)",
        "mimic(value=a)",
        "mixed(collude=A, mimic=a)",
        "late-append(access=2, value=A)",
        "repeat-append",
        "repeat-append(value=A)",
        "reader",
        "stall",
        "stall(conduct=reader)",
        "adaptive(phase=3, then=silent)",
        "adaptive(phase=4, then=late-append(access=3, value=A))",
        "liar",
        "liar(value=A)",
    ];
    let strategy = prop::sample::select(names.to_vec());
    let strategy = strategy.prop_map(|strategy| Role::Byzantine(strategy.parse::<Byzantine>().unwrap()));
    let role = prop_oneof![3 => Just(Role::Correct), 1 => strategy];
    let proposal = prop::sample::select(&["a", "b", "c"][..]);
    (role, proposal).prop_map(|(role, text)| Assignment { role, proposal: Value::parse(text).unwrap() })
}

fn plans() -> impl Strategy<Value = sim::SimPlan> {
    (1_u32..=4).prop_flat_map(plans_of)
}

/// Plans with q append rounds.
fn plans_of(q: u32) -> impl Strategy<Value = sim::SimPlan> {
    let truth = prop::collection::vec(assignment(), q as usize..12);
    let sizes = truth.prop_flat_map(move |assignments| {
        let n = u32::try_from(assignments.len()).unwrap();
        let byzantine = (1..).zip(&assignments).filter(|(_, it)| it.role != Role::Correct);
        let byzantine = byzantine.filter_map(|(number, _)| ProcessId::new(number)).collect();
        let arbiters = [Arbiter::FirstCome, Arbiter::Uniform, Arbiter::Priority(byzantine)];
        (Just(assignments), q..=n, 1..=n, prop::sample::select(arbiters.to_vec()))
    });
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending), Just(Order::Shuffled)];
    let open = if q == 1 { 1 } else { 0 };
    let window = prop_oneof![3 => Just(AppendWindow::FirstAccess), open => Just(AppendWindow::Open)];
    (sizes, order, window, any::<u64>()).prop_map(
        move |((assignments, p, r, arbiter), order, append_window, seed)| {
            let spec = ParamsSpec::new(u32::try_from(assignments.len()).unwrap(), p, r);
            let drawn = Seed::new(seed);
            let spec = ParamsSpec { order, arbiter, append_window, append_rounds: q, seed: drawn, ..spec };
            sim::SimPlan {
                params: Arc::new(Params::try_new(spec).unwrap()),
                truth: GroundTruth::new(assignments),
                seed,
            }
        },
    )
}

/// K3: 1,000 runs for each q, and 100,000 with STICKYCAS_LONG.
#[test]
fn what_is_promised_holds_in_runs_of_one_to_four_append_rounds() {
    let runs = if std::env::var_os("STICKYCAS_LONG").is_some() { 100_000 } else { 1_000 };
    for q in 1..=4 {
        let (plans, mut runner) = (plans_of(q), TestRunner::deterministic());
        let mut plan = || plans.new_tree(&mut runner).unwrap().current();
        let mut simulator = sim::Simulator::new(&plan());
        let (mut promised, mut broken) = (0, 0);
        for _ in 0..runs {
            let plan = plan();
            let summary = simulator.summary(&plan);
            assert_ne!(summary.verdict, Outcome::Violation, "{plan:?}: {summary:?}");
            let strong = summary.finding(Property::StrongValidity);
            let holds = strong.observed == judge::Observed::Held;
            assert!(holds || !strong.promised, "{plan:?}");
            promised += u32::from(strong.promised);
            broken += u32::from(!holds);
        }
        println!(
            "q = {q}: {runs} runs, strong validity promised in {promised} and broken in {broken} others"
        );
        assert!(promised > runs / 10 && broken > runs / 100, "{promised} and {broken} of {runs}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_simulated_run_is_a_violation_or_proves_nothing(plan in plans()) {
        let verdict = judged(&plan, &sim::run(&plan), &judge::Expectations::default());
        let fine = matches!(verdict.verdict, Outcome::Valid | Outcome::Outside);
        prop_assert!(fine, "{:?}: {:#?}", verdict.verdict, verdict.reasons);
        for property in Property::ALL {
            let (observed, missing) = verdict.finding(property);
            prop_assert!(observed == judge::Observed::Held || missing.is_some(), "{}", property);
        }
    }

    /// V4: a restart of the server makes nobody late, and the verdict is none but that of a run without.
    #[test]
    fn a_run_in_which_the_server_restarts_is_judged_as_any_other(
        plan in plans(), after in 1_u64..12, millis in 0_u64..8_000,
    ) {
        let restart = sim::SimRestart {
            reached: Phase::new(after).unwrap(),
            rejoin: Duration::from_millis(millis),
        };
        let outcome = sim::run_with_restarts(&plan, &[restart]);
        let verdict = judged(&plan, &outcome, &judge::Expectations::default());
        let fine = matches!(verdict.verdict, Outcome::Valid | Outcome::Outside);
        prop_assert!(fine, "{:?}: {:#?}", verdict.verdict, verdict.reasons);
        prop_assert!(verdict.late.is_empty());
        let expected = judge::Expectations::default();
        let told = judge::explain(&case_of(&plan, &outcome, &expected)).restarts.len();
        let happened = outcome.history.iter().filter(|it| matches!(it.event, Event::Restarted { .. })).count();
        prop_assert_eq!(told, happened);
    }

    #[test]
    fn the_streaming_judge_agrees_with_the_judge_of_histories(
        plans in prop::collection::vec((plans(), any::<bool>()), 1..6)
    ) {
        let mut simulator = sim::Simulator::new(&plans[0].0);
        for (mut plan, endless) in plans {
            if endless {
                let spec = ParamsSpec { patience: Patience::Endless, ..plan.params.spec().clone() };
                plan.params = Arc::new(Params::try_new(spec).unwrap());
            }
            let outcome = sim::run(&plan);
            let verdict = judged(&plan, &outcome, &judge::Expectations::new(&plan.truth, &detected(&plan, &outcome)));
            let summary = simulator.summary(&plan);
            prop_assert_eq!(summary, VerdictSummary::from(&verdict), "{:#?}", verdict);
            prop_assert_eq!(simulator.run(&plan), outcome);
        }
    }
}
