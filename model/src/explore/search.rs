//! The search: from state to state until every reachable one is visited.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use super::check::{ValidityOutcome, check, outcome};
use super::key::Key;
use super::search_state::{RuleViolation, SearchState};
use super::setup::Transition;
use super::setup::{Setup, SetupError, Space};
use super::successors::successors;

/// Which state is visited next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchOrder {
    /// The last one found: little memory.
    DepthFirst,
    /// The first one found: of all violations, one after the fewest phases is found.
    BreadthFirst,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct SearchResult {
    /// States that differ.
    pub states: u64,
    /// Phases executed to find them.
    pub transitions: u64,
    /// The most phases on the path to a state.
    pub deepest: u64,
    /// The outcomes of runs. Complete if [`Setup::validity`] is on.
    pub outcomes: BTreeSet<ValidityOutcome>,
    /// The violation at which the search stopped; without one, it has visited every state.
    pub witness: Option<Witness>,
}

/// A violation with the path to it.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The rule that is broken.
    pub violation: RuleViolation,
    /// The phases that lead to it.
    pub transitions: Vec<Transition>,
}

/// The path to a state, shared with the paths that continue it.
struct Path {
    transition: Transition,
    before: Option<Rc<Path>>,
}

struct Node {
    state: SearchState,
    path: Option<Rc<Path>>,
}

/// Tries everything that the setup leaves open, up to the first violation.
///
/// # Errors
/// If the setup makes no sense or is too large.
pub fn search(setup: &Setup, order: SearchOrder) -> Result<SearchResult, SetupError> {
    let space = Space::new(setup)?;
    Ok(traverse(&space, order, &mut |_| {}))
}

/// The search; `visit` is called with every new state.
pub(super) fn traverse(
    space: &Space,
    order: SearchOrder,
    visit: &mut dyn FnMut(&SearchState),
) -> SearchResult {
    let mut found =
        SearchResult { states: 0, transitions: 0, deepest: 0, outcomes: BTreeSet::new(), witness: None };
    let start = match SearchState::new(space) {
        Ok(state) => state,
        Err(violation) => {
            found.witness = Some(Witness { violation, transitions: Vec::new() });
            return found;
        }
    };
    let mut visited: BTreeSet<Key> = BTreeSet::from([space.key(&start)]);
    let mut open = VecDeque::from([Node { state: start, path: None }]);
    loop {
        let next = match order {
            SearchOrder::DepthFirst => open.pop_back(),
            SearchOrder::BreadthFirst => open.pop_front(),
        };
        let Some(Node { state, path }) = next else { break };
        found.states += 1;
        found.deepest = found.deepest.max(state.phases);
        visit(&state);
        if state.is_over() {
            found.outcomes.extend(outcome(&state, space));
            continue;
        }
        for transition in successors(space, &state) {
            let mut after = state.clone();
            found.transitions += 1;
            let executed = after.execute(space, &transition).and_then(|()| check(space, &after));
            let key = space.key(&after);
            let path = || Rc::new(Path { transition, before: path.clone() });
            match executed {
                Err(violation) => {
                    found.witness = Some(Witness { violation, transitions: transitions_of(&path()) });
                    return found;
                }
                Ok(()) if visited.insert(key) => open.push_back(Node { state: after, path: Some(path()) }),
                Ok(()) => {}
            }
        }
    }
    found
}

fn transitions_of(path: &Path) -> Vec<Transition> {
    let paths = std::iter::successors(Some(path), |path| path.before.as_deref());
    let mut transitions: Vec<Transition> = paths.map(|path| path.transition.clone()).collect();
    transitions.reverse();
    transitions
}
