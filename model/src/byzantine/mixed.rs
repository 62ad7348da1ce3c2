//! Proof case (e): a mix of the cases (a) to (d). Each process draws which of them it plays.

use super::Strategy;
use crate::random::SplitMix64;
use crate::types::Value;

/// The strategies of the cases (a) to (d): with what those collude on, and what those mimic.
pub(super) fn cases(collude: &Value, mimic: &Value) -> [Strategy; 4] {
    [
        Strategy::Empty,
        Strategy::Distinct { value: None },
        Strategy::Collude { value: collude.clone() },
        Strategy::Mimic { value: mimic.clone() },
    ]
}

/// The case that a process with this seed plays.
pub(super) fn drawn(collude: &Value, mimic: &Value, seed: u64) -> Strategy {
    let [a, b, c, d] = cases(collude, mimic);
    match SplitMix64::new(seed).below(4) {
        0 => a,
        1 => b,
        2 => c,
        _ => d,
    }
}
