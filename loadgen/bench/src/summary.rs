//! Median and range of some figures.

use std::time::Duration;

use serde::Serialize;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of these values; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        Some(Self { median, min, max })
    }
}

/// The quantile of these durations, one of them; `None` if there are none.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub(crate) fn quantile(mut durations: Vec<Duration>, quantile: f64) -> Option<Duration> {
    durations.sort_unstable();
    let rank = (durations.len() as f64 * quantile).ceil() as usize;
    durations.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert_eq!(Summary::of([4.0, 1.0, 3.0, 2.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Summary::of([3.0, 1.0, 9.0]).map(|summary| summary.median), Some(3.0));
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_samples() {
        let samples: Vec<_> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(quantile(samples.clone(), 0.5), Some(Duration::from_micros(100)));
        assert_eq!(quantile(samples.clone(), 0.99), Some(Duration::from_micros(198)));
        assert_eq!(quantile(samples, 1.0), Some(Duration::from_micros(200)));
        assert_eq!(quantile(Vec::new(), 0.5), None);
    }
}
