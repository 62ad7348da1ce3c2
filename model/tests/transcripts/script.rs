//! Plays the commands of one script against one machine, with a clock that only `wait` and `pass` move.

use std::sync::Arc;

use stickycas_model::access::{Access, Op};
use stickycas_model::history::{Event, Offence};
use stickycas_model::machine::{Input, Machine};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Position, ProcessId, SessionId, Time, Value};

use super::command::{Words, duration, instance, number, offence_kind};
use super::words;

/// One script under way.
#[derive(Default)]
pub(crate) struct Script {
    machine: Option<Machine>,
    now: Time,
}

impl Script {
    /// Runs one command and tells in lines what came of it.
    pub(crate) fn run(&mut self, command: &str) -> Result<String, String> {
        let mut words = Words::new(command);
        let verb = words.next()?;
        if verb == "instance" {
            let params = Params::try_new(instance(words)?).map_err(|error| error.to_string())?;
            *self = Self { machine: Some(Machine::new(Arc::new(params))), now: Time::ZERO };
            return Ok(String::new());
        }
        let machine = self.machine.as_mut().ok_or("there is no instance yet")?;
        match verb {
            "wait" => {
                let until = self.now.after(duration(words.next()?)?);
                words.end()?;
                Ok(wait(machine, &mut self.now, until))
            }
            "pass" => {
                self.now = self.now.after(duration(words.next()?)?);
                words.end()?;
                Ok(String::new())
            }
            "status" => {
                words.end()?;
                Ok(words::status(&machine.status(self.now), machine.deadline()) + "\n")
            }
            "member" => {
                let process = process(machine, &mut words)?;
                words.end()?;
                Ok(words::member(&machine.member(process)) + "\n")
            }
            "hello" if words.take("all") => {
                words.end()?;
                Ok(hello_all(machine, self.now))
            }
            _ => {
                let input = input(machine, verb, &mut words)?;
                words.end()?;
                Ok(apply(machine, self.now, input))
            }
        }
    }
}

/// The input that a command stands for.
fn input(machine: &Machine, verb: &str, words: &mut Words<'_>) -> Result<Input, String> {
    match verb {
        "tick" => return Ok(Input::Tick),
        "close" => return Ok(Input::Close),
        "restart" => return Ok(Input::Restart { rejoin: duration(words.next()?)? }),
        _ => {}
    }
    let process = process(machine, words)?;
    match verb {
        "hello" => {
            let incarnation = words.take_named("incarnation").map_or(Ok(0), number)?;
            Ok(Input::Hello { process, incarnation })
        }
        "append" => {
            let op = Op::Append(value(words)?);
            access(machine, process, op, words)
        }
        "read" => {
            let op = Op::Read { start: Position::new(number(words.next()?)?) };
            access(machine, process, op, words)
        }
        "decide" => Ok(Input::Decide { process, value: value(words)? }),
        "offence" => {
            let kind = offence_kind(words.next()?)?;
            let number = words.take_named("#").map(number).transpose()?.and_then(AccessNumber::new);
            let detail = "seen at the border".into();
            Ok(Input::Offence(Offence { process, kind, number, phase: None, detail }))
        }
        _ => Err("there is no such command".to_owned()),
    }
}

/// An access; without a number of its own it bears the next one, without a session it is a unary call.
fn access(machine: &Machine, process: ProcessId, op: Op, words: &mut Words<'_>) -> Result<Input, String> {
    let number = match words.take_named("#") {
        None => machine.member(process).next,
        Some(word) => AccessNumber::new(number(word)?).ok_or("access numbers count from 1")?,
    };
    let session = match words.take_named("session") {
        None => None,
        Some(word) => Some(SessionId::new(super::command::number(word)?).ok_or("sessions count from 1")?),
    };
    let no_wait = words.take("no_wait");
    Ok(Input::Access(Access { process, session, number, op, no_wait }))
}

fn process(machine: &Machine, words: &mut Words<'_>) -> Result<ProcessId, String> {
    let process = words.process()?;
    if machine.params().contains(process) { Ok(process) } else { Err("there is no such process".to_owned()) }
}

fn value(words: &mut Words<'_>) -> Result<Value, String> {
    Value::parse(words.next()?).ok_or_else(|| "that is no value".to_owned())
}

/// Everybody says hello for the first time; only what follows from that is told.
fn hello_all(machine: &mut Machine, now: Time) -> String {
    let mut events = Vec::new();
    for process in ProcessId::all(machine.params().processes()) {
        machine.hello(now, process, 0, &mut events).unwrap();
    }
    events.retain(|event| !matches!(event, Event::Joined { .. } | Event::Session { .. }));
    format!("welcome\n{}", lines(now, &events))
}

/// What the sender is answered at once, then the events, each with its time.
fn apply(machine: &mut Machine, now: Time, input: Input) -> String {
    let mut events = Vec::new();
    let answered = match input {
        Input::Hello { process, incarnation } => {
            machine.hello(now, process, incarnation, &mut events).map(|welcome| words::welcome(&welcome))
        }
        Input::Access(access) => {
            machine.access(now, access, &mut events).map(|admission| words::admission(&admission))
        }
        input => machine.apply(now, input, &mut events).map(|()| "done".to_owned()),
    };
    let answered = answered.unwrap_or_else(|refusal| {
        for event in &events {
            if let Event::Refused { why, .. } = event {
                assert_eq!(*why, refusal.to_string());
            }
        }
        format!("refused: {refusal}")
    });
    answered + "\n" + &lines(now, &events)
}

/// Lets the clock run up to `until`; ticks at every deadline before it. What is due exactly then is left to
/// the next command: `tick`, or an access that is just in time.
fn wait(machine: &mut Machine, now: &mut Time, until: Time) -> String {
    let mut outcome = String::new();
    while let Some(due) = machine.deadline().filter(|due| *due < until) {
        *now = due.max(*now);
        let mut events = Vec::new();
        machine.tick(*now, &mut events);
        assert_ne!(machine.deadline(), Some(due), "a tick in time leaves nothing due");
        outcome += &lines(*now, &events);
    }
    *now = until;
    outcome
}

fn lines(now: Time, events: &[Event]) -> String {
    let line = |event: &Event| format!("  {} {}\n", words::moment(now), words::event(event));
    events.iter().map(line).collect()
}
