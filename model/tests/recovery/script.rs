//! Random inputs, hostile ones too, at, before and after the moments at which something is due.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::machine::{Input, Machine};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::types::{AccessNumber, Position, ProcessId, Seed, SessionId, Time, Value};

/// What comes next, as numbers that the [`Driver`] makes an input of.
#[derive(Clone, Debug)]
pub(crate) struct Come {
    when: When,
    process: u32,
    what: u8,
    argument: u8,
    other: u8,
}

#[derive(Clone, Debug)]
enum When {
    Later(u64),
    /// At the machine's deadline, or so much before or after it.
    Due(i64),
    /// Earlier than the last input.
    Past(u64),
}

pub(crate) fn comes() -> impl Strategy<Value = Vec<Come>> {
    let when = prop_oneof![
        12 => Just(When::Later(0)),
        4 => (1_u64..30).prop_map(When::Later),
        1 => (100_u64..400).prop_map(When::Later),
        4 => (-1_i64..=1).prop_map(When::Due),
        1 => (1_u64..50).prop_map(When::Past),
    ];
    let come = (when, 0_u32..8, 0_u8..60, 0_u8..6, any::<u8>());
    let come =
        come.prop_map(|(when, process, what, argument, other)| Come { when, process, what, argument, other });
    prop::collection::vec(come, 1..150)
}

pub(crate) fn params() -> impl Strategy<Value = Params> {
    let sizes = (1_u32..=7).prop_flat_map(|n| (Just(n), 1..=n, 1..=n));
    let patience = prop_oneof![
        1 => Just(Patience::Endless),
        1 => Just(Patience::Finite(Duration::ZERO)),
        4 => (1_u64..200).prop_map(|nanos| Patience::Finite(Duration::from_nanos(nanos)))
    ];
    let pace = prop_oneof![2 => Just(0_u64), 1 => 1_u64..40];
    let numbers = (0_usize..3, 0_u8..3, any::<bool>(), 1_u32..4, any::<u64>());
    (sizes, patience, pace, numbers).prop_map(
        |((n, p, r), patience, pace, (order, arbiter, open, pipeline, seed))| {
            let mut spec = ParamsSpec::new(n, p, r);
            spec.order = Order::ALL[order];
            spec.seed = Seed::new(seed);
            spec.patience = patience;
            spec.pace = Duration::from_nanos(pace);
            spec.join_timeout = Duration::from_nanos(300);
            spec.pipeline = pipeline;
            spec.append_window = if open { AppendWindow::Open } else { AppendWindow::FirstAccess };
            spec.append_rounds = if open { 1 } else { 1 + u32::try_from(seed % u64::from(p)).unwrap() };
            spec.arbiter = match arbiter {
                0 => Arbiter::FirstCome,
                1 => Arbiter::Uniform,
                _ => Arbiter::Priority(ProcessId::all(n).rev().take(2).collect()),
            };
            Params::try_new(spec).unwrap()
        },
    )
}

/// Makes inputs of numbers.
#[derive(Default)]
pub(crate) struct Driver {
    /// The accesses that were accepted.
    accepted: BTreeMap<ProcessId, Vec<(AccessNumber, Op)>>,
}

impl Driver {
    /// The moment and the inputs: one, or many like it.
    pub(crate) fn inputs(&self, machine: &Machine, come: &Come) -> (Time, Vec<Input>) {
        let last = machine.now().as_nanos();
        let at = match come.when {
            When::Later(nanos) => last + nanos,
            When::Past(nanos) => last.saturating_sub(nanos),
            When::Due(delta) => {
                machine.deadline().map_or(last, |due| due.as_nanos().saturating_add_signed(delta))
            }
        };
        // Endless patience has a last moment too, and nobody lives to see it.
        let at = Time::from_nanos(at.min(u64::MAX / 4));
        let many = if come.other == 7 { 20 } else { 1 };
        (at, vec![self.input(machine, come); many])
    }

    fn input(&self, machine: &Machine, come: &Come) -> Input {
        let process = ProcessId::new(come.process % machine.params().processes() + 1).unwrap();
        let value = Value::new(&[b'a' + come.argument]).unwrap();
        let read = Op::Read { start: Position::new(u32::from(come.argument)) };
        match come.what {
            0..12 => self.access(machine, process, come, Op::Append(value)),
            12..30 => self.access(machine, process, come, read),
            30..36 => self.again(process, come).unwrap_or(Input::Tick),
            36..42 => Input::Hello { process, incarnation: u64::from(come.argument) },
            42..46 => Input::Decide { process, value },
            46..48 => {
                // Those that the server can file before the machine: the others are the machine's own
                // findings.
                let kind = OffenceKind::ALL[usize::from(2 + come.other % 4)];
                let number = AccessNumber::new(u64::from(come.argument));
                Input::Offence(Offence { process, kind, number, phase: None, detail: "seen".into() })
            }
            48..52 => Input::Restart { rejoin: Duration::from_nanos(u64::from(come.other)) },
            52 if come.argument == 0 => Input::Close,
            _ => Input::Tick,
        }
    }

    /// A new access, mostly; else one with a number or a session that may not be.
    fn access(&self, machine: &Machine, process: ProcessId, come: &Come, op: Op) -> Input {
        let next = machine.member(process).next.get();
        let number = match come.other % 16 {
            0 => next + 2,
            1 => next.saturating_sub(1),
            2 => next.saturating_sub(4),
            _ => next,
        };
        let current = machine.session(process);
        let session = match come.other / 16 % 4 {
            0 | 1 => current,
            2 => current.map(|_| SessionId::FIRST),
            _ => None,
        };
        let number = AccessNumber::new(number.max(1)).unwrap();
        Input::Access(Access { process, session, number, op, no_wait: come.other / 64 == 3 })
    }

    /// An access that was accepted before, once more.
    fn again(&self, process: ProcessId, come: &Come) -> Option<Input> {
        let accepted = self.accepted.get(&process)?;
        let (number, op) = accepted.iter().rev().nth(usize::from(come.argument))?.clone();
        Some(Input::Access(Access { process, session: None, number, op, no_wait: false }))
    }

    /// Takes in what happened.
    pub(crate) fn note(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Accepted { process, number, op, .. } = event {
                self.accepted.entry(*process).or_default().push((*number, op.clone()));
            }
        }
    }
}
