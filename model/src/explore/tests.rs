//! Reductions against searches that do without them; and the claims, at sizes that take seconds.

use std::collections::BTreeSet;

use super::claims::{Claim, section_9, tasks};
use super::key::Key;
use super::search::{SearchOrder, search, walk};
use super::setup::{Adversary, ProcessKind, ScheduleClass, Setup, SetupError, Space};
use super::steps::{Action, steps};
use super::world::SearchState;
use crate::params::AppendWindow;

/// All n up to `largest`, all p, r = 1 and r = n, in both windows. Disagreement is no fault, so that the search goes
/// to its end.
fn small(largest: u32) -> Vec<Setup> {
    let mut setups = Vec::new();
    for window in [AppendWindow::FirstAccess, AppendWindow::Open] {
        for (n, p) in (1..=largest).flat_map(|n| (1..=n).map(move |p| (n, p))) {
            for r in BTreeSet::from([1, n]) {
                setups.push(Setup { window, agreement: false, ..Setup::new(n, p, r) });
            }
        }
    }
    setups
}

fn ground(setup: &Setup) -> Space {
    Space::new(setup).unwrap()
}

/// The states that a search reaches, as another one tells them apart, but for which phases passed last.
fn reached(setup: &Setup, as_seen_by: &Setup) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    let judge = Space { passes: false, ..ground(as_seen_by) };
    let found = walk(&ground(setup), SearchOrder::DepthFirst, &mut |world| {
        keys.insert(judge.key(world));
    });
    assert!(found.witness.is_none(), "{setup:?}: {:?}", found.witness);
    keys
}

#[test]
fn a_lean_adversary_reaches_every_state_that_a_full_one_reaches() {
    for lean in small(3) {
        for late in [0, 1] {
            let lean = Setup { late, ..lean.clone() };
            let full = Setup { adversary: Adversary::Full, ..lean.clone() };
            assert_eq!(reached(&full, &lean), reached(&lean, &lean), "{lean:?}");
        }
    }
}

#[test]
fn warps_of_one_size_and_members_of_one_warp_are_interchangeable() {
    for schedule in [ScheduleClass::Any, ScheduleClass::RoundBased] {
        for symmetric in small(3) {
            let symmetric = Setup { schedule, ..symmetric };
            let plain = Setup { symmetry: false, ..symmetric.clone() };
            assert_eq!(reached(&plain, &symmetric), reached(&symmetric, &symmetric), "{symmetric:?}");
        }
    }
}

/// Every state after at most so many phases, without ever taking two for the same.
fn tree(ground: &Space, world: &SearchState, phases: u64, keys: &mut BTreeSet<Key>) {
    keys.insert(ground.key(world));
    if world.phases == phases || world.is_over() {
        return;
    }
    for step in steps(ground, world) {
        let mut after = world.clone();
        after.take(ground, &step).unwrap();
        tree(ground, &after, phases, keys);
    }
}

#[test]
fn what_a_key_leaves_out_makes_no_difference_to_what_comes() {
    for (largest, phases, late) in [(2, 6, 1), (3, 5, 0)] {
        for setup in small(largest) {
            let ground = ground(&Setup { late, ..setup });
            let (mut all, mut merged) = (BTreeSet::new(), BTreeSet::new());
            tree(&ground, &SearchState::new(&ground).unwrap(), phases, &mut all);
            walk(&ground, SearchOrder::BreadthFirst, &mut |world| {
                if world.phases <= phases {
                    merged.insert(ground.key(world));
                }
            });
            assert_eq!(all, merged, "{:?}", ground.setup);
        }
    }
}

#[test]
fn for_validity_neither_the_order_of_the_list_nor_that_of_the_warps_matters() {
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
            let facts = |setup: &Setup| search(setup, SearchOrder::DepthFirst).unwrap().facts;
            let counts =
                Setup { schedule: ScheduleClass::FirstRound, lists_as_counts: true, ..setup.clone() };
            assert_eq!(facts(&setup), facts(&counts), "n={n} p={p}");
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
fn the_late_append_of_section_9_is_the_shortest_way_to_split_its_example() {
    let found = search(&section_9(), SearchOrder::BreadthFirst).unwrap();
    let witness = found.witness.unwrap();
    assert_eq!(witness.fault.rule, "V1");
    // Round 1, then processes 1 to 4: the first that decides after the late append disagrees.
    assert_eq!(witness.steps.len(), 9);
    let accesses = witness.steps.iter().flat_map(|step| &step.accesses);
    let byzantine: Vec<Action> =
        accesses.filter(|(process, _)| process.get() == 3).map(|(_, doing)| *doing).collect();
    assert_eq!(byzantine, [Action::Read, Action::Append(1)]);
}

#[test]
fn a_window_that_stays_open_is_found_out_where_the_closed_one_is_claimed() {
    let claimed = |task: &super::Task| task.setup.processes == 4 && task.setup.warp_size == 1;
    for task in tasks(Claim::B, 4).into_iter().filter(claimed) {
        let planted = Setup { window: AppendWindow::Open, ..task.setup.clone() };
        let found = search(&planted, task.search_order).unwrap();
        assert!(task.judge(&found).is_err(), "{task:?}");
    }
}

#[test]
fn a_bound_that_is_off_by_one_is_found_out() {
    let task = tasks(Claim::C, 4).into_iter().find(|task| task.setup.processes == 4).unwrap();
    let mut found = search(&task.setup, task.search_order).unwrap();
    assert_eq!(task.judge(&found), Ok(()));
    let broken = *found.facts.iter().find(|fact| !fact.strong).unwrap();
    found.facts.remove(&broken);
    assert!(task.judge(&found).is_err());
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |setup: Setup| search(&setup, SearchOrder::DepthFirst).unwrap_err();
    assert!(matches!(refused(Setup::new(0, 1, 1)), SetupError::Params(_)));
    assert_eq!(refused(Setup::new(40, 1, 1)), SetupError::TooLarge(40));
    let foreign = Setup { foreign: 2, ..Setup::new(2, 1, 1) };
    assert_eq!(refused(foreign), SetupError::Values { values: 2, foreign: 2 });
    let cast = Setup { cast: Some(vec![ProcessKind::Byzantine]), ..Setup::new(2, 1, 1) };
    assert_eq!(refused(cast), SetupError::Cast(1));
}
