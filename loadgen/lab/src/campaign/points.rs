//! From axes to points: every combination, but for those that cannot be and those that are there already.

use std::collections::HashSet;
use std::ops::Range;

use stickycas_harness::fault_plan::Placement;
use stickycas_harness::files::Spanned;
use stickycas_harness::scenario::NotRunnable;
use stickycas_model::byzantine::Strategy;
use stickycas_model::ground_truth::Role;
use stickycas_model::params::MAX_PROCESSES;

use super::axis::{Numbers, Texts};
use super::cell::{NO_STRATEGY, Point};
use super::file::Axes;

/// The most points of one sweep. Their results are kept in memory until the end.
const MOST: usize = 100_000;

/// The points of a sweep.
#[derive(Debug)]
pub(super) struct Points {
    pub(super) points: Vec<Point>,
    pub(super) impossible: u64,
    pub(super) repeated: u64,
}

/// Where something is wrong, if that is known, and what.
pub(super) type Wrong = (Option<Range<usize>>, String);

impl Points {
    /// All combinations: f changes fastest, then |Vc|, r, p, n, and what is drawn as figures of their own
    /// last.
    ///
    /// # Errors
    /// An axis is missing or has a value that cannot be, or there are too many points.
    pub(super) fn of(axes: Axes, sweep: &str) -> Result<Self, Wrong> {
        let byzantine = numbers("byzantine", axes.byzantine, 0, Some(0))?;
        let strategies = match &axes.strategy {
            Some(given) => strategies(given)?,
            None if byzantine.iter().all(|f| *f == 0) => vec![NO_STRATEGY.to_owned()],
            None => {
                let why = "byzantine > 0 processes need a strategy: give strategy = \"...\"";
                return Err((None, format!("sweep {sweep}: {why}")));
            }
        };
        let mut grid = Grid { points: vec![Point::default()], size: 1 };
        grid.vary(byzantine, |point| &mut point.f);
        grid.vary(numbers("distinct", axes.distinct, 1, Some(1))?, |point| &mut point.distinct);
        grid.vary(numbers("read_size", axes.read_size, 1, None)?, |point| &mut point.r);
        grid.vary(numbers("append_rounds", axes.append_rounds, 1, Some(1))?, |point| &mut point.q);
        grid.vary(numbers("warp_size", axes.warp_size, 1, None)?, |point| &mut point.p);
        grid.vary(numbers("processes", axes.processes, 1, None)?, |point| &mut point.n);
        grid.vary(texts(axes.append_window), |point| &mut point.window);
        grid.vary(texts(axes.order), |point| &mut point.order);
        grid.vary(texts(axes.arbiter), |point| &mut point.arbiter);
        grid.vary(texts(axes.placement), |point| &mut point.placement);
        grid.vary(strategies, |point| &mut point.strategy);
        if grid.size > MOST {
            let why = format!("sweep {sweep}: its axes have {} points: {MOST} at most", grid.size);
            return Err((None, why));
        }
        Ok(Self::that_can_be(grid.points))
    }

    fn that_can_be(all: Vec<Point>) -> Self {
        let (mut points, mut seen) = (Vec::new(), HashSet::new());
        let (mut impossible, mut repeated) = (0, 0);
        for mut point in all {
            // Without Byzantine processes, strategy and placement make no difference.
            if point.f == 0 {
                (point.strategy, point.placement) = (NO_STRATEGY.to_owned(), Placement::Spread);
            }
            if !is_possible(&point) {
                impossible += 1;
            } else if seen.insert(point.clone()) {
                points.push(point);
            } else {
                repeated += 1;
            }
        }
        Self { points, impossible, repeated }
    }
}

/// The combinations of the axes so far; if there are too many, only how many.
struct Grid {
    points: Vec<Point>,
    size: usize,
}

impl Grid {
    /// One more axis, which changes more slowly than those before it.
    fn vary<T: Clone>(&mut self, values: Vec<T>, of: impl Fn(&mut Point) -> &mut T) {
        self.size = self.size.saturating_mul(values.len());
        if self.size > MOST {
            return;
        }
        let before = std::mem::take(&mut self.points);
        for value in values {
            self.points.extend(before.iter().cloned().map(|mut point| {
                of(&mut point).clone_from(&value);
                point
            }));
        }
    }
}

/// Whether there is such an instance, and enough correct processes to propose so many values.
fn is_possible(point: &Point) -> bool {
    let Point { n, f, distinct, .. } = *point;
    point.params().is_some() && f.checked_add(distinct).is_some_and(|least| least <= n)
}

/// The numbers of an axis, none below `least`. `default`: used if none is given; `None`: one must be given.
fn numbers(
    name: &str,
    given: Option<Spanned<Numbers>>,
    least: u32,
    default: Option<u32>,
) -> Result<Vec<u32>, Wrong> {
    let Some(given) = given else {
        let missing =
            format!("the axis {name} is missing: give {name} = ..., here, under [axes] or in [instance]");
        return default.map(|default| vec![default]).ok_or((None, missing));
    };
    match given.0.iter().find(|number| !(least..=MAX_PROCESSES).contains(number)) {
        None => Ok(given.into_inner().0),
        Some(wrong) => {
            Err((Some(given.span()), format!("{name} = {wrong}: give {least} to {MAX_PROCESSES}")))
        }
    }
}

/// The strategies, each as it would write itself.
fn strategies(given: &Spanned<Texts<String>>) -> Result<Vec<String>, Wrong> {
    if given.0.iter().any(|text| text == Role::EXTERNAL) {
        return Err((Some(given.span()), NotRunnable::External.to_string()));
    }
    let canonical = |text: &String| text.parse().map(|strategy: Strategy| strategy.to_string());
    let strategies: Result<_, _> = given.0.iter().map(canonical).collect();
    strategies.map_err(|error| (Some(given.span()), error.to_string()))
}

fn texts<T: Default>(given: Option<Spanned<Texts<T>>>) -> Vec<T> {
    given.map_or_else(|| vec![T::default()], |given| given.into_inner().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AXES: &str = "n = [4, 6]\np = [1, 5]\nr = 2\nf = [0, 1, 4]\ndistinct = 2\n\
                        strategy = [\"silent\", \"absent\"]\nplacement = [\"spread\", \"packed\"]\n\
                        arbiter = \"uniform\"";

    fn points() -> Points {
        Points::of(toml::from_str(AXES).unwrap(), "one").unwrap()
    }

    #[test]
    fn impossible_and_repeated_points_are_left_out_and_counted() {
        let Points { points, impossible, repeated } = points();
        assert_eq!(points.len() as u64 + impossible + repeated, 48);
        // n = 4 has no warps of five (12 of the 48), and with p = 1 nobody left for two values if f = 4 (4
        // more).
        assert_eq!(impossible, 16);
        // f = 0 is the same for two strategies in two places: 3 of 4 in each of three shapes.
        assert_eq!(repeated, 9);
        let without: Vec<&Point> = points.iter().filter(|point| point.f == 0).collect();
        assert_eq!(without.len(), 3);
        assert!(without.iter().all(|point| point.strategy == NO_STRATEGY));
        assert!(points.iter().all(|point| point.p <= point.n && point.f + point.distinct <= point.n));
    }

    #[test]
    fn the_number_of_byzantine_processes_changes_fastest() {
        let points = points().points;
        let first: Vec<(u32, u32, u32)> = points.iter().map(|point| (point.n, point.p, point.f)).collect();
        assert_eq!(first[..5], [(4, 1, 0), (4, 1, 1), (6, 1, 0), (6, 1, 1), (6, 1, 4)]);
    }
}
