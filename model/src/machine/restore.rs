//! A machine from its [`Checkpoint`], of which nothing is trusted.
//!
//! A checkpoint comes from a file, which may be damaged. All that could make a machine panic or run for ever later is
//! checked: indices, orders, counts, bounds of the pipeline and the list, sizes of values, sessions, numbers near the
//! end of their range, and whether the parts agree. That a checkpoint passes does not show that an instance ever
//! was in that state: it holds no proof of what it says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::access::{AppendAnswer, Op};
use crate::params::{AppendWindow, LONGEST_DURATION, Params, Patience};
use crate::scheduler::PhaseOrder;
use crate::types::{Phase, Position, ProcessId, SessionId, Time, Value};

use super::answer_cache::CachedAnswer;
use super::checkpoint::{Checkpoint, KeptAnswer, MemberCheckpoint};
use super::member;
use super::offences::OffenceCount;
use super::phases::wake;
use super::queues::{MAX_SESSIONS, OptionalSession};
use super::state::{Entry, Machine, OpenPhase, Rejoin, State};

/// Numbers that only grow are below this, so that no instance comes to the end of their range.
const LARGEST: u64 = u64::MAX / 2;

/// Why a checkpoint makes no machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// It is of an instance of another size.
    #[error("the checkpoint has {given} processes: this instance has n = {processes}")]
    Processes {
        /// How many processes it has.
        given: usize,
        /// n.
        processes: u32,
    },
    /// Something is wrong with a process.
    #[error("process {process}: {what}")]
    Process {
        /// The process.
        process: ProcessId,
        /// The fault.
        what: &'static str,
    },
    /// Something is wrong with an entry of the list.
    #[error("entry {position}: {what}")]
    Entry {
        /// Its position.
        position: Position,
        /// The fault.
        what: &'static str,
    },
    /// Something is wrong with the instance as a whole.
    #[error("{0}")]
    Instance(&'static str),
}

type Checked = Result<(), CheckpointError>;

/// Refuses unless the condition holds.
fn ensure(holds: bool, what: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(CheckpointError::Instance(what)) }
}

impl Machine {
    /// The machine of which this is the checkpoint: from now on it does the same.
    ///
    /// # Errors
    /// If it is no checkpoint of an instance with these parameters.
    pub fn from_checkpoint(params: Arc<Params>, checkpoint: Checkpoint) -> Result<Self, CheckpointError> {
        let (given, processes) = (checkpoint.members.len(), params.processes());
        if given != processes as usize {
            return Err(CheckpointError::Processes { given, processes });
        }
        check_times(&checkpoint)?;
        let mut machine = Self::new(params);
        machine.state = checkpoint.state;
        machine.now = checkpoint.time;
        machine.join_deadline = checkpoint.join_deadline;
        machine.last_step = checkpoint.last_step;
        machine.accepted = checkpoint.accepted;
        ensure(checkpoint.phase.get() <= LARGEST, "the phase is too large")?;
        ensure(checkpoint.accepted <= LARGEST, "the number of accepted accesses is too large")?;
        machine.go_to(checkpoint.phase);
        machine.restore_list(checkpoint.entries, checkpoint.sealed)?;
        let mut places = BTreeSet::new();
        for (process, member) in ProcessId::all(processes).zip(checkpoint.members) {
            machine
                .restore_member(process, member, &mut places)
                .map_err(|what| CheckpointError::Process { process, what })?;
        }
        machine.restore_ready(&checkpoint.ready)?;
        machine.restore_early_reports(checkpoint.early_reports)?;
        machine.restore_offences(checkpoint.offences, &checkpoint.refusals)?;
        machine.restore_tallies();
        machine.restore_rejoin(checkpoint.rejoin_until)?;
        machine.restore_open_phase(checkpoint.open_since)?;
        machine.check_state()?;
        Ok(machine)
    }

