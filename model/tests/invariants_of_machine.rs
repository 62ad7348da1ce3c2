//! The machine, driven with whatever comes, keeps the rules; and the rules notice when its record is changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use stickycas_model::access::{Access, Op};
use stickycas_model::history::Recorded;
use stickycas_model::invariants::{Invariants, check};
use stickycas_model::machine::{Input, Machine};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{Position, ProcessId, Seed, Time, Value};

use crate::story::Story;

/// What comes next: from whom, what, and how much later.
#[derive(Clone, Debug)]
struct Come {
    process: u32,
    what: u8,
    argument: u8,
    later: u64,
}

fn comes() -> impl Strategy<Value = Vec<Come>> {
    let come =
        (0_u32..8, 0_u8..40, 0_u8..6, prop_oneof![4 => Just(0_u64), 2 => 0_u64..30, 1 => 100_u64..400]);
    let come = come.prop_map(|(process, what, argument, later)| Come { process, what, argument, later });
    prop::collection::vec(come, 1..120)
}

fn params() -> impl Strategy<Value = Params> {
    let sizes = (1_u32..=8).prop_flat_map(|n| (Just(n), 1..=n, 1..=n));
    let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending)];
    let patience = prop_oneof![
        Just(Patience::Endless),
        (0_u64..200).prop_map(|nanos| Patience::Finite(Duration::from_nanos(nanos)))
    ];
    let pace = prop_oneof![2 => Just(0_u64), 1 => 1_u64..40];
    (sizes, order, patience, pace, 0_u8..3, any::<bool>(), any::<u64>()).prop_map(
        |((n, p, r), order, patience, pace, arbiter, open, seed)| {
            let mut spec = ParamsSpec::new(n, p, r);
            spec.order = order;
            spec.seed = Seed::new(seed);
            spec.patience = patience;
            spec.pace = Duration::from_nanos(pace);
            spec.join_timeout = Duration::from_nanos(300);
            spec.pipeline = 3;
            spec.append_window = if open { AppendWindow::Open } else { AppendWindow::FirstAccess };
            spec.arbiter = match arbiter {
                0 => Arbiter::FirstCome,
                1 => Arbiter::Uniform,
                _ => Arbiter::Priority(ProcessId::all(n).rev().take(2).collect()),
            };
            Params::try_new(spec).unwrap()
        },
    )
}

/// What the machine records of it.
fn drive(params: &Arc<Params>, comes: &[Come]) -> Vec<Recorded> {
    let mut machine = Machine::new(Arc::clone(params));
    let (mut now, mut history) = (0, Vec::new());
    for come in comes {
        now += come.later;
        let process = ProcessId::new(come.process % params.processes() + 1).unwrap();
        let number = machine.member(process).next;
        let value = Value::new(&[b'a' + come.argument]).unwrap();
        let access =
            |op| Input::Access(Access { process, session: None, number, op, no_wait: come.argument == 5 });
        let input = match come.what {
            0..15 => access(Op::Append(value)),
            15..32 => access(Op::Read { start: Position::new(u32::from(come.argument)) }),
            32..35 => Input::Hello { process, incarnation: u64::from(come.argument) },
            35..38 => Input::Tick,
            38 => Input::Decide { process, value },
            _ if come.argument == 0 => Input::Close,
            _ => Input::Tick,
        };
        let mut events = Vec::new();
        // Refused or not, every rule holds.
        let _ = machine.apply(Time::from_nanos(now), input, &mut events);
        history.extend(events.into_iter().map(|event| Recorded { at: Time::from_nanos(now), event }));
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_the_machine_keeps_every_rule(params in params(), comes in comes()) {
        let params = Arc::new(params);
        let history = drive(&params, &comes);
        prop_assert_eq!(check(&params, &history, true), Ok(()), "{}", story(&history));
    }

    #[test]
    fn a_step_that_is_left_out_of_the_record_never_goes_unnoticed(params in params(), comes in comes()) {
        let params = Arc::new(params);
        let mut history = drive(&params, &comes);
        let stepped = |recorded: &Recorded| matches!(recorded.event, stickycas_model::history::Event::Stepped { .. });
        if let Some(place) = history.iter().position(stepped) {
            history.remove(place);
            prop_assert!(check(&params, &history, true).is_err());
        }
    }
}

#[test]
fn the_largest_instance_is_checked_in_one_pass() {
    let n = stickycas_model::params::MAX_PROCESSES as usize;
    let mut story = Story::new(&vec!["a"; n].join(" "), 256, 256, |_| {});
    story.all_join();
    story.round_of_appends();
    story.round_of_reads(0);
    let mut invariants = Invariants::new(Arc::clone(&story.params));
    for recorded in &story.history {
        invariants.observe(recorded).unwrap();
    }
    invariants.finish().unwrap();
    assert_eq!(story.list().len(), 256);
}

/// One line for each event.
fn story(history: &[Recorded]) -> String {
    let line = |(index, recorded): (usize, &Recorded)| {
        format!("\n{index} at {:?} {:?}", recorded.at, recorded.event)
    };
    history.iter().enumerate().map(line).collect()
}
