//! Follows a machine by its events alone, keeps its own naive account of who waits, who is awaited and what
//! stands in the list, and fails when an event does not fit it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::history::Event;
use stickycas_model::machine::{Machine, State};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, Patience};
use stickycas_model::scheduler::{Schedule, arbiter_hash};
use stickycas_model::types::{AccessNumber, Phase, ProcessId, Time, Value, WarpId};

/// What was seen so far. Tables are indexed by process.
pub(crate) struct Observer {
    params: Params,
    joined: Vec<bool>,
    awaited: Vec<bool>,
    pub(crate) waiting: Vec<VecDeque<Waiting>>,
    /// All that was ever answered, in order.
    pub(crate) answered: Vec<Vec<(Waiting, Phase, Answer)>>,
    /// How long phases were held open because of each process.
    blame: Vec<Duration>,
    accepted: u64,
    entries: Vec<Value>,
    /// Who has won an append, under `first_access` (K1).
    winners: BTreeSet<ProcessId>,
    sealed: bool,
    last_step: Option<(Phase, Time)>,
    step: Option<Step>,
    pub(crate) counts: Counts,
}

/// An access that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) number: AccessNumber,
    pub(crate) op: Op,
    place: u64,
}

/// A phase whose answers are coming in.
struct Step {
    phase: Phase,
    length: u32,
    executed: BTreeMap<ProcessId, Waiting>,
    /// Whether an append may win in this phase.
    open: bool,
    winner: Option<ProcessId>,
    added: Option<ProcessId>,
}

/// How often things happened, to prove that they did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) steps: u32,
    pub(crate) contests: u32,
    pub(crate) jumps: u32,
    pub(crate) spent: u32,
    pub(crate) withdrawn: u32,
    pub(crate) sealed: u32,
    pub(crate) held: u32,
    pub(crate) replays: u32,
    pub(crate) packed: u32,
}

impl Observer {
    pub(crate) fn new(params: Params) -> Self {
        let n = params.processes() as usize;
        Self {
            joined: vec![false; n],
            awaited: vec![true; n],
            waiting: vec![VecDeque::new(); n],
            answered: vec![Vec::new(); n],
            blame: vec![Duration::ZERO; n],
            accepted: 0,
            entries: Vec::new(),
            winners: BTreeSet::new(),
            sealed: false,
            last_step: None,
            step: None,
            counts: Counts::default(),
            params,
        }
    }

    /// Takes in what one input brought about.
    pub(crate) fn observe(&mut self, now: Time, events: &[Event]) {
        for event in events {
            self.take(now, event);
        }
        self.end_step();
    }

    fn take(&mut self, now: Time, event: &Event) {
        match event {
            Event::Joined { process } => {
                assert!(!std::mem::replace(&mut self.joined[process.index()], true), "joined twice");
            }
            Event::Accepted { process, number, op, .. } => {
                assert!(self.joined[process.index()], "an access of one who has not joined");
                self.accepted += 1;
                let waiting = &mut self.waiting[process.index()];
                waiting.push_back(Waiting { number: *number, op: op.clone(), place: self.accepted });
                assert!(waiting.len() <= self.params.spec().pipeline as usize);
            }
            Event::PatienceSpent { process } => {
                assert!(std::mem::replace(&mut self.awaited[process.index()], false), "spent twice");
                self.counts.spent += 1;
            }
            Event::Decided { process, .. } => self.awaited[process.index()] = false,
            Event::Withdrawn { process, number } => {
                let first = self.waiting[process.index()].pop_front();
                assert_eq!(first.map(|waiting| waiting.number), Some(*number));
                self.counts.withdrawn += 1;
            }
            Event::Closed => assert!(self.waiting.iter().all(VecDeque::is_empty)),
            Event::Stepped { phase, warp, length } => self.stepped(now, *phase, *warp, *length),
            Event::Added { position, process, value, .. } => {
                assert_eq!(position.index(), self.entries.len(), "an entry is added at the end");
                let step = self.step.as_mut().expect("entries are added in a step");
                assert_eq!(step.winner, Some(*process), "the arbiter says who wins");
                assert_eq!(step.executed[process].op, Op::Append(value.clone()));
                assert_eq!(step.added.replace(*process), None, "one entry per phase");
                self.entries.push(value.clone());
            }
            Event::Answered { process, number, phase, answer } => {
                self.answer(*process, *number, *phase, *answer);
            }
            Event::Sealed { phase, length } => {
                self.end_step();
                assert!(!std::mem::replace(&mut self.sealed, true), "sealed twice");
                assert!(self.is_sealed_in(*phase));
                assert_eq!(*length as usize, self.entries.len());
                self.counts.sealed += 1;
            }
            Event::Session { .. }
            | Event::Refused { .. }
            | Event::GatheringEnded { .. }
            | Event::Offence(_)
            | Event::Restarted { .. }
            | Event::Rejoined { .. }
            | Event::Finished => {}
        }
    }

