//! The schedule: pinned by the tables of `docs/theory/schedule.md`, and its properties for any parameters.

use proptest::prelude::*;
use stickycas_model::params::{Order, Params, ParamsSpec};
use stickycas_model::scheduler::{CachedSchedule, PhaseOrder, Schedule, arbiter_hash};
use stickycas_model::types::{Phase, ProcessId, Round, Seed, WarpId};

const PINNED: &str = include_str!("../../docs/theory/schedule.md");

fn schedule(processes: u32, warp_size: u32, order: Order, seed: u64) -> Schedule {
    let spec = ParamsSpec { order, seed: Seed::new(seed), ..ParamsSpec::new(processes, warp_size, 1) };
    Schedule::new(&Params::try_new(spec).expect("valid parameters"))
}

fn phase(number: u64) -> Phase {
    Phase::new(number).expect("phases count from 1")
}

/// The rows of the tables in the docs that have so many columns, headings left out.
fn rows(columns: usize) -> Vec<Vec<&'static str>> {
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let is_data = |row: &Vec<&str>| row.len() == columns && row[0].parse::<u64>().is_ok();
    PINNED.lines().filter(|line| line.starts_with('|')).map(cells).filter(is_data).collect()
}

#[test]
fn every_order_in_the_docs_is_what_the_schedule_says() {
    let rows = rows(6);
    assert_eq!(rows.len(), 17);
    for row in rows {
        let order = match row[2] {
            "ascending" => Order::Ascending,
            "descending" => Order::Descending,
            "shuffled" => Order::Shuffled,
            other => panic!("no such order: {other}"),
        };
        let schedule =
            schedule(row[0].parse().unwrap(), row[1].parse().unwrap(), order, row[3].parse().unwrap());
        let round: u64 = row[4].parse().unwrap();
        let first = (round - 1) * u64::from(schedule.warps()) + 1;
        let phases = first..first + u64::from(schedule.warps());
        let warps: Vec<String> = phases.map(|number| schedule.warp_of(phase(number)).to_string()).collect();
        assert_eq!(warps.join(" "), row[5], "{row:?}");
    }
}

#[test]
fn every_hash_in_the_docs_is_what_the_arbiter_draws() {
    let rows = rows(4);
    assert_eq!(rows.len(), 15);
    for row in rows {
        let process = ProcessId::new(row[2].parse().unwrap()).unwrap();
        let hash = arbiter_hash(Seed::new(row[0].parse().unwrap()), phase(row[1].parse().unwrap()), process);
        assert_eq!(format!("{hash:016x}"), row[3], "{row:?}");
    }
}

#[test]
fn the_vectors_in_the_header_of_the_module_hold() {
    let five = schedule(5, 1, Order::Shuffled, 0);
    let eight = schedule(8, 1, Order::Shuffled, 42);
    let order = |schedule: Schedule, round: u64| -> Vec<u32> {
        let order = schedule.order_of(Round::new(round).unwrap());
        (0..schedule.warps()).map(|slot| order.warp_at(slot).get()).collect()
    };
    assert_eq!(order(five, 1), [5, 3, 1, 4, 2]);
    assert_eq!(order(five, 2), [5, 1, 3, 4, 2]);
    assert_eq!(order(eight, 1), [1, 4, 3, 2, 6, 5, 7, 8]);
    assert_eq!(arbiter_hash(Seed::new(42), Phase::FIRST, ProcessId::FIRST), 0xf37f_f738_cd05_5b2f);
}

#[test]
fn the_last_phases_are_told_without_overflow() {
    let last = phase(u64::MAX);
    for order in [Order::Ascending, Order::Descending, Order::Shuffled] {
        for (n, p) in [(1, 1), (8, 1), (65_536, 7)] {
            let schedule = schedule(n, p, order, 1);
            let warp = schedule.warp_of(last);
            assert_eq!(schedule.phase_of(warp, schedule.round_of(last)), last);
            let warps = [WarpId::FIRST, WarpId::new(schedule.warps()).unwrap()];
            assert!(warps.iter().all(|&warp| schedule.next_phase_of(warp, last) == last));
            assert_eq!(schedule.phase_of(warp, Round::new(u64::MAX).unwrap()), last);
        }
    }
}

