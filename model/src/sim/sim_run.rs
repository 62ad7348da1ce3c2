//! One run at play: machine, processes, and what is on its way between them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::plan::SimPlan;
use crate::access::{Access, Answer};
use crate::cast::Latecomers;
use crate::history::{Event, Offence, OffenceKind};
use crate::machine::{Admission, Entry, Machine};
use crate::params::{Params, Patience, ValueError};
use crate::player::{Player, StepKind};
use crate::process::{Behaviour, Report, SendTime};
use crate::random::SplitMix64;
use crate::sticky_cas::StickyCas;
use crate::types::{AccessNumber, Position, ProcessId, SessionId, Time, Value};

/// The incarnation that simulated processes tell: each has one life.
const INCARNATION: u64 = 1;

/// Inputs that a run may take: many times what correct processes need (D2), even if with a pace each phase
/// takes a tick.
fn budget(params: &Params) -> u64 {
    16 * u64::from(params.processes()) * (u64::from(params.reads()) + 8)
}

/// A message on its way to the server. What it says stands in its player until it arrives: copied from hand to hand, each
/// copy would wait for the last one to reach memory.
#[derive(Clone, Copy)]
enum Message {
    Hello,
    Access(AccessNumber),
    Decide,
}

/// See the module. Its memory is used by one run after another.
pub(super) struct SimRun {
    machine: Machine,
    now: Time,
    random: SplitMix64,
    /// By process; `None` for those that never join.
    seats: Vec<Option<Seat>>,
    /// How many have not come to their end of those that do so by themselves.
    playing: usize,
    /// Who is seated and has not come yet.
    late: Latecomers,
    /// What may arrive next. At most one message per process.
    ready: Vec<(ProcessId, Message)>,
    /// What is held back to the last moment. At most one message per process.
    held_back: Vec<(ProcessId, Message)>,
    events: Vec<Event>,
}

/// A process that joins.
struct Seat {
    player: Player,
    session: Option<SessionId>,
    /// Whether the run goes on for it: it comes to an end by itself and has not yet.
    plays: bool,
}

