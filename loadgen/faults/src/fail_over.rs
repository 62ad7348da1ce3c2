//! How long clients wait for another owner: from a fault that hits a server until an access of an instance
//! that it owned is acknowledged.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Times in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailOver {
    /// For each fault, until the first access of any of these instances.
    pub first: Vec<u64>,
    /// For each instance of correct processes alone that the server owned and that went on, until its first
    /// access. That has the pace of the instance in it, and later faults.
    pub instances: Vec<u64>,
}

impl FailOver {
    pub(crate) fn add(&mut self, other: &Self) {
        self.first.extend(&other.first);
        self.instances.extend(&other.instances);
    }
}

impl fmt::Display for FailOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, instances) = (spread(&self.first), spread(&self.instances));
        write!(f, "first access of any instance: {first}; of each instance: {instances}")
    }
}

/// Median, worst and number.
fn spread(times: &[u64]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let Some(worst) = times.last() else { return "none".to_owned() };
    format!("median {} ms, worst {worst} ms (of {})", times[(times.len() - 1) / 2], times.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fail_over_is_told_as_median_and_worst() {
        let told = FailOver { first: vec![30, 10, 20], instances: Vec::new() }.to_string();
        assert_eq!(
            told,
            "first access of any instance: median 20 ms, worst 30 ms (of 3); of each instance: none"
        );
    }
}