    fn restore_list(&mut self, entries: Vec<Entry>, sealed: Option<Phase>) -> Checked {
        ensure(entries.len() <= self.params.list_limit() as usize, "the list is longer than its limit")?;
        let first_access = self.params.spec().append_window == AppendWindow::FirstAccess;
        let mut last = None;
        for (position, entry) in (0..).map(Position::new).zip(entries) {
            let phase = entry.phase;
            let what = if !self.params.contains(entry.process) {
                "its process does not exist"
            } else if !self.fits(&entry.value) {
                "its value is too large"
            } else if last >= Some(phase) || phase >= self.phase || sealed.is_some_and(|at| phase >= at) {
                "its phase is out of order"
            } else if first_access && !self.is_first_phase_of(phase, entry.process) {
                "its phase is not the first of its warp"
            } else {
                last = Some(phase);
                match self.list.turn().append(entry) {
                    AppendAnswer::Success(_) => continue,
                    AppendAnswer::Failed | AppendAnswer::LimitReached => "the list does not take it",
                }
            };
            return Err(CheckpointError::Entry { position, what });
        }
        ensure(self.is_seal_due() == sealed.is_some(), "the list is sealed too early or too late")?;
        let fits = |at: Phase| at <= self.phase && (!first_access || self.schedule.all_began_before(at));
        ensure(sealed.is_none_or(fits), "the list is sealed in a phase in which it cannot be")?;
        self.sealed = sealed;
        Ok(())
    }

    /// Whether this is the first phase of the process's warp. Costs O(W) at most once: all are of round 1.
    fn is_first_phase_of(&mut self, phase: Phase, process: ProcessId) -> bool {
        self.schedule.is_first(phase) && self.schedule.warp_of(phase) == self.params.warp_of(process)
    }

    fn fits(&self, value: &Value) -> bool {
        value.as_bytes().len() <= self.params.spec().max_value_bytes as usize
    }