impl SimRun {
    /// Memory for runs such as this one.
    pub(super) fn new(plan: &SimPlan) -> Self {
        Self {
            machine: Machine::new(Arc::clone(&plan.params)),
            now: Time::ZERO,
            random: SplitMix64::new(plan.seed),
            seats: Vec::new(),
            playing: 0,
            late: Latecomers::default(),
            ready: Vec::new(),
            held_back: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Everything as it is before this run.
    pub(super) fn set(&mut self, plan: &SimPlan) {
        self.clear(&plan.params, plan.seed);
        self.late = plan.cast.latecomers(&plan.params);
        for process in ProcessId::all(plan.params.processes()) {
            let part = plan.cast.part(process).filter(|part| part.joins());
            // A wire attack has no behaviour: it needs the network.
            match part.and_then(|part| Some((part.behaviour(process, plan.seed)?, part.ends()))) {
                Some((behaviour, ends)) => self.seat(process, &plan.params, behaviour, ends),
                None => self.leave_empty(process),
            }
        }
    }

    fn clear(&mut self, params: &Arc<Params>, seed: u64) {
        self.machine.reset(Arc::clone(params));
        self.now = Time::ZERO;
        self.random = SplitMix64::new(seed);
        self.seats.truncate(params.processes() as usize);
        self.playing = 0;
        self.late = Latecomers::default();
        self.ready.clear();
        self.held_back.clear();
        self.events.clear();
    }

    /// Gives the next process its part. One that is seated says hello, unless it comes late.
    fn seat(&mut self, process: ProcessId, params: &Arc<Params>, behaviour: Box<dyn Behaviour>, ends: bool) {
        let params = Arc::clone(params);
        match self.seats.get_mut(process.index()) {
            Some(Some(seat)) => {
                seat.player.begin_again(process, params, behaviour);
                (seat.session, seat.plays) = (None, ends);
            }
            _ => {
                self.leave_empty(process);
                let player = Player::new(process, params, behaviour);
                self.seats[process.index()] = Some(Seat { player, session: None, plays: ends });
            }
        }
        self.playing += usize::from(ends);
        if !self.late.contains(process) {
            self.ready.push((process, Message::Hello));
        }
    }

    fn leave_empty(&mut self, process: ProcessId) {
        match self.seats.get_mut(process.index()) {
            Some(seat) => *seat = None,
            None => self.seats.push(None),
        }
    }

    /// Plays to the end, telling `tell` everything that happens at the instance, as it happens.
    pub(super) fn play(&mut self, mut tell: impl FnMut(Time, &mut Vec<Event>)) {
        let mut budget = budget(self.machine.params());
        while self.playing > 0 && budget > 0 && self.go_on() {
            self.hand_out(&mut tell);
            budget -= 1;
        }
    }

    /// What the processes that joined say, in order; in place of what stands in `reports`.
    pub(super) fn report(&self, reports: &mut Vec<Report>) {
        let mut players = self.seats.iter().flatten().map(|seat| &seat.player);
        reports.truncate(players.clone().count());
        for (report, player) in reports.iter_mut().zip(&mut players) {
            *report = player.report_within(std::mem::take(&mut report.from));
        }
        reports.extend(players.map(Player::report));
    }

    /// The list.
    pub(super) fn list(&self) -> &StickyCas<Entry> {
        self.machine.list()
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
                self.machine.tick(self.now, &mut self.events);
            }
            // Nobody's patience drains, so there is no last moment to wait for; that of an endless one never comes.
            None if !self.held_back.is_empty()
                && self.machine.params().spec().patience != Patience::Endless =>
            {
                self.ready.append(&mut self.held_back);
            }
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

    /// A message arrives.
    fn deliver(&mut self, process: ProcessId, message: Message) {
        match message {
            Message::Hello => self.hello(process),
            Message::Access(number) => self.access(process, number),
            Message::Decide => self.decide(process),
        }
        self.ask(process);
    }

    fn hello(&mut self, process: ProcessId) {
        match self.machine.hello(self.now, process, INCARNATION, &mut self.events) {
            Ok(welcome) => {
                let seat = self.seat_of(process);
                seat.session = Some(welcome.session);
                seat.player.welcome(&welcome);
            }
            Err(refusal) => self.seat_of(process).player.refused(&refusal),
        }
    }

    fn access(&mut self, process: ProcessId, number: AccessNumber) {
        let seat = seated(&mut self.seats, process);
        // It is answered after it has arrived, and until then it stands.
        let Some(sent) = seat.player.sent(number) else { return };
        let op = match sent.checked(self.machine.params()) {
            Ok(op) => op,
            Err(error) => {
                self.file(process, Some(number), error);
                return self.seat_of(process).player.rejected(number, &error.to_string());
            }
        };
        let access = Access { process, session: seat.session, number, op, no_wait: false };
        let (phase, answer) = match self.machine.access(self.now, access, &mut self.events) {
            // Its answer comes as an event.
            Ok(Admission::Accepted | Admission::AlreadyWaiting) => return,
            Ok(Admission::AnsweredBefore { phase, answer }) => (Some(phase), answer),
            Ok(Admission::ReadOutsidePhases(read)) => (None, Answer::Read(read)),
            Err(refusal) => return self.seat_of(process).player.refused(&refusal),
        };
        let entries = entries(&self.machine, answer);
        seated(&mut self.seats, process).player.answered(number, phase, answer, entries);
    }

    fn decide(&mut self, process: ProcessId) {
        let Some(value) = self.seat_of(process).player.decision().cloned() else { return };
        if let Err(error) = self.machine.params().value(value.as_bytes()) {
            self.file(process, None, error);
            return self.seat_of(process).player.fail(error.to_string());
        }
        match self.machine.decide(self.now, process, value, &mut self.events) {
            Ok(()) => self.seat_of(process).player.decided(),
            Err(refusal) => self.seat_of(process).player.refused(&refusal),
        }
    }

    /// The border files an offence for bytes that are no value (B2).
    fn file(&mut self, process: ProcessId, number: Option<AccessNumber>, error: ValueError) {
        let kind = match error {
            ValueError::Empty => OffenceKind::Malformed,
            ValueError::TooLarge { .. } => OffenceKind::Oversized,
        };
        let offence = Offence { process, kind, number, phase: None, detail: error.to_string() };
        self.machine.file_offence(self.now, offence, &mut self.events);
    }

    /// Tells what happened, and hands the answers in it to whom they are for.
    fn hand_out(&mut self, tell: &mut impl FnMut(Time, &mut Vec<Event>)) {
        let mut events = std::mem::take(&mut self.events);
        for event in &events {
            if let Event::Answered { process, number, phase, answer } = *event {
                let entries = entries(&self.machine, answer);
                seated(&mut self.seats, process).player.answered(number, Some(phase), answer, entries);
                self.ask(process);
            }
            if let (false, Some(phase)) = (self.late.is_empty(), event.reached()) {
                self.ready.extend(self.late.come(phase).into_iter().map(|late| (late, Message::Hello)));
            }
        }
        tell(self.now, &mut events);
        events.clear();
        self.events = events;
    }

    /// Asks a process what it does next.
    fn ask(&mut self, process: ProcessId) {
        let seat = self.seat_of(process);
        match seat.player.next_step_kind() {
            StepKind::Access { number, when } => {
                let to = match when {
                    SendTime::Ready => &mut self.ready,
                    SendTime::LastMoment => &mut self.held_back,
                };
                to.push((process, Message::Access(number)));
            }
            StepKind::Decide => self.ready.push((process, Message::Decide)),
            StepKind::Wait => {}
            StepKind::Stay | StepKind::Leave => {
                let played = std::mem::take(&mut seat.plays);
                self.playing -= usize::from(played);
            }
        }
    }

    fn seat_of(&mut self, process: ProcessId) -> &mut Seat {
        seated(&mut self.seats, process)
    }
}

fn seated(seats: &mut [Option<Seat>], process: ProcessId) -> &mut Seat {
    seats[process.index()].as_mut().expect("only who joined sends, and only who sent is answered")
}

/// The entries that an answer returns: none, unless it is to a read (R1).
fn entries(machine: &Machine, answer: Answer) -> impl Iterator<Item = Value> {
    let (start, count) = match answer {
        Answer::Append(_) => (Position::new(0), 0),
        Answer::Read(read) => (read.start, read.count),
    };
    machine.list().range(start, count).map(|entry| entry.value.clone())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cast::Cast;
    use crate::history::Recorded;
    use crate::params::ParamsSpec;
    use crate::process::{Act, Correct, ProcessEnd, RawOp, View};
    use crate::sim::{SimOutcome, replay};

    /// Does what a correct process does, as late as its patience allows.
    struct Stall(Correct);

    impl Behaviour for Stall {
        fn act(&mut self, view: &View) -> Act {
            match self.0.act(view) {
                Act::Access { op, .. } => Act::Access { op, when: SendTime::LastMoment },
                other => other,
            }
        }
    }

    /// Appends these bytes again and again, whatever it is told.
    struct Malformed(Vec<u8>);

    impl Behaviour for Malformed {
        fn act(&mut self, _: &View) -> Act {
            Act::Access { op: RawOp::Append(self.0.clone().into()), when: SendTime::Ready }
        }
    }

    fn correct() -> Correct {
        Correct::new(Value::parse("v").unwrap())
    }

    /// Process 1 behaves like this among four correct ones, in warps of two.
    fn run_with(first: Box<dyn Behaviour>) -> SimOutcome {
        let params = Arc::new(Params::try_new(ParamsSpec::new(5, 2, 1)).unwrap());
        let mut run =
            SimRun::new(&SimPlan { params: Arc::clone(&params), cast: Cast::new(Vec::new()), seed: 1 });
        run.clear(&params, 1);
        let others = (0..4).map(|_| -> Box<dyn Behaviour> { Box::new(correct()) });
        for (process, behaviour) in ProcessId::all(5).zip(std::iter::once(first).chain(others)) {
            run.seat(process, &params, behaviour, process != ProcessId::FIRST);
        }
        let (mut history, mut reports) = (Vec::new(), Vec::new());
        run.play(|at, events| history.extend(events.drain(..).map(|event| Recorded { at, event })));
        run.report(&mut reports);
        SimOutcome { history, reports, list: run.list().iter().cloned().collect() }
    }

    fn four_have_decided(outcome: &SimOutcome) -> bool {
        outcome.reports[1..].iter().all(|report| report.ended == ProcessEnd::Decided)
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
            assert!(
                matches!(&outcome.reports[0].ended, ProcessEnd::Failed(why) if why.contains("the value"))
            );
            assert!(outcome.list.iter().all(|entry| entry.process != ProcessId::FIRST));
            assert!(
                replay(&Arc::new(Params::try_new(ParamsSpec::new(5, 2, 1)).unwrap()), &outcome.history)
                    .is_ok()
            );
        }
    }
}
