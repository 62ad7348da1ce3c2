//! What instances take in the log, beside what was reserved for them: the worst that their processes can do.

use std::fmt::Debug;
use std::time::Instant;

use proptest::prelude::*;
use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::params::{AppendWindow, Arbiter, Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Seed, Value};
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::principal::MAX_PRINCIPAL_BYTES;

use super::super::byte_share::{CreatorReserve, InstanceShare};
use super::super::config::{InstanceConfig, Lifetimes, SharedConfig};
use super::super::outbox::Outbox;
use super::super::sessions::SessionSink;
use super::super::shard::ShardContext;
use super::*;
use crate::auth::Principal;
use crate::commit_log::{CommitLog, MemoryLog};
use crate::limits::Limits;
use std::sync::Arc;

/// An instance whose names are as long as they may be.
fn instance(spec: ParamsSpec) -> Instance {
    let params = Params::try_new(spec).unwrap();
    let limits = Limits { callers_per_access: 1, ..Limits::default() };
    let principal = |number: u32| format!("{number:0>MAX_PRINCIPAL_BYTES$}");
    let roster: Vec<String> = (1..=params.processes()).map(principal).collect();
    let creator = Principal::new(&principal(0));
    let shared = Arc::new(SharedConfig::new(creator, &params, &roster, Lifetimes::of(&limits)));
    let name = InstanceName::optional(&"n".repeat(64)).unwrap();
    let config = InstanceConfig::new(InstanceId::new(u128::MAX), u64::MAX, name, Seed::new(u64::MAX), shared);
    let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
    Instance::new(config, ShardContext::alone(limits, log))
}

/// A log that takes checkpoints and writes none.
fn log() -> DurableLog {
    DurableLog::new(Arc::default(), Arc::default())
}

/// What a process does.
#[derive(Clone, Copy, Debug)]
enum Act {
    Hello,
    /// Fills the pipeline with appends.
    Append,
    /// Appends what all others append.
    AppendAlike,
    Read,
    /// The server refuses something, and says why at length.
    Offend(usize),
    Refused,
    Decide,
    /// Decides what all others append.
    DecideAlike,
}

fn act() -> impl Strategy<Value = (u32, Act)> {
    let act = prop_oneof![
        1 => Just(Act::Hello),
        8 => Just(Act::Append),
        1 => Just(Act::AppendAlike),
        4 => Just(Act::Read),
        4 => (0..OffenceKind::ALL.len()).prop_map(Act::Offend),
        2 => Just(Act::Refused),
        1 => Just(Act::Decide),
        1 => Just(Act::DecideAlike),
    ];
    (any::<u32>(), act)
}

/// The longest value, different for each of these numbers.
fn value(instance: &Instance, number: u64) -> Value {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(instance.params().spec().max_value_bytes as usize, 0xff);
    Value::new(&bytes).unwrap()
}

fn play(instance: &Instance, process: ProcessId, act: Act, number: u64) {
    let sink = SessionSink { outbox: Arc::new(Outbox::new(1)), channel: 0 };
    let next = |step: u64| {
        let member = instance.status(Some(process)).into_inner().unwrap().1.unwrap();
        AccessNumber::new(member.next.get() + step).unwrap()
    };
    let access = |op, number| Access { process, session: None, number, op, no_wait: false };
    match act {
        Act::Hello => drop(instance.hello(process, u64::MAX, &sink, Instant::now())),
        Act::Append => {
            for turn in 0..=instance.params().spec().pipeline {
                let value = value(instance, number << 8 | u64::from(turn));
                drop(instance.call(access(Op::Append(value), next(0))));
            }
        }
        Act::AppendAlike => drop(instance.call(access(Op::Append(value(instance, 0)), next(0)))),
        Act::Read => {
            for _ in 0..64 {
                drop(instance.call(access(Op::Read { start: Position::new(u32::MAX) }, next(0))));
            }
        }
        Act::Offend(kind) => {
            let (kind, detail) = (OffenceKind::ALL[kind], "\u{10ffff}".repeat(1_000));
            for number in 0..20 {
                let (number, detail) = (AccessNumber::new(u64::MAX - number), detail.clone());
                instance.file_offence(Offence { process, kind, number, phase: None, detail });
            }
        }
        Act::Refused => drop(instance.call(access(Op::Read { start: Position::new(0) }, next(1_000)))),
        Act::Decide => drop(instance.call_decide(process, value(instance, number))),
        Act::DecideAlike => drop(instance.call_decide(process, value(instance, 0))),
    }
}

