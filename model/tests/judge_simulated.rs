//! The judge of simulated runs: inside the bound nothing breaks, whichever processes are Byzantine and in
//! whatever order accesses arrive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use stickycas_model::byzantine::Strategy as Byzantine;
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::{Detection, detect};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::Event;
use stickycas_model::judge::{self, Case, Outcome, Property, Verdict, VerdictSummary};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::sim;
use stickycas_model::types::{Phase, Seed, Value};

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
    let truth = prop::collection::vec(assignment(), 1..12);
    let sizes = truth.prop_flat_map(|assignments| {
        let n = u32::try_from(assignments.len()).unwrap();
        (Just(assignments), 1..=n, 1..=n)
    });
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending), Just(Order::Shuffled)];
    let arbiter = prop_oneof![Just(Arbiter::FirstCome), Just(Arbiter::Uniform)];
    let window = prop_oneof![3 => Just(AppendWindow::FirstAccess), 1 => Just(AppendWindow::Open)];
    (sizes, order, arbiter, window, any::<u64>()).prop_map(
        |((assignments, p, r), order, arbiter, window, seed)| {
            let mut spec = ParamsSpec::new(u32::try_from(assignments.len()).unwrap(), p, r);
            (spec.order, spec.arbiter, spec.append_window, spec.seed) =
                (order, arbiter, window, Seed::new(seed));
            sim::SimPlan {
                params: Arc::new(Params::try_new(spec).unwrap()),
                truth: GroundTruth::new(assignments),
                seed,
            }
        },
    )
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
