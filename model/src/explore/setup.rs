//! The setup of one search: its variables and its constants, and one phase as the search chooses it.

use std::sync::Arc;
use std::time::Duration;

use crate::params::{AppendWindow, Params, ParamsError, ParamsSpec, Patience};
use crate::types::{ProcessId, Value, WarpId};

/// Which warp may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScheduleClass {
    /// Any warp at any time, also if another one waits for ever: more than any scheduler of W1 and W2 does.
    Any,
    /// Each warp once a round, in an order that may be another in every round (W1, W2).
    RoundBased,
    /// In the append rounds as [`ScheduleClass::RoundBased`], from then on always in the same order: enough
    /// where only the content of the list matters, which these rounds decide.
    FirstRound,
    /// Each round in ascending order (W1): the order that a scenario can repeat.
    Ascending,
    /// Each round in descending order (W1).
    Descending,
}

impl ScheduleClass {
    /// Whether the order of warps is given, so that no two of them are interchangeable.
    pub(super) const fn has_fixed_order(self) -> bool {
        matches!(self, Self::Ascending | Self::Descending)
    }
}

/// The attempts of Byzantine processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Adversary {
    /// In each phase each of them appends any of the values, reads, or stays silent, and each append may be
    /// accepted first.
    Full,
    /// In each phase one of them appends any of the values and is accepted first, or all read. That this
    /// loses nothing is one of the reductions; see [`crate::explore`].
    Lean,
}

/// The kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKind {
    /// Sends anything or nothing.
    Byzantine,
    /// Follows Algorithm 1 and proposes the value with this index.
    Correct(u8),
}

/// One search. All that it leaves open is tried: which processes are Byzantine, what the others propose,
/// which warp comes next, what the Byzantine processes do in each phase, which append is accepted first, and
/// which processes are late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// n.
    pub processes: u32,
    /// p.
    pub warp_size: u32,
    /// r.
    pub read_size: u32,
    /// When appends count (A2).
    pub window: AppendWindow,
    /// q (K1). Above 1 only in orders of rounds: in others no process knows which phase is its warp's q-th.
    pub append_rounds: u32,
    /// Which warp may come next.
    pub schedule: ScheduleClass,
    /// The attempts of Byzantine processes.
    pub adversary: Adversary,
    /// How many values there are: `a`, `b`, `c`, ... in this order.
    pub values: u8,
    /// How many of them, the smallest, no correct process proposes. They are the adversary's own (V3).
    pub foreign: u8,
    /// A correct process may have no access ready in so many phases before its appends end.
    pub late: u8,
    /// In each phase the server may restart: before its accesses, between two of them, or after them (F3).
    pub restarts: bool,
    /// The kinds of the processes, if they are not left open.
    pub kinds: Option<Vec<ProcessKind>>,
    /// Only ground truths within the bound of strong validity (V3).
    pub inside_the_bound: bool,
    /// Disagreement is a violation. If not, it is ignored, and only rules are checked.
    pub agreement: bool,
    /// Tells apart what validity depends on, so that
    /// [`SearchResult::outcomes`](super::SearchResult::outcomes) has all there are.
    pub validity: bool,
    /// Treats lists with the same values as equal. Right where only the mode of the sealed list matters.
    pub lists_as_counts: bool,
    /// Takes warps of the same size, and members of the same warp, for interchangeable. (Warps never are in a
    /// given order.)
    pub symmetry: bool,
}

impl Setup {
    /// A search over n, p and r with two values, under `first_access` and any order of warps; no process is
    /// late.
    #[must_use]
    pub fn new(processes: u32, warp_size: u32, read_size: u32) -> Self {
        Self {
            processes,
            warp_size,
            read_size,
            window: AppendWindow::FirstAccess,
            append_rounds: 1,
            schedule: ScheduleClass::Any,
            adversary: Adversary::Lean,
            values: 2,
            foreign: 0,
            late: 0,
            restarts: false,
            kinds: None,
            inside_the_bound: false,
            agreement: true,
            validity: false,
            lists_as_counts: false,
            symmetry: true,
        }
    }

