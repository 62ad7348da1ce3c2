//! The theorem, as arithmetic (paper, Theorem 1 and its corollary; SPEC V1 to V3, D2).
//!
//! Strong validity is promised when f*(|Vc|+1)*p < n and common-value validity when 2*f*p < n, where Vc is
//! the set of values that correct processes propose and f counts the processes that may have cost Vc a warp's
//! entry: the Byzantine ones, and the correct ones that were late (F6).
//!
//! With W = ceil(n/p) warps, f*(|Vc|+1)*p < n says the same as f*(|Vc|+1) < W, since the left side of the
//! latter is whole. W is T of K1 for one append round, and with q of them the bounds are f*(|Vc|+1) < T and
//! 2*f < T (K3): each of the f adds at most one false entry and costs at most one true one, so of at least
//! T-f true entries some value of Vc has ceil((T-f)/|Vc|) > f.
//!
//! The first is not only sufficient. If it does not hold, no process is late and some value v is smaller than
//! all of Vc, the adversary puts its processes where it wins f appends, all of v. The other T-f entries are
//! shared by |Vc| values, and correct processes may have proposed so that no value has more than
//! ceil((T-f)/|Vc|) of them, which is at most f. So v is the mode: a tie goes to the smallest.
//! `model/tests/bounds.rs` searches all small cases and finds the formula exact.
//!
//! The second is the first for |Vc| = 1. The paper remarks that for p = 1 "f can be as large as ceil(n/2)";
//! that is one too many, as 2*f < n shows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::params::Params;
use crate::types::{Phase, ProcessId};

/// A property of consensus (V1, V2; paper, Definitions 1 to 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// All correct processes that decide, decide the same.
    Agreement,
    /// Every correct process decides within D2's bound.
    Termination,
    /// A decision was proposed by some process.
    WeakValidity,
    /// If all correct processes propose v, the decision is v.
    CommonValidity,
    /// A decision was proposed by a correct process.
    StrongValidity,
}

impl Property {
    /// All five.
    pub const ALL: [Self; 5] =
        [Self::Agreement, Self::Termination, Self::WeakValidity, Self::CommonValidity, Self::StrongValidity];
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agreement => "agreement",
            Self::Termination => "termination",
            Self::WeakValidity => "weak validity",
            Self::CommonValidity => "common-value validity",
            Self::StrongValidity => "strong validity",
        })
    }
}

/// A premise of a promise that a run did not have (V1 to V4). Its text has the run's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Premise {
    /// The theorem's bound for strong validity: f*(|Vc|+1)*p < n.
    #[error(
        "f*(|Vc|+1)*p < n does not hold: {f}*({values}+1)*{warp_size} = {} >= {processes}",
        strong_cost(*.f, *.values, *.warp_size)
    )]
    StrongBound {
        /// f: Byzantine and late correct processes.
        f: u64,
        /// |Vc|: different values proposed by correct processes.
        values: u64,
        /// p, the warp size.
        warp_size: u32,
        /// n, the number of processes.
        processes: u32,
    },
    /// The bound of several append rounds for strong validity: f*(|Vc|+1) < T (K3).
    #[error("f*(|Vc|+1) < T does not hold: {f}*({values}+1) = {} >= {entries}", strong_cost(*.f, *.values, 1))]
    StrongBoundOfRounds {
        /// f: Byzantine and late correct processes.
        f: u64,
        /// |Vc|: different values proposed by correct processes.
        values: u64,
        /// T, the most entries that a decision counts.
        entries: u32,
    },
    /// The corollary's bound for common-value validity: 2*f*p < n.
    #[error("2*f*p < n does not hold: 2*{f}*{warp_size} = {} >= {processes}", strong_cost(*.f, 1, *.warp_size))]
    CommonBound {
        /// f: Byzantine and late correct processes.
        f: u64,
        /// p, the warp size.
        warp_size: u32,
        /// n, the number of processes.
        processes: u32,
    },
    /// The bound of several append rounds for common-value validity: 2*f < T (K3).
    #[error("2*f < T does not hold: 2*{f} = {} >= {entries}", strong_cost(*.f, 1, 1))]
    CommonBoundOfRounds {
        /// f: Byzantine and late correct processes.
        f: u64,
        /// T, the most entries that a decision counts.
        entries: u32,
    },
    /// The append window is `first_access` (A2, section 9).
    #[error("append window open")]
    FirstAccess,
    /// Some correct process was punctual (V1).
    #[error("no correct process was punctual")]
    PunctualProcess,
    /// Patience is finite, or every process that joined goes on acting or leaves (V1).
    #[error("patience is without end, and process {process} joined but neither acts nor left")]
    EveryoneActs {
        /// A process that joined, then neither acted nor left.
        process: ProcessId,
    },
}

/// Whether strong validity is promised (V3, K3): f*(|Vc|+1) < T. `f` counts Byzantine and late correct
/// processes, `values` is |Vc|.
///
/// # Errors
/// The bound, with its numbers, when it does not hold; for q = 1 as the paper has it.
pub fn strong_validity(params: &Params, f: u64, values: u64) -> Result<(), Premise> {
    if is_inside(params, f, values) {
        return Ok(());
    }
    let (warp_size, processes) = (params.warp_size(), params.processes());
    Err(match params.append_rounds() {
        1 => Premise::StrongBound { f, values, warp_size, processes },
        _ => Premise::StrongBoundOfRounds { f, values, entries: params.counted_entries() },
    })
}