/// What an instance with these parameters takes in the log is within what is reserved for it, whatever its
/// processes do: while it lives, once it has ended, and when they go on then.
fn check_reserve(
    spec: ParamsSpec,
    acts: &[(u32, Act)],
    late_acts: &[(u32, Act)],
) -> Result<(), TestCaseError> {
    let processes = spec.processes;
    let instance = instance(spec);
    let (log, limits) = (log(), Limits::default());
    let roster = instance.config().shared.roster.bytes();
    let creator = Arc::new(CreatorReserve::default());
    let (memory, log_case) =
        (limits.worst_case(instance.params()), limits.log_case(instance.params(), roster));
    let share = InstanceShare::new(&creator, memory, log_case);
    instance.lock().set_share(share, instance.config());
    let reserve = &creator.own;
    // A checkpoint of an ended instance lets its share grow by what was filed since; else there is nothing to
    // grow by.
    let check = |when: &dyn Debug, is_filed_at_its_end: bool| {
        let before = reserve.log();
        let captured = Captured::of(&instance, &log, true).expect("it is not gone");
        let taken = 2 * captured.write(&instance, &log);
        let reserved = if is_filed_at_its_end { reserve.log() } else { before };
        prop_assert!(taken <= reserved, "{taken} of {reserved} after {when:?}");
        Ok(())
    };
    let play = |process: u32, act, number| {
        play(&instance, ProcessId::new(process % processes + 1).unwrap(), act, number);
    };
    let most = reserve.log();
    for (number, (process, act)) in (0..).zip(acts) {
        play(*process, *act, number);
        // All may have decided by now.
        check(act, true)?;
    }
    let _ = instance.close();
    instance.archive_now();
    check(&"its end", false)?;
    for (number, (process, act)) in (1_000..).zip(late_acts) {
        play(*process, *act, number);
        check(act, true)?;
    }
    instance.archive_now();
    check(&"being archived again", false)?;
    prop_assert!(reserve.log() <= most, "{} of {most}", reserve.log());
    Ok(())
}

fn spec(processes: u32, pipeline: u32, max_value_bytes: u32) -> ParamsSpec {
    ParamsSpec {
        arbiter: Arbiter::Priority(ProcessId::all(processes).collect()),
        patience: Patience::Endless,
        pipeline,
        max_value_bytes,
        ..ParamsSpec::new(processes, 1, 1)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_instance_takes_more_of_the_log_than_was_reserved(
        processes in 1..5_u32,
        pipeline in 1..20_u32,
        max_value_bytes in prop_oneof![8..64_u32, 1_000..3_000_u32],
        open in any::<bool>(),
        has_rounds in any::<bool>(),
        acts in prop::collection::vec(act(), 1..150),
        late_acts in prop::collection::vec(act(), 0..20),
    ) {
        let append_window = if open { AppendWindow::Open } else { AppendWindow::FirstAccess };
        let spec = ParamsSpec { append_window, ..spec(processes, pipeline, max_value_bytes) };
        let spec = match has_rounds && !open {
            true => ParamsSpec { warp_size: processes, append_rounds: processes, ..spec },
            false => spec,
        };
        check_reserve(spec, &acts, &late_acts)?;
    }
}

#[test]
fn values_that_an_archive_has_once_stand_in_the_log_often() {
    for processes in [1, 4] {
        let all = |act| (0..processes).map(move |process| (process, act));
        let acts = [Act::Hello, Act::AppendAlike, Act::Read, Act::DecideAlike].into_iter().flat_map(all);
        check_reserve(spec(processes, 1, 1_157), &acts.collect::<Vec<_>>(), &[]).unwrap();
    }
}

#[test]
fn what_is_filed_at_an_ended_instance_counts_too() {
    let late_acts = (0..OffenceKind::ALL.len()).map(|kind| (0, Act::Offend(kind)));
    check_reserve(spec(1, 1, 8), &[], &late_acts.collect::<Vec<_>>()).unwrap();
}

#[test]
fn of_too_many_events_a_checkpoint_keeps_the_latest() {
    let instance = instance(ParamsSpec { max_value_bytes: 8, ..ParamsSpec::new(1, 1, 1) });
    for number in 0..40 {
        play(&instance, ProcessId::FIRST, Act::Read, number);
    }
    let captured = Captured::of(&instance, &log(), false).unwrap();
    let CapturedState::Unpacked { events, uncommitted, .. } = &captured.state else { panic!("it lives") };
    let kept: Vec<Recorded> = events.read().collect();
    assert!(uncommitted.is_empty());
    let checkpoint = captured.checkpoint(&instance);
    let first = usize::try_from(checkpoint.first_index).unwrap();
    assert!(first > 0 && first + checkpoint.events.len() == kept.len());
    let told: Vec<_> = kept[first..].iter().map(|recorded| event_to_wire(0, recorded)).collect();
    assert_eq!(checkpoint.events, told);
    let forgotten = kept[..first].iter().rev().find_map(|recorded| step_of(&recorded.event));
    assert_eq!(Phase::new(checkpoint.forgotten_phase), forgotten);
}

#[test]
fn a_checkpoint_of_an_ended_instance_is_its_archive_unless_that_is_too_large() {
    for (kinds, is_archive) in [(0, true), (OffenceKind::ALL.len(), false)] {
        let instance = instance(spec(1, 1, 8));
        (0..kinds).for_each(|kind| play(&instance, ProcessId::FIRST, Act::Offend(kind), 0));
        let _ = instance.close();
        instance.archive_now();
        assert!(instance.archived_size().is_some());
        let captured = Captured::of(&instance, &log(), false).unwrap();
        assert_eq!(matches!(captured.state, CapturedState::Archived(_)), is_archive);
        let checkpoint = captured.checkpoint(&instance);
        assert_eq!((checkpoint.archive.is_some(), checkpoint.machine.is_none()), (is_archive, is_archive));
    }
}