    /// The parameters of the instance that is searched. Patience and pace are as short as they can be: a
    /// phase opens when the search says so, and a member that then has nothing ready misses it.
    ///
    /// # Errors
    /// If n, p, r or q is out of its range.
    pub fn params(&self) -> Result<Params, ParamsError> {
        let mut spec = ParamsSpec::new(self.processes, self.warp_size, self.read_size);
        spec.append_window = self.window;
        spec.append_rounds = self.append_rounds;
        spec.patience = Patience::Finite(INSTANT);
        spec.pace = INSTANT;
        // No process sends ahead.
        spec.pipeline = 1;
        Params::try_new(spec)
    }

    /// Whether a search of it can be made.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), SetupError> {
        Space::new(self).map(|_| ())
    }
}

const INSTANT: Duration = Duration::from_nanos(1);

/// The time to reconnect after a restart. It differs from patience, so that the two cannot be taken for each
/// other.
pub(super) const REJOIN: Duration = Duration::from_nanos(3);

/// Why a search cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// n, p, r or q is out of its range.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// In an order without rounds no process can tell which phase is its warp's q-th.
    #[error(
        "append rounds q = {0} in any order of the warps: a process tells by the number of a phase whether it is \
         its warp's q-th, which takes an order in which each warp comes once a round; give such an order, or 1"
    )]
    AppendRounds(u32),
    /// The states are too many for keys of 128 bits.
    #[error("n = {0} processes with these values are too many to search: give fewer")]
    TooLarge(u32),
    /// The values make no sense.
    #[error("{values} values of which {foreign} are foreign: give 1 to 26, and leave one to propose")]
    Values {
        /// How many values.
        values: u8,
        /// How many of them no correct process may propose.
        foreign: u8,
    },
    /// The ground truth does not fit.
    #[error(
        "the setup has {0} roles, or one that proposes a value which is not there: give one for each process"
    )]
    GroundTruth(usize),
}

/// A setup, checked, with what follows from it.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) setup: Setup,
    pub(super) params: Arc<Params>,
    /// By index.
    pub(super) values: Vec<Value>,
    pub(super) warps: Vec<WarpId>,
    /// Whether it makes a difference which phases passed last.
    pub(super) passes: bool,
}

impl Space {
    pub(super) fn new(setup: &Setup) -> Result<Self, SetupError> {
        let params = Arc::new(setup.params()?);
        let (values, foreign) = (setup.values, setup.foreign);
        if !(1..=26).contains(&values) || foreign >= values {
            return Err(SetupError::Values { values, foreign });
        }
        if setup.append_rounds > 1 && setup.schedule == ScheduleClass::Any {
            return Err(SetupError::AppendRounds(setup.append_rounds));
        }
        if let Some(truth) = &setup.kinds {
            let known = |kind: &ProcessKind| !matches!(kind, ProcessKind::Correct(value) if *value >= values);
            if truth.len() != params.processes() as usize || !truth.iter().all(known) {
                return Err(SetupError::GroundTruth(truth.len()));
            }
        }
        let warps = (0..params.warps() as usize).filter_map(WarpId::from_index).collect();
        let values = (0..values).filter_map(|index| Value::new(&[b'a' + index])).collect();
        // Else phases pass only of warps whose members have all come to their end.
        let passes = setup.late > 0 || setup.adversary == Adversary::Full;
        let space = Self { setup: setup.clone(), params, values, warps, passes };
        if space.keys_fit() { Ok(space) } else { Err(SetupError::TooLarge(setup.processes)) }
    }

    /// The index of a value, which must be one of this search's.
    pub(super) fn index_of(&self, value: &Value) -> u8 {
        value.as_bytes()[0] - b'a'
    }
}

/// The use that a process makes of its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A correct process: what Algorithm 1 says.
    Follow,
    /// A Byzantine process: appends the value with this index.
    Append(u8),
    /// A Byzantine process: reads.
    Read,
}

/// One phase. A member of the warp that is not named has no access ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The warp of the phase.
    pub warp: WarpId,
    /// The kinds of its members, if it is the warp's first phase.
    pub kinds: Vec<(ProcessId, ProcessKind)>,
    /// The accesses of the phase, in the order of acceptance.
    pub accesses: Vec<(ProcessId, Action)>,
    /// The server restarts when so many of the accesses were accepted (F3).
    pub restart: Option<usize>,
}