    fn stepped(&mut self, now: Time, phase: Phase, warp: WarpId, length: u32) {
        self.end_step();
        assert_eq!(warp, warp_of(&self.params, phase), "phases belong to the scheduled warp");
        assert_eq!(length as usize, self.entries.len());
        assert_eq!(self.sealed, self.is_sealed_in(phase));
        let next = self.last_step.map_or(Phase::FIRST, |(last, _)| last.next());
        assert!(phase >= next, "phases come in order");
        for passed in (next.get()..phase.get()).filter_map(Phase::new) {
            let passed = warp_of(&self.params, passed);
            assert!(self.params.members(passed).all(|process| !self.awaited[process.index()]));
            self.counts.jumps += 1;
        }
        if let Some((_, last)) = self.last_step {
            assert!(now >= last.after(self.params.spec().pace), "the pace is kept");
        }
        self.last_step = Some((phase, now));
        let mut executed = BTreeMap::new();
        for process in self.params.members(warp) {
            let oldest = self.waiting[process.index()].pop_front();
            assert!(oldest.is_some() || !self.awaited[process.index()], "awaited and not waited for");
            executed.extend(oldest.map(|oldest| (process, oldest)));
        }
        assert!(!executed.is_empty(), "a phase without an access passes without a record");
        let open = match self.params.spec().append_window {
            AppendWindow::FirstAccess => !self.is_sealed_in(phase),
            AppendWindow::Open => self.entries.len() < self.params.processes() as usize,
        };
        let winner = self.winner(phase, &executed).filter(|_| open);
        if self.params.spec().append_window == AppendWindow::FirstAccess {
            self.winners.extend(winner);
        }
        self.counts.steps += 1;
        self.step = Some(Step { phase, length, executed, open, winner, added: None });
    }

    /// Whose append must win the phase, if any may, by the rules (A1, A4, K1).
    fn winner(&mut self, phase: Phase, executed: &BTreeMap<ProcessId, Waiting>) -> Option<ProcessId> {
        let spec = self.params.spec();
        let appends = executed.iter().filter(|(_, waiting)| matches!(waiting.op, Op::Append(_)));
        self.counts.contests += u32::from(appends.clone().count() > 1);
        let appends = appends.filter(|(process, _)| !self.winners.contains(process));
        let first = appends.min_by_key(|&(process, waiting)| match &spec.arbiter {
            Arbiter::FirstCome => (waiting.place, *process),
            Arbiter::Uniform => (arbiter_hash(spec.seed, phase, *process), *process),
            Arbiter::Priority(order) => {
                let rank = order.iter().position(|named| named == process);
                (rank.map_or(u64::MAX, |rank| rank as u64), *process)
            }
        });
        first.map(|(process, _)| *process)
    }