#[test]
fn equal_chances_for_all_processes_of_a_warp() {
    // 4 processes, 4,000 phases: each should win 1,000 times. 5 standard deviations are 137.
    let mut wins = [0_u32; 4];
    for number in 1..=4000 {
        let draw = |process: &ProcessId| arbiter_hash(Seed::new(7), phase(number), *process);
        wins[ProcessId::all(4).min_by_key(draw).unwrap().index()] += 1;
    }
    assert!(wins.iter().all(|&wins| wins.abs_diff(1000) < 137), "{wins:?}");
}

#[test]
fn a_shuffle_puts_every_warp_everywhere_equally_often() {
    // 4 warps, 4,000 rounds, as above.
    let schedule = schedule(4, 1, Order::Shuffled, 7);
    let mut places = [[0_u32; 4]; 4];
    for number in 1..=4000 {
        let order = schedule.order_of(Round::new(number).unwrap());
        (0..4).for_each(|slot| places[slot as usize][order.warp_at(slot).index()] += 1);
    }
    assert!(places.as_flattened().iter().all(|&times| times.abs_diff(1000) < 137), "{places:?}");
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Ascending), Just(Order::Descending), Just(Order::Shuffled)]
}

prop_compose! {
    fn schedules()(n in 1_u32..60)(
        p in 1..=n,
        n in Just(n),
        order in orders(),
        seed in any::<u64>(),
    ) -> Schedule {
        schedule(n, p, order, seed)
    }
}

proptest! {
    #[test]
    fn every_warp_has_exactly_one_phase_in_a_round(schedule in schedules(), round in 1_u64..1 << 40) {
        let first = (round - 1) * u64::from(schedule.warps()) + 1;
        let phases = first..first + u64::from(schedule.warps());
        let mut warps = Vec::new();
        for phase in phases.map(phase) {
            prop_assert_eq!(schedule.round_of(phase).get(), round);
            warps.push(schedule.warp_of(phase).get());
        }
        warps.sort_unstable();
        prop_assert!(warps.into_iter().eq(1..=schedule.warps()));
    }

    #[test]
    fn the_phase_of_a_warp_belongs_to_that_warp(schedule in schedules(), number in 1_u64..1 << 50) {
        let phase = phase(number);
        prop_assert_eq!(schedule.phase_of(schedule.warp_of(phase), schedule.round_of(phase)), phase);
    }

    #[test]
    fn the_next_phase_of_a_warp_is_the_first_one(
        schedule in schedules(),
        from in 1_u64..1 << 40,
        warp: prop::sample::Index,
    ) {
        let warp = WarpId::from_index(warp.index(schedule.warps() as usize)).unwrap();
        let first = (from..).map(phase).find(|phase| schedule.warp_of(*phase) == warp);
        prop_assert_eq!(Some(schedule.next_phase_of(warp, phase(from))), first);
        prop_assert_eq!(schedule.next_phase_of(warp, Phase::FIRST), schedule.first_phase(warp));
    }

    #[test]
    fn a_cached_schedule_returns_what_the_schedule_returns(
        schedule in schedules(),
        questions in prop::collection::vec((0_u64..40, 1_u64..400, any::<prop::sample::Index>()), 1..40),
    ) {
        let mut cached = CachedSchedule::new(schedule);
        let mut now = 1;
        for (step, anywhere, warp) in questions {
            now += step;
            let warp = WarpId::from_index(warp.index(schedule.warps() as usize)).unwrap();
            for from in [now, anywhere].map(phase) {
                prop_assert_eq!(cached.warp_of(from), schedule.warp_of(from));
                prop_assert_eq!(cached.next_phase_of(warp, from), schedule.next_phase_of(warp, from));
            }
            prop_assert_eq!(cached.first_phase(warp), schedule.first_phase(warp));
        }
    }

    #[test]
    fn no_two_processes_draw_the_same_hash_in_a_phase(seed: u64, number in 1_u64.., n in 2_u32..200) {
        let draw = |process| arbiter_hash(Seed::new(seed), phase(number), process);
        let mut hashes: Vec<u64> = ProcessId::all(n).map(draw).collect();
        hashes.sort_unstable();
        prop_assert!(hashes.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
