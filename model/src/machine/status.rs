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

impl<S: PhaseOrder> Machine<S> {
    /// The instance as it stands at the moment `now`. Costs O(n).
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        let running = self.state == State::Running;
        let gathering = self.state == State::Gathering;
        let members = || {
            ProcessId::all(self.params.processes()).map(|process| (process, &self.members[process.index()]))
        };
        Status {
            state: self.state,
            phase: (!gathering).then_some(self.phase),
            warp: (!gathering).then_some(self.warp),
            open: self.open_phase.is_some(),
            joined: self.joined,
            join_deadline: self.join_deadline,
            awaited: if gathering {
                let missing = members().filter(|(_, member)| !member.has_joined());
                missing.map(|(process, member)| awaited(process, member, 0)).collect()
            } else if let (true, Some(open_phase)) = (running, self.open_phase) {
                let held = now.nanos_since(open_phase.since);
                let warp =
                    self.params.members(self.warp).map(|process| (process, &self.members[process.index()]));
                let missing = warp.filter(|(_, member)| member.is_missing());
                missing.map(|(process, member)| awaited(process, member, held)).collect()
            } else {
                Vec::new()
            },
            waiting: members()
                .filter(|(_, member)| member.waiting() > 0)
                .map(|(process, member)| {
                    let accesses = member.queue(&self.queues).map(|(number, _, op)| (number, op)).collect();
                    WaitingMember { process, accesses }
                })
                .collect(),
            length: self.list.len(),
            sealed: self.sealed(),
            left: members()
                .filter_map(|(process, _)| Some((process, self.decision(process)?.clone())))
                .collect(),
            given_up: members()
                .filter(|(_, member)| member.is_spent() && !member.has_left())
                .map(|(process, _)| process)
                .collect(),
            offences: self.offences.counts().cloned().collect(),
        }
    }
}

fn awaited(process: ProcessId, member: &Member, held: u64) -> AwaitedMember {
    let patience = match member.patience {
        member::ENDLESS => Patience::Endless,
        patience => Patience::Finite(std::time::Duration::from_nanos(patience.saturating_sub(held))),
    };
    AwaitedMember { process, patience }
}
