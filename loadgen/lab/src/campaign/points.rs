//! From axes to points: every combination, but for those that cannot be and those that are there already.

use std::collections::HashSet;

use stickycas_harness::fault_plan::Placement;
use stickycas_model::params::{AppendWindow, Order};

use super::cell::{ArbiterKind, NO_STRATEGY, Point};

/// The values of all axes, at least one on each.
#[derive(Debug)]
pub(super) struct Grid {
    pub(super) n: Vec<u32>,
    pub(super) p: Vec<u32>,
    pub(super) r: Vec<u32>,
    pub(super) f: Vec<u32>,
    pub(super) distinct: Vec<u32>,
    pub(super) strategy: Vec<String>,
    pub(super) placement: Vec<Placement>,
    pub(super) arbiter: Vec<ArbiterKind>,
    pub(super) order: Vec<Order>,
    pub(super) window: Vec<AppendWindow>,
}

/// The points of a grid.
#[derive(Debug)]
pub(super) struct Points {
    pub(super) points: Vec<Point>,
    pub(super) impossible: u64,
    pub(super) repeated: u64,
}

impl Grid {
    /// How many combinations there are.
    pub(super) fn size(&self) -> u64 {
        let lengths = [
            self.n.len(),
            self.p.len(),
            self.r.len(),
            self.f.len(),
            self.distinct.len(),
            self.strategy.len(),
            self.placement.len(),
            self.arbiter.len(),
            self.order.len(),
            self.window.len(),
        ];
        lengths.iter().fold(1, |size: u64, &length| size.saturating_mul(length as u64))
    }

    /// All of them: f changes fastest, then |Vc|, r, p, n, and what is drawn as figures of their own last.
    pub(super) fn points(&self) -> Points {
        let (mut points, mut seen) = (Vec::new(), HashSet::new());
        let (mut impossible, mut repeated) = (0, 0);
        for index in 0..self.size() {
            let point = self.point(index);
            if !is_possible(&point) {
                impossible += 1;
            } else if seen.insert(point.clone()) {
                points.push(point);
            } else {
                repeated += 1;
            }
        }
        Points { points, impossible, repeated }
    }

    fn point(&self, index: u64) -> Point {
        let mut index = Digits(index);
        let f = index.pick(&self.f);
        let distinct = index.pick(&self.distinct);
        let r = index.pick(&self.r);
        let p = index.pick(&self.p);
        let n = index.pick(&self.n);
        let window = index.pick(&self.window);
        let order = index.pick(&self.order);
        let arbiter = index.pick(&self.arbiter);
        let placement = index.pick(&self.placement);
        let strategy = index.pick(&self.strategy);
        // Without Byzantine processes, strategy and placement make no difference.
        let (strategy, placement) =
            if f == 0 { (NO_STRATEGY.to_owned(), Placement::Spread) } else { (strategy, placement) };
        Point { n, p, r, f, distinct, strategy, placement, arbiter, order, window }
    }
}

/// Whether there is such an instance, and enough correct processes to propose so many values.
fn is_possible(point: &Point) -> bool {
    let Point { n, p, r, f, distinct, .. } = *point;
    p <= n && r <= n && f.checked_add(distinct).is_some_and(|least| least <= n)
}

/// A number, read digit by digit from the least; each digit has a base of its own.
struct Digits(u64);

impl Digits {
    fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        let base = values.len() as u64;
        let digit = usize::try_from(self.0 % base).expect("a digit is an index");
        self.0 /= base;
        values[digit].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid {
            n: vec![4, 6],
            p: vec![1, 5],
            r: vec![2],
            f: vec![0, 1, 4],
            distinct: vec![2],
            strategy: vec!["silent".into(), "absent".into()],
            placement: vec![Placement::Spread, Placement::Packed],
            arbiter: vec![ArbiterKind::Uniform],
            order: vec![Order::Ascending],
            window: vec![AppendWindow::FirstAccess],
        }
    }

    #[test]
    fn impossible_and_repeated_points_are_left_out_and_counted() {
        let grid = grid();
        let Points { points, impossible, repeated } = grid.points();
        assert_eq!(grid.size(), 48);
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
        let points = grid().points().points;
        let first: Vec<(u32, u32, u32)> = points.iter().map(|point| (point.n, point.p, point.f)).collect();
        assert_eq!(first[..5], [(4, 1, 0), (4, 1, 1), (6, 1, 0), (6, 1, 1), (6, 1, 4)]);
    }
}
