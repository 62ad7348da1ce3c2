//! From a number to a place, and the axes that show it: ticks with their numbers, and a title that tells the
//! unit.

use maud::{Markup, html};

use super::{Frame, px};

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The place.
    pub at: f64,
    /// The text.
    pub label: String,
}

/// Maps the numbers of an axis to its length, evenly or by their logarithm.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    logarithmic: bool,
    /// The numbers at both ends.
    numbers: (f64, f64),
    /// The places of both ends.
    places: (f64, f64),
}

impl Scale {
    /// Equal steps are equally long.
    pub fn linear(numbers: (f64, f64), places: (f64, f64)) -> Self {
        Self { logarithmic: false, numbers: apart(numbers), places }
    }

    /// Equal factors are equally long. A number that is not above zero counts as 1.
    pub fn logarithmic(numbers: (f64, f64), places: (f64, f64)) -> Self {
        let positive = |number: f64| if number > 0.0 { number } else { 1.0 };
        Self { logarithmic: true, numbers: apart((positive(numbers.0), positive(numbers.1))), places }
    }

    /// The place of a number. Beyond the ends it goes on.
    pub fn at(&self, number: f64) -> f64 {
        let measure =
            |number: f64| if self.logarithmic { number.max(f64::MIN_POSITIVE).ln() } else { number };
        let (from, to) = (measure(self.numbers.0), measure(self.numbers.1));
        let share = (measure(number) - from) / (to - from);
        self.places.0 + share * (self.places.1 - self.places.0)
    }

    /// Ticks at these whole numbers.
    pub fn ticks_at(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<Tick> {
        let tick = |number: u32| Tick { at: self.at(f64::from(number)), label: number.to_string() };
        numbers.into_iter().map(tick).collect()
    }

    /// At most about so many ticks, at whole numbers.
    pub fn whole_ticks(&self, most: usize) -> Vec<Tick> {
        self.whole_ticks_as(most, |number| number.to_string())
    }

    /// The same with other texts.
    pub fn whole_ticks_as(&self, most: usize, label: impl Fn(f64) -> String) -> Vec<Tick> {
        let numbers = if self.logarithmic { self.factors(most) } else { self.steps(most) };
        numbers.into_iter().map(|number| Tick { at: self.at(number), label: label(number) }).collect()
    }

    /// At 0, 25, 50, 75 and 100 %, of a scale from 0 to 1.
    pub fn percent_ticks(&self) -> Vec<Tick> {
        let tick =
            |quarter: u32| Tick { at: self.at(f64::from(quarter) / 4.0), label: format!("{}", quarter * 25) };
        (0..=4).map(tick).collect()
    }

    /// Multiples of 1, 2, 5, 10, 20, 50, ...
    fn steps(&self, most: usize) -> Vec<f64> {
        let (from, to) = self.numbers;
        let step = nice_numbers().find(|step| (to - from) / step <= most as f64).unwrap_or(to - from);
        let first = (from / step).ceil();
        let count = ((to / step).floor() - first).max(0.0) as u32;
        (0..=count).map(|number| (first + f64::from(number)) * step).collect()
    }

    /// 1, 2, 5, 10, 20, 50, ..., or 1, 10, 100, ... if these are too many.
    fn factors(&self, most: usize) -> Vec<f64> {
        let (from, to) = self.numbers;
        let within = |number: &f64| (from..=to).contains(number);
        let all: Vec<f64> = nice_numbers().filter(within).collect();
        if all.len() <= most {
            return all;
        }
        nice_numbers().step_by(3).filter(within).collect()
    }
}

/// 1, 2, 5, 10, 20, 50, ... up to what a run can count.
fn nice_numbers() -> impl Iterator<Item = f64> {
    (0..19).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)))
}

/// Two numbers that differ: a scale needs a length.
fn apart((from, to): (f64, f64)) -> (f64, f64) {
    if to > from { (from, to) } else { (from, from + 1.0) }
}

/// Below the frame.
pub fn bottom_axis(frame: Frame, ticks: &[Tick], title: &str) -> Markup {
    let Frame { left, right, bottom, .. } = frame;
    html! {
        g class="axis" {
            path d=(format!("M{} {}H{}", px(left), px(bottom), px(right))) {}
            @for Tick { at, label } in ticks {
                path d=(format!("M{} {}v4", px(*at), px(bottom))) {}
                text class="mid" x=(px(*at)) y=(px(bottom + 16.0)) { (label) }
            }
            text class="title mid" x=(px(f64::midpoint(left, right))) y=(px(bottom + 33.0)) { (title) }
        }
    }
}

/// At the left of the frame, its title above it, where it can be read without turning one's head. Lines lead
/// from its ticks through the frame.
pub fn left_axis(frame: Frame, ticks: &[Tick], title: &str) -> Markup {
    let Frame { left, right, top, .. } = frame;
    html! {
        g class="axis" {
            @for Tick { at, label } in ticks {
                path class="grid" d=(format!("M{} {}H{}", px(left), px(*at), px(right))) {}
                text class="end" x=(px(left - 6.0)) y=(px(*at + 3.5)) { (label) }
            }
            text class="title" x="2" y=(px(top - 12.0)) { (title) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn ends_fall_on_ends_and_the_middle_between() {
        let scale = Scale::linear((2.0, 6.0), (100.0, 0.0));
        assert_eq!([2.0, 4.0, 6.0].map(|number| scale.at(number)), [100.0, 50.0, 0.0]);
        let scale = Scale::logarithmic((1.0, 100.0), (0.0, 20.0));
        assert!((scale.at(10.0) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_round_and_few() {
        let ticks = Scale::linear((0.0, 12.0), (0.0, 1.0)).whole_ticks(6);
        assert_eq!(labels(&ticks), ["0", "2", "4", "6", "8", "10", "12"]);
        let ticks = Scale::linear((3.0, 95.0), (0.0, 1.0)).whole_ticks(6);
        assert_eq!(labels(&ticks), ["20", "40", "60", "80"]);
        let ticks = Scale::logarithmic((2.0, 300.0), (0.0, 1.0)).whole_ticks(10);
        assert_eq!(labels(&ticks), ["2", "5", "10", "20", "50", "100", "200"]);
        let ticks = Scale::logarithmic((2.0, 30_000.0), (0.0, 1.0)).whole_ticks(6);
        assert_eq!(labels(&ticks), ["10", "100", "1000", "10000"]);
    }

    #[test]
    fn a_single_number_and_no_number_above_zero_have_a_place() {
        for scale in [
            Scale::linear((5.0, 5.0), (0.0, 10.0)),
            Scale::logarithmic((0.0, 0.0), (0.0, 10.0)),
            Scale::linear((0.0, f64::MAX), (0.0, 10.0)),
        ] {
            assert!(scale.at(5.0).is_finite() && scale.at(0.0).is_finite());
            assert!(scale.whole_ticks(5).len() <= 6);
        }
    }
}
