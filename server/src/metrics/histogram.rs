//! A histogram without locks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values by bucket.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The upper bounds of the buckets, but for the last, which has none.
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// In millionths.
    sum: AtomicU64,
}

impl Histogram {
    /// Nothing observed yet.
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts a duration in seconds, or a number.
    pub(crate) fn observe(&self, value: f64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "durations and counts")]
        self.sum.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    /// How many values were counted.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.buckets().map(|(_, count)| count).sum()
    }

    /// The sum of all values.
    #[expect(clippy::cast_precision_loss, reason = "a sum of durations and counts")]
    pub(super) fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// The upper bound of each bucket and how many values it has.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(&[0.001, 0.01, 0.1]);
        for value in [0.001, 0.002, 0.01, 0.011, 7.0] {
            histogram.observe(value);
        }
        let counts: Vec<_> = histogram.buckets().collect();
        assert_eq!(counts, [(0.001, 1), (0.01, 2), (0.1, 1), (f64::INFINITY, 1)]);
        assert!((histogram.sum() - 7.024).abs() < 1e-5);
    }
}
