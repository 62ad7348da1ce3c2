//! The conduct of a process with a strategy, and the part of a history that shows it: per Byzantine process,
//! its accesses and their moments (SPEC B3).
//!
//! Only what the server recorded counts (V5). A strategy that holds back is shown by what did not come: a
//! crash, by the access that was due.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::access::Op;
use crate::history::{Event, OffenceKind};
use crate::params::{AppendWindow, Params, Patience};
use crate::process::{Behaviour, mode};
use crate::types::{Phase, ProcessId, Time, Value};

/// The evidence of some processes in a history, taken in event by event: for runs that keep no history.
#[derive(Clone, Debug)]
pub struct Observations {
    /// A phase that waits for a process for so long is stalled; `None`: no phase is.
    long: Option<Duration>,
    window: AppendWindow,
    append_rounds: u32,
    gathering_ended: bool,
    sealed: bool,
    /// The last phase that was executed.
    phase: Option<Phase>,
    /// When gathering ended or the last phase was executed: no phase opens before.
    since: Time,
    list: Vec<Value>,
    processes: BTreeMap<ProcessId, ProcessEvents>,
}

/// The evidence of one process.
#[derive(Clone, Debug, Default)]
struct ProcessEvents {
    joined: bool,
    /// The values that its accesses append, in the order of their numbers; `None` for a read.
    accesses: Vec<Option<Value>>,
    /// The phases in which they were executed.
    executed: Vec<Phase>,
    /// The number of the last access that a phase waited long for.
    stalled: u64,
    decision: Option<Value>,
}

impl Observations {
    /// No event has been observed yet of these processes.
    #[must_use]
    pub fn new(params: &Params, processes: impl Iterator<Item = ProcessId>) -> Self {
        let long = match params.spec().patience {
            Patience::Finite(patience) => Some(patience / 2),
            Patience::Endless => None,
        };
        Self {
            long,
            window: params.spec().append_window,
            append_rounds: params.append_rounds(),
            gathering_ended: false,
            sealed: false,
            phase: None,
            since: Time::ZERO,
            list: Vec::new(),
            processes: processes.map(|process| (process, ProcessEvents::default())).collect(),
        }
    }

    /// Takes in the next event.
    pub fn observe(&mut self, at: Time, event: &Event) {
        match event {
            Event::GatheringEnded { .. } => {
                self.gathering_ended = true;
                self.since = at;
            }
            Event::Stepped { phase, .. } => {
                self.phase = Some(*phase);
                self.since = at;
            }
            Event::Sealed { .. } => self.sealed = true,
            Event::Added { value, .. } => self.list.push(value.clone()),
            Event::Joined { process } => self.change(*process, |events| events.joined = true),
            Event::PatienceSpent { process } => self.change(*process, |events| {
                if events.joined {
                    events.stalled = events.next_access();
                }
            }),
            Event::Accepted { process, op, .. } => {
                let long = self.gathering_ended && self.long.is_some_and(|long| at.since(self.since) >= long);
                self.change(*process, |events| {
                    if long {
                        events.stalled = events.next_access();
                    }
                    events.accesses.push(appended(op));
                });
            }
            Event::Answered { process, phase, .. } => {
                self.change(*process, |events| events.executed.push(*phase));
            }
            Event::Decided { process, value } => {
                self.change(*process, |events| events.decision = Some(value.clone()));
            }
            _ => {}
        }
    }

    fn change(&mut self, process: ProcessId, change: impl FnOnce(&mut ProcessEvents)) {
        if let Some(events) = self.processes.get_mut(&process) {
            change(events);
        }
    }

    /// The observations of a process that draws from this seed; `None` if it is not one of those observed.
    pub(crate) fn of(&self, me: ProcessId, seed: u64) -> Option<ObservedProcess<'_>> {
        let events = self.processes.get(&me)?;
        Some(ObservedProcess { me, seed, from: 1, run: self, events })
    }
}

impl ProcessEvents {
    fn next_access(&self) -> u64 {
        self.accesses.len() as u64 + 1
    }
}

fn appended(op: &Op) -> Option<Value> {
    match op {
        Op::Append(value) => Some(value.clone()),
        Op::Read { .. } => None,
    }
}

/// The observations of one process.
#[derive(Clone, Copy)]
pub(crate) struct ObservedProcess<'a> {
    /// The process.
    pub(super) me: ProcessId,
    /// The seed from which it draws.
    pub(super) seed: u64,
    /// The number of the access from which on the strategy must show. Above 1 for a process that was correct
    /// before.
    pub(super) from: u64,
    run: &'a Observations,
    events: &'a ProcessEvents,
}

