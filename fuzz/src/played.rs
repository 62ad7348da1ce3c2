//! An instance that was played to its end, as what it leaves on the wire and on a disk.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::machine::{Input, Machine};
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Time, Value};
use stickycas_proto::convert::checkpoint::checkpoint_to_wire;
use stickycas_proto::convert::history::event_to_wire;
use stickycas_proto::convert::log::{access_to_log, decision_to_log, hello_to_log, offence_to_log};
use stickycas_proto::log::v1::record::Input as Logged;
use stickycas_proto::log::v1::{Batch, Close, Machine as WireMachine, Record, Tick};

/// The parameters of the instances on a disk.
pub(super) fn params() -> Arc<Params> {
    Arc::new(Params::try_new(ParamsSpec::new(4, 2, 4)).expect("they are within all bounds"))
}

struct Played {
    history: Vec<Recorded>,
    inputs: Vec<Logged>,
    /// The machine after each input.
    checkpoints: Vec<WireMachine>,
}

impl Played {
    /// Everybody says hello, appends, reads and decides; one commits an offence, and a tick comes where none
    /// is due.
    fn new() -> Self {
        let mut inputs = Vec::new();
        for process in ProcessId::all(4) {
            inputs.push(Input::Hello { process, incarnation: 1 });
        }
        for number in 1..=2 {
            for process in ProcessId::all(4) {
                let text = format!("value {}", process.get() % 2);
                let op = match number {
                    1 => Op::Append(Value::parse(&text).expect("it is not empty")),
                    _ => Op::Read { start: Position::new(0) },
                };
                let number = AccessNumber::new(number).expect("it is not 0");
                inputs.push(Input::Access(Access { process, session: None, number, op, no_wait: false }));
            }
        }
        let offence = Offence {
            process: ProcessId::FIRST,
            kind: OffenceKind::Malformed,
            number: None,
            phase: None,
            detail: "a number is 0".to_owned(),
        };
        inputs.extend([Input::Offence(offence), Input::Tick]);
        let value = Value::parse("value 1").expect("it is not empty");
        inputs.extend(ProcessId::all(4).map(|process| Input::Decide { process, value: value.clone() }));
        inputs.push(Input::Close);
        Self::of(&inputs)
    }

    fn of(inputs: &[Input]) -> Self {
        let mut machine = Machine::new(params());
        let (mut played, mut now) =
            (Self { history: Vec::new(), inputs: Vec::new(), checkpoints: Vec::new() }, Time::ZERO);
        for input in inputs {
            now = now.after(Duration::from_millis(3));
            let mut events = Vec::new();
            let _ = machine.apply(now, input.clone(), &mut events);
            played.history.extend(events.into_iter().map(|event| Recorded { at: now, event }));
            played.inputs.push(to_log(input));
            played.checkpoints.push(checkpoint_to_wire(&machine.checkpoint()));
        }
        played
    }
}

fn to_log(input: &Input) -> Logged {
    match input {
        Input::Hello { process, incarnation } => hello_to_log(*process, *incarnation),
        Input::Access(access) => access_to_log(access),
        Input::Decide { process, value } => decision_to_log(*process, value),
        Input::Offence(offence) => offence_to_log(offence),
        Input::Close => Logged::Close(Close {}),
        _ => Logged::Tick(Tick {}),
    }
}

/// Each of its events, and one of each kind that it has not.
pub(super) fn events() -> Vec<Vec<u8>> {
    let process = ProcessId::FIRST;
    let others = [
        Event::PatienceSpent { process },
        Event::Withdrawn { process, number: AccessNumber::FIRST },
        Event::Refused { process, number: None, why: "its number is 0".to_owned() },
        Event::Closed,
        Event::Restarted { rejoin: Duration::from_secs(5) },
        Event::Rejoined { process },
    ];
    let others = others.into_iter().map(|event| Recorded { at: Time::ZERO, event });
    let all = Played::new().history.into_iter().chain(others);
    (0..).zip(all).map(|(index, recorded)| event_to_wire(index, &recorded).encode_to_vec()).collect()
}

/// Its inputs in one batch, and in some.
pub(super) fn batches() -> Vec<Vec<u8>> {
    let record = |input: &Logged| Record { instance: 1, input: Some(input.clone()), ..Record::default() };
    let batch =
        |inputs: &[Logged]| Batch { records: inputs.iter().map(record).collect(), ..Batch::default() };
    let inputs = Played::new().inputs;
    let all = std::iter::once(batch(&inputs));
    all.chain(inputs.chunks(5).map(batch)).map(|batch| batch.encode_to_vec()).collect()
}

/// The machine after each input.
pub(super) fn checkpoints() -> Vec<Vec<u8>> {
    Played::new().checkpoints.iter().map(WireMachine::encode_to_vec).collect()
}

/// Its history as a server keeps it, whole and in parts.
pub(super) fn stored_events() -> Vec<Vec<u8>> {
    let history = Played::new().history;
    let parts = history.chunks(7).map(stickycas_server::fuzzing::store_events);
    std::iter::once(stickycas_server::fuzzing::store_events(&history)).chain(parts).collect()
}
