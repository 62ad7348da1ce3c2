//! Detects which attacks of a run happened: a run with an attack proves something only then (SPEC B3).
//!
//! Strategies show in the history, wire attacks in the counts of the server. No attack shows by the offence
//! that it commits: the judge asks whether the offences of the processes that were detected are on record
//! (B2), and it must be able to find that they are not.

use std::collections::{BTreeMap, BTreeSet};

use crate::byzantine::Observations;
use crate::counts::RunCounts;
use crate::ground_truth::{GroundTruth, Role, seed_of};
use crate::history::{OffenceKind, Recorded};
use crate::params::Params;
use crate::types::ProcessId;

/// The attacks of a run that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detection {
    /// By the name of each strategy and wire attack of the ground truth, the number of processes that were
    /// observed to carry it out.
    pub fired: BTreeMap<String, u64>,
    /// The processes that were observed to carry out the attack that the ground truth gives them.
    pub attackers: BTreeSet<ProcessId>,
    /// The offences of the closed list that Byzantine processes were observed to commit: each must be on
    /// record (B2).
    pub offences: BTreeMap<ProcessId, BTreeSet<OffenceKind>>,
}

impl Detection {
    /// Detects the attacks of a run from its observations. `run_seed` is the seed of the whole run, since a
    /// strategy may draw what it does; `counted` is what the server counted.
    #[must_use]
    pub fn new(truth: &GroundTruth, run_seed: u64, observations: &Observations, counted: &RunCounts) -> Self {
        let mut detection = Self::default();
        for (process, assignment) in truth.assignments() {
            let observed = observations.of(process, seed_of(process, run_seed));
            let (name, detected, offences) = match (&assignment.role, observed) {
                (Role::Correct, _) | (_, None) => continue,
                (Role::External, Some(observed)) => {
                    // Nothing of it must be seen; the offences that are seen must be on record all the same.
                    let offences: BTreeSet<OffenceKind> = observed.offences().collect();
                    if !offences.is_empty() {
                        detection.offences.insert(process, offences);
                    }
                    continue;
                }
                (Role::Byzantine(strategy), Some(observed)) => {
                    (strategy.name(), strategy.is_shown_by(&observed), strategy.offences(&observed))
                }
                (Role::Attacker(attack), Some(observed)) => {
                    let detected = attack.is_shown_by(process, counted);
                    let committed = attack.offences().iter().copied().filter(|_| detected);
                    (attack.name(), detected, observed.offences().chain(committed).collect())
                }
            };
            *detection.fired.entry(name.to_owned()).or_default() += u64::from(detected);
            if detected {
                detection.attackers.insert(process);
            }
            if !offences.is_empty() {
                detection.offences.insert(process, offences);
            }
        }
        detection
    }
}

/// Detects the attacks of a run from its history and from what the server counted. `run_seed` as for
/// [`Detection::new`].
#[must_use]
pub fn detect(
    params: &Params,
    truth: &GroundTruth,
    run_seed: u64,
    history: &[Recorded],
    counted: &RunCounts,
) -> Detection {
    let mut observations = Observations::new(params, truth.byzantine());
    for Recorded { at, event } in history {
        observations.observe(*at, event);
    }
    Detection::new(truth, run_seed, &observations, counted)
}
