//! Who plays what in a run: the ground truth that the judge holds against what was seen (SPEC section 8, V4).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::byzantine::Strategy;
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::{Behaviour, Correct};
use crate::random::SplitMix64;
use crate::types::{ProcessId, Value};

/// What one process is in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Follows Algorithm 1.
    Correct,
    /// Follows a strategy of its own.
    Byzantine(Strategy),
}

/// One process's part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Correct or Byzantine.
    pub role: Role,
    /// The value it proposes; a Byzantine process may make nothing of it.
    pub proposal: Value,
}

impl Part {
    /// What the process `me` does that plays this part. Every process of a run is given the seed of the whole
    /// run, and draws from one of its own.
    #[must_use]
    pub fn behaviour(&self, me: ProcessId, run_seed: u64) -> Box<dyn Behaviour> {
        match &self.role {
            Role::Correct => Box::new(Correct::new(self.proposal.clone())),
            Role::Byzantine(strategy) => strategy.behaviour(me, seed_of(me, run_seed)),
        }
    }

    /// Which offences of the closed list (B2) the process `me` commits that plays this part, provided that it
    /// is seen at work ([`crate::byzantine::fired`]); none if it is correct.
    #[must_use]
    pub fn offences(&self, me: ProcessId, run_seed: u64, params: &Params) -> &'static [OffenceKind] {
        match &self.role {
            Role::Correct => &[],
            Role::Byzantine(strategy) => strategy.offences(me, seed_of(me, run_seed), params),
        }
    }
}

/// The seed from which process `me` draws in a run with this seed.
#[must_use]
pub fn seed_of(me: ProcessId, run_seed: u64) -> u64 {
    SplitMix64::new(run_seed ^ u64::from(me.get()) << 32).next_u64()
}

/// The parts of all n processes, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cast(Vec<Part>);

impl Cast {
    /// The parts of processes 1, 2, 3, ... in this order.
    #[must_use]
    pub fn new(parts: Vec<Part>) -> Self {
        Self(parts)
    }

    /// The part of a process; `None` if it is not in the cast.
    #[must_use]
    pub fn part(&self, process: ProcessId) -> Option<&Part> {
        self.0.get(process.index())
    }

    /// Every process with its part, in order.
    pub fn parts(&self) -> impl Iterator<Item = (ProcessId, &Part)> {
        let process = |index| ProcessId::from_index(index).expect("a cast has at most 65,536 parts");
        self.0.iter().enumerate().map(move |(index, part)| (process(index), part))
    }

    /// The correct processes, in order.
    pub fn correct(&self) -> impl Iterator<Item = ProcessId> {
        self.parts().filter(|(_, part)| part.role == Role::Correct).map(|(process, _)| process)
    }

    /// The Byzantine processes, in order.
    pub fn byzantine(&self) -> impl Iterator<Item = ProcessId> {
        self.parts().filter(|(_, part)| part.role != Role::Correct).map(|(process, _)| process)
    }

    /// V_c: the values that correct processes propose.
    #[must_use]
    pub fn correct_proposals(&self) -> BTreeSet<&Value> {
        self.0.iter().filter(|part| part.role == Role::Correct).map(|part| &part.proposal).collect()
    }
}
