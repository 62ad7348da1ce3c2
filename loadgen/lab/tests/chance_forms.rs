//! The chance that strong validity breaks, where the formulas of [`stickycas_lab::chance`] are simpler: for
//! one value, and for proposals that are given. The tests hold both against each other and against the
//! simulator.
//!
//! [`given_proposals`] goes through the warps one after another and keeps the chance of every vector of
//! counts (N(1), ..., N(k)), where N(x) is the number of entries that are x; B is what is left.

use stickycas_lab::chance::Rank;

/// The most states that [`given_proposals`] goes through: 32 MiB of them.
const MOST_STATES: usize = 1 << 22;

/// The members of a warp by what they append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warp {
    /// b: how many append the colluders' value.
    pub(crate) byzantine: u32,
    /// How many append each value of Vc, from the smallest to the largest.
    pub(crate) correct: Vec<u32>,
}

impl Warp {
    /// m, the number of members.
    fn members(&self) -> f64 {
        f64::from(self.byzantine) + self.correct.iter().copied().map(f64::from).sum::<f64>()
    }
}

/// The chance that strong validity, and with it common-value validity, breaks where all correct processes
/// propose one value (k = 1). `entries` is the distribution of B.
pub(crate) fn one_value(entries: &[f64], rank: Rank) -> f64 {
    let all = entries.len() - 1;
    let wins = |byzantine: usize| match rank {
        Rank::Proposed => false,
        Rank::Above(0) => 2 * byzantine >= all,
        Rank::Above(_) => 2 * byzantine > all,
    };
    entries.iter().enumerate().filter(|(byzantine, _)| wins(*byzantine)).map(|(_, chance)| chance).sum()
}

/// The chance that strong validity breaks for given proposals. Every warp has a member and counts the same
/// values. `None` if there are too many states to go through: (W+1)^k is above 2^22.
pub(crate) fn given_proposals(warps: &[Warp], rank: Rank) -> Option<f64> {
    let values = warps.first().map_or(0, |warp| warp.correct.len());
    let Rank::Above(above) = rank else { return Some(0.0) };
    // A vector of counts is a number with a digit for each value. Digits go up to W, and before the last warp
    // none is W, as their sum is not: a state whose digit is 0 borrows, which leads to W in that digit and so
    // to a state that has chance 0.
    let base = warps.len() + 1;
    let states = base.checked_pow(u32::try_from(values).ok()?).filter(|states| *states <= MOST_STATES)?;
    let steps: Vec<usize> = std::iter::successors(Some(1), |step| Some(step * base)).take(values).collect();
    let mut chances = vec![0.0; states];
    chances[0] = 1.0;
    for warp in warps {
        let members = warp.members();
        // Downwards, so that what a state adds to itself is of the warps before.
        for state in (0..states).rev() {
            let stays = chances[state] * f64::from(warp.byzantine);
            let comes = steps.iter().zip(&warp.correct).filter(|(step, _)| **step <= state);
            let comes: f64 = comes.map(|(step, &count)| chances[state - step] * f64::from(count)).sum();
            chances[state] = (stays + comes) / members;
        }
    }
    let breaks = |state: usize| {
        let counts = steps.iter().map(|step| state / step % base);
        let byzantine = warps.len().saturating_sub(counts.clone().sum());
        counts.enumerate().all(|(value, count)| count + usize::from(value < above) <= byzantine)
    };
    Some(chances.iter().enumerate().filter(|(state, _)| breaks(*state)).map(|(_, chance)| chance).sum())
}
