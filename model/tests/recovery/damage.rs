//! Damaged checkpoints: refused, or taken and harmless. Nothing that a checkpoint says may panic or run for
//! ever.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::machine::{
    Checkpoint, CheckpointError, Entry, KeptAnswer, Machine, MemberCheckpoint, OffenceCount, State,
    WaitingCheckpoint,
};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value};

use super::script::{Come, Driver, comes, params};
use super::{apply, drive};

/// What is changed: which field, of which element, to what.
#[derive(Clone, Copy, Debug)]
struct Damage {
    field: u8,
    element: usize,
    number: u64,
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let number = prop_oneof![
        6 => 0_u64..6,
        1 => 6_u64..600,
        1 => Just(u64::MAX),
        1 => Just(u64::MAX / 2),
        1 => Just(u64::MAX / 2 + 1),
        1 => any::<u64>(),
    ];
    let damage = (0_u8..35, 0_usize..8, number);
    let damage = damage.prop_map(|(field, element, number)| Damage { field, element, number });
    prop::collection::vec(damage, 0..4)
}

fn phase(number: u64) -> Phase {
    Phase::new(number).unwrap_or(Phase::FIRST)
}

fn process(number: u64) -> ProcessId {
    ProcessId::new(number as u32).unwrap_or(ProcessId::FIRST)
}

/// Endless patience, or so many nanoseconds.
fn patience(number: u64) -> Patience {
    if number == u64::MAX { Patience::Endless } else { Patience::Finite(Duration::from_nanos(number)) }
}

fn value(number: u64) -> Value {
    Value::new(&vec![b'a'; if number > 600 { 2_000 } else { 1 }]).unwrap()
}

fn op(number: u64) -> Op {
    if number.is_multiple_of(2) {
        Op::Append(value(number))
    } else {
        Op::Read { start: Position::new(number as u32) }
    }
}

impl Damage {
    fn apply(self, to: &mut Checkpoint) {
        let Self { field, element, number } = self;
        let time = Time::from_nanos(number);
        let some = |time: Time| (number != 3).then_some(time);
        match field {
            0 => to.time = time,
            1 => {
                to.state = [State::Gathering, State::Running, State::Finished, State::Closed][element % 4];
            }
            2 => to.join_deadline = some(time),
            3 => to.phase = phase(number),
            4 => to.open_since = some(time),
            5 => to.last_step = some(time),
            6 => to.sealed = Phase::new(number),
            7 => to.accepted = number,
            8 => to.rejoin_until = some(time),
            9 => to.entries.push(Entry {
                value: value(number),
                process: process(number),
                phase: phase(number),
            }),
            10 => to.entries.truncate(element),
            11 => to.entries.reverse(),
            12 => to.ready.push(process(number)),
            13 => to.ready.reverse(),
            14 => to.ready.truncate(element),
            15 => to.early_reports.push(process(number)),
            16 => to.early_reports.truncate(element),
            17 => to.refusals.push((process(element as u64), number)),
            18 => {
                let first = Offence {
                    process: process(element as u64),
                    kind: OffenceKind::LateAppend,
                    number: AccessNumber::new(number),
                    phase: Phase::new(number),
                    detail: String::new(),
                };
                to.offences.push(OffenceCount { first, count: number });
            }
            19 => to.members.truncate(element),
            _ => {
                if let Some(member) = to.members.get_mut(element) {
                    self.apply_to(member);
                }
            }
        }
    }

