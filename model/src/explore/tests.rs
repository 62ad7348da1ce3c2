//! Reductions against searches that do without them; and the claims, at sizes that take seconds.

use std::collections::BTreeSet;

use super::claims::{Claim, section_9, tasks};
use super::key::Key;
use super::search::{SearchOrder, search, traverse};
use super::search_state::SearchState;
use super::setup::Action;
use super::setup::{Adversary, ProcessKind, ScheduleClass, Setup, SetupError, Space};
use super::successors::successors;
use crate::params::AppendWindow;

/// All n up to `largest`, all p, r = 1 and r = n, in both windows, and with two append rounds. Disagreement
/// is no violation, so that the search goes to its end.
fn small(largest: u32) -> Vec<Setup> {
    let mut setups = Vec::new();
    for window in [AppendWindow::FirstAccess, AppendWindow::Open] {
        for (n, p) in (1..=largest).flat_map(|n| (1..=n).map(move |p| (n, p))) {
            for r in BTreeSet::from([1, n]) {
                setups.push(Setup { window, agreement: false, ..Setup::new(n, p, r) });
            }
        }
    }
    let two_rounds = |setup: &Setup| {
        let schedule = ScheduleClass::RoundBased;
        let fits = setup.window == AppendWindow::FirstAccess && setup.warp_size > 1;
        fits.then(|| Setup { append_rounds: 2, schedule, ..setup.clone() })
    };
    let with_rounds: Vec<Setup> = setups.iter().filter_map(two_rounds).collect();
    setups.extend(with_rounds);
    setups
}

fn space(setup: &Setup) -> Space {
    Space::new(setup).unwrap()
}

/// The states that a search reaches, as another one tells them apart, but for which phases passed last.
fn reached(setup: &Setup, as_seen_by: &Setup) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    let judge = Space { passes: false, ..space(as_seen_by) };
    let found = traverse(&space(setup), SearchOrder::DepthFirst, &mut |state| {
        keys.insert(judge.key(state));
    });
    assert!(found.witness.is_none(), "{setup:?}: {:?}", found.witness);
    keys
}

#[test]
fn a_lean_adversary_reaches_every_state_of_a_full_one() {
    for lean in small(3) {
        for late in [0, 1] {
            let lean = Setup { late, ..lean.clone() };
            let full = Setup { adversary: Adversary::Full, ..lean.clone() };
            assert_eq!(reached(&full, &lean), reached(&lean, &lean), "{lean:?}");
        }
    }
}

#[test]
fn equal_warps_and_members_of_a_warp_are_interchangeable() {
    for schedule in [ScheduleClass::Any, ScheduleClass::RoundBased] {
        for symmetric in small(3) {
            if symmetric.append_rounds > 1 && schedule == ScheduleClass::Any {
                continue;
            }
            let symmetric = Setup { schedule, ..symmetric };
            let plain = Setup { symmetry: false, ..symmetric.clone() };
            assert_eq!(reached(&plain, &symmetric), reached(&symmetric, &symmetric), "{symmetric:?}");
        }
    }
}

/// Every state after at most so many phases, without ever taking two for the same.
fn tree(space: &Space, state: &SearchState, phases: u64, keys: &mut BTreeSet<Key>) {
    keys.insert(space.key(state));
    if state.phases == phases || state.is_over() {
        return;
    }
    for transition in successors(space, state) {
        let mut after = state.clone();
        after.execute(space, &transition).unwrap();
        tree(space, &after, phases, keys);
    }
}

#[test]
fn states_of_one_key_have_the_same_future() {
    for (largest, phases, late) in [(2, 6, 1), (3, 5, 0)] {
        for setup in small(largest) {
            let space = space(&Setup { late, ..setup });
            let (mut all, mut merged) = (BTreeSet::new(), BTreeSet::new());
            tree(&space, &SearchState::new(&space).unwrap(), phases, &mut all);
            traverse(&space, SearchOrder::BreadthFirst, &mut |state| {
                if state.phases <= phases {
                    merged.insert(space.key(state));
                }
            });
            assert_eq!(all, merged, "{:?}", space.setup);
        }
    }
}

/// Every path of so many phases, with restarts at all moments of all of them, leads to no other states than
/// without.
#[test]
fn a_restart_of_the_server_leads_to_no_other_state() {
    for (largest, phases) in [(2, 5), (3, 3)] {
        for setup in small(largest) {
            let plain = space(&Setup { late: 1, ..setup });
            let restarted = space(&Setup { restarts: true, ..plain.setup.clone() });
            let (mut without, mut with) = (BTreeSet::new(), BTreeSet::new());
            tree(&plain, &SearchState::new(&plain).unwrap(), phases, &mut without);
            tree(&restarted, &SearchState::new(&restarted).unwrap(), phases, &mut with);
            assert_eq!(with, without, "{:?}", plain.setup);
        }
    }
}

