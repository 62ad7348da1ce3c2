//! One simulated run: the machine, the processes, and the messages on their way to the machine.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::access::{Access, Answer, ReadAnswer};
use crate::ground_truth::{GroundTruth, Latecomers};
use crate::history::{Event, Offence, OffenceKind};
use crate::machine::{Admission, Entry, Machine};
use crate::params::{Params, Patience, ValueError};
use crate::player::{Player, Step};
use crate::process::{Behaviour, Report, SendTime};
use crate::random::SplitMix64;
use crate::sticky_cas::StickyCas;
use crate::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value};

/// A restart of the server in a run. All connections break and what was on its way is lost; processes that
/// have not ended come back with a new hello, in an order that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimRestart {
    /// It happens once this phase is reached.
    pub reached: Phase,
    /// How long patience waits for processes to reconnect (F3).
    pub rejoin: Duration,
}

/// A run.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// The role of each process. A process that the ground truth does not name never joins.
    pub truth: GroundTruth,
    /// The seed from which the order of arrival is drawn, and all draws of strategies.
    pub seed: u64,
}

/// The incarnation in the hello of a simulated process: each has one life.
const INCARNATION: u64 = 1;

/// Inputs that a run may take: many times what correct processes need (D2), even if with a pace each phase
/// takes a tick.
fn budget(params: &Params) -> u64 {
    16 * u64::from(params.processes()) * (u64::from(params.append_rounds()) + u64::from(params.reads()) + 7)
}

/// A message on its way to the machine. Its content stays in the player until it arrives: a copy of a content
/// waits for the copy before it to reach memory.
#[derive(Clone, Copy)]
enum Message {
    Hello,
    Access(AccessNumber),
    Decide,
}

/// One run. Its memory is used by one run after another.
pub(super) struct SimRun {
    machine: Machine,
    now: Time,
    random: SplitMix64,
    /// By process; `None` for those that never join.
    processes: Vec<Option<SimProcess>>,
    /// How many processes are `active`.
    active: usize,
    /// The processes that have not arrived yet because they come late.
    late: Latecomers,
    /// The restarts of the server that are to come, the last one first.
    restarts: Vec<SimRestart>,
    /// The messages that may arrive next. At most one per process.
    ready: Vec<(ProcessId, Message)>,
    /// The messages that are sent at the last moment. At most one per process.
    delayed: Vec<(ProcessId, Message)>,
    events: Vec<Event>,
    /// The values of the list as far as they have been read. The processes share it.
    read: Arc<Vec<Value>>,
}

/// A process that joins.
struct SimProcess {
    player: Player,
    session: Option<SessionId>,
    /// Whether the run goes on for it: it comes to its end by itself and has not yet.
    active: bool,
}

impl SimRun {
    /// Memory for runs of this plan's size.
    pub(super) fn new(plan: &SimPlan) -> Self {
        Self {
            machine: Machine::new(Arc::clone(&plan.params)),
            now: Time::ZERO,
            random: SplitMix64::new(plan.seed),
            processes: Vec::new(),
            active: 0,
            late: Latecomers::default(),
            restarts: Vec::new(),
            ready: Vec::new(),
            delayed: Vec::new(),
            events: Vec::new(),
            read: Arc::default(),
        }
    }

    /// Prepares the run of this plan.
    pub(super) fn prepare(&mut self, plan: &SimPlan) {
        self.clear(&plan.params, plan.seed);
        self.late = plan.truth.latecomers(&plan.params);
        for process in ProcessId::all(plan.params.processes()) {
            let assignment = plan.truth.assignment(process).filter(|assignment| assignment.joins());
            // A wire attack has no behaviour: it needs the network.
            match assignment
                .and_then(|assignment| Some((assignment.behaviour(process, plan.seed)?, assignment.ends())))
            {
                Some((behaviour, ends)) => self.add_process(process, &plan.params, behaviour, ends),
                None => self.add_none(process),
            }
        }
        // Only now do the processes of the run before hold nothing of it.
        match Arc::get_mut(&mut self.read) {
            Some(read) => read.clear(),
            None => self.read = Arc::default(),
        }
    }

    fn clear(&mut self, params: &Arc<Params>, seed: u64) {
        self.machine.reset(Arc::clone(params));
        self.now = Time::ZERO;
        self.random = SplitMix64::new(seed);
        self.processes.truncate(params.processes() as usize);
        self.active = 0;
        self.late = Latecomers::default();
        self.restarts.clear();
        self.ready.clear();
        self.delayed.clear();
        self.events.clear();
    }

    /// The server restarts as these say, in the order of their phases.
    pub(super) fn restart_at(&mut self, restarts: &[SimRestart]) {
        self.restarts.extend(restarts.iter().rev());
    }

    /// The server restarts: messages on their way are lost, and every process that has not ended says hello
    /// again.
    fn restart(&mut self, restart: SimRestart) {
        self.machine.restart(self.now, restart.rejoin, &mut self.events);
        self.ready.clear();
        self.delayed.clear();
        for (process, own) in ProcessId::all(self.machine.params().processes()).zip(&mut self.processes) {
            let Some(own) = own.as_mut().filter(|_| !self.late.contains(process)) else { continue };
            // A process that has had no welcome yet knows of nothing to do.
            if own.session.is_none() || own.player.next_step() != Step::Leave {
                own.player.disconnected();
                self.ready.push((process, Message::Hello));
            }
        }
    }

