//! Checkpoints read back as they were written, in few bytes, and damaged ones are refused.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::machine::{
    Checkpoint, Entry, KeptAnswer, Machine, MemberCheckpoint, OffenceCount, State, WaitingCheckpoint,
};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::sim::{self, SimPlan, replay};
use stickycas_model::types::{ProcessId, Time, Value};
use stickycas_proto::convert::checkpoint::{checkpoint_from_wire, checkpoint_to_wire};
use stickycas_proto::log::v1 as wire;

use crate::strategies::{number, offence, op, phase, process, session, value};

fn time() -> impl Strategy<Value = Time> {
    any::<u64>().prop_map(Time::from_nanos)
}

fn patience() -> impl Strategy<Value = Patience> {
    let finite = any::<u64>().prop_map(std::time::Duration::from_nanos).prop_map(Patience::Finite);
    prop_oneof![finite, Just(Patience::Endless)]
}

fn member() -> impl Strategy<Value = MemberCheckpoint> {
    let waiting = (option::of(session()), op(), any::<u64>())
        .prop_map(|(session, op, accepted)| WaitingCheckpoint { session, op, accepted });
    let answer = (phase(), option::of(session()), any::<bool>(), any::<u32>())
        .prop_map(|(phase, session, append, content)| KeptAnswer { phase, session, append, content });
    let marks = any::<(bool, bool, bool, bool)>();
    let lists = (vec(waiting, 0..4), vec(answer, 0..4), any::<bool>());
    let cold = (option::of(phase()), option::of(value()), option::of(value()), any::<u16>());
    (number(), patience(), marks, option::of(session()), lists, cold).prop_map(
        |(next, patience, (joined, spent, refused, away), session, lists, cold)| {
            let (waiting, mut answers, same) = lists;
            let (append, first_append, decision, withdrawn) = cold;
            if same {
                answers.iter_mut().for_each(|kept| kept.session = session);
            }
            MemberCheckpoint {
                next,
                patience,
                joined,
                spent,
                refused,
                away,
                session,
                waiting,
                answers,
                append,
                first_append,
                decision,
                withdrawn,
            }
        },
    )
}

/// Any checkpoint, possible or not.
fn checkpoint() -> impl Strategy<Value = Checkpoint> {
    let entry =
        (value(), process(), phase()).prop_map(|(value, process, phase)| Entry { value, process, phase });
    let state =
        prop_oneof![Just(State::Gathering), Just(State::Running), Just(State::Finished), Just(State::Closed)];
    let times = (time(), option::of(time()), option::of(time()), option::of(time()), option::of(time()));
    let offences = (offence(), any::<u64>()).prop_map(|(first, count)| OffenceCount { first, count });
    let lists = (vec(entry, 0..5), vec(member(), 0..5), vec(process(), 0..5), vec(process(), 0..5));
    let misbehaviour = (vec(offences, 0..3), vec((process(), any::<u64>()), 0..3));
    (times, state, phase(), option::of(phase()), any::<u64>(), lists, misbehaviour).prop_map(
        |(times, state, phase, sealed, accepted, lists, (offences, refusals))| {
            let (time, join_deadline, open_since, last_step, rejoin_until) = times;
            let (entries, members, ready, early_reports) = lists;
            Checkpoint {
                time,
                state,
                join_deadline,
                phase,
                open_since,
                last_step,
                sealed,
                accepted,
                rejoin_until,
                entries,
                members,
                ready,
                early_reports,
                offences,
                refusals,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_checkpoint_arrives_as_it_was(checkpoint in checkpoint()) {
        let bytes = checkpoint_to_wire(&checkpoint).encode_to_vec();
        let arrived = wire::Machine::decode(bytes.as_slice()).expect("we encoded it");
        prop_assert_eq!(checkpoint_from_wire(&arrived), Ok(checkpoint));
    }

    #[test]
    fn damaged_bytes_are_refused_or_make_a_machine(changes in vec((any::<Index>(), any::<u8>()), 1..4)) {
        let (params, machine) = ended(8);
        let mut bytes = checkpoint_to_wire(&machine.checkpoint()).encode_to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let Ok(decoded) = wire::Machine::decode(bytes.as_slice()) else { return Ok(()) };
        let Ok(checkpoint) = checkpoint_from_wire(&decoded) else { return Ok(()) };
        if let Ok(restored) = Machine::from_checkpoint(params, checkpoint.clone()) {
            prop_assert_eq!(restored.checkpoint(), checkpoint);
        }
    }
}

fn correct(proposal: Value) -> Assignment {
    Assignment { role: Role::Correct, proposal }
}

/// An instance in which all processes were correct and have left.
fn ended(processes: u32) -> (Arc<Params>, Machine) {
    let params = Arc::new(Params::try_new(ParamsSpec::new(processes, 2, 2)).expect("valid"));
    let proposal = |process: ProcessId| Value::new(format!("value {}", process.get() % 3).as_bytes());
    let assignments = ProcessId::all(processes).filter_map(proposal).map(correct);
    let plan =
        SimPlan { params: Arc::clone(&params), truth: GroundTruth::new(assignments.collect()), seed: 1 };
    let machine = replay(&params, &sim::run(&plan).history).expect("the record is its own");
    assert_eq!(machine.state(), State::Finished);
    (params, machine)
}

#[test]
fn an_ended_instance_of_eight_takes_a_few_hundred_bytes() {
    let (params, machine) = ended(8);
    let checkpoint = machine.checkpoint();
    let bytes = checkpoint_to_wire(&checkpoint).encode_to_vec();
    assert!(bytes.len() < 320, "{} bytes", bytes.len());
    let arrived = checkpoint_from_wire(&wire::Machine::decode(bytes.as_slice()).unwrap()).unwrap();
    let restored = Machine::from_checkpoint(params, arrived).unwrap();
    assert_eq!(restored.status(Time::ZERO), machine.status(Time::ZERO));
}
