//! An instance as `Get` shows it: which phase it is in, and which processes it waits for (SPEC F12).

use crate::access::Op;
use crate::params::Patience;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, Time, Value, WarpId};

use super::member::{self, Member};
use super::offence_record::OffenceCount;
use super::state::{Machine, State};

/// An instance as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// The phase that is open or comes next, dead phases not yet passed over; `None` while gathering.
    pub phase: Option<Phase>,
    /// The warp of that phase.
    pub warp: Option<WarpId>,
    /// Whether the phase is open and waits for members of its warp.
    pub open: bool,
    /// How many processes have joined.
    pub joined: u32,
    /// When the join timeout ends, while it runs.
    pub join_deadline: Option<Time>,
    /// The processes for which the instance waits: while gathering those that have not joined, in an open phase the
    /// members that are missing. None otherwise: an instance in which nothing waits stands still (F4).
    pub awaited: Vec<AwaitedMember>,
    /// The accesses that wait, by process.
    pub waiting: Vec<WaitingMember>,
    /// Length of the list.
    pub length: u32,
    /// Whether the list takes no more entries.
    pub sealed: bool,
    /// The processes that left, with their decisions.
    pub left: Vec<(ProcessId, Value)>,
    /// The processes that are not awaited any more though they have not left.
    pub given_up: Vec<ProcessId>,
    /// Offences by process and kind.
    pub offences: Vec<OffenceCount>,
    /// What is not named one by one.
    pub left_out: LeftOut,
}

/// A process that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedMember {
    /// The process.
    pub process: ProcessId,
    /// What is left of its patience.
    pub patience: Patience,
}

/// A process with accesses waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingMember {
    /// The process.
    pub process: ProcessId,
    /// Its accesses, in order.
    pub accesses: Vec<(AccessNumber, Op)>,
}

/// How many there are of what a status leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Of `awaited`.
    pub awaited: u32,
    /// Of `waiting`.
    pub waiting: u32,
    /// Of `left`.
    pub left: u32,
    /// Of `given_up`.
    pub given_up: u32,
    /// Of `offences`.
    pub offences: u32,
}

/// The first of some rows, and the number of the others.
struct Rows<T> {
    first: Vec<T>,
    limit: usize,
    left_out: u32,
}

impl<T> Rows<T> {
    fn new(limit: usize) -> Self {
        Self { first: Vec::new(), limit, left_out: 0 }
    }

    fn add(&mut self, row: impl FnOnce() -> T) {
        if self.first.len() < self.limit { self.first.push(row()) } else { self.left_out += 1 }
    }
}

/// Rows about members.
struct MemberRows {
    awaited: Rows<AwaitedMember>,
    waiting: Rows<WaitingMember>,
    left: Rows<(ProcessId, Value)>,
    given_up: Rows<ProcessId>,
}

impl MemberRows {
    fn new(limit: usize) -> Self {
        Self {
            awaited: Rows::new(limit),
            waiting: Rows::new(limit),
            left: Rows::new(limit),
            given_up: Rows::new(limit),
        }
    }
}

/// Accesses that wait are shown of as many processes as have this many for each row together, and of one at least.
const ACCESSES_PER_ROW: usize = 16;

