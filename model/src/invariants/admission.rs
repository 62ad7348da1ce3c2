//! Admission: joins, sessions, acceptance, leaving, the close (SPEC F3, F5, F7, F8, F10, P3); and the time to
//! reconnect after a restart of the server, in which no patience drains while a process is away (F3).

use std::time::Duration;

use crate::access::Op;
use crate::params::Patience;
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, ProcessId, SessionId, Time};

use super::state::{CheckResult, Invariants, RejoinState, UnansweredAccess, ensure, fault};

impl<S: PhaseOrder> Invariants<S> {
    pub(super) fn joined(&mut self, at: Time, process: ProcessId) -> CheckResult {
        self.known(process)?;
        let member = &mut self.members[process.index()];
        ensure(!member.joined, "F5", || format!("process {process} joined twice"))?;
        member.joined = true;
        self.gathering.joined += 1;
        self.gathering.first_join.get_or_insert(at);
        Ok(())
    }

    pub(super) fn session(&mut self, process: ProcessId, session: SessionId) -> CheckResult {
        self.has_joined(process)?;
        let member = &mut self.members[process.index()];
        let expected = member.session.map_or(SessionId::FIRST, SessionId::next);
        ensure(session == expected, "F8", || {
            format!("process {process} opened session {session}; the next one is {expected}")
        })?;
        member.session = Some(session);
        Ok(())
    }

    pub(super) fn accepted(
        &mut self,
        at: Time,
        process: ProcessId,
        number: AccessNumber,
        session: Option<SessionId>,
        op: &Op,
    ) -> CheckResult {
        self.has_joined(process)?;
        let limit = self.params.spec().pipeline as usize;
        let longest = self.params.spec().max_value_bytes as usize;
        let member = &mut self.members[process.index()];
        let access = || format!("access {number} of process {process}");
        ensure(!member.left, "F10", || format!("{} was accepted after its decision", access()))?;
        ensure(session.is_none() || session == member.session, "F8", || {
            format!("{} was accepted on a session that is not its newest", access())
        })?;
        ensure(number.get() == member.accepted + 1, "F8", || {
            format!("{} was accepted; its next number was {}", access(), member.accepted + 1)
        })?;
        ensure(member.waiting.len() < limit, "F7", || {
            format!("{} was accepted beyond the {limit} that may wait", access())
        })?;
        if let Op::Append(value) = op {
            ensure(value.as_bytes().len() <= longest, "P3", || {
                format!("{} appends a value of more than {longest} bytes", access())
            })?;
        }
        member.accepted = number.get();
        member.waiting.push_back(UnansweredAccess { number, op: op.clone(), at, place: self.accepted });
        self.accepted += 1;
        if member.waiting.len() == 1 {
            let warp = self.params.warp_of(process);
            self.oracle.now_ready(warp, member.is_awaited());
            if !std::mem::replace(&mut member.queued, true) {
                self.oracle.enqueue(warp, process);
            }
        }
        Ok(())
    }

    pub(super) fn gathering_ended(&mut self, at: Time, joined: u32) -> CheckResult {
        let all = self.params.processes();
        let gathering = &mut self.gathering;
        ensure(gathering.ended.is_none(), "F5", || "gathering ended twice".to_owned())?;
        ensure(joined == gathering.joined, "F5", || {
            format!("gathering ended with {joined} joined; {} have", gathering.joined)
        })?;
        let timeout = self.params.spec().join_timeout;
        let due =
            if joined == all { Some(at) } else { gathering.first_join.map(|first| first.after(timeout)) };
        // Processes that cannot connect have the time of the restart to join.
        let due =
            due.map(|due| if joined == all { due } else { due.max(self.rejoin.until().unwrap_or(due)) });
        ensure(due.is_some_and(|due| at >= due), "F5", || {
            format!("gathering ended with {joined} of {all} joined, before the join timeout")
        })?;
        gathering.ended = due;
        self.rejoin.gathering_ended(due.unwrap_or(at));
        gathering.absent = all - joined;
        Ok(())
    }

