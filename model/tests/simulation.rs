//! Whole runs of the machine and its processes under a virtual clock.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::subsequence;
use stickycas_model::byzantine::Strategy as Byzantine;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::{Event, OffenceKind, Recorded};
use stickycas_model::machine::Machine;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::sim::{Follower, SimOutcome, SimPlan, SimRestart, replay, run, run_with_restarts};
use stickycas_model::types::{Phase, ProcessId, Seed, Time, Value};

const PATIENCE: Duration = Duration::from_secs(1);
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

/// One word per process: what a correct one proposes, or a strategy after `!`.
fn truth(assignments: &[&str]) -> GroundTruth {
    let assignment = |text: &&str| match text.strip_prefix('!') {
        None => Assignment { role: Role::Correct, proposal: value(text) },
        Some(strategy) => {
            Assignment { role: Role::Byzantine(strategy.parse().unwrap()), proposal: value("unused") }
        }
    };
    GroundTruth::new(assignments.iter().map(assignment).collect())
}

fn plan(warp_size: u32, read_size: u32, assignments: &[&str], seed: u64) -> SimPlan {
    plan_with(warp_size, read_size, assignments, seed, |_| {})
}

fn plan_with(
    warp_size: u32,
    read_size: u32,
    assignments: &[&str],
    seed: u64,
    change: impl Fn(&mut ParamsSpec),
) -> SimPlan {
    let processes = u32::try_from(assignments.len()).unwrap();
    let mut spec = ParamsSpec::new(processes, warp_size, read_size);
    change(&mut spec);
    SimPlan { params: Arc::new(Params::try_new(spec).unwrap()), truth: truth(assignments), seed }
}

/// Runs it, and checks what holds of every run: that its history can be replayed, to the same list.
fn run_and_replay(plan: &SimPlan) -> SimOutcome {
    let outcome = run(plan);
    let machine = replay(&plan.params, &outcome.history).unwrap_or_else(|difference| panic!("{difference}"));
    assert!(machine.list().iter().eq(&outcome.list));
    let followed = follow(plan, &outcome.history);
    let status =
        |machine: &Machine| machine.status(outcome.history.last().map_or(Time::ZERO, |last| last.at));
    assert_eq!(status(&followed), status(&machine));
    outcome
}

/// All read sizes, windows and append rounds for n processes in warps of p.
fn settings(n: u32, p: u32) -> impl Iterator<Item = (u32, AppendWindow, u32)> {
    let rounds = (1..=p).map(|rounds| (AppendWindow::FirstAccess, rounds)).chain([(AppendWindow::Open, 1)]);
    rounds.flat_map(move |(window, rounds)| (1..=n).map(move |r| (r, window, rounds)))
}

/// The machine that gets the history event by event, as a watcher does.
fn follow(plan: &SimPlan, history: &[Recorded]) -> Machine {
    let mut follower = Follower::new(&plan.params);
    let mut taken = 0;
    for known in 1..=history.len() {
        taken += follower.take(&history[taken..known], false, &mut |_, _, _| {}).unwrap();
    }
    follower.take(&history[taken..], true, &mut |_, _, _| {}).unwrap();
    follower.machine().unwrap().clone()
}

/// What the correct processes decided, in order. All of them must have.
fn decisions(plan: &SimPlan, outcome: &SimOutcome) -> Vec<String> {
    let report = |process| outcome.reports.iter().find(|report| report.process == process).unwrap();
    let decision = |report: &Report| match (&report.ended, &report.decision) {
        (ProcessEnd::Decided, Some(value)) => value.to_string(),
        other => panic!("process {}: {other:?}", report.process),
    };
    plan.truth.correct().map(report).map(decision).collect()
}

/// W * (q + c): the phase by which every correct process has decided (D2, K2).
fn bound(params: &Params) -> u64 {
    u64::from(params.warps()) * (u64::from(params.append_rounds()) + u64::from(params.reads()))
}

fn duration(outcome: &SimOutcome) -> Duration {
    outcome.history.last().map_or(Duration::ZERO, |last| last.at.since(Time::ZERO))
}

fn accused(outcome: &SimOutcome) -> BTreeSet<(ProcessId, OffenceKind)> {
    let offence = |recorded: &Recorded| match &recorded.event {
        Event::Offence(offence) => Some((offence.process, offence.kind)),
        _ => None,
    };
    outcome.history.iter().filter_map(offence).collect()
}

/// Who was accepted, in order.
fn acceptances(outcome: &SimOutcome) -> Vec<u32> {
    let accepted = |recorded: &Recorded| match &recorded.event {
        Event::Accepted { process, .. } => Some(process.get()),
        _ => None,
    };
    outcome.history.iter().filter_map(accepted).collect()
}

