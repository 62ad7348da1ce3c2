//! The judge of simulated runs: inside the bound nothing breaks, whichever processes are Byzantine and in whatever
//! order accesses arrive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::sync::Arc;

use proptest::prelude::*;
use stickycas_model::byzantine::Strategy as Byzantine;
use stickycas_model::cast::{Cast, Part, Role};
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::{Detection, detect};
use stickycas_model::judge::{self, Case, Outcome, Property, Verdict, VerdictSummary};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::sim;
use stickycas_model::types::{Seed, Value};

/// Judged by its whole history.
fn judged(plan: &sim::SimPlan, outcome: &sim::SimOutcome, expected: &judge::Expectations) -> Verdict {
    judge::judge(&Case {
        params: Arc::clone(&plan.params),
        cast: &plan.cast,
        expected,
        history: &outcome.history,
        complete: true,
        reports: &outcome.reports,
        fired: detected(plan, outcome).fired,
    })
}

fn detected(plan: &sim::SimPlan, outcome: &sim::SimOutcome) -> Detection {
    detect(&plan.params, &plan.cast, plan.seed, &outcome.history, &RunCounts::default())
}

fn part() -> impl Strategy<Value = Part> {
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
    (role, proposal).prop_map(|(role, text)| Part { role, proposal: Value::parse(text).unwrap() })
}

fn plans() -> impl Strategy<Value = sim::SimPlan> {
    let cast = prop::collection::vec(part(), 1..12);
    let sizes = cast.prop_flat_map(|parts| {
        let n = u32::try_from(parts.len()).unwrap();
        (Just(parts), 1..=n, 1..=n)
    });
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending), Just(Order::Shuffled)];
    let arbiter = prop_oneof![Just(Arbiter::FirstCome), Just(Arbiter::Uniform)];
    let window = prop_oneof![3 => Just(AppendWindow::FirstAccess), 1 => Just(AppendWindow::Open)];
    (sizes, order, arbiter, window, any::<u64>()).prop_map(|((parts, p, r), order, arbiter, window, seed)| {
        let mut spec = ParamsSpec::new(u32::try_from(parts.len()).unwrap(), p, r);
        (spec.order, spec.arbiter, spec.append_window, spec.seed) = (order, arbiter, window, Seed::new(seed));
        sim::SimPlan { params: Arc::new(Params::try_new(spec).unwrap()), cast: Cast::new(parts), seed }
    })
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
            let verdict = judged(&plan, &outcome, &judge::Expectations::new(&plan.params, &plan.cast, plan.seed, &detected(&plan, &outcome)));
            let summary = simulator.summary(&plan);
            prop_assert_eq!(summary, VerdictSummary::from(&verdict), "{:#?}", verdict);
            prop_assert_eq!(simulator.run(&plan), outcome);
        }
    }
}
