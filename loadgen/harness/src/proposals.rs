//! Proposals that are drawn rather than listed.

use stickycas_model::params::Params;
use stickycas_model::random::SplitMix64;
use stickycas_model::types::{ProcessId, Value};

use crate::fault_plan::{FaultPlan, shuffle};

/// A proposal for each process, drawn from `seed`, such that correct processes propose exactly `distinct`
/// different values: |Vc| is what the scenario says it is. No value has more bytes than the instance allows.
///
/// # Errors
/// If `distinct` is 0, or there are not so many correct processes, or not so many values that are short
/// enough.
pub fn draw(distinct: u32, params: &Params, faults: &FaultPlan, seed: u64) -> Result<Vec<Value>, String> {
    let everyone = ProcessId::all(params.processes());
    let mut correct: Vec<_> = everyone.filter(|process| faults.role(*process).is_none()).collect();
    if correct.is_empty() {
        return Err(format!(
            "distinct = {distinct}: no process is correct, so nothing can be drawn: give values = [...]"
        ));
    }
    if distinct == 0 || distinct as usize > correct.len() {
        let correct = correct.len();
        return Err(format!("distinct = {distinct}: give 1 to {correct}, the number of correct processes"));
    }
    let values = values_within(distinct, params.spec().max_value_bytes)?;
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
#[must_use]
pub fn values(count: u32) -> Vec<Value> {
    let digits = count.to_string().len();
    let value = |number| Value::new(format!("v{number:0digits$}").as_bytes()).expect("it is not empty");
    (1..=count).map(value).collect()
}

/// So many different values of at most so many bytes, sorted: [`values`] if they are short enough, else
/// digits and letters, else bytes.
fn values_within(count: u32, max_value_bytes: u32) -> Result<Vec<Value>, String> {
    if value_bytes(count) <= max_value_bytes {
        return Ok(values(count));
    }
    let letters: Vec<u8> = (b'0'..=b'9').chain(b'a'..=b'z').collect();
    let bytes: Vec<u8> = (0..=u8::MAX).collect();
    let different = |digits: &[u8]| (digits.len() as u64).saturating_pow(max_value_bytes);
    let (digits, values) = match different(&letters) {
        few if few < u64::from(count) => (&bytes, different(&bytes)),
        enough => (&letters, enough),
    };
    if values < u64::from(count) {
        return Err(format!(
            "distinct = {count}: only {values} values have at most max_value_bytes = {max_value_bytes}: give 1 to \
             {values}, or a larger max_value_bytes"
        ));
    }
    let base = digits.len() as u64;
    let length = (1..).find(|length| base.saturating_pow(*length) >= u64::from(count));
    let length = length.expect("every power of two or more is exceeded");
    let value = |number: u64| {
        let places = (0..length).rev().map(|place| number / base.pow(place) % base);
        let bytes: Vec<u8> = places.map(|digit| digits[digit as usize]).collect();
        Value::new(&bytes).expect("it is not empty")
    };
    Ok((0..u64::from(count)).map(value).collect())
}

/// Bytes that so many different values need.
#[must_use]
pub fn value_bytes(distinct: u32) -> u32 {
    let longest = values(distinct).last().map_or(1, |value| value.as_bytes().len());
    u32::try_from(longest).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stickycas_model::byzantine::{Silent, Strategy};
    use stickycas_model::ground_truth::Role;
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
        let everybody = ProcessId::all(12).skip(1);
        everybody
            .for_each(|process| faults.name(process, &Role::Byzantine(Strategy::Silent(Silent))).unwrap());
        assert!(draw(1, &params, &faults, 0).unwrap_err().contains("no process is correct"));
        assert!(draw(0, &params, &faults, 0).is_err());
    }

    #[test]
    fn drawn_values_are_as_short_as_the_instance_wants_them() {
        for (count, most) in [(1, 1), (9, 2), (10, 2), (36, 1), (37, 1), (256, 1), (1_296, 2), (1_297, 2)] {
            let values = values_within(count, most).unwrap();
            assert!(values.is_sorted() && values.windows(2).all(|two| two[0] != two[1]), "{count}");
            let longest = values.iter().map(|value| value.as_bytes().len()).max();
            assert!(values.len() == count as usize && longest <= Some(most as usize), "{count} in {most}");
        }
        assert_eq!(values_within(9, 2).unwrap(), values(9), "values that fit keep their names");
        let refused = values_within(257, 1).unwrap_err();
        assert!(
            refused.contains("only 256 values have at most max_value_bytes = 1: give 1 to 256"),
            "{refused}"
        );
    }
}
