//! A result beside an earlier one: the figures that have become better or worse by more than noise.

use serde::{Deserialize, Serialize};

use super::figures::{Figures, Metric};

/// The figures that are compared, where both results have them.
const COMPARED: [&str; 9] = [
    "rate",
    "access_rate",
    "instance_p50",
    "instance_p99",
    "service_p50",
    "append_p50",
    "append_p99",
    "read_p50",
    "read_p99",
];

/// A figure beside what it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Its name.
    pub figure: String,
    /// Its value in the baseline, in nanoseconds if it is a latency.
    pub before: f64,
    /// Its value now.
    pub now: f64,
    /// Whether it is worse by more than the noise.
    pub worse: bool,
}

/// Compares figures with those of a baseline. A difference of no more than `noise`, a share, counts as none.
#[must_use]
pub fn compare(before: &Figures, now: &Figures, noise: f64) -> Vec<Comparison> {
    let figures = COMPARED.iter().map(|name| name.parse::<Metric>().expect("it is the name of a figure"));
    let compared = figures.filter_map(|figure| {
        let (before, now) = (before.value(figure)?, now.value(figure)?);
        let worse =
            if figure.more_is_better() { now < before * (1.0 - noise) } else { now > before * (1.0 + noise) };
        Some(Comparison { figure: figure.to_string(), before, now, worse })
    });
    compared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(rate: f64) -> Figures {
        Figures { rate, access_rate: 100.0, ..Figures::default() }
    }

    #[test]
    fn differences_within_the_noise_are_none() {
        let worse = |now: f64| {
            let compared = compare(&figures(100.0), &figures(now), 0.1);
            assert_eq!(compared.len(), 2, "what nobody measured is not compared");
            compared[0].worse
        };
        assert!(!worse(91.0) && !worse(200.0) && worse(89.0));
    }

    #[test]
    fn a_latency_is_worse_when_it_is_longer() {
        let latency = |nanos| {
            let mut histograms = super::super::measure::Histograms::new();
            let label = super::super::measure::Label::own(
                super::super::measure::Measure::Instance,
                super::super::measure::OperationOutcome::Done,
            );
            super::super::measure::record(&mut histograms, label, std::time::Duration::from_nanos(nanos));
            Figures::of(&histograms, super::super::figures::Counts::default(), 1.0, (0, 0))
        };
        let worse = |now| compare(&latency(1_000), &latency(now), 0.2).iter().any(|compared| compared.worse);
        assert!(worse(1_300) && !worse(1_100) && !worse(500));
    }
}