    fn answer(&mut self, process: ProcessId, number: AccessNumber, phase: Phase, answer: Answer) {
        let (sealed, read_size) = (self.sealed, self.params.read_size());
        let step = self.step.as_mut().expect("answers come in a step");
        let waiting = step.executed.remove(&process).expect("one access each, and only of the warp");
        assert_eq!((waiting.number, step.phase), (number, phase), "the oldest access comes first");
        let expected = match waiting.op {
            Op::Append(_) => Answer::Append(match step.winner {
                _ if !step.open => AppendAnswer::LimitReached,
                winner if winner != Some(process) => AppendAnswer::Failed,
                _ => AppendAnswer::Success(stickycas_model::types::Position::new(step.length)),
            }),
            Op::Read { start } => {
                let count = (start.get()..step.length).take(read_size as usize).count();
                let count = u32::try_from(count).unwrap();
                Answer::Read(ReadAnswer { start, count, length: step.length, sealed })
            }
        };
        assert_eq!(answer, expected);
        self.answered[process.index()].push((waiting, phase, answer));
    }

    /// Nothing of the last step is left open.
    fn end_step(&mut self) {
        if let Some(step) = self.step.take() {
            assert!(step.executed.is_empty(), "not answered: {:?}", step.executed);
            assert_eq!(step.added, step.winner, "an append that must win has won");
        }
    }

    fn is_sealed_in(&self, phase: Phase) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => {
                phase.get() > u64::from(self.params.warps()) * u64::from(self.params.append_rounds())
            }
            AppendWindow::Open => self.entries.len() == self.params.processes() as usize,
        }
    }

    /// Compares the machine with this account at a moment at which everything due has happened.
    pub(crate) fn compare(&mut self, now: Time, machine: &Machine) {
        assert!(
            machine.list().iter().map(|entry| &entry.value).eq(&self.entries),
            "the list is what was added"
        );
        assert_eq!(machine.sealed(), self.sealed);
        let status = machine.status(now);
        let something_waits = self.waiting.iter().any(|waiting| !waiting.is_empty());
        if machine.state() != State::Running {
            assert!(!status.open);
            return;
        }
        if !something_waits {
            assert_eq!((status.open, machine.deadline()), (false, None), "an idle instance stands still");
            return;
        }
        let opens_at = self.last_step.map_or(Time::ZERO, |(_, last)| last.after(self.params.spec().pace));
        assert_eq!(status.open, now >= opens_at, "something waits, so a phase is open once the pace is over");
        if status.open {
            let named: Vec<ProcessId> = status.awaited.iter().map(|awaited| awaited.process).collect();
            assert_eq!(named, self.missing(status.warp.unwrap()));
            assert!(!named.is_empty(), "a phase that waits for nobody has been executed");
            self.counts.held += 1;
        }
    }

    /// Time passes, and nothing happens meanwhile. Whoever holds a phase open is to blame for it.
    pub(crate) fn pass(&mut self, from: Time, to: Time, machine: &Machine) {
        let status = machine.status(from);
        if status.open {
            for process in self.missing(status.warp.unwrap()) {
                self.blame[process.index()] += to.since(from);
            }
        }
        let Patience::Finite(patience) = self.params.spec().patience else { return };
        for awaited in machine.status(to).awaited {
            let blame = self.blame[awaited.process.index()];
            assert!(blame <= patience, "{} cost {blame:?}", awaited.process);
            assert_eq!(awaited.patience, Patience::Finite(patience.saturating_sub(blame)));
        }
    }

    /// Members of a warp that are awaited and have nothing waiting.
    fn missing(&self, warp: WarpId) -> Vec<ProcessId> {
        let missing =
            |process: &ProcessId| self.awaited[process.index()] && self.waiting[process.index()].is_empty();
        self.params.members(warp).filter(missing).collect()
    }
}

/// The order of warps by the formulas of W1; for a shuffled order, as the schedule says (W2).
fn warp_of(params: &Params, phase: Phase) -> WarpId {
    let warps = u64::from(params.warps());
    let slot = u32::try_from((phase.get() - 1) % warps).unwrap();
    match params.spec().order {
        Order::Ascending => WarpId::new(slot + 1).unwrap(),
        Order::Descending => WarpId::new(params.warps() - slot).unwrap(),
        Order::Shuffled => Schedule::new(params).warp_of(phase),
    }
}
