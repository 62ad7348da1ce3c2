//! The formulas of `stickycas_lab::chance` against the simulator: the same machine, processes, arbiter, draws
//! and judge as everywhere. The probability of a break of strong validity is computed, then counted over runs
//! that differ by their seeds alone.
//!
//! # False alarms
//! Each point is held against the 99 % interval of its count, so of 55 right ones 0.6 would be expected to
//! fall outside, and in 1 of 400 choices of seeds more than three do. Seeds are fixed: whatever comes out
//! comes out every time, and a point that falls outside says so without making the test fail. What fails it
//! is more than three of them, or one that is 4 standard deviations off (1 of 300 choices of seeds, over all
//! points).

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use std::fmt::Write as _;

use stickycas_harness::stats::{Interval, Z_99};
use stickycas_harness::{Scenario, simulate};
use stickycas_lab::chance::{Rank, byzantine_entries, byzantine_entries_if_drawn, drawn_proposals};
use stickycas_model::judge::Observed;

use crate::chance_forms::{Warp, given_proposals};

/// Runs for each point.
const RUNS: u64 = 1200;

/// Something whose chance is known.
struct Point {
    /// Everything of a scenario file but its name.
    scenario: String,
    chance: f64,
}

/// How often strong validity broke.
fn breaks(scenario: &str, first_seed: u64) -> u64 {
    let text = format!("name = \"chance\"\n{scenario}");
    let broke = |seed| {
        let scenario = Scenario::parse("chance.toml", &text, Some(seed)).unwrap();
        simulate(&scenario).verdict.strong_validity == Observed::Violated
    };
    (first_seed..first_seed + RUNS).filter(|&seed| broke(seed)).count() as u64
}

fn instance(n: u32, p: u32) -> String {
    format!("[instance]\nprocesses = {n}\nwarp_size = {p}\nread_size = {n}\narbiter = \"uniform\"\n")
}

/// Colluders in as many warps as possible, proposals drawn.
fn spread(n: u32, p: u32, values: u32, f: u32, value: &str, rank: Rank) -> Point {
    spread_in_rounds(1, n, p, values, f, value, rank)
}

/// The same with so many append rounds.
fn spread_in_rounds(q: u32, n: u32, p: u32, values: u32, f: u32, value: &str, rank: Rank) -> Point {
    let scenario = format!(
        "{}append_rounds = {q}\n[proposals]\ndistinct = {values}\n[[faults]]\ncount = {f}\nstrategy = \"collude(value={value})\"",
        instance(n, p)
    );
    // The first of each warp, then the second of each.
    let warps = n.div_ceil(p);
    let members = |warp: u32| {
        let members = p.min(n - warp * p);
        let first_places = (0..members).map(|place| place * warps + warp);
        (members, first_places.filter(|place| *place < f).count() as u32)
    };
    let entries = byzantine_entries((0..warps).map(members), q);
    Point { scenario, chance: drawn_proposals(&entries, n - f, values, rank) }
}

/// Colluders anywhere, proposals drawn.
fn drawn(n: u32, p: u32, values: u32, f: u32) -> Point {
    let scenario = format!(
        "{}[proposals]\ndistinct = {values}\n[[faults]]\ncount = {f}\nplacement = \"random\"\n\
         strategy = \"collude(value=0)\"",
        instance(n, p)
    );
    let entries = byzantine_entries_if_drawn(n, f, n.div_ceil(p));
    Point { scenario, chance: drawn_proposals(&entries, n - f, values, Rank::Above(0)) }
}

/// Each text is a warp, each letter of it a member: `x` colludes for the value `x`, the others propose the
/// letter.
fn given(warps: &[&str]) -> Point {
    let members: Vec<char> = warps.iter().flat_map(|warp| warp.chars()).collect();
    let mut values: Vec<char> = members.iter().copied().filter(|member| *member != 'x').collect();
    values.sort_unstable();
    values.dedup();
    let byzantine: Vec<usize> = (1..).zip(&members).filter(|(_, m)| **m == 'x').map(|(i, _)| i).collect();
    let mut scenario = instance(members.len() as u32, warps[0].len() as u32);
    writeln!(scenario, "[proposals]\nvalues = {:?}", members.iter().map(char::to_string).collect::<Vec<_>>())
        .unwrap();
    writeln!(scenario, "[[faults]]\nprocesses = {byzantine:?}\nstrategy = \"collude(value=x)\"").unwrap();
    let tally = |warp: &&str| {
        let count = |wanted| warp.chars().filter(|member| *member == wanted).count() as u32;
        Warp { byzantine: count('x'), correct: values.iter().map(|value| count(*value)).collect() }
    };
    let tallies: Vec<Warp> = warps.iter().map(tally).collect();
    Point { scenario, chance: given_proposals(&tallies, Rank::of(&'x', values)).unwrap() }
}

fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for (n, p) in [(8, 2), (9, 3), (7, 2)] {
        for values in 1..=3 {
            points.extend((1..=4).map(|f| spread(n, p, values, f, "0", Rank::Above(0))));
        }
    }
    points.extend(
        [(1, "z", Rank::Above(1)), (2, "v11", Rank::Above(1)), (3, "z", Rank::Above(3))]
            .map(|(values, value, rank)| spread(9, 3, values, 4, value, rank)),
    );
    points.extend([(9, 3, 1, 3), (9, 3, 2, 3), (8, 2, 3, 3)].map(|(n, p, k, f)| drawn(n, p, k, f)));
    points.extend([
        given(&["xa", "xb", "ab", "ba"]),
        given(&["xyz", "xyy", "zzx", "xxy", "yz"]),
        given(&["xwy", "xwz", "wxy", "zz"]),
        given(&["xxy", "xzy", "yyz", "xzz"]),
        given(&["xz", "xz", "xz", "xz", "zz"]),
    ]);
    for (n, p, f) in [(12, 4, 4), (11, 4, 5)] {
        let in_rounds = |(values, q)| spread_in_rounds(q, n, p, values, f, "0", Rank::Above(0));
        points.extend([(1, 2), (1, 3), (2, 2), (3, 3)].map(in_rounds));
    }
    points
}

#[test]
fn the_closed_form_and_the_simulation_agree() {
    let points = points();
    let mut outside = Vec::new();
    for (number, point) in (0..).zip(&points) {
        let breaks = breaks(&point.scenario, 1_000_000 * (number + 1));
        let share = breaks as f64 / RUNS as f64;
        println!("computed {:.4}, counted {share:.4}", point.chance);
        assert!(Interval::wilson(breaks, RUNS, 4.0).unwrap().contains(point.chance), "{}", point.scenario);
        if !Interval::wilson(breaks, RUNS, Z_99).unwrap().contains(point.chance) {
            outside.push(format!("computed {}, counted {share}:\n{}", point.chance, point.scenario));
        }
    }
    println!("{} of {} outside their 99 % interval: {outside:#?}", outside.len(), points.len());
    assert!(outside.len() <= 3 && points.len() - outside.len() >= 30, "{outside:#?}");
    let certain = points.iter().filter(|point| point.chance <= 0.0 || point.chance >= 1.0).count();
    assert!(points.len() - certain >= 30, "{certain} points say nothing");
}