    /// Adds the next process, which joins. It says hello, unless it comes late.
    fn add_process(
        &mut self,
        process: ProcessId,
        params: &Arc<Params>,
        behaviour: Box<dyn Behaviour>,
        ends: bool,
    ) {
        let params = Arc::clone(params);
        match self.processes.get_mut(process.index()) {
            Some(Some(own)) => {
                own.player.begin_again(process, params, behaviour);
                (own.session, own.active) = (None, ends);
            }
            _ => {
                self.add_none(process);
                let player = Player::new(process, params, behaviour);
                self.processes[process.index()] = Some(SimProcess { player, session: None, active: ends });
            }
        }
        self.active += usize::from(ends);
        if !self.late.contains(process) {
            self.ready.push((process, Message::Hello));
        }
    }

    fn add_none(&mut self, process: ProcessId) {
        match self.processes.get_mut(process.index()) {
            Some(own) => *own = None,
            None => self.processes.push(None),
        }
    }

    /// Runs to the end. `observe` gets the events of the instance as they happen.
    pub(super) fn run(&mut self, mut observe: impl FnMut(Time, &mut Vec<Event>)) {
        let mut budget = budget(self.machine.params());
        while self.active > 0 && budget > 0 && self.advance() {
            self.deliver_events(&mut observe);
            budget -= 1;
        }
    }

    /// Writes the reports of the processes that joined, in order, over those in `reports`.
    pub(super) fn report(&self, reports: &mut Vec<Report>) {
        reports.clear();
        reports.extend(self.processes.iter().flatten().map(|own| own.player.report()));
    }

    /// The list.
    pub(super) fn list(&self) -> &StickyCas<Entry> {
        self.machine.list()
    }

    /// Delivers the next message, or lets time pass. False if neither is possible.
    fn advance(&mut self) -> bool {
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
            // No patience drains, so there is no last moment to wait for; that of an endless patience never
            // comes.
            None if !self.delayed.is_empty()
                && self.machine.params().spec().patience != Patience::Endless =>
            {
                self.ready.append(&mut self.delayed);
            }
            None => return false,
        }
        true
    }

    /// Delayed messages of processes whose patience would be spent at the deadline are sent one nanosecond
    /// before it. False if there are none.
    fn release_before(&mut self, deadline: Time) -> bool {
        if self.delayed.is_empty() {
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
        let released: Vec<_> = self.delayed.extract_if(.., |(process, _)| due.contains(process)).collect();
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
        self.schedule_step(process);
    }

    fn hello(&mut self, process: ProcessId) {
        match self.machine.hello(self.now, process, INCARNATION, &mut self.events) {
            Ok(welcome) => {
                let own = self.process_mut(process);
                own.session = Some(welcome.session);
                own.player.welcome(&welcome);
            }
            Err(refusal) => self.process_mut(process).player.refused(&refusal),
        }
    }

    fn access(&mut self, process: ProcessId, number: AccessNumber) {
        let own = process_in(&mut self.processes, process);
        // An access is answered after it has arrived, and until then the player has it.
        let Some(sent) = own.player.sent(number) else { return };
        let op = match sent.checked(self.machine.params()) {
            Ok(op) => op,
            Err(error) => {
                self.file(process, Some(number), error);
                return self.process_mut(process).player.rejected(number, &error.to_string());
            }
        };
        let access = Access { process, session: own.session, number, op, no_wait: false };
        let (phase, answer) = match self.machine.access(self.now, access, &mut self.events) {
            // Its answer comes as an event.
            Ok(Admission::Accepted | Admission::AlreadyWaiting) => return,
            Ok(Admission::AnsweredBefore { phase, answer }) => (Some(phase), answer),
            Ok(Admission::ReadOutsidePhases(read)) => (None, Answer::Read(read)),
            Err(refusal) => return self.process_mut(process).player.refused(&refusal),
        };
        let list = read_so_far(&mut self.read, &self.machine, answer);
        process_in(&mut self.processes, process).player.answered_sharing(number, phase, answer, list);
    }

    fn decide(&mut self, process: ProcessId) {
        let Some(value) = self.process_mut(process).player.decision().cloned() else { return };
        if let Err(error) = self.machine.params().value(value.as_bytes()) {
            self.file(process, None, error);
            return self.process_mut(process).player.fail(error.to_string());
        }
        match self.machine.decide(self.now, process, value, &mut self.events) {
            Ok(()) => self.process_mut(process).player.decided(),
            Err(refusal) => self.process_mut(process).player.refused(&refusal),
        }
    }

    /// Files the offence that the server files for bytes that are no value (B2).
    fn file(&mut self, process: ProcessId, number: Option<AccessNumber>, error: ValueError) {
        let kind = OffenceKind::from(error);
        let offence = Offence { process, kind, number, phase: None, detail: error.to_string() };
        self.machine.file_offence(self.now, offence, &mut self.events);
    }

    /// Shows the events to `observe`, and delivers the answers among them to their processes.
    fn deliver_events(&mut self, observe: &mut impl FnMut(Time, &mut Vec<Event>)) {
        let mut events = std::mem::take(&mut self.events);
        let mut due = false;
        for event in &events {
            if let Event::Answered { process, number, phase, answer } = *event {
                let list = read_so_far(&mut self.read, &self.machine, answer);
                let own = process_in(&mut self.processes, process);
                own.player.answered_sharing(number, Some(phase), answer, list);
                self.schedule_step(process);
            }
            let next = self.restarts.last().map(|restart| restart.reached);
            due |= next.is_some() && event.reached() >= next;
            if let (false, Some(phase)) = (self.late.is_empty(), event.reached()) {
                self.ready.extend(self.late.come(phase).into_iter().map(|late| (late, Message::Hello)));
            }
        }
        observe(self.now, &mut events);
        events.clear();
        self.events = events;
        if let Some(restart) = self.restarts.pop_if(|_| due) {
            self.restart(restart);
            self.deliver_events(observe);
        }
    }

    /// Schedules the next step of a process.
    fn schedule_step(&mut self, process: ProcessId) {
        let own = self.process_mut(process);
        match own.player.next_step() {
            Step::Access { number, when, .. } => {
                let to = match when {
                    SendTime::Ready => &mut self.ready,
                    SendTime::LastMoment => &mut self.delayed,
                };
                to.push((process, Message::Access(number)));
            }
            Step::Decide(_) => self.ready.push((process, Message::Decide)),
            Step::Wait => {}
            Step::Stay | Step::Leave => {
                let ended = std::mem::take(&mut own.active);
                self.active -= usize::from(ended);
            }
        }
    }

    fn process_mut(&mut self, process: ProcessId) -> &mut SimProcess {
        process_in(&mut self.processes, process)
    }
}

