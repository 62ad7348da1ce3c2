//! An instance as `Get` shows it: which phase it is in, and which processes it waits for (SPEC F12); and in few numbers, for
//! who looks at many or at one with many processes.

use crate::access::Op;
use crate::params::{AppendWindow, Patience};
use crate::process::mode;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, Time, Value, WarpId};

use super::member::{self, Member};
use super::offences::OffenceCount;
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
    /// The numbers of rows that are not named one by one.
    pub left_out: LeftOut,
}

/// A process that an instance waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedMember {
    /// The process.
    pub process: ProcessId,
    /// The rest of its patience.
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

    /// The rows that each member shows for itself. The missing members of an open phase are not among those that are awaited.
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

/// An instance in a line of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Its state.
    pub state: State,
    /// The phase that is open or comes next; `None` while gathering.
    pub phase: Option<Phase>,
    /// Length of the list.
    pub length: u32,
    /// How many processes are awaited.
    pub awaited: u32,
    /// The first of them, if it is found soon.
    pub first_awaited: Option<ProcessId>,
    /// Processes and kinds of offences on record.
    pub offences: u32,
}

/// The acts of a process, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberBrief {
    /// It has joined.
    pub joined: bool,
    /// An access of it was executed.
    pub executed: bool,
    /// The phase of its first append that was executed.
    pub appended: Option<Phase>,
    /// It has left.
    pub left: bool,
    /// It is not awaited any more though it has not left.
    pub given_up: bool,
}

/// How many members are looked at to find the first that is awaited.
const LOOKED_AT: usize = 64;

impl<S: PhaseOrder> Machine<S> {
    /// The instance in a line. Costs the same for any number of processes.
    #[must_use]
    pub fn brief(&self) -> Brief {
        let gathering = self.state == State::Gathering;
        let is_open = self.state == State::Running && self.open_phase.is_some();
        let (awaited, first_awaited) = if gathering {
            let all = ProcessId::all(self.params.processes());
            (self.params.processes() - self.joined, self.first(all, |member| !member.has_joined()))
        } else if is_open {
            let members = self.params.members(self.warp);
            (self.warps[self.warp].missing, self.first(members, Member::is_missing))
        } else {
            (0, None)
        };
        Brief {
            state: self.state,
            phase: (!gathering).then_some(self.phase),
            length: self.list.len(),
            awaited,
            first_awaited,
            offences: u32::try_from(self.offences.counts.len()).unwrap_or(u32::MAX),
        }
    }

    fn first(
        &self,
        mut processes: impl Iterator<Item = ProcessId>,
        is_wanted: impl Fn(&Member) -> bool,
    ) -> Option<ProcessId> {
        let mut few = processes.by_ref().take(LOOKED_AT);
        few.find(|process| is_wanted(&self.members[process.index()]))
    }

    /// How many processes have reported a decision.
    #[must_use]
    pub fn decided(&self) -> u32 {
        u32::try_from(self.decisions.len()).unwrap_or(u32::MAX)
    }

    /// The decision that processes have reported, if it is the same one. Under `first_access` reports count that are the
    /// mode of the sealed list (D3), or all while it is not sealed. Costs O(n).
    #[must_use]
    pub fn decision_in_common(&self) -> Option<&Value> {
        let is_judged = self.sealed() && self.params.spec().append_window == AppendWindow::FirstAccess;
        if is_judged {
            let mode = mode(self.list.iter().map(|entry| &entry.value))?;
            return self.decisions.contains(mode).then_some(mode);
        }
        let first = self.decisions.first()?;
        self.decisions.iter().all(|decision| decision == first).then_some(first)
    }

    /// Every process in short, in order. Costs O(n).
    pub fn members_in_brief(&self) -> impl Iterator<Item = MemberBrief> {
        self.members.iter().zip(&self.cold_members).map(|(member, cold)| MemberBrief {
            joined: member.has_joined(),
            executed: member.next.get() - u64::from(member.waiting()) > 1 + u64::from(cold.withdrawn),
            appended: cold.append,
            left: member.has_left(),
            given_up: member.is_spent() && !member.has_left(),
        })
    }

    /// The processes that were refused, and those that have an offence on record.
    pub fn refused_and_accused(&self) -> (impl Iterator<Item = ProcessId>, impl Iterator<Item = ProcessId>) {
        let accused = self.offences.counts.keys().map(|(process, _)| *process);
        (self.offences.refusals.keys().copied(), accused)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::access::{Access, Op};
    use crate::params::{Params, ParamsSpec};
    use crate::types::{AccessNumber, Time, Value};

    use super::*;

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

    #[test]
    fn the_brief_says_the_same_as_the_status() {
        let params = Arc::new(Params::try_new(ParamsSpec::new(6, 2, 6)).unwrap());
        let mut machine = Machine::new(params);
        let mut events = Vec::new();
        let same = |machine: &Machine| {
            let (brief, status) = (machine.brief(), machine.status(Time::ZERO));
            assert_eq!(
                (brief.state, brief.phase, brief.length, brief.awaited as usize, brief.first_awaited),
                (
                    status.state,
                    status.phase,
                    status.length,
                    status.awaited.len(),
                    status.awaited.first().map(|it| it.process)
                )
            );
            brief.awaited
        };
        assert_eq!(same(&machine), 6);
        for number in 1..=2 {
            for process in ProcessId::all(6) {
                let op = match number {
                    1 => Op::Append(Value::new(&process.get().to_be_bytes()).unwrap()),
                    _ => Op::Read { start: crate::types::Position::new(0) },
                };
                let number = AccessNumber::new(number).unwrap();
                let access = Access { process, session: None, number, op, no_wait: false };
                machine.access(Time::ZERO, access, &mut events).unwrap();
                same(&machine);
            }
        }
        let members: Vec<_> = machine.members_in_brief().collect();
        assert!(members.iter().all(|member| member.joined && member.executed && member.appended.is_some()));
        assert!(!members.iter().any(|member| member.left || member.given_up));
    }

    #[test]
    fn the_common_decision_is_that_of_all_reports_but_false_ones() {
        for (append_window, after_both) in
            [(AppendWindow::FirstAccess, Some("a")), (AppendWindow::Open, None)]
        {
            let spec = ParamsSpec { append_window, ..ParamsSpec::new(3, 1, 3) };
            let mut machine = Machine::new(Arc::new(Params::try_new(spec).unwrap()));
            let mut events = Vec::new();
            let value = |text: &str| Value::new(text.as_bytes()).unwrap();
            for (process, text) in ProcessId::all(3).zip(["a", "a", "b"]) {
                let op = Op::Append(value(text));
                let access =
                    Access { process, session: None, number: AccessNumber::FIRST, op, no_wait: false };
                machine.access(Time::ZERO, access, &mut events).unwrap();
            }
            let told = |machine: &Machine| (machine.decided(), machine.decision_in_common().cloned());
            assert_eq!(told(&machine), (0, None));
            let mut reports = ProcessId::all(3).zip(["a", "b"]);
            let mut decide = |machine: &mut Machine| {
                let (process, text) = reports.next().unwrap();
                machine.decide(Time::ZERO, process, value(text), &mut events).unwrap();
            };
            decide(&mut machine);
            assert_eq!(told(&machine), (1, Some(value("a"))));
            decide(&mut machine);
            assert_eq!(told(&machine), (2, after_both.map(value)), "{append_window:?}");
        }
    }
}
