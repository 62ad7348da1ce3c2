//! The inputs of a machine.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use stickycas_model::access::{Access, Op};
use stickycas_model::compact_codec::{Decoder, Encoder};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::invariants;
use stickycas_model::machine::{Input, Machine, State};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Seed, SessionId, Time, Value};

/// Inputs of one instance, in an order in which no client would send them. Whatever they are, the history
/// keeps the rules, and a machine that goes on from a checkpoint or a snapshot does as the one that was not
/// interrupted.
pub(super) fn machine(bytes: &[u8]) {
    // Bytes that run out end the run.
    let _ = Run::begin(&mut Unstructured::new(bytes));
}

/// Bytes that begin long runs: numbers that count up, in several steps.
pub(super) fn machine_seeds() -> Vec<Vec<u8>> {
    let run = |step: u8| (0..600_u16).map(|place| (place as u8).wrapping_mul(step)).collect();
    [1, 3, 7, 29, 85, 131].into_iter().map(run).collect()
}

struct Run {
    machine: Machine,
    now: Time,
    history: Vec<Recorded>,
}

impl Run {
    fn begin(from: &mut Unstructured<'_>) -> Result<()> {
        let Ok(params) = Params::try_new(spec(from)?) else { return Ok(()) };
        let mut run = Self { machine: Machine::new(Arc::new(params)), now: Time::ZERO, history: Vec::new() };
        let ended = run.play(from);
        let params = run.machine.params().clone();
        let complete = matches!(run.machine.state(), State::Finished | State::Closed);
        invariants::check(&params, &run.history, complete).unwrap_or_else(|broken| panic!("{broken}"));
        ended
    }

    fn play(&mut self, from: &mut Unstructured<'_>) -> Result<()> {
        while !from.is_empty() {
            self.now = self.now.after(Duration::from_millis(u8::arbitrary(from)?.into()));
            let input = self.input(from)?;
            let mut other = if bool::arbitrary(from)? { Some(self.again()) } else { None };
            let events = apply(&mut self.machine, self.now, input.clone());
            if let Some(other) = &mut other {
                assert_eq!(apply(other, self.now, input), events, "the one that was interrupted");
                assert_eq!(other.checkpoint(), self.machine.checkpoint());
            }
            self.history.extend(events.into_iter().map(|event| Recorded { at: self.now, event }));
        }
        Ok(())
    }

    /// The machine as it goes on after an interruption.
    fn again(&self) -> Machine {
        let params = self.machine.params().clone();
        if !matches!(self.machine.state(), State::Finished | State::Closed) {
            let checkpoint = self.machine.checkpoint();
            return Machine::from_checkpoint(params, checkpoint).expect("it is our own");
        }
        let mut snapshot = Encoder::default();
        self.machine.write_snapshot(&mut snapshot);
        Machine::from_snapshot(params, &mut Decoder::new(snapshot.bytes())).expect("it is our own")
    }

    fn input(&self, from: &mut Unstructured<'_>) -> Result<Input> {
        let params = self.machine.params();
        let process = process(from, params)?;
        Ok(match from.int_in_range(0..=9)? {
            0 => Input::Hello { process, incarnation: u8::arbitrary(from)?.into() },
            1..=5 => Input::Access(self.access(from, process)?),
            6 => Input::Decide { process, value: value(from, params)? },
            7 => Input::Tick,
            8 => Input::Offence(Offence {
                process,
                kind: *from.choose(&OffenceKind::ALL)?,
                number: AccessNumber::new(u8::arbitrary(from)?.into()),
                phase: None,
                detail: "as it was told".to_owned(),
            }),
            _ => match u8::arbitrary(from)? {
                0..=3 => Input::Close,
                rejoin => Input::Restart { rejoin: Duration::from_millis(rejoin.into()) },
            },
        })
    }

    fn access(&self, from: &mut Unstructured<'_>, process: ProcessId) -> Result<Access> {
        let next = self.machine.member(process).next;
        let number = if from.ratio(3, 4)? { next } else { number(from)? };
        let session = match u8::arbitrary(from)? % 3 {
            0 => None,
            1 => self.machine.session(process),
            _ => SessionId::new(u8::arbitrary(from)?.into()),
        };
        let op = if bool::arbitrary(from)? {
            Op::Append(value(from, self.machine.params())?)
        } else {
            Op::Read { start: Position::new(u8::arbitrary(from)?.into()) }
        };
        Ok(Access { process, session, number, op, no_wait: from.ratio(1, 8)? })
    }
}

fn apply(machine: &mut Machine, now: Time, input: Input) -> Vec<Event> {
    let mut events = Vec::new();
    // A refused input has its events too.
    let _ = machine.apply(now, input, &mut events);
    events
}

fn number(from: &mut Unstructured<'_>) -> Result<AccessNumber> {
    Ok(AccessNumber::new(u8::arbitrary(from)?.into()).unwrap_or(AccessNumber::FIRST))
}

fn process(from: &mut Unstructured<'_>, params: &Params) -> Result<ProcessId> {
    let index = from.int_in_range(0..=params.processes() - 1)?;
    Ok(ProcessId::from_index(index as usize).expect("there is such a process"))
}

fn value(from: &mut Unstructured<'_>, params: &Params) -> Result<Value> {
    const VALUES: [&[u8]; 3] = [b"a", b"b", b"cc"];
    let value = from.choose(&VALUES)?.to_vec();
    Ok(params.checked(value.into()).expect("two bytes are within the bounds"))
}

fn spec(from: &mut Unstructured<'_>) -> Result<ParamsSpec> {
    let processes = from.int_in_range(1..=7)?;
    let mut spec = ParamsSpec::new(processes, from.int_in_range(1..=processes)?, from.int_in_range(1..=8)?);
    spec.order = *from.choose(&Order::ALL)?;
    spec.seed = Seed::new(u8::arbitrary(from)?.into());
    spec.arbiter = match u8::arbitrary(from)? % 3 {
        0 => Arbiter::FirstCome,
        1 => Arbiter::Uniform,
        _ => Arbiter::Priority(vec![ProcessId::FIRST]),
    };
    spec.append_window = *from.choose(&AppendWindow::ALL)?;
    spec.patience = if bool::arbitrary(from)? {
        Patience::Endless
    } else {
        Patience::Finite(Duration::from_millis(u16::arbitrary(from)?.into()))
    };
    spec.join_timeout = Duration::from_millis(u16::arbitrary(from)?.into());
    spec.pace = Duration::from_millis(from.int_in_range(0..=20)?);
    spec.pipeline = from.int_in_range(1..=5)?;
    spec.max_value_bytes = from.int_in_range(2..=64)?;
    if spec.append_window == AppendWindow::FirstAccess {
        spec.append_rounds = from.int_in_range(1..=spec.warp_size)?;
    }
    Ok(spec)
}
