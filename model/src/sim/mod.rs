//! A whole run in one thread: the same machine that the server runs, and the same processes that the clients
//! run, under a virtual clock. A seed repeats it event by event.
//!
//! What the network decides in real life is drawn here: of all that processes have ready to send, the next
//! message to arrive is drawn at random, as long as there is any. So within the rules of the machine every
//! order of acceptance can come up. Messages take no time and none is lost; only waiting does: when nothing is
//! left to arrive, the clock jumps to the machine's next deadline.
//!
//! What is left out: connections that break and clients that restart. [`crate::player`] covers them, and the
//! network shows them.

mod replay;

use std::collections::BTreeSet;
use std::sync::Arc;

pub use self::replay::{Difference, replay};
use crate::access::{Access, Answer, Refusal};
use crate::cast::Cast;
use crate::history::{Event, Offence, OffenceKind, Recorded};
use crate::machine::{Entry, Input, Machine, Reply};
use crate::params::{Params, Patience, ValueError};
use crate::player::{Player, Step};
use crate::process::{RawOp, Report, When};
use crate::random::SplitMix64;
use crate::types::{AccessNumber, ProcessId, SessionId, Time, Value};

/// The incarnation that simulated processes tell: each has one life.
const INCARNATION: u64 = 1;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// Who plays what. A process that it does not name never joins.
    pub cast: Cast,
    /// From which the order of arrival is drawn, and what strategies draw.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Everything that happened at the instance.
    pub history: Vec<Recorded>,
    /// What the processes that joined say, in order.
    pub reports: Vec<Report>,
    /// The list at the end.
    pub list: Vec<Entry>,
}

/// Runs until every correct process has come to its end, or nothing can happen any more.
///
/// A run that goes on for much longer than any should is given up; who has not decided by then reports so.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    Run::new(plan).finish()
}

/// Inputs that a run may take: many times what correct processes need (D2), even if with a pace each phase
/// takes a tick.
fn budget(params: &Params) -> u64 {
    16 * u64::from(params.processes()) * (u64::from(params.reads()) + 8)
}

/// A message on its way to the server.
enum Message {
    Hello,
    Access { number: AccessNumber, op: RawOp },
    Decide(Value),
}

struct Run {
    machine: Machine,
    now: Time,
    random: SplitMix64,
    /// By process; `None` for those that never join.
    players: Vec<Option<Player>>,
    sessions: Vec<Option<SessionId>>,
    /// Correct processes that have not come to their end.
    correct: BTreeSet<ProcessId>,
    /// What may arrive next. At most one message per process.
    ready: Vec<(ProcessId, Message)>,
    /// What is held back to the last moment. At most one message per process.
    held_back: Vec<(ProcessId, Message)>,
    events: Vec<Event>,
    history: Vec<Recorded>,
}

impl Run {
    fn new(plan: &Plan) -> Self {
        let player = |process| {
            let behaviour = plan.cast.part(process)?.behaviour(process, plan.seed);
            let player = Player::new(process, Arc::clone(&plan.params), behaviour);
            player.joins().then_some(player)
        };
        let players = ProcessId::all(plan.params.processes()).map(player).collect();
        Self::with_players(&plan.params, plan.seed, players, plan.cast.correct().collect())
    }

    /// `players` and `correct` may name fewer than all, but nobody who is not one of the n.
    fn with_players(
        params: &Arc<Params>,
        seed: u64,
        players: Vec<Option<Player>>,
        mut correct: BTreeSet<ProcessId>,
    ) -> Self {
        let joined = |process: &ProcessId| players.get(process.index()).is_some_and(Option::is_some);
        correct.retain(joined);
        let all = ProcessId::all(params.processes()).filter(joined);
        Self {
            machine: Machine::new(Arc::clone(params)),
            now: Time::ZERO,
            random: SplitMix64::new(seed),
            sessions: vec![None; players.len()],
            correct,
            ready: all.map(|process| (process, Message::Hello)).collect(),
            held_back: Vec::new(),
            events: Vec::new(),
            history: Vec::new(),
            players,
        }
    }

    fn finish(mut self) -> Outcome {
        let mut budget = budget(self.machine.params());
        while !self.correct.is_empty() && budget > 0 && self.go_on() {
            budget -= 1;
        }
        self.outcome()
    }

