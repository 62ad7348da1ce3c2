//! The search: from state to state until there is none left that was not seen.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use super::check::{ValidityOutcome, check, fact};
use super::key::Key;
use super::setup::{Setup, SetupError, Space};
use super::steps::{Transition, steps};
use super::world::{RuleViolation, SearchState};

/// Which state is looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchOrder {
    /// The last one found: little memory.
    DepthFirst,
    /// The first one found: of all faults, one after the fewest phases is found.
    BreadthFirst,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// States that differ.
    pub states: u64,
    /// Phases executed to find them.
    pub transitions: u64,
    /// The most phases on the way to a state.
    pub deepest: u64,
    /// What can come of a run. Complete if [`Setup::validity`] is on.
    pub facts: BTreeSet<ValidityOutcome>,
    /// The fault at which the search stopped; without one, it has seen everything.
    pub witness: Option<Witness>,
}

/// A fault with the way to it.
#[derive(Clone, Debug)]
pub struct Witness {
    /// What is broken.
    pub fault: RuleViolation,
    /// The phases that lead to it.
    pub steps: Vec<Transition>,
}

/// The way to a state, shared with those that go on from it.
struct Trail {
    step: Transition,
    before: Option<Rc<Trail>>,
}

struct Node {
    world: SearchState,
    trail: Option<Rc<Trail>>,
}

/// Tries everything that the setup leaves open, up to the first fault.
///
/// # Errors
/// If the setup makes no sense or is too large.
pub fn search(setup: &Setup, way: SearchOrder) -> Result<SearchResult, SetupError> {
    let ground = Space::new(setup)?;
    Ok(walk(&ground, way, &mut |_| {}))
}

/// The search, showing every new state.
pub(super) fn walk(ground: &Space, way: SearchOrder, visit: &mut dyn FnMut(&SearchState)) -> SearchResult {
    let mut found =
        SearchResult { states: 0, transitions: 0, deepest: 0, facts: BTreeSet::new(), witness: None };
    let start = match SearchState::new(ground) {
        Ok(world) => world,
        Err(fault) => {
            found.witness = Some(Witness { fault, steps: Vec::new() });
            return found;
        }
    };
    let mut seen: BTreeSet<Key> = BTreeSet::from([ground.key(&start)]);
    let mut open = VecDeque::from([Node { world: start, trail: None }]);
    loop {
        let next = match way {
            SearchOrder::DepthFirst => open.pop_back(),
            SearchOrder::BreadthFirst => open.pop_front(),
        };
        let Some(Node { world, trail }) = next else { break };
        found.states += 1;
        found.deepest = found.deepest.max(world.phases);
        visit(&world);
        if world.is_over() {
            found.facts.extend(fact(&world, ground));
            continue;
        }
        for step in steps(ground, &world) {
            let mut after = world.clone();
            found.transitions += 1;
            let taken = after.take(ground, &step).and_then(|()| check(ground, &after));
            let key = ground.key(&after);
            let trail = || Rc::new(Trail { step, before: trail.clone() });
            match taken {
                Err(fault) => {
                    found.witness = Some(Witness { fault, steps: steps_of(&trail()) });
                    return found;
                }
                Ok(()) if seen.insert(key) => open.push_back(Node { world: after, trail: Some(trail()) }),
                Ok(()) => {}
            }
        }
    }
    found
}

fn steps_of(trail: &Trail) -> Vec<Transition> {
    let trails = std::iter::successors(Some(trail), |trail| trail.before.as_deref());
    let mut steps: Vec<Transition> = trails.map(|trail| trail.step.clone()).collect();
    steps.reverse();
    steps
}
