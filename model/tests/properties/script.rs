//! Random instances, and random things that processes do to them, sensible or not.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use stickycas_model::access::Op;
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{Position, ProcessId, Seed, Value};

/// A run to be: an instance and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) params: Params,
    /// Whether a tick comes at every deadline; if not, only when the script says so.
    pub(crate) punctual: bool,
    pub(crate) moves: Vec<Move>,
}

/// What is done, and how long after what was done before.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) pause: Duration,
    /// Whether a tick that is due at this very moment comes first.
    pub(crate) tick_first: bool,
    pub(crate) process: ProcessId,
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Hello,
    /// A new access under the next number.
    Access {
        op: Op,
        on_session: bool,
        no_wait: bool,
    },
    /// An access that was sent before, so many numbers ago.
    Again {
        back: u64,
    },
    /// An access under any number and on any session.
    Nonsense {
        op: Op,
        number: u64,
        session: Option<u32>,
    },
    Decide(Value),
    Offence,
    Tick,
    /// A new access with a time that has passed already.
    AccessFromThePast {
        op: Op,
        ago: Duration,
    },
    Close,
}

pub(crate) fn script() -> impl Strategy<Value = Script> {
    (params(), any::<bool>()).prop_flat_map(|(params, punctual)| {
        let moves = vec(one_move(params.processes()), 1..120);
        moves.prop_map(move |moves| Script { params: params.clone(), punctual, moves })
    })
}

fn params() -> impl Strategy<Value = Params> {
    (1..=9_u32).prop_flat_map(|n| {
        let order = prop_oneof![Just(Order::Ascending), Just(Order::Descending), Just(Order::Shuffled)];
        let window = prop_oneof![3 => Just(AppendWindow::FirstAccess), 1 => Just(AppendWindow::Open)];
        let patience = prop_oneof![
            4 => (0..2_000_u64).prop_map(|millis| Patience::Finite(Duration::from_millis(millis))),
            1 => Just(Patience::Endless),
        ];
        let pace = prop_oneof![3 => Just(0), 1 => 1..500_u64].prop_map(Duration::from_millis);
        let join_timeout = (1..1_000_u64).prop_map(Duration::from_millis);
        let sizes = (1..=n, 1..=n, 1..=4_u32, 1..=n);
        (sizes, order, window, arbiter(n), patience, pace, join_timeout, any::<u64>()).prop_map(
            move |(
                (p, r, pipeline, q),
                order,
                append_window,
                arbiter,
                patience,
                pace,
                join_timeout,
                seed,
            )| {
                Params::try_new(ParamsSpec {
                    order,
                    append_window,
                    append_rounds: if append_window == AppendWindow::Open { 1 } else { q.min(p) },
                    arbiter,
                    patience,
                    pace,
                    join_timeout,
                    pipeline,
                    seed: Seed::new(seed),
                    ..ParamsSpec::new(n, p, r)
                })
                .unwrap()
            },
        )
    })
}

fn arbiter(n: u32) -> impl Strategy<Value = Arbiter> {
    let some: Vec<ProcessId> = ProcessId::all(n).collect();
    let order = subsequence(some, 0..=n as usize).prop_shuffle();
    prop_oneof![Just(Arbiter::FirstCome), Just(Arbiter::Uniform), order.prop_map(Arbiter::Priority)]
}

fn one_move(n: u32) -> impl Strategy<Value = Move> {
    let pause =
        prop_oneof![6 => Just(0), 3 => 1..200_u64, 1 => 200..2_500_u64].prop_map(Duration::from_millis);
    let process =
        any::<Index>().prop_map(move |index| ProcessId::from_index(index.index(n as usize)).unwrap());
    (pause, any::<bool>(), process, deed()).prop_map(|(pause, tick_first, process, deed)| Move {
        pause,
        tick_first,
        process,
        deed,
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    let session = prop_oneof![Just(None), (1..4_u32).prop_map(Some)];
    prop_oneof![
        6 => Just(Deed::Hello),
        40 => (op(), any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(op, on_session, no_wait)| Deed::Access { op, on_session, no_wait }),
        6 => (0..4_u64).prop_map(|back| Deed::Again { back }),
        6 => (op(), 1..9_u64, session)
            .prop_map(|(op, number, session)| Deed::Nonsense { op, number, session }),
        3 => value().prop_map(Deed::Decide),
        1 => Just(Deed::Offence),
        4 => Just(Deed::Tick),
        2 => (op(), 1..500_u64)
            .prop_map(|(op, millis)| Deed::AccessFromThePast { op, ago: Duration::from_millis(millis) }),
        1 => prop::bool::weighted(0.2).prop_map(|close| if close { Deed::Close } else { Deed::Tick }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        value().prop_map(Op::Append),
        (0..12_u32).prop_map(|start| Op::Read { start: Position::new(start) }),
    ]
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    "[a-d]".prop_map(|text| Value::parse(&text).unwrap())
}
