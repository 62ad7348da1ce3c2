//! What holds of every run, whatever processes do: random instances, random inputs (nonsense included),
//! random times, and an observer with an account of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod observer;
mod script;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stickycas_model::access::{Access, Refusal};
use stickycas_model::compact_codec::{Decoder, Encoder};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::invariants::check;
use stickycas_model::machine::{Admission, Checkpoint, Input, Machine, State};
use stickycas_model::process::mode;
use stickycas_model::types::{AccessNumber, ProcessId, SessionId, Time, Value};

use observer::{Counts, Observer};
use script::{Deed, Move, Script, script, value};

/// The rules that the observer checks: prefix reads of a list that is never rewritten (R1, R2, A3), one entry
/// per phase and the arbiter's (A4, A5), phases in the order of the schedule and none withheld (W1, F4), the
/// oldest access of each member in every phase (F1, F7), idle instances without a timer (F4), and patience as
/// a bound on what each process costs the others (F3). The judge's own invariants are held against every
/// history, too.
#[test]
fn a_machine_keeps_its_rules_whatever_processes_do() {
    let counts = Cell::new(Counts::default());
    let mut runner = TestRunner::new(Config { cases: 1_000, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&script(), |script| {
        let seen = Run::new(&script).play(&script);
        let sum = counts.get();
        counts.set(Counts {
            steps: sum.steps + seen.steps,
            contests: sum.contests + seen.contests,
            jumps: sum.jumps + seen.jumps,
            spent: sum.spent + seen.spent,
            withdrawn: sum.withdrawn + seen.withdrawn,
            sealed: sum.sealed + seen.sealed,
            held: sum.held + seen.held,
            replays: sum.replays + seen.replays,
            packed: sum.packed + seen.packed,
        });
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let Counts { steps, contests, jumps, spent, withdrawn, sealed, held, replays, packed } = counts.get();
    let least = [steps, contests, jumps, spent, withdrawn, sealed, held, replays, packed].into_iter().min();
    assert!(least > Some(20), "the scripts hardly try anything: {:?}", counts.get());
}

proptest! {
    /// D1 and footnote 1 of the paper.
    #[test]
    fn the_mode_is_the_smallest_of_the_most_frequent(values in vec(value(), 0..12)) {
        let count = |value: &Value| values.iter().filter(|other| *other == value).count();
        let most = values.iter().map(count).max();
        let smallest = values.iter().filter(|value| Some(count(value)) == most).min();
        prop_assert_eq!(mode(&values), smallest);
    }
}

/// A script being played.
struct Run {
    machine: Machine,
    observer: Observer,
    now: Time,
    /// The latest time that the machine was told.
    told: Time,
    /// Patience is measured only where a tick comes at every deadline.
    punctual: bool,
    events: Vec<Event>,
    history: Vec<Recorded>,
    /// How often it went on as what was written down.
    packed: u32,
}

impl Run {
    fn new(script: &Script) -> Self {
        Self {
            machine: Machine::new(Arc::new(script.params.clone())),
            observer: Observer::new(script.params.clone()),
            now: Time::ZERO,
            told: Time::ZERO,
            punctual: script.punctual,
            events: Vec::new(),
            history: Vec::new(),
            packed: 0,
        }
    }

    fn play(mut self, script: &Script) -> Counts {
        for next in &script.moves {
            let until = self.now.after(next.pause);
            if self.punctual {
                self.tick_until(until, next.tick_first);
            }
            self.pass(until);
            self.perform(next);
        }
        // Once nobody does anything more, a bounded number of ticks brings everything to rest.
        self.tick_until(Time::from_nanos(u64::MAX), true);
        assert_eq!(self.machine.deadline(), None);
        check(self.machine.params(), &self.history, true).unwrap_or_else(|broken| panic!("{broken}"));
        Counts { packed: self.packed, ..self.observer.counts }
    }

    /// Ticks at each deadline before `until`, or with `inclusive` also then.
    fn tick_until(&mut self, until: Time, inclusive: bool) {
        let mut ticks = 0;
        while let Some(due) =
            self.machine.deadline().filter(|due| *due < until || (inclusive && *due == until))
        {
            let due = due.max(self.now);
            self.pass(due);
            self.apply(due, Input::Tick).unwrap();
            assert!(self.machine.deadline().is_none_or(|next| next > due), "a tick leaves nothing due");
            ticks += 1;
            assert!(ticks < 1_000, "the machine goes on and on");
        }
    }

    fn pass(&mut self, until: Time) {
        if self.punctual {
            self.observer.pass(self.now, until, &self.machine);
        }
        self.now = until;
    }

    fn perform(&mut self, Move { process, deed, .. }: &Move) {
        let process = *process;
        let next = self.machine.member(process).next;
        let current = self.machine.member(process).session;
        let (now, input) = match deed.clone() {
            Deed::Hello => (self.now, Input::Hello { process, incarnation: 0 }),
            Deed::Access { op, on_session, no_wait } => {
                let session = current.filter(|_| on_session);
                (self.now, Input::Access(Access { process, session, number: next, op, no_wait }))
            }
            Deed::Again { back } => return self.ask_again(process, back),
            Deed::Nonsense { op, number, session } => {
                let number = AccessNumber::new(number).unwrap();
                // Nobody can know a session that was not opened.
                let session = session.and_then(SessionId::new).filter(|given| Some(*given) <= current);
                (self.now, Input::Access(Access { process, session, number, op, no_wait: false }))
            }
            Deed::Decide(value) => (self.now, Input::Decide { process, value }),
            Deed::Offence => {
                let (kind, detail) = (OffenceKind::Oversized, String::new());
                (self.now, Input::Offence(Offence { process, kind, number: None, phase: None, detail }))
            }
            Deed::Tick => (self.now, Input::Tick),
            Deed::AccessFromThePast { op, ago } => {
                // Where patience is measured the clock does not go back.
                let ago = if self.punctual { Duration::ZERO } else { ago };
                let past = Time::ZERO.after(self.now.since(Time::ZERO.after(ago)));
                (past, Input::Access(Access { process, session: None, number: next, op, no_wait: false }))
            }
            Deed::Close => (self.now, Input::Close),
        };
        let no_wait = matches!(&input, Input::Access(Access { no_wait: true, .. }));
        let reply = self.apply(now, input);
        if no_wait && reply == Ok(Some(Admission::Accepted)) {
            self.granted(process);
        }
    }

    /// An access under `no_wait` was executed at once, or its phase is open and waits for others (F7).
    fn granted(&self, process: ProcessId) {
        let status = self.machine.status(self.now);
        let waits = !self.observer.waiting[process.index()].is_empty();
        let own_phase_open = status.open && status.warp == Some(self.machine.params().warp_of(process));
        assert!(!waits || own_phase_open);
    }

    /// Sends an access once more that was accepted before: it waits still, or gets its first answer, or is
    /// too old or was withdrawn (F8b, F8d).
    fn ask_again(&mut self, process: ProcessId, back: u64) {
        let waiting = self.observer.waiting[process.index()].iter().map(|waiting| (waiting.clone(), None));
        let answered = self.observer.answered[process.index()].iter();
        let answered = answered.map(|(waiting, phase, answer)| (waiting.clone(), Some((*phase, *answer))));
        let all: Vec<_> = answered.chain(waiting).collect();
        let Some((first, outcome)) = all.into_iter().rev().nth(back as usize) else { return };
        let (number, op) = (first.number, first.op);
        let reply = self
            .apply(self.now, Input::Access(Access { process, session: None, number, op, no_wait: false }));
        // Time may have passed with the repetition, and phases with it.
        let newer = self.observer.answered[process.index()].iter();
        let newer = newer.filter(|(other, ..)| other.number > number).count();
        let kept = newer < self.machine.params().spec().pipeline as usize;
        match (reply, outcome) {
            (Ok(Some(Admission::AlreadyWaiting)), None) => {}
            (Ok(Some(Admission::AnsweredBefore { .. })), None) => {
                assert!(
                    self.observer.answered[process.index()].iter().any(|(other, ..)| other.number == number)
                );
            }
            (Ok(Some(Admission::AnsweredBefore { phase, answer })), Some(known)) => {
                assert_eq!((phase, answer), known, "the first answer is given again");
                self.observer.counts.replays += 1;
            }
            (
                Ok(Some(Admission::ReadOutsidePhases(_)))
                | Err(Refusal::OutOfOrder { .. } | Refusal::Left | Refusal::Closed),
                Some(_),
            ) => assert!(!kept),
            (reply, outcome) => panic!("{reply:?} to a repetition of {outcome:?}"),
        }
    }

    /// Goes on with what is left of a machine that was written down when its instance ended.
    fn pack(&mut self) {
        let mut writer = Encoder::default();
        self.machine.write_snapshot(&mut writer);
        let mut reader = Decoder::new(writer.bytes());
        let unpacked = Machine::from_snapshot(self.machine.params().clone(), &mut reader).unwrap();
        assert!(reader.rest().is_empty());
        assert_eq!(unpacked.status(self.told), self.machine.status(self.told));
        assert_eq!(unpacked.list(), self.machine.list());
        let timeless = |machine: &Machine| Checkpoint { time: Time::ZERO, ..machine.checkpoint() };
        assert_eq!(
            timeless(&unpacked),
            timeless(&self.machine),
            "an archived instance has the same checkpoint"
        );
        for process in ProcessId::all(self.machine.params().processes()) {
            assert_eq!(unpacked.member(process), self.machine.member(process));
        }
        self.machine = unpacked;
        self.packed += 1;
    }

    /// How an access is admitted; `None` for every other input.
    fn apply(&mut self, now: Time, input: Input) -> Result<Option<Admission>, Refusal> {
        self.events.clear();
        let reply = match input {
            Input::Access(access) => self.machine.access(now, access, &mut self.events).map(Some),
            input => self.machine.apply(now, input, &mut self.events).map(|()| None),
        };
        // When a clock goes back no time has passed.
        self.told = self.told.max(now);
        let at = self.told;
        self.observer.observe(at, &self.events);
        self.history.extend(self.events.iter().map(|event| Recorded { at, event: event.clone() }));
        if now == self.now {
            self.observer.compare(now, &self.machine);
        }
        let over = matches!(self.machine.state(), State::Finished | State::Closed);
        if over {
            self.pack();
        }
        assert!(!over || self.machine.deadline().is_none(), "what is over needs no timer");
        reply
    }
}
