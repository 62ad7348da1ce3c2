//! Estimates of chances from counts.

/// The two-sided quantile of the normal distribution that belongs to 99 %.
pub const Z_99: f64 = 2.575_829_303_548_901;

/// A chance of 0 or 1 that was computed may be off by this much.
const ROUNDING: f64 = 1e-9;

/// A range of chances that a count agrees with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Wilson's score interval: all chances p for which this many successes are at most `z` standard
    /// deviations away from what p lets expect. Unlike the textbook's p ± z·s it has a width at 0 and at 1
    /// too. `None` without a trial.
    ///
    /// E. B. Wilson: "Probable inference, the law of succession, and statistical inference" (JASA 22, 1927).
    #[must_use]
    pub fn wilson(successes: u64, trials: u64, z: f64) -> Option<Self> {
        if trials == 0 {
            return None;
        }
        let (n, share) = (trials as f64, successes as f64 / trials as f64);
        let center = share + z * z / (2.0 * n);
        let margin = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        Some(Self {
            low: if successes == 0 { 0.0 } else { (center - margin) / scale },
            high: if successes == trials { 1.0 } else { (center + margin) / scale },
        })
    }

    /// Whether this chance lies within.
    #[must_use]
    pub fn contains(&self, chance: f64) -> bool {
        (self.low - ROUNDING..=self.high + ROUNDING).contains(&chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_the_published_one() {
        // Newcombe: "Two-sided confidence intervals for the single proportion" (1998), table I, method 3.
        let z_95 = 1.959_963_984_540_054;
        for (successes, trials, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let interval = Interval::wilson(successes, trials, z_95).unwrap();
            assert!((interval.low - low).abs() < 5e-5, "{interval:?}");
            assert!((interval.high - high).abs() < 5e-5, "{interval:?}");
        }
    }

    #[test]
    fn it_ends_where_the_count_is_z_standard_deviations_off() {
        let interval = Interval::wilson(30, 200, Z_99).unwrap();
        for end in [interval.low, interval.high] {
            let off = (30.0 - 200.0 * end) / (200.0 * end * (1.0 - end)).sqrt();
            assert!((off.abs() - Z_99).abs() < 1e-9, "{off}");
        }
        assert!(interval.contains(0.15) && !interval.contains(0.3));
    }

    #[test]
    fn nothing_and_everything_leave_room_on_one_side_only() {
        let nothing = Interval::wilson(0, 50, Z_99).unwrap();
        let everything = Interval::wilson(50, 50, Z_99).unwrap();
        assert!(nothing.low == 0.0 && nothing.high > 0.1);
        assert!(everything.high >= 1.0 && everything.low < 0.9);
        assert_eq!(Interval::wilson(0, 0, Z_99), None);
    }
}
