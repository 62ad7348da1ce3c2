//! When instances begin in an open loop, whether or not earlier ones have ended.
//!
//! A schedule is a rate that changes over time in straight pieces: one piece for a fixed rate or a ramp,
//! several for steps. The k-th instance begins when the rate, summed up, reaches k; for Poisson arrivals,
//! when it reaches the sum of k draws from the exponential distribution. It is computed, never measured: how
//! long the system takes cannot shift it.

use std::time::Duration;

use stickycas_model::random::SplitMix64;

/// A time in which the rate goes straight from one number to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Instances per second at its beginning.
    pub from: f64,
    /// Instances per second at its end.
    pub to: f64,
    /// How long it lasts.
    pub lasts: Duration,
}

impl Piece {
    /// How many instances begin in it.
    fn instances(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.lasts.as_secs_f64()
    }

    /// After how many seconds so many have begun.
    fn seconds(&self, instances: f64) -> f64 {
        let slope = (self.to - self.from) / self.lasts.as_secs_f64();
        // The root of slope/2 t^2 + from t = instances, in the form that is stable for a slope near zero.
        let root = (self.from * self.from + 2.0 * slope * instances).max(0.0).sqrt();
        2.0 * instances / (self.from + root)
    }
}

/// How regularly instances begin.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Evenly, as the rate says
    #[default]
    Fixed,
    /// Independently of each other: a Poisson process of that rate
    Poisson,
}

/// The moments at which instances begin, from the start of the load, in order. Ends with the last piece.
#[derive(Clone, Debug)]
pub struct Arrivals {
    pieces: Vec<Piece>,
    piece: usize,
    /// How long the pieces before took.
    before: f64,
    /// How many instances of this piece have begun, as a sum of the steps below.
    within: f64,
    /// For Poisson arrivals.
    random: Option<SplitMix64>,
    /// Whether the first has begun.
    begun: bool,
}

impl Arrivals {
    /// The arrivals of these pieces, one after the other. Poisson arrivals are drawn from `seed`.
    #[must_use]
    pub fn new(pieces: Vec<Piece>, spacing: Spacing, seed: u64) -> Self {
        let random = (spacing == Spacing::Poisson).then(|| SplitMix64::new(seed));
        Self { pieces, piece: 0, before: 0.0, within: 0.0, random, begun: false }
    }

    /// The sum of rates from one instance to the next.
    fn step(&mut self) -> f64 {
        match &mut self.random {
            // The first of evenly spaced ones begins at once.
            None => f64::from(u8::from(std::mem::replace(&mut self.begun, true))),
            Some(random) => {
                let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                -(1.0 - uniform).ln()
            }
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.within += self.step();
        loop {
            let piece = self.pieces.get(self.piece)?;
            let all = piece.instances();
            if self.within < all {
                return Some(Duration::from_secs_f64(self.before + piece.seconds(self.within)));
            }
            self.within -= all;
            self.before += piece.lasts.as_secs_f64();
            self.piece += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(from: f64, to: f64, seconds: u64) -> Piece {
        Piece { from, to, lasts: Duration::from_secs(seconds) }
    }

    fn seconds(pieces: &[Piece], spacing: Spacing) -> Vec<f64> {
        Arrivals::new(pieces.to_vec(), spacing, 7).map(|at| at.as_secs_f64()).collect()
    }

    #[test]
    fn a_fixed_rate_begins_at_once_and_goes_on_evenly() {
        let at = seconds(&[piece(4.0, 4.0, 2)], Spacing::Fixed);
        assert_eq!(at, [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]);
    }

    #[test]
    fn a_ramp_has_as_many_as_its_mean_rate_says_and_the_gaps_shrink() {
        let at = seconds(&[piece(10.0, 30.0, 10)], Spacing::Fixed);
        assert_eq!(at.len(), 200);
        assert!(at.windows(3).all(|w| w[2] - w[1] < w[1] - w[0]), "{at:?}");
        let falling = seconds(&[piece(30.0, 0.0, 10)], Spacing::Fixed);
        assert_eq!(falling.len(), 150);
        assert!(falling.iter().all(|at| *at <= 10.0));
    }

    #[test]
    fn steps_follow_each_other_without_a_gap_or_a_burst() {
        let at = seconds(&[piece(2.0, 2.0, 1), piece(0.0, 0.0, 3), piece(4.0, 4.0, 1)], Spacing::Fixed);
        assert_eq!(at, [0.0, 0.5, 4.0, 4.25, 4.5, 4.75]);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_variance_of_poisson() {
        let pieces = [piece(1000.0, 1000.0, 20)];
        let at = seconds(&pieces, Spacing::Poisson);
        // 20,000 are expected, with a standard deviation of 141.
        assert!((19_300..20_700).contains(&at.len()), "{}", at.len());
        let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "an exponential deviates by its mean");
        assert_eq!(at, seconds(&pieces, Spacing::Poisson));
    }
}