impl<S: PhaseOrder> Machine<S> {
    /// The instance as it stands at the moment `now`. Costs O(n).
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        self.status_rows(now, usize::MAX)
    }

    /// The same, with at most so many processes or offences of each sort named one by one. It looks at every process once
    /// and copies no more than the rows: a server does it while others wait for the instance.
    #[must_use]
    pub fn status_rows(&self, now: Time, rows: usize) -> Status {
        let gathering = self.state == State::Gathering;
        let MemberRows { mut awaited, waiting, left, given_up } = self.member_rows(rows);
        self.add_missing(now, &mut awaited);
        let offences = self.offence_rows(rows);
        Status {
            state: self.state,
            phase: (!gathering).then_some(self.phase),
            warp: (!gathering).then_some(self.warp),
            open: self.open_phase.is_some(),
            joined: self.joined,
            join_deadline: self.join_deadline,
            length: self.list.len(),
            sealed: self.sealed(),
            left_out: LeftOut {
                awaited: awaited.left_out,
                waiting: waiting.left_out,
                left: left.left_out,
                given_up: given_up.left_out,
                offences: offences.left_out,
            },
            awaited: awaited.first,
            waiting: waiting.first,
            left: left.first,
            given_up: given_up.first,
            offences: offences.first,
        }
    }

    /// What the members show each for itself. The missing members of an open phase are not among those that are awaited.
    fn member_rows(&self, rows: usize) -> MemberRows {
        let gathering = self.state == State::Gathering;
        let mut found = MemberRows::new(rows);
        let mut accesses = 0_usize;
        for (process, member) in ProcessId::all(self.params.processes()).zip(&self.members) {
            if gathering && !member.has_joined() {
                found.awaited.add(|| awaited(process, member, 0));
            }
            if member.waiting() > 0 {
                found.waiting.add(|| {
                    let queue = member.queue(&self.queues).map(|(number, _, op)| (number, op)).collect();
                    WaitingMember { process, accesses: queue }
                });
                accesses += usize::from(member.waiting());
                if accesses >= rows.saturating_mul(ACCESSES_PER_ROW) {
                    found.waiting.limit = found.waiting.first.len();
                }
            }
            if member.has_left() {
                let decision = self.cold_members[process.index()].decision as usize;
                found.left.add(|| (process, self.decisions[decision].clone()));
            } else if member.is_spent() {
                found.given_up.add(|| process);
            }
        }
        found
    }

    /// Adds the members for which the open phase waits, if one is open.
    fn add_missing(&self, now: Time, rows: &mut Rows<AwaitedMember>) {
        let (State::Running, Some(open_phase)) = (self.state, self.open_phase) else { return };
        let held = now.nanos_since(open_phase.since);
        for process in self.params.members(self.warp) {
            let member = &self.members[process.index()];
            if member.is_missing() {
                rows.add(|| awaited(process, member, held));
            }
        }
    }

    fn offence_rows(&self, rows: usize) -> Rows<OffenceCount> {
        let first: Vec<_> = self.offences.counts().take(rows).cloned().collect();
        let further = self.offences.counts.len() - first.len();
        Rows { first, limit: rows, left_out: u32::try_from(further).unwrap_or(u32::MAX) }
    }
}

fn awaited(process: ProcessId, member: &Member, held: u64) -> AwaitedMember {
    let patience = match member.patience {
        member::ENDLESS => Patience::Endless,
        patience => Patience::Finite(std::time::Duration::from_nanos(patience.saturating_sub(held))),
    };
    AwaitedMember { process, patience }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::Access;
    use crate::params::{Params, ParamsSpec};

    const ROWS: usize = 2;

    fn machine(processes: u32) -> Machine {
        let spec = ParamsSpec { pipeline: 64, ..ParamsSpec::new(processes, processes, 2) };
        Machine::new(Arc::new(Params::try_new(spec).unwrap()))
    }

    fn read(machine: &mut Machine, process: ProcessId, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            let access = Access {
                process,
                session: None,
                number: AccessNumber::new(number).unwrap(),
                op: Op::Read { start: crate::types::Position::new(0) },
                no_wait: false,
            };
            machine.access(Time::ZERO, access, &mut Vec::new()).unwrap();
        }
    }

    #[test]
    fn rows_are_the_first_and_the_others_are_counted() {
        let mut machine = machine(7);
        for process in ProcessId::all(5) {
            read(&mut machine, process, 1..=1);
        }
        let (all, some) = (machine.status(Time::ZERO), machine.status_rows(Time::ZERO, ROWS));
        assert_eq!((all.waiting.len(), all.awaited.len(), all.left_out), (5, 2, LeftOut::default()));
        assert_eq!((&some.waiting[..], &some.awaited[..]), (&all.waiting[..ROWS], &all.awaited[..]));
        assert_eq!(some.left_out, LeftOut { waiting: 3, ..LeftOut::default() });
        // All have joined: the two that have nothing waiting are awaited, and two have left.
        for process in ProcessId::all(7) {
            machine.hello(Time::ZERO, process, 1, &mut Vec::new()).unwrap();
        }
        let all = machine.status(Time::ZERO);
        assert_eq!((all.waiting.len(), all.awaited.len()), (5, 2));
        let one = machine.status_rows(Time::ZERO, 1);
        assert_eq!((&one.awaited[..], one.left_out.awaited), (&all.awaited[..1], 1));
        for process in ProcessId::all(7) {
            let value = Value::new(b"v").unwrap();
            machine.decide(Time::ZERO, process, value, &mut Vec::new()).unwrap();
        }
        let (all, some) = (machine.status(Time::ZERO), machine.status_rows(Time::ZERO, ROWS));
        assert_eq!((all.left.len(), some.left_out.left), (7, 5));
        assert_eq!(some.left[..], all.left[..ROWS]);
    }

    #[test]
    fn long_queues_are_shown_of_few_processes() {
        let mut machine = machine(4);
        for process in ProcessId::all(3) {
            read(&mut machine, process, 1..=40);
        }
        let some = machine.status_rows(Time::ZERO, ROWS);
        assert_eq!((some.waiting.len(), some.waiting[0].accesses.len(), some.left_out.waiting), (1, 40, 2));
        assert_eq!(machine.status(Time::ZERO).waiting.len(), 3);
    }
}