#[test]
fn with_all_correct_the_last_decision_falls_in_the_bound_phase() {
    let words = ["a", "b", "a", "c", "b", "a", "d"];
    for processes in 1..=words.len() {
        let n = u32::try_from(processes).unwrap();
        for p in 1..=n {
            for (r, window, append_rounds) in settings(n, p) {
                let plan = plan_with(p, r, &words[..processes], 3, |spec| {
                    (spec.append_window, spec.append_rounds) = (window, append_rounds);
                    spec.patience = Patience::Endless;
                });
                let outcome = run_and_replay(&plan);
                let decided = decisions(&plan, &outcome);
                assert!(decided.iter().all(|value| *value == decided[0]), "{decided:?}");
                assert_eq!(outcome.list.len() as u32, plan.params.counted_entries());
                let last = outcome.reports.iter().filter_map(|report| report.phase).max().unwrap().get();
                // Else the members of the last warp win earlier, and read on while others append.
                let in_last_warp = n - (plan.params.warps() - 1) * p;
                let at = format!("n = {n}, p = {p}, r = {r}, q = {append_rounds}");
                assert!(last <= bound(&plan.params), "{at}: phase {last}");
                assert!(last == bound(&plan.params) || in_last_warp < append_rounds, "{at}: phase {last}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let assignments = ["a", "b", "!silent", "c", "!collude(value=0)", "b", "!absent", "a"];
    for seed in 0..20 {
        let plan = plan(3, 2, &assignments, seed);
        assert_eq!(run_and_replay(&plan), run_and_replay(&plan));
    }
}

#[test]
fn different_seeds_give_different_orders_and_winners() {
    let outcomes = (0..20).map(|seed| run_and_replay(&plan(4, 2, &["a", "b", "c", "d"], seed)));
    let (mut orders, mut winners) = (BTreeSet::new(), BTreeSet::new());
    for outcome in outcomes {
        orders.insert(acceptances(&outcome));
        winners.insert(outcome.list[0].process);
    }
    assert!(orders.len() > 10, "{} orders", orders.len());
    assert_eq!(winners.len(), 4, "each of the four wins sometimes");
}

#[test]
fn collude_and_distinct_append_and_commit_no_offence() {
    let assignments =
        ["a", "!collude(value=0)", "!collude(value=0)", "!distinct", "!distinct(value=x)", "a", "a"];
    let plan = plan_with(1, 3, &assignments, 9, |spec| spec.patience = Patience::Endless);
    let outcome = run_and_replay(&plan);
    let list: Vec<String> = outcome.list.iter().map(|entry| entry.value.to_string()).collect();
    assert_eq!(list, ["a", "0", "0", "byzantine-4", "x", "a", "a"]);
    assert_eq!(decisions(&plan, &outcome), ["a", "a", "a"]);
    assert_eq!(accused(&outcome), BTreeSet::new());
}

/// SPEC section 9: process 3 withholds its append until some have read the whole list.
fn counterexample(window: AppendWindow, seed: u64) -> SimPlan {
    let assignments = ["a", "a", "!late-append(access=2, value=b)", "b", "b"];
    plan_with(1, 5, &assignments, seed, |spec| {
        spec.append_window = window;
        spec.patience = Patience::Endless;
    })
}

#[test]
fn an_open_window_lets_a_late_append_split_decisions() {
    for seed in 0..50 {
        let plan = counterexample(AppendWindow::Open, seed);
        let outcome = run_and_replay(&plan);
        assert_eq!(decisions(&plan, &outcome), ["a", "a", "b", "b"], "seed {seed}");
    }
}

#[test]
fn under_first_access_the_same_late_append_changes_nothing() {
    for seed in 0..50 {
        let plan = counterexample(AppendWindow::FirstAccess, seed);
        let outcome = run_and_replay(&plan);
        assert_eq!(decisions(&plan, &outcome), ["a", "a", "a", "a"], "seed {seed}");
        let late = (ProcessId::new(3).unwrap(), OffenceKind::LateAppend);
        assert_eq!(accused(&outcome), BTreeSet::from([late]), "the attack fired, and only it is accused");
    }
}

#[test]
fn silent_processes_cost_their_patience_once_and_no_decision() {
    let assignments = ["a", "!silent", "a", "!silent", "!silent", "b", "b", "a", "!silent"];
    for (warp_size, seed) in (1..=9).flat_map(|p| (0..10).map(move |seed| (p, seed))) {
        let plan = plan(warp_size, 1, &assignments, seed);
        let outcome = run_and_replay(&plan);
        decisions(&plan, &outcome);
        // Silent members of one warp are waited for together (F3).
        let warps: BTreeSet<_> = plan.truth.byzantine().map(|silent| plan.params.warp_of(silent)).collect();
        assert_eq!(duration(&outcome), PATIENCE * u32::try_from(warps.len()).unwrap());
        let phases = outcome.reports.iter().filter_map(|report| report.phase);
        assert!(phases.max().unwrap().get() <= bound(&plan.params));
    }
}

#[test]
fn absent_processes_cost_the_join_timeout_once() {
    for seed in 0..20 {
        let plan = plan(2, 2, &["a", "!absent", "!absent", "!absent", "b", "a"], seed);
        let outcome = run_and_replay(&plan);
        decisions(&plan, &outcome);
        assert_eq!(duration(&outcome), JOIN_TIMEOUT);
        assert_eq!(outcome.list.len(), 2, "the warp that nobody joined adds nothing");
    }
}

#[test]
fn without_any_correct_process_nothing_is_waited_for() {
    assert_eq!(run(&plan(1, 1, &["!silent", "!absent"], 0)).history, []);
}

#[test]
fn endless_patience_with_a_silent_process_still_ends_the_run() {
    let plan = plan_with(1, 1, &["a", "!silent"], 0, |spec| spec.patience = Patience::Endless);
    let outcome = run_and_replay(&plan);
    assert!(
        matches!(&outcome.reports[0].ended, ProcessEnd::Failed(why) if why.contains("stopped before it decided"))
    );
}

#[test]
fn with_a_pace_every_step_comes_at_least_that_much_later() {
    let pace = Duration::from_millis(10);
    for assignments in [["a", "b", "c"], ["a", "!silent", "c"]] {
        let plan = plan_with(1, 1, &assignments, 0, |spec| spec.pace = pace);
        let outcome = run_and_replay(&plan);
        decisions(&plan, &outcome);
        let stepped = |recorded: &Recorded| matches!(recorded.event, Event::Stepped { .. });
        let steps: Vec<Time> =
            outcome.history.iter().filter(|event| stepped(event)).map(|event| event.at).collect();
        assert!(steps.windows(2).all(|pair| pair[1].since(pair[0]) >= pace), "{steps:?}");
    }
}

#[test]
fn an_event_that_the_record_lacks_is_a_difference_at_its_place() {
    let plan = plan(2, 1, &["a", "b", "!absent", "!silent", "b"], 5);
    let history = run_and_replay(&plan).history;
    let mut kinds = BTreeSet::new();
    for (index, taken) in history.iter().enumerate() {
        let kind = match taken.event {
            Event::GatheringEnded { .. } => "gathering ended",
            Event::PatienceSpent { .. } => "patience spent",
            Event::Stepped { .. } => "stepped",
            Event::Added { .. } => "added",
            Event::Answered { .. } => "answered",
            Event::Sealed { .. } => "sealed",
            _ => continue,
        };
        kinds.insert(kind);
        let mut forged = history.clone();
        forged.remove(index);
        assert_eq!(replay(&plan.params, &forged).unwrap_err().index, index, "{kind}");
    }
    assert_eq!(kinds.len(), 6);
}

#[test]
fn a_changed_entry_is_found_where_it_stands() {
    let plan = plan(2, 1, &["a", "b", "a", "!silent", "b"], 5);
    let mut history = run_and_replay(&plan).history;
    let entry = |(index, recorded): (usize, &mut Recorded)| match &mut recorded.event {
        Event::Added { value: entry, .. } => {
            *entry = value("forged");
            Some(index)
        }
        _ => None,
    };
    let index = history.iter_mut().enumerate().find_map(entry).unwrap();
    assert_eq!(replay(&plan.params, &history).unwrap_err().index, index);
}

#[test]
fn an_unknown_process_in_a_history_is_a_difference_and_no_panic() {
    let plan = plan(1, 1, &["a", "b", "c"], 5);
    let smaller = Arc::new(Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap());
    assert!(replay(&smaller, &run(&plan).history).is_err());
}

#[test]
fn a_history_survives_being_written_as_lines_of_json() {
    let plan = plan(2, 1, &["a", "!late-append(access=2, value=b)", "a", "!silent", "b"], 5);
    for recorded in run(&plan).history {
        let line = serde_json::to_string(&recorded).unwrap();
        assert_eq!(serde_json::from_str::<Recorded>(&line).unwrap(), recorded, "{line}");
    }
}

fn any_role() -> impl Strategy<Value = Role> {
    let strategy = prop_oneof![
        Just("absent".to_owned()),
        Just("silent".to_owned()),
        Just("distinct".to_owned()),
        "collude[(]value=[a-c][)]",
        "late-append[(]access=[2-4], value=[a-c][)]",
    ];
    let byzantine = strategy.prop_map(|text| text.parse::<Byzantine>().map(Role::Byzantine).unwrap());
    prop_oneof![3 => Just(Role::Correct), 2 => byzantine]
}

fn any_part() -> impl Strategy<Value = Assignment> {
    (any_role(), "[a-c]").prop_map(|(role, text)| Assignment { role, proposal: value(&text) })
}

fn any_params(processes: u32) -> impl Strategy<Value = Arc<Params>> {
    let everybody: Vec<ProcessId> = ProcessId::all(processes).collect();
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending), Just(Order::Shuffled)];
    let arbiter = prop_oneof![
        Just(Arbiter::FirstCome),
        Just(Arbiter::Uniform),
        subsequence(everybody, 0..=processes as usize).prop_shuffle().prop_map(Arbiter::Priority),
    ];
    let window = prop_oneof![3 => Just(AppendWindow::FirstAccess), 1 => Just(AppendWindow::Open)];
    let pace = prop_oneof![3 => Just(Duration::ZERO), 1 => Just(Duration::from_millis(7))];
    let sizes = (1..=processes, 1..=processes, 1..=processes);
    (sizes, order, arbiter, window, pace, any::<u64>()).prop_map(
        move |((warp_size, read_size, q), order, arbiter, append_window, pace, seed)| {
            let seed = Seed::new(seed);
            let append_rounds = if append_window == AppendWindow::Open { 1 } else { q.min(warp_size) };
            let spec = ParamsSpec::new(processes, warp_size, read_size);
            let spec = ParamsSpec { order, arbiter, append_window, append_rounds, pace, seed, ..spec };
            Arc::new(Params::try_new(spec).unwrap())
        },
    )
}

fn any_plan() -> impl Strategy<Value = SimPlan> {
    (1_u32..=12)
        .prop_flat_map(|n| (any_params(n), prop::collection::vec(any_part(), n as usize), any::<u64>()))
        .prop_map(|(params, assignments, seed)| SimPlan {
            params,
            truth: GroundTruth::new(assignments),
            seed,
        })
}

fn any_restarts() -> impl Strategy<Value = Vec<SimRestart>> {
    let restart = (1_u64..20, 0_u64..8_000).prop_map(|(phase, millis)| SimRestart {
        reached: Phase::new(phase).unwrap(),
        rejoin: Duration::from_millis(millis),
    });
    prop::collection::vec(restart, 0..4).prop_map(|mut restarts| {
        restarts.sort_by_key(|restart| restart.reached);
        restarts
    })
}

proptest! {
    /// F3: a restart costs at most the time to reconnect, and nobody a phase.
    #[test]
    fn a_restart_of_the_server_changes_no_decision_and_costs_its_time_once(
        plan in any_plan(), restarts in any_restarts(),
    ) {
        let outcome = run_with_restarts(&plan, &restarts);
        let machine = replay(&plan.params, &outcome.history).unwrap_or_else(|difference| panic!("{difference}"));
        prop_assert!(machine.list().iter().eq(&outcome.list));
        let decided = decisions(&plan, &outcome);
        if plan.params.spec().append_window == AppendWindow::FirstAccess {
            prop_assert!(decided.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", decided);
        }
        let correct: BTreeSet<ProcessId> = plan.truth.correct().collect();
        for report in outcome.reports.iter().filter(|report| correct.contains(&report.process)) {
            prop_assert!(report.phase.unwrap().get() <= bound(&plan.params), "{:?}", report);
        }
        prop_assert!(accused(&outcome).iter().all(|(process, _)| !correct.contains(process)));
        let faulty = plan.params.processes() - u32::try_from(correct.len()).unwrap();
        let paces = plan.params.spec().pace * u32::try_from(bound(&plan.params)).unwrap();
        let rejoins: Duration = restarts.iter().map(|restart| restart.rejoin).sum();
        prop_assert!(duration(&outcome) <= JOIN_TIMEOUT + PATIENCE * faulty + paces + rejoins);
    }

    #[test]
    fn correct_processes_decide_in_time_and_by_first_access_alike(plan in any_plan()) {
        let outcome = run_and_replay(&plan);
        let decided = decisions(&plan, &outcome);
        let spec = plan.params.spec();
        if spec.append_window == AppendWindow::FirstAccess {
            prop_assert!(decided.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", decided);
        }
        let correct: BTreeSet<ProcessId> = plan.truth.correct().collect();
        for report in outcome.reports.iter().filter(|report| correct.contains(&report.process)) {
            prop_assert!(report.phase.unwrap().get() <= bound(&plan.params), "{:?}", report);
        }
        prop_assert!(accused(&outcome).iter().all(|(process, _)| !correct.contains(process)));
        let faulty = plan.params.processes() - u32::try_from(correct.len()).unwrap();
        let paces = spec.pace * u32::try_from(bound(&plan.params)).unwrap();
        prop_assert!(duration(&outcome) <= JOIN_TIMEOUT + PATIENCE * faulty + paces);
    }
}
