//! The draws for each instance: its seed and its proposals. The same profile draws the same in every load
//! generator, however fast the server is.

use std::sync::Arc;

use stickycas_harness::proposals;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::params::Params;
use stickycas_model::random::SplitMix64;
use stickycas_model::types::{ProcessId, Seed, Value};

use super::profile::Profile;

/// The instance with this number, from 0, as it is to be played.
#[derive(Clone, Debug)]
pub(super) struct GeneratedInstance {
    /// Of the instance, and of what its Byzantine processes draw.
    pub(super) seed: u64,
    pub(super) params: Arc<Params>,
    pub(super) truth: GroundTruth,
    /// Whether its whole history is to be judged.
    pub(super) watched: bool,
}

impl GeneratedInstance {
    /// See the type.
    pub(super) fn instance(profile: &Profile, number: u64) -> Self {
        let mut random = SplitMix64::new(profile.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // No larger than a scenario file can hold.
        let seed = random.next_u64() >> 1;
        let chance = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let params = Arc::new(profile.params.with_seed(Seed::new(seed)));
        let proposals = proposals::draw(profile.distinct, &params, &profile.faults, seed)
            .expect("it was checked with the profile that there are as many correct processes");
        let assignment = |(process, proposal): (ProcessId, Value)| Assignment {
            role: profile.faults.role(process).cloned().unwrap_or(Role::Correct),
            proposal: padded(&proposal, profile.value_bytes as usize),
        };
        let assignments = ProcessId::all(params.processes()).zip(proposals).map(assignment).collect();
        Self {
            seed,
            params,
            truth: GroundTruth::new(assignments),
            watched: chance < profile.load.history_sample.0,
        }
    }
}

/// The value made so long, its order among others kept.
fn padded(value: &Value, bytes: usize) -> Value {
    let mut padded = value.as_bytes().to_vec();
    padded.resize(bytes.max(padded.len()), b'.');
    Value::new(&padded).expect("it is as long as before or longer")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::profile::Flags;
    use super::*;

    fn profile(flags: &[(&str, &str)]) -> Profile {
        Profile::load(None, &Flags::of(&[flags, &[("seed", "3")]].concat())).unwrap()
    }

    #[test]
    fn instances_differ_and_a_seed_repeats_them() {
        let profile = profile(&[("distinct", "3"), ("value-bytes", "8")]);
        let seeds: BTreeSet<u64> =
            (0..100).map(|number| GeneratedInstance::instance(&profile, number).seed).collect();
        assert_eq!(seeds.len(), 100);
        let (one, again) =
            (GeneratedInstance::instance(&profile, 5), GeneratedInstance::instance(&profile, 5));
        assert_eq!((one.seed, &one.truth), (again.seed, &again.truth));
        assert_eq!(one.truth.correct_proposals().len(), 3);
        assert!(one.truth.assignments().all(|(_, assignment)| assignment.proposal.as_bytes().len() == 8));
    }

    #[test]
    fn the_share_of_watched_instances_is_what_was_asked_for() {
        let watched = |share: &str| {
            let profile = profile(&[("history-sample", share)]);
            (0..4_000).filter(|number| GeneratedInstance::instance(&profile, *number).watched).count()
        };
        assert_eq!((watched("0"), watched("1")), (0, 4_000));
        assert!((300..500).contains(&watched("0.1")));
    }
}
