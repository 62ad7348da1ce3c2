//! Proposals that are drawn rather than listed.

use stickycas_model::params::Params;
use stickycas_model::random::SplitMix64;
use stickycas_model::types::{ProcessId, Value};

use crate::fault_plan::{FaultPlan, shuffle};

/// Why so many values cannot be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("distinct = {distinct}: give 1 to {correct}, the number of correct processes")]
pub struct DistinctError {
    /// As many were asked for.
    distinct: u32,
    /// As many processes are correct.
    correct: usize,
}

/// A proposal for each process, drawn from `seed`, such that correct processes propose exactly `distinct`
/// different values: |Vc| is what the scenario says it is.
///
/// # Errors
/// If `distinct` is 0 or there are not so many correct processes.
pub fn draw(
    distinct: u32,
    params: &Params,
    faults: &FaultPlan,
    seed: u64,
) -> Result<Vec<Value>, DistinctError> {
    let everyone = ProcessId::all(params.processes());
    let mut correct: Vec<_> = everyone.filter(|process| faults.role(*process).is_none()).collect();
    if distinct == 0 || distinct as usize > correct.len() {
        return Err(DistinctError { distinct, correct: correct.len() });
    }
    let values = values(distinct);
    let mut random = SplitMix64::new(seed);
    let mut proposals: Vec<Value> =
        (0..params.processes()).map(|_| values[random.index(values.len())].clone()).collect();
    // Every value has one correct process at least; the others are left to chance.
    shuffle(&mut correct, &mut random);
    for (process, value) in correct.into_iter().zip(values) {
        proposals[process.index()] = value;
    }
    Ok(proposals)
}

/// `v1`, `v2`, ... with as many digits as the last needs, so that they sort by number.
pub(crate) fn values(count: u32) -> Vec<Value> {
    let digits = count.to_string().len();
    let value = |number| Value::new(format!("v{number:0digits$}").as_bytes()).expect("it is not empty");
    (1..=count).map(value).collect()
}

/// Bytes that so many different values need.
pub(crate) fn value_bytes(distinct: u32) -> u32 {
    let longest = values(distinct).last().map_or(1, |value| value.as_bytes().len());
    u32::try_from(longest).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stickycas_model::byzantine::{Silent, Strategy};
    use stickycas_model::cast::Role;
    use stickycas_model::params::ParamsSpec;

    use super::*;

    #[test]
    fn correct_processes_propose_as_many_values_as_asked_for() {
        let params = Params::try_new(ParamsSpec::new(12, 3, 1)).unwrap();
        let mut faults = FaultPlan::default();
        faults.name(ProcessId::FIRST, &Role::Byzantine(Strategy::Silent(Silent))).unwrap();
        for (distinct, seed) in [(1, 0), (2, 1), (11, 2)] {
            let proposals = draw(distinct, &params, &faults, seed).unwrap();
            assert_eq!(proposals.len(), 12);
            let of_correct: BTreeSet<_> = proposals[1..].iter().collect();
            assert_eq!(of_correct.len(), distinct as usize);
        }
        assert!(draw(12, &params, &faults, 0).is_err());
        assert!(draw(0, &params, &faults, 0).is_err());
    }
}
