//! The formulas of `chance` against counting: all ways in which the members of small warps can win are gone
//! through one by one, and Algorithm 1's own mode decides.

#![allow(clippy::unwrap_used, reason = "a test helper fails the test")]

use stickycas_lab::chance::{Rank, byzantine_entries, byzantine_entries_if_drawn, drawn_proposals};
use stickycas_model::bounds;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::process::mode;
use stickycas_model::types::Value;

use crate::chance_forms::{Warp, given_proposals, one_value};

/// What a process appends: the colluders' value, or the value of Vc with this index.
#[derive(Clone, Copy, PartialEq)]
enum Member {
    Byzantine,
    Proposes(usize),
}

/// Values such that the colluders' is larger than `above` of those of Vc.
fn value(member: Member, above: usize) -> Value {
    let digit = match member {
        Member::Byzantine => 2 * above,
        Member::Proposes(value) => 2 * value + 1,
    };
    Value::new(&[u8::try_from(digit).unwrap()]).unwrap()
}

/// In how many of all the ways to win does the mode fall to the colluders; as a share.
fn counted(warps: &[Vec<Member>], above: usize) -> f64 {
    let ways: usize = warps.iter().map(Vec::len).product();
    let breaks = (0..ways).filter(|&way| {
        let mut way = way;
        let list: Vec<Value> = warps
            .iter()
            .map(|warp| {
                let winner = warp[way % warp.len()];
                way /= warp.len();
                value(winner, above)
            })
            .collect();
        mode(&list) == Some(&value(Member::Byzantine, above))
    });
    breaks.count() as f64 / ways as f64
}

fn tallied(warp: &[Member], values: usize) -> Warp {
    let count = |wanted| warp.iter().filter(|member| **member == wanted).count() as u32;
    Warp {
        byzantine: count(Member::Byzantine),
        correct: (0..values).map(Member::Proposes).map(count).collect(),
    }
}

