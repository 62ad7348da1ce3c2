//! The time to reconnect after a restart of the server (SPEC F3): no patience drains while a process is away.

use std::time::Duration;

use crate::scheduler::PhaseOrder;
use crate::types::{ProcessId, Time};

use super::fault::{CheckResult, RuleFault, ensure};
use super::rejoin::RejoinState;
use super::state::Invariants;

impl<S: PhaseOrder> Invariants<S> {
    pub(super) fn restarted(&mut self, at: Time, rejoin: Duration) -> CheckResult {
        ensure(!self.finished && !self.closed, "F10", || {
            "a restart was recorded of an instance that was over".to_owned()
        })?;
        self.rejoin.end(at);
        for member in &mut self.members {
            member.away = member.is_awaited();
        }
        let away = self.members.iter().map(|member| u32::from(member.away)).sum();
        let (until, spared) = (at.after(rejoin), self.rejoin.spared);
        self.rejoin = RejoinState { away, since: at, until, spared, just_now: true };
        Ok(())
    }

    /// A process sent an access again that had been accepted before.
    pub(super) fn rejoined(&mut self, process: ProcessId) -> CheckResult {
        self.known(process)?;
        let member = &self.members[process.index()];
        ensure(member.away, "F3", || format!("process {process} came back and was not away"))?;
        ensure(member.accepted > 0, "F3", || {
            format!("process {process} came back with an access that was accepted before, and there is none")
        })
    }

    /// A process was heard of, or is not awaited any more.
    pub(super) fn heard_of(&mut self, at: Time, process: ProcessId) {
        let Some(member) = self.members.get_mut(process.index()) else { return };
        if !std::mem::take(&mut member.away) {
            return;
        }
        if self.rejoin.away == 1 {
            self.rejoin.end(at);
        } else {
            self.rejoin.away -= 1;
        }
    }

    /// An event other than spent patience has come: the restart is complete.
    pub(super) fn go_on_after_restart(&mut self) {
        self.rejoin.just_now = false;
    }

    /// The patience of a process that had joined is spent: phases have been open for so long since gathering ended, and
    /// not while processes were away.
    pub(super) fn check_spent(
        &self,
        at: Time,
        process: ProcessId,
        ended: Time,
        patience: Duration,
    ) -> CheckResult {
        if let Some(until) = self.rejoin.until().filter(|until| at < *until && !self.rejoin.just_now) {
            let what = format!(
                "the patience of process {process} drained before {} ns, while processes were away after a restart",
                until.as_nanos()
            );
            return Err(RuleFault { rule: "F3", what });
        }
        // What had drained before the restart is found spent at its moment.
        let spared = self.rejoin.spared_until(at);
        ensure(at >= ended.after(patience).after(spared), "F3", || {
            format!("the patience of process {process} cannot be spent yet")
        })
    }
}