#[test]
fn validity_depends_on_neither_list_order_nor_warp_order() {
    for (n, p) in (1..=4).flat_map(|n| (1..=n).map(move |p| (n, p))) {
        for late in [0, 1] {
            let setup = Setup {
                schedule: ScheduleClass::Any,
                values: 3,
                foreign: 1,
                validity: true,
                late,
                ..Setup::new(n, p, n)
            };
            let outcomes = |setup: &Setup| search(setup, SearchOrder::DepthFirst).unwrap().outcomes;
            let counts =
                Setup { schedule: ScheduleClass::FirstRound, lists_as_counts: true, ..setup.clone() };
            assert_eq!(outcomes(&setup), outcomes(&counts), "n={n} p={p}");
        }
    }
}

#[test]
fn every_claim_holds_at_sizes_that_take_seconds() {
    for (claim, largest) in [(Claim::A, 5), (Claim::B, 3), (Claim::C, 5), (Claim::D, 2)] {
        for task in tasks(claim, largest) {
            let found = search(&task.setup, task.search_order).unwrap();
            assert_eq!(task.judge(&found), Ok(()), "{task:?}");
            assert!(found.states > 1 && found.transitions >= found.states - 1);
        }
    }
}

#[test]
fn a_last_warp_of_one_splits_warps_of_two_in_shuffled_orders_only() {
    let of_seven = tasks(Claim::A, 7).into_iter().filter(|task| task.setup.processes == 7);
    let split: Vec<ScheduleClass> = of_seven
        .filter(|task| {
            let found = search(&task.setup, task.search_order).unwrap();
            assert_eq!(task.judge(&found), Ok(()), "{task:?}");
            found.witness.is_some()
        })
        .map(|task| task.setup.schedule)
        .collect();
    assert_eq!(split, [ScheduleClass::RoundBased]);
}

#[test]
fn the_shortest_disagreement_is_the_late_append_of_section_9() {
    let found = search(&section_9(), SearchOrder::BreadthFirst).unwrap();
    let witness = found.witness.unwrap();
    assert_eq!(witness.violation.rule, "V1");
    // Round 1, then processes 1 to 4: the first that decides after the late append disagrees.
    assert_eq!(witness.transitions.len(), 9);
    let accesses = witness.transitions.iter().flat_map(|transition| &transition.accesses);
    let byzantine: Vec<Action> =
        accesses.filter(|(process, _)| process.get() == 3).map(|(_, action)| *action).collect();
    assert_eq!(byzantine, [Action::Read, Action::Append(1)]);
}

#[test]
fn a_window_that_stays_open_refutes_the_claim() {
    let claimed = |task: &super::Task| task.setup.processes == 4 && task.setup.warp_size == 1;
    for task in tasks(Claim::B, 4).into_iter().filter(claimed) {
        let planted = Setup { window: AppendWindow::Open, ..task.setup.clone() };
        let found = search(&planted, task.search_order).unwrap();
        assert!(task.judge(&found).is_err(), "{task:?}");
    }
}

#[test]
fn a_bound_that_is_off_by_one_refutes_the_claim() {
    let task = tasks(Claim::C, 4).into_iter().find(|task| task.setup.processes == 4).unwrap();
    let mut found = search(&task.setup, task.search_order).unwrap();
    assert_eq!(task.judge(&found), Ok(()));
    let broken = *found.outcomes.iter().find(|outcome| !outcome.strong).unwrap();
    found.outcomes.remove(&broken);
    assert!(task.judge(&found).is_err());
}

#[test]
fn an_impossible_setup_is_refused_with_the_reason() {
    let refused = |setup: Setup| search(&setup, SearchOrder::DepthFirst).unwrap_err();
    assert!(matches!(refused(Setup::new(0, 1, 1)), SetupError::Params(_)));
    assert_eq!(refused(Setup::new(40, 1, 1)), SetupError::TooLarge(40));
    let foreign = Setup { foreign: 2, ..Setup::new(2, 1, 1) };
    assert_eq!(refused(foreign), SetupError::Values { values: 2, foreign: 2 });
    let rounds = Setup { append_rounds: 2, ..Setup::new(2, 2, 1) };
    assert_eq!(refused(rounds), SetupError::AppendRounds(2));
    let truth = Setup { kinds: Some(vec![ProcessKind::Byzantine]), ..Setup::new(2, 1, 1) };
    assert_eq!(refused(truth), SetupError::GroundTruth(1));
}
