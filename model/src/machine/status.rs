//! An instance as `Get` shows it: which phase it is in, and which processes it waits for (SPEC F12); and in
//! few numbers, for who looks at many or at one with many processes.

use crate::access::Op;
use crate::params::Patience;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, Time, Value, WarpId};

use super::member::{self, Member};
use super::offences::OffenceCount;
use super::{Machine, State};

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
    /// The processes for which the instance waits: while gathering those that have not joined, in an open
    /// phase the members that are missing. None otherwise: an instance in which nothing waits stands still
    /// (F4).
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

/// Accesses that wait are shown of as many processes as have this many for each row together, and of one at
/// least.
const ACCESSES_PER_ROW: usize = 16;

impl Status {
    /// See [`Machine::status_rows`].
    pub(super) fn of<S: PhaseOrder>(machine: &Machine<S>, now: Time, rows: usize) -> Self {
        let gathering = machine.state == State::Gathering;
        let MemberRows { mut awaited, waiting, left, given_up } = MemberRows::of(machine, rows);
        add_missing(machine, now, &mut awaited);
        let offences: Vec<_> = machine.offences.counts().take(rows).cloned().collect();
        let further = machine.offences.counts.len() - offences.len();
        Self {
            state: machine.state,
            phase: (!gathering).then_some(machine.phases.phase()),
            warp: (!gathering).then_some(machine.phases.warp()),
            open: machine.open_phase.is_some(),
            joined: machine.members.joined(),
            join_deadline: machine.join_deadline,
            length: machine.list.len(),
            sealed: machine.sealed(),
            left_out: LeftOut {
                awaited: awaited.left_out,
                waiting: waiting.left_out,
                left: left.left_out,
                given_up: given_up.left_out,
                offences: u32::try_from(further).unwrap_or(u32::MAX),
            },
            awaited: awaited.first,
            waiting: waiting.first,
            left: left.first,
            given_up: given_up.first,
            offences,
        }
    }
}

impl MemberRows {
    /// The rows that each member shows for itself. The missing members of an open phase are not among those
    /// that are awaited.
    fn of<S>(machine: &Machine<S>, rows: usize) -> Self {
        let gathering = machine.state == State::Gathering;
        let mut found = Self {
            awaited: Rows::new(rows),
            waiting: Rows::new(rows),
            left: Rows::new(rows),
            given_up: Rows::new(rows),
        };
        let mut accesses = 0_usize;
        for (process, member) in machine.members.iter() {
            if gathering && !member.has_joined() {
                found.awaited.add(|| AwaitedMember::new(process, member, 0));
            }
            if member.waiting() > 0 {
                found.waiting.add(|| {
                    let queue = machine.members.queue(process).map(|(number, _, op)| (number, op)).collect();
                    WaitingMember { process, accesses: queue }
                });
                accesses += usize::from(member.waiting());
                if accesses >= rows.saturating_mul(ACCESSES_PER_ROW) {
                    found.waiting.limit = found.waiting.first.len();
                }
            }
            if let Some(decision) = machine.members.decision(process) {
                found.left.add(|| (process, decision.clone()));
            } else if member.is_spent() {
                found.given_up.add(|| process);
            }
        }
        found
    }
}

/// Adds the members for which the open phase waits, if one is open.
fn add_missing<S: PhaseOrder>(machine: &Machine<S>, now: Time, rows: &mut Rows<AwaitedMember>) {
    let (State::Running, Some(open_phase)) = (machine.state, machine.open_phase) else { return };
    let held = now.nanos_since(open_phase.since);
    for process in machine.params.members(machine.phases.warp()) {
        let member = &machine.members[process];
        if member.is_missing() {
            rows.add(|| AwaitedMember::new(process, member, held));
        }
    }
}

impl AwaitedMember {
    /// A member for which a phase has been held for so many nanoseconds.
    fn new(process: ProcessId, member: &Member, held: u64) -> Self {
        let patience = match member.patience {
            member::ENDLESS => Patience::Endless,
            patience => Patience::Finite(std::time::Duration::from_nanos(patience.saturating_sub(held))),
        };
        Self { process, patience }
    }
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
    /// The phase of its append that was executed: of the one that won, or else of its last (K2).
    pub appended: Option<Phase>,
    /// It has left.
    pub left: bool,
    /// It is not awaited any more though it has not left.
    pub given_up: bool,
}

/// How many members are looked at to find the first that is awaited.
const LOOKED_AT: usize = 64;

impl Brief {
    /// See [`Machine::brief`].
    pub(super) fn of<S: PhaseOrder>(machine: &Machine<S>) -> Self {
        let gathering = machine.state == State::Gathering;
        let is_open = machine.state == State::Running && machine.open_phase.is_some();
        let (params, members, warp) = (&machine.params, &machine.members, machine.phases.warp());
        let (awaited, first_awaited) = if gathering {
            let mut all = ProcessId::all(params.processes()).take(LOOKED_AT);
            let awaited = params.processes() - members.joined();
            (awaited, all.find(|process| !members[*process].has_joined()))
        } else if is_open {
            let mut of_warp = params.members(warp).take(LOOKED_AT);
            (machine.warps[warp].missing, of_warp.find(|process| members[*process].is_missing()))
        } else {
            (0, None)
        };
        Self {
            state: machine.state,
            phase: (!gathering).then_some(machine.phases.phase()),
            length: machine.list.len(),
            awaited,
            first_awaited,
            offences: u32::try_from(machine.offences.counts.len()).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::access::{Access, Op};
    use crate::params::{AppendWindow, Params, ParamsSpec};
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
