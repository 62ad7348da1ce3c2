//! The bound of strong validity against every small case (SPEC V3, K3).
//!
//! The adversary chooses what processes are and propose, which append wins each phase, and whether a
//! Byzantine process appends. So a warp adds to the list any of its members' proposals, each at most once and
//! q at most; fewer only where each correct member has won. Only counts matter: how often the adversary's
//! value stands, which is smaller than all others, and how often each value of Vc.
#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::collections::BTreeSet;

use stickycas_model::bounds::{common_validity, strong_validity};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::types::WarpId;

/// The most values of Vc.
const VALUES: usize = 4;

/// What some warps have come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Progress {
    /// f: Byzantine and late processes.
    faulty: u8,
    /// Entries with the adversary's value.
    false_entries: u8,
    /// Of each value of Vc: whether a correct process proposes it, and how often it stands. The largest
    /// first, since they are alike.
    values: [(bool, u8); VALUES],
}

impl Progress {
    fn and(mut self, other: Self) -> Self {
        self.faulty += other.faulty;
        self.false_entries += other.false_entries;
        for (one, other) in self.values.iter_mut().zip(other.values) {
            *one = (one.0 || other.0, one.1 + other.1);
        }
        self.values.sort_unstable_by(|one, other| other.cmp(one));
        self
    }

    fn distinct(&self) -> usize {
        self.values.iter().filter(|(proposed, _)| *proposed).count()
    }

    /// The adversary's value is the mode: a tie goes to the smallest.
    fn is_won(&self) -> bool {
        self.false_entries > 0 && self.values.iter().all(|(_, entries)| *entries <= self.false_entries)
    }
}

/// All ways to write a number as a sum of so many.
fn sums(of: u8, parts: usize) -> Vec<Vec<u8>> {
    match parts {
        0 if of == 0 => vec![Vec::new()],
        0 => Vec::new(),
        _ => (0..=of)
            .flat_map(|first| {
                sums(of - first, parts - 1).into_iter().map(move |rest| [vec![first], rest].concat())
            })
            .collect(),
    }
}

/// All choices of at most so many of each.
fn parts_of(counts: &[u8]) -> Vec<Vec<u8>> {
    counts.iter().fold(vec![Vec::new()], |chosen, &count| {
        let more = |chosen: &Vec<u8>| {
            let chosen = chosen.clone();
            (0..=count).map(move |part| [&chosen[..], &[part]].concat())
        };
        chosen.iter().flat_map(more).collect()
    })
}

/// All that a warp of this size can come to in its first q phases, with `values` values. A late process adds
/// no entry, and its phases may pass without one.
fn outcomes(size: u8, q: u8, values: usize, late: bool) -> BTreeSet<Progress> {
    let mut found = BTreeSet::new();
    for members in sums(size, 1 + values * if late { 2 } else { 1 }) {
        let (byzantine, correct) = (members[0], &members[1..=values]);
        let late = &members[1 + values..];
        for won in parts_of(&members[..=values]) {
            let entries: u8 = won.iter().sum();
            if entries > q || (entries < q && won[1..] != *correct) {
                continue;
            }
            let mut progress = Progress {
                faulty: byzantine + late.iter().sum::<u8>(),
                false_entries: won[0],
                ..Progress::default()
            };
            for value in 0..values {
                let proposed = correct[value] > 0 || late.get(value).is_some_and(|late| *late > 0);
                progress.values[value] = (proposed, won[1 + value]);
            }
            found.insert(progress);
        }
    }
    found
}

fn params(n: u32, p: u32, q: u32) -> Params {
    Params::try_new(ParamsSpec { append_rounds: q, ..ParamsSpec::new(n, p, 1) }).unwrap()
}

/// All n up to `largest`, p and q.
fn sizes(largest: u32) -> impl Iterator<Item = Params> {
    let pairs = (1..=largest).flat_map(|n| (1..=n).map(move |p| (n, p)));
    pairs.flat_map(|(n, p)| (1..=p).map(move |q| params(n, p, q)))
}

/// All that the instance can come to.
fn lists(params: &Params, values: usize, late: bool) -> BTreeSet<Progress> {
    let q = u8::try_from(params.append_rounds()).unwrap();
    let warps = (1..=params.warps()).filter_map(WarpId::new);
    warps.fold(BTreeSet::from([Progress::default()]), |reached, warp| {
        let size = u8::try_from(params.members(warp).count()).unwrap();
        let added = outcomes(size, q, values, late);
        reached.iter().flat_map(|before| added.iter().map(|more| before.and(*more))).collect()
    })
}

#[test]
fn the_strong_bound_is_exact_in_all_small_cases() {
    let mut cases = 0;
    for params in sizes(10) {
        let n = params.processes() as usize;
        for values in 1..=VALUES.min(n) {
            let won: BTreeSet<u8> = lists(&params, values, false)
                .iter()
                .filter(|list| list.distinct() == values && list.is_won())
                .map(|list| list.faulty)
                .collect();
            for f in 1..=n - values {
                let promised = strong_validity(&params, f as u64, values as u64).is_ok();
                let broken = won.contains(&u8::try_from(f).unwrap());
                assert_eq!(broken, !promised, "{:?}, f = {f}, |Vc| = {values}", params.spec());
                assert!(values > 1 || common_validity(&params, f as u64).is_ok() == promised);
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 4_641);
}

#[test]
fn with_late_processes_the_strong_bound_holds_in_small_cases() {
    let mut broken = 0;
    for params in sizes(6) {
        for values in 1..=2.min(params.processes() as usize) {
            let lists = lists(&params, values, true);
            for list in lists.iter().filter(|list| list.distinct() > 0 && list.is_won()) {
                let promised = strong_validity(&params, list.faulty.into(), list.distinct() as u64).is_ok();
                assert!(!promised, "{:?}: {list:?}", params.spec());
                broken += 1;
            }
        }
    }
    assert!(broken > 0, "both sides of the bound were searched");
}