fn process_in(processes: &mut [Option<SimProcess>], process: ProcessId) -> &mut SimProcess {
    processes[process.index()]
        .as_mut()
        .expect("only a process that joined sends, and only a process that sent is answered")
}

/// The list as far as it has been read, with what this answer returns: nothing more, unless it is to a read
/// (R1).
fn read_so_far<'a>(read: &'a mut Arc<Vec<Value>>, machine: &Machine, answer: Answer) -> &'a Arc<Vec<Value>> {
    if let Answer::Read(ReadAnswer { start, count, .. }) = answer
        && read.len() < start.index() + count as usize
    {
        let known = Position::new(u32::try_from(read.len()).unwrap_or(u32::MAX));
        // Processes that hold what was read before keep their copy: it is as long as what they have read.
        let more = machine.list().range(known, machine.list().len()).map(|entry| entry.value.clone());
        Arc::make_mut(read).extend(more);
    }
    read
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::ground_truth::GroundTruth;
    use crate::history::Recorded;
    use crate::params::ParamsSpec;
    use crate::process::{Act, Correct, ProcessEnd, RawOp, View};
    use crate::sim::{SimOutcome, replay};

    use super::*;

    /// Acts as a correct process, as late as its patience allows.
    struct Stall(Correct);

    impl Behaviour for Stall {
        fn act(&mut self, view: &View) -> Act {
            match self.0.act(view) {
                Act::Access { op, .. } => Act::Access { op, when: SendTime::LastMoment },
                other => other,
            }
        }
    }

    /// Appends these bytes again and again, whatever the answers are.
    struct Malformed(Vec<u8>);

    impl Behaviour for Malformed {
        fn act(&mut self, _: &View) -> Act {
            Act::Access { op: RawOp::Append(self.0.clone().into()), when: SendTime::Ready }
        }
    }

    fn correct() -> Correct {
        Correct::new(Value::parse("v").unwrap())
    }

    /// Process 1 has this behaviour among four correct ones, in warps of two.
    fn run_with(first: Box<dyn Behaviour>) -> SimOutcome {
        let params = Arc::new(Params::try_new(ParamsSpec::new(5, 2, 1)).unwrap());
        let mut run = SimRun::new(&SimPlan {
            params: Arc::clone(&params),
            truth: GroundTruth::new(Vec::new()),
            seed: 1,
        });
        run.clear(&params, 1);
        let others = (0..4).map(|_| -> Box<dyn Behaviour> { Box::new(correct()) });
        for (process, behaviour) in ProcessId::all(5).zip(std::iter::once(first).chain(others)) {
            run.add_process(process, &params, behaviour, process != ProcessId::FIRST);
        }
        let (mut history, mut reports) = (Vec::new(), Vec::new());
        run.run(|at, events| history.extend(events.drain(..).map(|event| Recorded { at, event })));
        run.report(&mut reports);
        SimOutcome { history, reports, list: run.list().iter().cloned().collect() }
    }

    fn four_have_decided(outcome: &SimOutcome) -> bool {
        outcome.reports[1..].iter().all(|report| report.ended == ProcessEnd::Decided)
    }

    #[test]
    fn a_stalling_process_costs_its_patience_once_and_is_awaited() {
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