    /// Lets the next thing happen. False if nothing can.
    fn go_on(&mut self) -> bool {
        if !self.ready.is_empty() {
            let drawn = self.random.index(self.ready.len());
            let (process, message) = self.ready.swap_remove(drawn);
            self.deliver(process, message);
            return true;
        }
        match self.machine.deadline() {
            Some(deadline) if self.release_before(deadline) => {}
            Some(deadline) => {
                self.now = self.now.max(deadline);
                self.tick();
            }
            // There is no last moment to wait for.
            None if !self.held_back.is_empty() => self.ready.append(&mut self.held_back),
            None => return false,
        }
        true
    }

    /// Messages held back by processes whose patience would be spent at the deadline go off one nanosecond before
    /// it. False if there are none.
    fn release_before(&mut self, deadline: Time) -> bool {
        if self.held_back.is_empty() {
            return false;
        }
        let status = self.machine.status(self.now);
        let last_moment = |patience| match patience {
            Patience::Finite(left) => status.open && self.now.after(left) <= deadline,
            Patience::Endless => false,
        };
        let due: BTreeSet<ProcessId> = status
            .awaited
            .iter()
            .filter(|awaited| last_moment(awaited.patience))
            .map(|awaited| awaited.process)
            .collect();
        let released: Vec<_> = self.held_back.extract_if(.., |(process, _)| due.contains(process)).collect();
        if released.is_empty() {
            return false;
        }
        self.now = self.now.max(Time::from_nanos(deadline.as_nanos().saturating_sub(1)));
        self.ready.extend(released);
        true
    }

    fn tick(&mut self) {
        let ticked = self.apply(Input::Tick);
        debug_assert_eq!(ticked, Ok(Reply::Done), "a tick is never refused");
        self.hand_out();
    }

    /// A message arrives.
    fn deliver(&mut self, process: ProcessId, message: Message) {
        match message {
            Message::Hello => self.hello(process),
            Message::Access { number, op } => self.access(process, number, op),
            Message::Decide(value) => self.decide(process, value),
        }
        self.ask(process);
        self.hand_out();
    }

    fn hello(&mut self, process: ProcessId) {
        let reply = self.apply(Input::Hello { process, incarnation: INCARNATION });
        match reply {
            Ok(Reply::Welcome(welcome)) => {
                self.sessions[process.index()] = Some(welcome.session);
                self.player(process).welcome(&welcome);
            }
            Ok(_) => {}
            Err(refusal) => self.player(process).refused(&refusal),
        }
    }

    fn access(&mut self, process: ProcessId, number: AccessNumber, op: RawOp) {
        let op = match op.checked(self.machine.params()) {
            Ok(op) => op,
            Err(error) => {
                self.file(process, Some(number), error);
                return self.player(process).rejected(number, &error.to_string());
            }
        };
        let session = self.sessions[process.index()];
        let reply = self.apply(Input::Access(Access { process, session, number, op, no_wait: false }));
        match reply {
            Ok(Reply::Answered { phase, answer }) => {
                let entries = entries(&self.machine, answer);
                self.player(process).answered(number, phase, answer, entries);
            }
            // Its answer comes as an event.
            Ok(_) => {}
            Err(refusal) => self.player(process).refused(&refusal),
        }
    }

    fn decide(&mut self, process: ProcessId, value: Value) {
        if let Err(error) = self.machine.params().value(value.as_bytes()) {
            self.file(process, None, error);
            return self.player(process).fail(error.to_string());
        }
        match self.apply(Input::Decide { process, value }) {
            Ok(_) => self.player(process).decided(),
            Err(refusal) => self.player(process).refused(&refusal),
        }
    }

    /// The border files an offence for bytes that are no value (B2).
    fn file(&mut self, process: ProcessId, number: Option<AccessNumber>, error: ValueError) {
        let kind = match error {
            ValueError::Empty => OffenceKind::Malformed,
            ValueError::TooLarge { .. } => OffenceKind::Oversized,
        };
        let offence = Offence { process, kind, number, detail: error.to_string() };
        let filed = self.apply(Input::Offence(offence));
        debug_assert_eq!(filed, Ok(Reply::Done), "an offence is never refused");
    }

    /// One input; what follows from it is recorded, to be handed out.
    fn apply(&mut self, input: Input) -> Result<Reply, Refusal> {
        self.machine.apply(self.now, input, &mut self.events)
    }

    /// Records what happened, and hands the answers in it to whom they are for.
    fn hand_out(&mut self) {
        for event in std::mem::take(&mut self.events) {
            if let Event::Answered { process, number, phase, answer } = event {
                let entries = entries(&self.machine, answer);
                self.player(process).answered(number, Some(phase), answer, entries);
                self.ask(process);
            }
            self.history.push(Recorded { at: self.now, event });
        }
    }