    fn apply_to(self, member: &mut MemberCheckpoint) {
        let Self { field, number, .. } = self;
        let session = SessionId::new(number as u32);
        match field {
            20 => member.next = AccessNumber::new(number).unwrap_or(AccessNumber::FIRST),
            21 => member.patience = patience(number),
            22 => member.joined = !member.joined,
            23 => member.spent = !member.spent,
            24 => member.refused = !member.refused,
            25 => member.away = !member.away,
            26 => member.session = session,
            27 => member.waiting.push(WaitingCheckpoint { session, op: op(number), accepted: number }),
            28 => member.waiting.truncate(number as usize),
            29 => {
                let append = number.is_multiple_of(2);
                member.answers.push(KeptAnswer {
                    phase: phase(number),
                    session,
                    append,
                    content: number as u32,
                });
            }
            30 => member.answers.truncate(number as usize),
            31 => member.append = Phase::new(number),
            32 => member.first_append = (number != 3).then(|| value(number)),
            33 => member.decision = (number != 3).then(|| value(number)),
            _ => member.withdrawn = number as u16,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_checkpoint_never_makes_a_machine_panic(
        params in params(), before in comes(), damages in damages(), after in comes(),
    ) {
        let params = Arc::new(params);
        let mut checkpoint = drive(&params, &before, false).0.checkpoint();
        damages.iter().for_each(|damage| damage.apply(&mut checkpoint));
        let damaged = checkpoint.clone();
        if let Ok(machine) = Machine::from_checkpoint(Arc::clone(&params), checkpoint) {
            prop_assert_eq!(machine.checkpoint(), damaged, "what is taken is taken as it is");
            drive_on(machine, &after);
        }
    }
}

/// The machine goes on, and can be written down and read back whenever it likes.
fn drive_on(mut machine: Machine, comes: &[Come]) {
    let mut driver = Driver::default();
    for come in comes {
        let (at, inputs) = driver.inputs(&machine, come);
        for input in inputs {
            driver.note(&apply(&mut machine, at, input).0);
        }
        for process in ProcessId::all(machine.params().processes()) {
            let _ = machine.member(process);
        }
    }
    let checkpoint = machine.checkpoint();
    match Machine::from_checkpoint(Arc::clone(machine.params()), checkpoint.clone()) {
        Ok(restored) => assert_eq!(restored.checkpoint(), checkpoint),
        // Damage may have brought a number to the end of its range.
        Err(error) => assert!(error.to_string().contains("too large"), "{error}"),
    }
}

#[test]
fn what_is_wrong_with_a_checkpoint_is_said() {
    let params = Arc::new(Params::try_new(ParamsSpec::new(3, 2, 1)).unwrap());
    let refused = |change: fn(&mut Checkpoint)| {
        let mut checkpoint = Machine::new(Arc::clone(&params)).checkpoint();
        change(&mut checkpoint);
        let error: CheckpointError = Machine::from_checkpoint(Arc::clone(&params), checkpoint).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        refused(|it| it.members.truncate(2)),
        "the checkpoint has 2 processes: this instance has n = 3"
    );
    assert_eq!(
        refused(|it| it.members[1].session = SessionId::new(1_001)),
        "process 2: it has more sessions than it may"
    );
    assert_eq!(
        refused(|it| it.entries.push(Entry { value: value(1), process: process(1), phase: phase(1) })),
        "entry 0: its phase is out of order"
    );
    assert_eq!(refused(|it| it.sealed = Some(phase(1))), "the list is sealed too early or too late");
}

/// B2, K1: a checkpoint has the first append of a process as long as another one is compared with it, also
/// behind the seal, where process 3 has an access within the append rounds left.
#[test]
fn a_first_append_with_which_others_are_compared_must_be_there() {
    let value = |byte| Value::new(&[byte]).unwrap();
    let patience = Patience::Finite(Duration::from_nanos(1));
    let params = Arc::new(
        Params::try_new(ParamsSpec { append_rounds: 2, patience, ..ParamsSpec::new(3, 3, 1) }).unwrap(),
    );
    let mut machine = Machine::new(Arc::clone(&params));
    for member in 1..=3 {
        machine.hello(Time::ZERO, process(member), 1, &mut Vec::new()).unwrap();
    }
    let append = |machine: &mut Machine, member, number, byte| {
        let (process, number) = (process(member), AccessNumber::new(number).unwrap());
        let access = Access { process, session: None, number, op: Op::Append(value(byte)), no_wait: false };
        machine.access(machine.now(), access, &mut Vec::new()).unwrap();
    };
    let kept = |machine: &Machine| {
        machine.checkpoint().members.iter().map(|it| it.first_append.clone()).collect::<Vec<_>>()
    };
    append(&mut machine, 1, 1, 10);
    append(&mut machine, 2, 1, 20);
    assert_eq!(kept(&machine), [Some(value(10)), Some(value(20)), None]);
    machine.tick(machine.deadline().unwrap(), &mut Vec::new());
    for (member, number, byte) in [(3, 1, 30), (1, 2, 10), (2, 2, 20)] {
        append(&mut machine, member, number, byte);
    }
    assert!(machine.sealed());
    assert_eq!(kept(&machine), [None, None, Some(value(30))]);
    let refused = |member: usize, first: Option<u8>| {
        let mut checkpoint = machine.checkpoint();
        checkpoint.members[member].first_append = first.map(value);
        Machine::from_checkpoint(Arc::clone(&params), checkpoint).unwrap_err().to_string()
    };
    let says = "its first append is not the one that later ones are compared with";
    assert_eq!(refused(2, None), format!("process 3: {says}"));
    assert_eq!(refused(0, Some(10)), format!("process 1: {says}"));
    append(&mut machine, 3, 2, 31);
    let offences = machine.status(machine.now()).offences;
    assert_eq!(offences.iter().map(|offence| offence.first.process).collect::<Vec<_>>(), [process(3)]);
}
