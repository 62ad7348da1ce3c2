//! Arbitrary events and parameters of the model.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::params::{AppendWindow, Arbiter, Order, ParamsSpec, Patience};
use stickycas_model::types::{
    AccessNumber, Phase, Position, ProcessId, Seed, SessionId, Time, Value, WarpId,
};

pub(crate) fn process() -> impl Strategy<Value = ProcessId> {
    (1..=u32::MAX).prop_filter_map("counts from 1", ProcessId::new)
}

fn warp() -> impl Strategy<Value = WarpId> {
    (1..=u32::MAX).prop_filter_map("counts from 1", WarpId::new)
}

pub(crate) fn phase() -> impl Strategy<Value = Phase> {
    (1..=u64::MAX).prop_filter_map("counts from 1", Phase::new)
}

pub(crate) fn number() -> impl Strategy<Value = AccessNumber> {
    (1..=u64::MAX).prop_filter_map("counts from 1", AccessNumber::new)
}

pub(crate) fn session() -> impl Strategy<Value = SessionId> {
    (1..=u32::MAX).prop_filter_map("counts from 1", SessionId::new)
}

fn position() -> impl Strategy<Value = Position> {
    any::<u32>().prop_map(Position::new)
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    vec(any::<u8>(), 1..40).prop_filter_map("has a byte", |bytes| Value::new(&bytes))
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![value().prop_map(Op::Append), position().prop_map(|start| Op::Read { start })]
}

fn answer() -> impl Strategy<Value = Answer> {
    let append = prop_oneof![
        position().prop_map(AppendAnswer::Success),
        Just(AppendAnswer::Failed),
        Just(AppendAnswer::LimitReached),
    ];
    let read = (position(), any::<(u32, u32, bool)>())
        .prop_map(|(start, (count, length, sealed))| ReadAnswer { start, count, length, sealed });
    prop_oneof![append.prop_map(Answer::Append), read.prop_map(Answer::Read)]
}

pub(crate) fn offence() -> impl Strategy<Value = Offence> {
    (process(), select(&OffenceKind::ALL[..]), option::of(number()), option::of(phase()), ".*")
        .prop_map(|(process, kind, number, phase, detail)| Offence { process, kind, number, phase, detail })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        process().prop_map(|process| Event::Joined { process }),
        (process(), session(), any::<u64>()).prop_map(|(process, session, incarnation)| Event::Session {
            process,
            session,
            incarnation
        }),
        (process(), number(), option::of(session()), op())
            .prop_map(|(process, number, session, op)| Event::Accepted { process, number, session, op }),
        (process(), option::of(number()), ".*").prop_map(|(process, number, why)| Event::Refused {
            process,
            number,
            why
        }),
        any::<u32>().prop_map(|joined| Event::GatheringEnded { joined }),
        process().prop_map(|process| Event::PatienceSpent { process }),
        (phase(), warp(), any::<u32>()).prop_map(|(phase, warp, length)| Event::Stepped {
            phase,
            warp,
            length
        }),
        (position(), process(), phase(), value()).prop_map(|(position, process, phase, value)| {
            Event::Added { position, process, phase, value }
        }),
        (process(), number(), phase(), answer()).prop_map(|(process, number, phase, answer)| {
            Event::Answered { process, number, phase, answer }
        }),
        (phase(), any::<u32>()).prop_map(|(phase, length)| Event::Sealed { phase, length }),
        (process(), value()).prop_map(|(process, value)| Event::Decided { process, value }),
        (process(), number()).prop_map(|(process, number)| Event::Withdrawn { process, number }),
        offence().prop_map(Event::Offence),
        Just(Event::Finished),
        Just(Event::Closed),
        any::<u64>().prop_map(|nanos| Event::Restarted { rejoin: Duration::from_nanos(nanos) }),
        process().prop_map(|process| Event::Rejoined { process }),
    ]
}

/// Any event at any time.
pub(crate) fn recorded() -> impl Strategy<Value = Recorded> {
    (any::<u64>(), event()).prop_map(|(at, event)| Recorded { at: Time::from_nanos(at), event })
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..=24 * 60 * 60_u64, 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

/// Any requested parameters, in range or not. A pipeline, value limit or number of append rounds of 0 is not
/// among them: on the wire it stands for the default.
pub(crate) fn params_spec() -> impl Strategy<Value = ParamsSpec> {
    let arbiter = prop_oneof![
        Just(Arbiter::FirstCome),
        Just(Arbiter::Uniform),
        vec(process(), 0..5).prop_map(Arbiter::Priority),
    ];
    let patience = prop_oneof![duration().prop_map(Patience::Finite), Just(Patience::Endless)];
    let choices = (
        select(vec![Order::Ascending, Order::Descending, Order::Shuffled]),
        arbiter,
        select(vec![AppendWindow::FirstAccess, AppendWindow::Open]),
        patience,
    );
    let numbers = (any::<(u32, u32, u32, u64)>(), 1..=u32::MAX, 1..=u32::MAX, 1..=u32::MAX);
    (numbers, choices, duration(), duration()).prop_map(|(numbers, choices, join_timeout, pace)| {
        let ((processes, warp_size, read_size, seed), pipeline, max_value_bytes, append_rounds) = numbers;
        let (order, arbiter, append_window, patience) = choices;
        ParamsSpec {
            processes,
            warp_size,
            read_size,
            order,
            seed: Seed::new(seed),
            arbiter,
            append_window,
            append_rounds,
            patience,
            join_timeout,
            pace,
            pipeline,
            max_value_bytes,
        }
    })
}
