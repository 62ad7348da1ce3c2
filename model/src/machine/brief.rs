//! An instance in few numbers, for who looks at many or at one with many processes.

use crate::params::AppendWindow;
use crate::process::mode;
use crate::scheduler::PhaseOrder;
use crate::types::{Phase, ProcessId, Value};

use super::member::Member;
use super::state::{Machine, State};

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

/// What a process has done, in short.
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
            (self.warps[self.warp.index()].missing, self.first(members, Member::is_missing))
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

    use super::*;
    use crate::access::{Access, Op};
    use crate::params::{Params, ParamsSpec};
    use crate::types::{AccessNumber, Time, Value};

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