    pub(super) fn patience_spent(&mut self, at: Time, process: ProcessId) -> CheckResult {
        self.known(process)?;
        let warp = self.params.warp_of(process);
        let member = &self.members[process.index()];
        ensure(member.is_awaited(), "F3", || format!("process {process} was not awaited any more"))?;
        let Some(ended) = self.gathering.ended else {
            return fault("F3", format!("the patience of {process} drained before phase 1"));
        };
        if member.joined {
            let Patience::Finite(patience) = self.params.spec().patience else {
                return fault(
                    "F3",
                    format!("the patience of process {process} is without end, and it was spent"),
                );
            };
            self.check_spent(at, process, ended, patience)?;
            // An access at the very end of the patience is in time, and spends the patience all the same.
            let at_the_end = member.waiting.len() == 1 && member.waiting[0].at == at;
            ensure(member.waiting.is_empty() || at_the_end, "F3", || {
                format!("the patience of process {process} drained while its access waited")
            })?;
            // Under a pace (F9) phases may lag behind the one that is reached.
            let reached = self.oracle.reached();
            let its_phase = self.oracle.warp_of(reached) == warp || !self.params.spec().pace.is_zero();
            ensure(its_phase, "F3", || {
                format!("the patience of process {process} drained in phase {reached} of another warp")
            })?;
        } else {
            self.gathering.absent -= 1;
        }
        let member = &mut self.members[process.index()];
        member.spent = true;
        self.oracle.await_no_more(warp, member.waiting.is_empty());
        Ok(())
    }

    pub(super) fn decided(&mut self, process: ProcessId) -> CheckResult {
        self.has_joined(process)?;
        let member = &mut self.members[process.index()];
        ensure(!member.left, "F10", || format!("process {process} decided twice"))?;
        if member.is_awaited() {
            self.oracle.await_no_more(self.params.warp_of(process), member.waiting.is_empty());
        }
        member.left = true;
        self.left += 1;
        self.leaver = Some(process);
        Ok(())
    }

    pub(super) fn withdrawn(&mut self, process: ProcessId, number: AccessNumber) -> CheckResult {
        self.known(process)?;
        let member = &mut self.members[process.index()];
        let Some(place) = member.waiting.iter().position(|waiting| waiting.number == number) else {
            return fault(
                "F10",
                format!("access {number} of process {process} was withdrawn; it did not wait"),
            );
        };
        member.waiting.remove(place);
        if member.waiting.is_empty() {
            self.oracle.not_ready(self.params.warp_of(process), member.is_awaited());
        }
        if !member.left && !self.closed {
            self.closing.get_or_insert((process, number));
        }
        Ok(())
    }

    /// No access waits of a process that left (F10).
    pub(super) fn end_leaving(&mut self) -> CheckResult {
        let Some(process) = self.leaver.take() else { return Ok(()) };
        ensure(self.members[process.index()].waiting.is_empty(), "F10", || {
            format!("process {process} left, and its waiting accesses were not withdrawn")
        })
    }

    /// No access was withdrawn of a process that stays, unless the instance closes (F10).
    pub(super) fn end_closing(&self) -> CheckResult {
        match self.closing {
            None => Ok(()),
            Some((process, number)) => {
                fault("F10", format!("access {number} of process {process} was withdrawn; it had not left"))
            }
        }
    }

    pub(super) fn finished(&mut self) -> CheckResult {
        ensure(self.left == self.params.processes() && !self.finished, "F10", || {
            format!("the instance finished when {} of {} had left", self.left, self.params.processes())
        })?;
        self.finished = true;
        Ok(())
    }

    pub(super) fn closed(&mut self) -> CheckResult {
        self.closed = true;
        self.closing = None;
        Ok(())
    }

    fn has_joined(&self, process: ProcessId) -> CheckResult {
        self.known(process)?;
        ensure(self.members[process.index()].joined, "F5", || {
            format!("process {process} acted before it joined")
        })
    }
}

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

    /// The patience of a process that had joined is spent: phases have been open for so long since gathering
    /// ended, and not while processes were away.
    fn check_spent(&self, at: Time, process: ProcessId, ended: Time, patience: Duration) -> CheckResult {
        if let Some(until) = self.rejoin.until().filter(|until| at < *until && !self.rejoin.just_now) {
            return fault(
                "F3",
                format!(
                    "the patience of process {process} drained before {} ns, while processes were away after a restart",
                    until.as_nanos()
                ),
            );
        }
        // A patience that had drained before the restart is found spent at the moment of the restart.
        let spared = self.rejoin.spared_until(at);
        ensure(at >= ended.after(patience).after(spared), "F3", || {
            format!("the patience of process {process} cannot be spent yet")
        })
    }
}