    /// Asks a process what it does next.
    fn ask(&mut self, process: ProcessId) {
        match self.player(process).next_step() {
            Step::Access { number, op, when } => {
                let to = match when {
                    When::Ready => &mut self.ready,
                    When::LastMoment => &mut self.held_back,
                };
                to.push((process, Message::Access { number, op }));
            }
            Step::Decide(value) => self.ready.push((process, Message::Decide(value))),
            Step::Wait => {}
            Step::Stay | Step::Leave => {
                self.correct.remove(&process);
            }
        }
    }

    fn player(&mut self, process: ProcessId) -> &mut Player {
        self.players[process.index()].as_mut().expect("only who joined sends, and only who sent is answered")
    }

    fn outcome(self) -> Outcome {
        Outcome {
            history: self.history,
            reports: self.players.iter().flatten().map(Player::report).collect(),
            list: self.machine.list().iter().cloned().collect(),
        }
    }
}

/// The entries that an answer returns: none, unless it is to a read (R1).
fn entries(machine: &Machine, answer: Answer) -> Vec<Value> {
    match answer {
        Answer::Append(_) => Vec::new(),
        Answer::Read(read) => {
            let returned = machine.list().range(read.start, read.count);
            returned.map(|entry| entry.value.clone()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::params::ParamsSpec;
    use crate::process::{Act, Behaviour, Correct, Ended, View};

    /// Does what a correct process does, as late as its patience allows.
    struct Stall(Correct);

    impl Behaviour for Stall {
        fn act(&mut self, view: &View) -> Act {
            match self.0.act(view) {
                Act::Access { op, .. } => Act::Access { op, when: When::LastMoment },
                other => other,
            }
        }
    }

    /// Appends these bytes again and again, whatever it is told.
    struct Malformed(Vec<u8>);

    impl Behaviour for Malformed {
        fn act(&mut self, _: &View) -> Act {
            Act::Access { op: RawOp::Append(self.0.clone().into()), when: When::Ready }
        }
    }

    fn correct() -> Correct {
        Correct::new(Value::parse("v").unwrap())
    }

    /// Process 1 behaves like this among four correct ones, in warps of two.
    fn run_with(first: Box<dyn Behaviour>) -> Outcome {
        let params = Arc::new(Params::try_new(ParamsSpec::new(5, 2, 1)).unwrap());
        let others = (0..4).map(|_| -> Box<dyn Behaviour> { Box::new(correct()) });
        let behaviours = std::iter::once(first).chain(others);
        let player = |(process, behaviour)| Some(Player::new(process, Arc::clone(&params), behaviour));
        let players = ProcessId::all(5).zip(behaviours).map(player).collect();
        Run::with_players(&params, 1, players, ProcessId::all(5).skip(1).collect()).finish()
    }

    fn four_have_decided(outcome: &Outcome) -> bool {
        outcome.reports[1..].iter().all(|report| report.ended == Ended::Decided)
    }

    #[test]
    fn one_who_stalls_costs_its_patience_once_and_is_never_given_up() {
        let outcome = run_with(Box::new(Stall(correct())));
        assert!(four_have_decided(&outcome));
        let spent = |recorded: &Recorded| matches!(recorded.event, Event::PatienceSpent { .. });
        assert!(!outcome.history.iter().any(spent));
        let last = outcome.history.last().unwrap().at;
        assert_eq!(last.since(Time::ZERO), Duration::from_secs(1) - Duration::from_nanos(1));
    }

    #[test]
    fn malformed_appends_are_filed_and_reach_no_phase() {
        for (bytes, kind) in [(vec![], OffenceKind::Malformed), (vec![0; 1025], OffenceKind::Oversized)] {
            let outcome = run_with(Box::new(Malformed(bytes)));
            assert!(four_have_decided(&outcome));
            let filed = outcome.history.iter().filter(|recorded| match &recorded.event {
                Event::Offence(offence) => offence.kind == kind && offence.process == ProcessId::FIRST,
                _ => false,
            });
            assert_eq!(filed.count() as u64, crate::player::REFUSALS_IN_A_ROW);
            assert!(matches!(&outcome.reports[0].ended, Ended::Failed(why) if why.contains("the value")));
            assert!(outcome.list.iter().all(|entry| entry.process != ProcessId::FIRST));
            assert!(
                replay(&Arc::new(Params::try_new(ParamsSpec::new(5, 2, 1)).unwrap()), &outcome.history)
                    .is_ok()
            );
        }
    }
}