/// Whether common-value validity is promised (V3, K3): 2*f < T. `f` as for [`strong_validity`].
///
/// # Errors
/// The bound, with its numbers, when it does not hold; for q = 1 as the paper has it.
pub fn common_validity(params: &Params, f: u64) -> Result<(), Premise> {
    if is_inside(params, f, 1) {
        return Ok(());
    }
    let (warp_size, processes) = (params.warp_size(), params.processes());
    Err(match params.append_rounds() {
        1 => Premise::CommonBound { f, warp_size, processes },
        _ => Premise::CommonBoundOfRounds { f, entries: params.counted_entries() },
    })
}

/// f*(|Vc|+1) < T.
fn is_inside(params: &Params, f: u64, values: u64) -> bool {
    strong_cost(f, values, 1) < u64::from(params.counted_entries())
}

/// The most processes that may be Byzantine or late with strong validity still promised for |Vc| = `values`.
/// With `values` = 1 it is the same for common-value validity.
#[must_use]
pub fn largest_f(params: &Params, values: u64) -> u64 {
    u64::from(params.counted_entries() - 1) / strong_cost(1, values, 1)
}

/// The phase by which a correct process decides that missed `missed` of its own phases: W*(q+c+m), where c =
/// ceil(T/r) (D2, K2).
#[must_use]
pub fn phase_bound(params: &Params, missed: u64) -> Phase {
    let rounds = missed.saturating_add(u64::from(params.append_rounds()) + u64::from(params.reads()));
    Phase::new(rounds.saturating_mul(u64::from(params.warps())))
        .expect("there is a warp, so a round has a phase")
}

/// f*(|Vc|+1)*p. Saturates: a product that does not fit is above every n.
fn strong_cost(f: u64, values: u64, warp_size: u32) -> u64 {
    f.saturating_mul(values.saturating_add(1)).saturating_mul(u64::from(warp_size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::ParamsSpec;

    fn params(n: u32, p: u32, r: u32) -> Params {
        Params::try_new(ParamsSpec::new(n, p, r)).unwrap()
    }

    /// With q append rounds.
    fn with_rounds(n: u32, p: u32, append_rounds: u32) -> Params {
        Params::try_new(ParamsSpec { append_rounds, ..ParamsSpec::new(n, p, 3) }).unwrap()
    }

    #[test]
    fn a_missing_premise_states_its_numbers() {
        let missing = |result: Result<(), Premise>| result.unwrap_err().to_string();
        let params = params(16, 2, 1);
        assert_eq!(
            missing(strong_validity(&params, 4, 2)),
            "f*(|Vc|+1)*p < n does not hold: 4*(2+1)*2 = 24 >= 16"
        );
        assert_eq!(missing(common_validity(&params, 4)), "2*f*p < n does not hold: 2*4*2 = 16 >= 16");
        let params = with_rounds(7, 3, 2);
        assert_eq!(missing(strong_validity(&params, 2, 2)), "f*(|Vc|+1) < T does not hold: 2*(2+1) = 6 >= 5");
        assert_eq!(missing(common_validity(&params, 3)), "2*f < T does not hold: 2*3 = 6 >= 5");
    }

    #[test]
    fn the_bound_is_strict() {
        assert!(strong_validity(&params(7, 1, 1), 2, 2).is_ok());
        assert!(strong_validity(&params(6, 1, 1), 2, 2).is_err());
        assert!(common_validity(&params(5, 1, 1), 2).is_ok());
        assert!(common_validity(&params(4, 1, 1), 2).is_err(), "the paper's remark is one too many");
    }

    #[test]
    fn nobody_faulty_is_always_inside_the_bound() {
        assert!(strong_validity(&params(1, 1, 1), 0, 65_536).is_ok());
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let params = params(65_536, 65_536, 1);
        assert!(strong_validity(&params, 65_536, 65_536).is_err());
        assert!(strong_validity(&params, u64::MAX, u64::MAX).is_err());
        assert_eq!(phase_bound(&params, u64::MAX).get(), u64::MAX);
    }

    #[test]
    fn the_largest_f_is_the_last_one_inside_the_bound() {
        for n in 1..=40 {
            for p in 1..=n {
                for values in 1..=6 {
                    let params = params(n, p, 1);
                    let f = largest_f(&params, values);
                    let of_paper = |f: u64| f * (values + 1) * u64::from(p) < u64::from(n);
                    assert!(of_paper(f) && !of_paper(f + 1), "n={n} p={p} |Vc|={values} f={f}");
                    assert!(strong_validity(&params, f, values).is_ok(), "n={n} p={p} |Vc|={values} f={f}");
                    assert!(
                        strong_validity(&params, f + 1, values).is_err(),
                        "n={n} p={p} |Vc|={values} f={f}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_phase_bound_has_a_round_for_each_access_and_missed_phase() {
        assert_eq!(phase_bound(&params(16, 2, 3), 0).get(), 8 * (1 + 3));
        assert_eq!(phase_bound(&params(16, 2, 3), 2).get(), 8 * (1 + 3 + 2));
        let all_rounds = with_rounds(7, 3, 3);
        assert_eq!((all_rounds.counted_entries(), phase_bound(&all_rounds, 1).get()), (7, 3 * (3 + 3 + 1)));
    }
}