/// Processes in warps of p, of which those in the bit set are Byzantine and the others propose the digits of
/// `draw`.
fn warps(n: usize, p: usize, byzantine: usize, values: usize, mut draw: usize) -> Vec<Vec<Member>> {
    let member = |process: usize| {
        if byzantine & (1 << process) != 0 {
            return Member::Byzantine;
        }
        let proposed = draw % values;
        draw /= values;
        Member::Proposes(proposed)
    };
    let members: Vec<Member> = (0..n).map(member).collect();
    members.chunks(p).map(<[Member]>::to_vec).collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

#[test]
fn given_the_proposals_the_formula_counts_every_way_to_win() {
    let mut seen = [0_u32; 2];
    for (n, p, values) in [(3, 1, 2_usize), (4, 2, 2), (5, 2, 3), (5, 3, 2), (6, 2, 2), (6, 4, 2)] {
        for byzantine in 0..1_usize << n {
            for draw in (0..values.pow(n as u32)).step_by(5) {
                let members = warps(n, p, byzantine, values, draw);
                let tallies: Vec<Warp> = members.iter().map(|warp| tallied(warp, values)).collect();
                for above in 0..=values {
                    let chance = given_proposals(&tallies, Rank::Above(above)).unwrap();
                    let counted = counted(&members, above);
                    assert!(close(chance, counted), "n={n} p={p} {byzantine:b} {draw}: {chance} {counted}");
                    seen[usize::from(counted > 0.0)] += 1;
                }
            }
        }
    }
    assert!(seen.iter().all(|&cases| cases > 1000), "both are common: {seen:?}");
}

/// The mean over everything that a draw of proposals can bring: each of `correct` takes any value, then every
/// ordered choice of as many as there are values takes them one each.
fn counted_over_draws(n: usize, p: usize, byzantine: usize, values: usize, above: usize) -> f64 {
    let correct: Vec<usize> = (0..n).filter(|process| byzantine & (1 << process) == 0).collect();
    let (mut sum, mut draws) = (0.0, 0_u32);
    for draw in 0..values.pow(correct.len() as u32) {
        for certain in ordered_choices(correct.len(), values) {
            let mut digits: Vec<usize> =
                (0..correct.len()).map(|place| draw / values.pow(place as u32) % values).collect();
            for (value, &place) in certain.iter().enumerate() {
                digits[place] = value;
            }
            let draw = digits.iter().rev().fold(0, |number, digit| number * values + digit);
            sum += counted(&warps(n, p, byzantine, values, draw), above);
            draws += 1;
        }
    }
    sum / f64::from(draws)
}

/// All sequences of so many different places.
fn ordered_choices(places: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = ordered_choices(places, count - 1);
    let longer = shorter.into_iter().flat_map(|chosen| {
        let free: Vec<usize> = (0..places).filter(|place| !chosen.contains(place)).collect();
        free.into_iter().map(move |place| [chosen.clone(), vec![place]].concat())
    });
    longer.collect()
}

/// The members of each warp, and how many are Byzantine.
fn members(n: usize, p: usize, byzantine: usize) -> Vec<(u32, u32)> {
    let processes: Vec<usize> = (0..n).collect();
    let members = |warp: &[usize]| {
        let of_adversary = warp.iter().filter(|process| byzantine & (1 << **process) != 0).count();
        (warp.len() as u32, of_adversary as u32)
    };
    processes.chunks(p).map(members).collect()
}

#[test]
fn drawn_proposals_has_the_mean_over_every_draw() {
    for (n, p, values) in [(4, 1, 2), (4, 2, 2), (5, 2, 2), (5, 2, 3), (5, 3, 1), (6, 2, 2)] {
        for byzantine in [0b1, 0b101, 0b11, 0b10] {
            for above in 0..=values {
                let correct = n as u32 - (byzantine as u32).count_ones();
                let entries = byzantine_entries(members(n, p, byzantine), 1);
                let chance = drawn_proposals(&entries, correct, values as u32, Rank::Above(above));
                let counted = counted_over_draws(n, p, byzantine, values, above);
                assert!(
                    close(chance, counted),
                    "n={n} p={p} |Vc|={values} {byzantine:b}: {chance} {counted}"
                );
            }
        }
    }
}

#[test]
fn drawn_processes_win_as_the_mean_over_all_their_places() {
    for (n, p, f) in [(5_usize, 2, 2), (6, 4, 3), (7, 3, 1)] {
        let places: Vec<usize> = (0..1_usize << n).filter(|set| set.count_ones() == f).collect();
        for append_rounds in 1..=p as u32 {
            let spec = ParamsSpec { append_rounds, ..ParamsSpec::new(n as u32, p as u32, 1) };
            let winners = Params::try_new(spec).unwrap().counted_entries();
            let mut mean = vec![0.0; winners as usize + 1];
            for &byzantine in &places {
                let entries = byzantine_entries(members(n, p, byzantine), append_rounds);
                for (sum, chance) in mean.iter_mut().zip(entries) {
                    *sum += chance / places.len() as f64;
                }
            }
            let formula = byzantine_entries_if_drawn(n as u32, f, winners);
            assert!(mean.iter().zip(&formula).all(|(a, b)| close(*a, *b)), "{mean:?} {formula:?}");
        }
    }
}

/// The chances of each number of Byzantine winners, over all orders in which members can win in q rounds.
fn counted_over_orders(members: u32, byzantine: u32, append_rounds: u32) -> Vec<f64> {
    let orders = ordered_choices(members as usize, append_rounds.min(members) as usize);
    let mut chances = vec![0.0; append_rounds.min(members) as usize + 1];
    for order in &orders {
        let won = order.iter().filter(|place| **place < byzantine as usize).count();
        chances[won] += 1.0 / orders.len() as f64;
    }
    chances
}

#[test]
fn append_rounds_draw_the_winners_of_a_warp_without_return() {
    let same = |one: &[f64], other: &[f64]| {
        one.len() == other.len() && one.iter().zip(other).all(|(a, b)| close(*a, *b))
    };
    for (members, rounds) in (1..=5).flat_map(|members| (1..=members).map(move |rounds| (members, rounds))) {
        for byzantine in 0..=members {
            let formula = byzantine_entries([(members, byzantine)], rounds);
            assert!(same(&formula, &counted_over_orders(members, byzantine, rounds)), "{formula:?}");
        }
    }
    // Eight warps of four with one Byzantine process each, in q = 1 to 4: the table of the page.
    let breaks = [1, 2, 3, 4].map(|rounds| {
        let entries = byzantine_entries([(4, 1); 8], rounds);
        one_value(&entries, Rank::Above(0))
    });
    let by_hand = [7459.0 / 65536.0, 1.0 / 256.0, 0.0, 0.0];
    assert!(breaks.iter().zip(by_hand).all(|(a, b)| close(*a, b)), "{breaks:?}");
}

#[test]
fn one_value_is_the_general_formula_for_one_value() {
    let unequal = vec![(4, 1), (2, 1), (1, 0), (1, 1)];
    for (members, correct) in [(vec![(2, 1); 7], 7), (unequal, 6), (vec![(3, 1); 8], 16)] {
        let entries = byzantine_entries(members, 1);
        for rank in [Rank::Proposed, Rank::Above(0), Rank::Above(1)] {
            assert!(close(one_value(&entries, rank), drawn_proposals(&entries, correct, 1, rank)));
        }
    }
}

#[test]
fn equal_shares_are_binomial() {
    // 5 warps of 4 with one Byzantine process each: at least 3 of 5 entries, each with chance 1/4.
    let by_hand = (10.0 * 9.0 + 5.0 * 3.0 + 1.0) / 1024.0;
    assert!(close(one_value(&byzantine_entries([(4, 1); 5], 1), Rank::Above(0)), by_hand));
}

/// The ways to place so many processes in so many warps of at most so many, but for the order of warps.
fn placements(f: u32, warps: usize, most: u32) -> Vec<Vec<u32>> {
    if warps == 0 {
        return if f == 0 { vec![Vec::new()] } else { Vec::new() };
    }
    let with = |first: u32| {
        let rest = placements(f - first, warps - 1, first);
        rest.into_iter().map(move |rest| [vec![first], rest].concat())
    };
    (0..=f.min(most)).flat_map(with).collect()
}

#[test]
fn an_even_spread_is_mostly_the_worst_placement_and_not_always() {
    let chance = |placed: &[u32], m: u32| {
        one_value(&byzantine_entries(placed.iter().map(|b| (m, *b)), 1), Rank::Above(0))
    };
    assert!(close(chance(&[2, 0], 3), 2.0 / 3.0));
    assert!(close(chance(&[1, 1], 3), 5.0 / 9.0));
    let (mut cases, mut even_is_worst) = (0, 0);
    for warps in 2..=11 {
        for m in (2..=11).filter(|m| warps * m <= 22) {
            for f in 2..=warps {
                let even: Vec<u32> = (0..warps).map(|warp| u32::from(warp < f)).collect();
                let all = placements(f, warps as usize, m);
                let worst = all.iter().map(|placed| chance(placed, m)).fold(0.0, f64::max);
                cases += 1;
                even_is_worst += u32::from(close(chance(&even, m), worst));
            }
        }
    }
    assert_eq!((even_is_worst, cases), (87, 102));
}

#[test]
fn winning_every_warp_breaks_validity_only_outside_the_bound() {
    let mut seen = [0_u32; 2];
    for n in 1..=12_u32 {
        for p in 1..=n {
            for values in 1..=n.min(4) {
                for f in 0..=n - values {
                    let params = Params::try_new(ParamsSpec::new(n, p, 1)).unwrap();
                    let taken = f.min(params.warps());
                    let winners = (0..params.warps()).map(|warp| (1, u32::from(warp < taken)));
                    let entries = byzantine_entries(winners, 1);
                    let chance = drawn_proposals(&entries, n - f, values, Rank::Above(0));
                    let promised = bounds::strong_validity(&params, f.into(), values.into()).is_ok();
                    assert_eq!(chance > 0.0, !promised, "n={n} p={p} f={f} |Vc|={values}: {chance}");
                    seen[usize::from(promised)] += 1;
                }
            }
        }
    }
    assert!(seen.iter().all(|&cases| cases > 200), "{seen:?}");
}

#[test]
fn a_value_that_a_correct_process_proposes_breaks_nothing() {
    let ranks = [(4, Rank::Above(1)), (3, Rank::Proposed), (1, Rank::Above(0)), (9, Rank::Above(3))];
    for (value, rank) in ranks {
        assert_eq!(Rank::of(&value, [3, 5, 8]), rank);
    }
    let all_byzantine = [Warp { byzantine: 2, correct: vec![0] }];
    assert!(close(given_proposals(&all_byzantine, Rank::Above(0)).unwrap(), 1.0));
    assert!(close(given_proposals(&all_byzantine, Rank::Proposed).unwrap(), 0.0));
}

#[test]
fn too_many_states_are_refused_and_not_begun() {
    let warps = vec![Warp { byzantine: 1, correct: vec![1; 9] }; 100];
    assert_eq!(given_proposals(&warps, Rank::Above(0)), None);
}