impl<'a> ObservedProcess<'a> {
    /// The same process, whose strategy must show from this access on, or later.
    pub(super) fn shown_from(&self, number: u64) -> Self {
        Self { from: self.from.max(number), ..*self }
    }

    /// Whether gathering has ended. Before, no phase comes and no access is due.
    pub(super) fn gathering_ended(&self) -> bool {
        self.run.gathering_ended
    }

    /// Whether this phase or a later one was executed, or the process left when no earlier one could be open
    /// any more.
    pub(super) fn reached(&self, phase: Phase) -> bool {
        let left = self.decision().and(self.events.executed.last());
        self.run.phase >= Some(phase) || left.is_some_and(|last| last.next() >= phase)
    }

    /// The offences of the closed list that its accepted accesses and its report show, whatever its strategy
    /// (B2, D3).
    pub(crate) fn offences(&self) -> impl Iterator<Item = OffenceKind> + use<> {
        let accesses = &self.events.accesses;
        let (within, above) = accesses.split_at(accesses.len().min(self.run.append_rounds as usize));
        let mut appended = within.iter().flatten();
        let first = appended.next();
        let late = above.iter().any(Option::is_some) || appended.any(|value| Some(value) != first);
        let judged = self.run.sealed && self.run.window == AppendWindow::FirstAccess;
        let lie = judged && self.decision().is_some_and(|decision| Some(decision) != self.list_mode());
        let late = late.then_some(OffenceKind::LateAppend);
        late.into_iter().chain(lie.then_some(OffenceKind::FalseDecision))
    }

    /// The mode of the list.
    pub(super) fn list_mode(&self) -> Option<&'a Value> {
        mode(&self.run.list)
    }

    /// Whether it has joined.
    pub(super) fn joined(&self) -> bool {
        self.events.joined
    }

    /// Whether it has joined, has not left, and phases can come.
    pub(super) fn stays(&self) -> bool {
        self.run.gathering_ended && self.events.joined && self.events.decision.is_none()
    }

    /// The number of its next access.
    pub(super) fn next_access(&self) -> u64 {
        self.events.next_access()
    }

    /// The value that its access of this number appended; `None` if there is no such access, or it is a read.
    pub(super) fn append(&self, number: u64) -> Option<&'a Value> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.events.accesses.get(index)?.as_ref()
    }

    /// Whether a process may append in its access of this number (B2).
    pub(super) fn is_within_rounds(&self, number: u64) -> bool {
        number <= self.run.append_rounds.into()
    }

    /// The value that its access of this number appended, once it was executed.
    pub(super) fn executed_append(&self, number: u64) -> Option<&'a Value> {
        self.append(number).filter(|_| self.events.executed.len() as u64 >= number)
    }

    /// Whether its first access appended this value.
    pub(super) fn proposed(&self, value: &Value) -> bool {
        self.from == 1 && self.append(1) == Some(value)
    }

    /// How many of its accesses were executed before this phase.
    pub(super) fn executed_before(&self, phase: Phase) -> u64 {
        self.events.executed.iter().filter(|executed| **executed < phase).count() as u64
    }

    /// The number of the last access that a phase waited long for; 0 if there was none.
    pub(super) fn last_stalled(&self) -> u64 {
        self.events.stalled
    }

    /// The decision that it reported.
    pub(super) fn decision(&self) -> Option<&'a Value> {
        self.events.decision.as_ref()
    }
}

/// The acts of a process with one strategy, and the evidence of them.
pub(super) trait Conduct {
    /// The offences of the closed list (B2) that the process was observed to commit by the strategy and that
    /// its accepted accesses and its report do not show by themselves ([`ObservedProcess::offences`]).
    fn offences(&self, _process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        &[]
    }

    /// Whether a process with this strategy joins at all.
    fn joins(&self) -> bool {
        true
    }

    /// Whether the strategy comes to an end by itself, as a correct process does.
    fn ends(&self) -> bool {
        true
    }

    /// The values that process `me` sends of its own accord, as long as any that it makes up may be.
    fn values(&self, _me: ProcessId, _params: &Params) -> Vec<Value> {
        Vec::new()
    }

    /// The behaviour of process `me`. Where the strategy follows Algorithm 1, it proposes `proposal`; its
    /// random choices come from `seed`.
    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour>;

    /// Whether the history shows that the process carried out the strategy (B3). It must not look at
    /// offences: the judge asks whether the offences of the processes that were observed are on record (B2).
    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool;
}