    fn restore_member(
        &mut self,
        process: ProcessId,
        given: MemberCheckpoint,
        places: &mut BTreeSet<u64>,
    ) -> Result<(), &'static str> {
        self.check_member(&given)?;
        let MemberCheckpoint { next, session, append, withdrawn, .. } = given;
        let waiting = given.waiting.len() as u64;
        let executed = next.get() - 1 - waiting - u64::from(withdrawn);
        let first =
            crate::types::AccessNumber::new(next.get() - waiting).ok_or("its next number is too small")?;
        let member = &mut self.members[process.index()];
        member.next = first;
        member.session = OptionalSession::new(session);
        for access in &given.waiting {
            if matches!(access.op, Op::Append(_))
                && (access.accepted >= self.accepted || !places.insert(access.accepted))
            {
                return Err("the order of its appends is impossible");
            }
            member.push(&mut self.queues, access.session, &access.op, access.accepted);
        }
        if given.joined {
            member.join();
            self.joined += 1;
        }
        if let Patience::Finite(patience) = given.patience {
            member.patience = member::nanos(patience);
        }
        if given.spent {
            member.give_up();
        }
        if given.refused {
            member.mark_refused();
        }
        if given.away {
            member.go_away();
        }
        let cold = &mut self.cold_members[process.index()];
        (cold.append, cold.withdrawn) = (append, withdrawn);
        if let Some(decision) = given.decision {
            member.leave();
            cold.decision = u32::try_from(self.decisions.len()).map_err(|_| "it is one of too many")?;
            self.decisions.push(decision);
        }
        let numbers = self.cached_numbers(executed);
        for (number, kept) in numbers.zip(given.answers) {
            self.answers.insert(process, number, CachedAnswer::from(kept));
        }
        Ok(())
    }

    /// Whether a machine can know this of a process.
    fn check_member(&self, given: &MemberCheckpoint) -> Result<(), &'static str> {
        let ensure = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let ended = self.has_ended();
        let pipeline = u64::from(self.params.spec().pipeline);
        let (waiting, withdrawn) = (given.waiting.len() as u64, u64::from(given.withdrawn));
        let left = given.decision.is_some();
        ensure(given.next.get() <= LARGEST, "its next number is too large")?;
        ensure(waiting <= pipeline && withdrawn <= pipeline, "more of its accesses waited than may")?;
        ensure(
            waiting == 0 || !(ended || left),
            "its accesses wait though it has left or the instance has ended",
        )?;
        ensure(withdrawn == 0 || left || ended, "its accesses were withdrawn though it has not left")?;
        let executed =
            (given.next.get() - 1).checked_sub(waiting + withdrawn).ok_or("its next number is too small")?;
        ensure(given.answers.len() as u64 == executed.min(pipeline), "the number of its answers is wrong")?;
        let sessions = given.waiting.iter().map(|access| access.session);
        let mut sessions = sessions.chain(given.answers.iter().map(|kept| kept.session));
        let known = given.session.map_or(0, SessionId::get);
        ensure(known <= MAX_SESSIONS, "it has more sessions than it may")?;
        ensure(
            sessions.all(|session| session.map_or(0, SessionId::get) <= known),
            "an access came on a session that it has not opened",
        )?;
        let values = given.waiting.iter().filter_map(|access| match &access.op {
            Op::Append(value) => Some(value),
            Op::Read { .. } => None,
        });
        ensure(values.chain(&given.decision).all(|value| self.fits(value)), "a value of it is too large")?;
        ensure(
            given.answers.windows(2).all(|pair| pair[0].phase < pair[1].phase)
                && given.answers.last().is_none_or(|kept| kept.phase < self.phase)
                && given.append.is_none_or(|phase| phase < self.phase && executed > 0),
            "the phases of its answers are out of order",
        )?;
        let acted = given.next.get() > 1 || given.session.is_some() || left;
        ensure(given.joined || !acted, "it acted and has not joined")?;
        ensure(!given.away || !(given.spent || left || ended), "it is away though it is not awaited")?;
        self.check_patience(given).then_some(()).ok_or("its patience is impossible")
    }

    /// Whether a process may have this patience left.
    fn check_patience(&self, given: &MemberCheckpoint) -> bool {
        let nothing = given.patience == Patience::Finite(Duration::ZERO);
        if self.has_ended() || given.spent {
            return nothing;
        }
        match (given.patience, self.params.spec().patience) {
            (Patience::Endless, Patience::Endless) => true,
            (Patience::Finite(left), Patience::Finite(whole)) => left <= whole,
            _ => false,
        }
    }

    /// The queues of the warps.
    fn restore_ready(&mut self, ready: &[ProcessId]) -> Checked {
        let waiting = self.members.iter().filter(|member| member.waiting() > 0).count();
        let mut named = BTreeSet::new();
        let warp_of = |process: &ProcessId| self.params.warp_of(*process);
        ensure(
            ready.is_sorted_by_key(warp_of),
            "the processes whose accesses wait are not in the order of warps",
        )?;
        for &process in ready {
            let waits = self.params.contains(process) && self.members[process.index()].waiting() > 0;
            ensure(waits && named.insert(process), "a process stands in the order of its warp that may not")?;
            let appends = self.members[process.index()].appends();
            self.warps.add_ready(self.params.warp_of(process), process, false, appends);
        }
        ensure(named.len() == waiting, "a process whose access waits is missing in the order of its warp")
    }

    fn restore_early_reports(&mut self, reports: Vec<ProcessId>) -> Checked {
        let compared = self.params.spec().append_window == AppendWindow::FirstAccess;
        let expected = if compared && !self.sealed() && !self.has_ended() { self.decisions.len() } else { 0 };
        let left = |process: &&ProcessId| {
            self.params.contains(**process) && self.members[process.index()].has_left()
        };
        let named: BTreeSet<&ProcessId> = reports.iter().filter(left).collect();
        let right = named.len() == expected && reports.len() == expected;
        ensure(right, "the reports before the seal are not those of the processes that left")?;
        self.early_reports = reports;
        Ok(())
    }

    fn restore_offences(&mut self, offences: Vec<OffenceCount>, refusals: &[(ProcessId, u64)]) -> Checked {
        let key = |offence: &OffenceCount| (offence.first.process, offence.first.kind);
        ensure(
            offences.is_sorted_by(|one, next| key(one) < key(next))
                && refusals.is_sorted_by(|one, next| one.0 < next.0),
            "the offences or refusals are not in order",
        )?;
        let counted = offences.iter().map(|offence| (offence.first.process, offence.count));
        ensure(
            counted
                .chain(refusals.iter().copied())
                .all(|(process, count)| self.params.contains(process) && (1..=LARGEST).contains(&count)),
            "an offence or a refusal is of no process, or its count is 0 or too large",
        )?;
        self.offences.counts = offences.into_iter().map(|offence| (key(&offence), offence)).collect();
        self.offences.refusals = refusals.iter().copied().collect();
        Ok(())
    }

    /// The tallies of each warp follow from its members.
    fn restore_tallies(&mut self) {
        for index in 0..self.params.warps() as usize {
            let Some(warp) = crate::types::WarpId::from_index(index) else { continue };
            let members = self.params.members(warp).map(|process| &self.members[process.index()]);
            let awaited = members.filter(|member| member.is_awaited());
            let (mut count, mut missing, mut least) = (0, 0, member::ENDLESS);
            for member in awaited {
                count += 1;
                missing += u32::from(member.is_missing());
                least = least.min(member.patience);
            }
            self.warps.set_patience(warp, least);
            self.warps.set_awaited(warp, count, missing);
        }
    }

    fn restore_rejoin(&mut self, until: Option<Time>) -> Checked {
        let away = self.members.iter().map(|member| u32::from(member.is_away())).sum();
        ensure(
            until.is_some() == (away > 0),
            "the time to reconnect does not fit the processes that are away",
        )?;
        self.rejoin = until.map(|until| Rejoin { until, away });
        Ok(())
    }

    fn restore_open_phase(&mut self, since: Option<Time>) -> Checked {
        let Some(since) = since else { return Ok(()) };
        let waits = self.warps.ready() > 0 && self.warps[self.warp].missing > 0;
        ensure(self.state == State::Running && waits, "a phase is open that would have passed")?;
        ensure(since <= self.drains_from(self.now), "the open phase opened in the future")?;
        let missing = self.params.members(self.warp).map(|process| &self.members[process.index()]);
        let missing = missing.filter(|member| member.is_missing()).map(|member| member.patience);
        let least = missing.min().unwrap_or(member::ENDLESS);
        self.open_phase = Some(OpenPhase { since, wake: wake(since, least) });
        Ok(())
    }

    /// Whether the processes are as they must be in this state.
    fn check_state(&self) -> Checked {
        let all = self.params.processes() as usize;
        let all_left = self.decisions.len() == all;
        let phases_go_on = !self.has_ended() || (self.last_step.is_none() && self.accepted == 0);
        ensure(phases_go_on, "an ended instance has what only phases need")?;
        let mut members = self.members.iter();
        let fits = match self.state {
            State::Gathering => {
                self.phase == Phase::FIRST
                    && !self.all_have_joined()
                    && self.join_deadline.is_some() == (self.joined > 0)
                    && members.all(|member| !member.is_spent())
            }
            State::Running => {
                self.join_deadline.is_none()
                    && !all_left
                    && members.all(|member| member.has_joined() || member.is_spent())
            }
            State::Finished => all_left,
            State::Closed => true,
        };
        ensure(fits, "the processes are not as they must be in the state of the instance")
    }
}

/// No moment is later than it can be.
fn check_times(checkpoint: &Checkpoint) -> Checked {
    let Checkpoint { time, .. } = *checkpoint;
    ensure(time.as_nanos() <= LARGEST, "the time is too large")?;
    ensure(checkpoint.last_step.is_none_or(|step| step <= time), "the last step is in the future")?;
    let latest = Some(time.after(LONGEST_DURATION));
    let timers = [checkpoint.join_deadline, checkpoint.rejoin_until];
    ensure(timers.into_iter().all(|timer| timer <= latest), "a timer ends too late")
}

impl From<KeptAnswer> for CachedAnswer {
    /// The session must be one that may be opened.
    fn from(kept: KeptAnswer) -> Self {
        let KeptAnswer { phase, session, append, content } = kept;
        Self { phase, content, session: OptionalSession::new(session), append }
    }
}
