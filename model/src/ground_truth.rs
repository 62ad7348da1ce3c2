//! The roles of all processes in a run: the ground truth with which the judge compares the evidence (SPEC
//! section 8, V4).

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::byzantine::{Strategy, WireAttack};
use crate::params::Params;
use crate::process::{Behaviour, Correct};
use crate::random::SplitMix64;
use crate::scheduler::Schedule;
use crate::types::{Phase, ProcessId, Value};

/// The role of one process in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Follows Algorithm 1.
    Correct,
    /// Follows a strategy of its own.
    Byzantine(Strategy),
    /// Byzantine as well, with an attack below the protocol of processes, which only the network can show.
    Attacker(WireAttack),
    /// Byzantine as well, played by a program of somebody else: nobody says what it does, so nothing of it
    /// must be seen (B3).
    External,
}

impl Role {
    /// The text of [`Role::External`], in the place of a strategy.
    pub const EXTERNAL: &str = "external";
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Correct => f.pad("correct"),
            Self::Byzantine(strategy) => strategy.fmt(f),
            Self::Attacker(attack) => attack.fmt(f),
            Self::External => f.pad(Self::EXTERNAL),
        }
    }
}

/// The assignment of one process: its role and its proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Correct or Byzantine.
    pub role: Role,
    /// The value that it proposes. A Byzantine process proposes it where its strategy follows Algorithm 1,
    /// and ignores it otherwise.
    pub proposal: Value,
}

impl Assignment {
    /// The behaviour of process `me` with this assignment. Each process gets the seed of the whole run and
    /// draws from a seed of its own ([`seed_of`]). `None` for a wire attack and a program of others, which no
    /// behaviour can express.
    #[must_use]
    pub fn behaviour(&self, me: ProcessId, run_seed: u64) -> Option<Box<dyn Behaviour>> {
        match &self.role {
            Role::Correct => Some(Box::new(Correct::new(self.proposal.clone()))),
            Role::Byzantine(strategy) => Some(strategy.behaviour(me, &self.proposal, seed_of(me, run_seed))),
            Role::Attacker(_) | Role::External => None,
        }
    }

    /// Whether a process with this assignment joins at all.
    #[must_use]
    pub fn joins(&self) -> bool {
        match &self.role {
            Role::Correct | Role::Attacker(_) | Role::External => true,
            Role::Byzantine(strategy) => strategy.joins(),
        }
    }

    /// Whether a process with this assignment comes to an end by itself.
    #[must_use]
    pub fn ends(&self) -> bool {
        match &self.role {
            Role::Correct => true,
            Role::Byzantine(strategy) => strategy.ends(),
            // An attack goes on as long as it may, and of an external one nobody knows.
            Role::Attacker(_) | Role::External => false,
        }
    }
}

/// The seed from which process `me` draws in a run with this seed.
#[must_use]
pub fn seed_of(me: ProcessId, run_seed: u64) -> u64 {
    SplitMix64::new(run_seed ^ u64::from(me.get()) << 32).next_u64()
}

/// The assignments of all n processes, in order; which of them come late, and which are made faulty from
/// outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroundTruth {
    assignments: Vec<Assignment>,
    late: BTreeSet<ProcessId>,
    faulty: BTreeSet<ProcessId>,
}

impl GroundTruth {
    /// The assignments of processes 1, 2, 3, ... in this order.
    #[must_use]
    pub fn new(assignments: Vec<Assignment>) -> Self {
        Self { assignments, late: BTreeSet::new(), faulty: BTreeSet::new() }
    }

    /// The same, with these processes coming late: only when the phases of their warp that may append have
    /// passed (F6, K3).
    #[must_use]
    pub fn with_late(self, late: BTreeSet<ProcessId>) -> Self {
        Self { late, ..self }
    }

    /// The processes that come late.
    #[must_use]
    pub const fn late(&self) -> &BTreeSet<ProcessId> {
        &self.late
    }

    /// The same, with these processes killed, restarted without memory or the like by the program that
    /// carries out the run: their roles are correct, but they count in f and are not judged (V4).
    #[must_use]
    pub fn with_faulty(self, faulty: BTreeSet<ProcessId>) -> Self {
        Self { faulty, ..self }
    }

    /// The processes that are made faulty from outside.
    #[must_use]
    pub const fn faulty(&self) -> &BTreeSet<ProcessId> {
        &self.faulty
    }

    /// The assignment of a process; `None` if it has none.
    #[must_use]
    pub fn assignment(&self, process: ProcessId) -> Option<&Assignment> {
        self.assignments.get(process.index())
    }

    /// Every process with its assignment, in order.
    pub fn assignments(&self) -> impl Iterator<Item = (ProcessId, &Assignment)> {
        let process =
            |index| ProcessId::from_index(index).expect("at most 65,536 processes have assignments");
        self.assignments.iter().enumerate().map(move |(index, assignment)| (process(index), assignment))
    }

    /// Has processes 1, 2, 3, ... propose these values, in this order.
    pub fn propose(&mut self, values: impl IntoIterator<Item = Value>) {
        for (assignment, value) in self.assignments.iter_mut().zip(values) {
            assignment.proposal = value;
        }
    }

    /// The correct processes, in order.
    pub fn correct(&self) -> impl Iterator<Item = ProcessId> {
        self.assignments()
            .filter(|(_, assignment)| assignment.role == Role::Correct)
            .map(|(process, _)| process)
    }

    /// The Byzantine processes, in order.
    pub fn byzantine(&self) -> impl Iterator<Item = ProcessId> {
        self.assignments()
            .filter(|(_, assignment)| assignment.role != Role::Correct)
            .map(|(process, _)| process)
    }

    /// The processes that come to an end by themselves, in order: the correct ones, and the Byzantine ones
    /// that leave after their attack.
    pub fn ending(&self) -> impl Iterator<Item = ProcessId> {
        self.assignments().filter(|(_, assignment)| assignment.ends()).map(|(process, _)| process)
    }

    /// The processes with a wire attack, each with its attack, in order.
    pub fn attackers(&self) -> impl Iterator<Item = (ProcessId, WireAttack)> {
        self.assignments().filter_map(|(process, assignment)| match assignment.role {
            Role::Attacker(attack) => Some((process, attack)),
            Role::Correct | Role::Byzantine(_) | Role::External => None,
        })
    }

    /// The late processes, before any of them has come.
    #[must_use]
    pub fn latecomers(&self, params: &Params) -> Latecomers {
        let schedule = Schedule::new(params);
        let last_phase = |process| schedule.last_append_phase(params.warp_of(process));
        Latecomers(self.late.iter().map(|&process| (last_phase(process), process)).collect())
    }

    /// V_c: the values that correct processes propose.
    #[must_use]
    pub fn correct_proposals(&self) -> BTreeSet<&Value> {
        self.assignments
            .iter()
            .filter(|assignment| assignment.role == Role::Correct)
            .map(|assignment| &assignment.proposal)
            .collect()
    }
}

/// Late processes that have not come yet, each with the last phase of its warp that may append.
#[derive(Clone, Debug, Default)]
pub struct Latecomers(Vec<(Phase, ProcessId)>);

impl Latecomers {
    /// The processes that come when this phase has been reached: their phases that may append have passed.
    pub fn come(&mut self, reached: Phase) -> Vec<ProcessId> {
        self.0.extract_if(.., |(last, _)| *last <= reached).map(|(_, process)| process).collect()
    }

    /// Whether a process is among them.
    #[must_use]
    pub fn contains(&self, process: ProcessId) -> bool {
        self.0.iter().any(|(_, late)| *late == process)
    }

    /// Whether all of them have come.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
