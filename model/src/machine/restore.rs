//! A machine from its [`Checkpoint`], of which nothing is trusted.
//!
//! A checkpoint comes from a file, which may be damaged. All that could make a machine panic or run for ever
//! later is checked: indices, orders, counts, bounds of the pipeline and the list, sizes of values, sessions,
//! numbers near the end of their range, and whether the parts agree. That a checkpoint passes does not show
//! that an instance ever was in that state: it holds no proof of what it says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::access::Op;
use crate::params::{AppendWindow, LONGEST_DURATION, Params, Patience};
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule};
use crate::types::{Phase, Position, ProcessId, SessionId, Value};

use super::checkpoint::{Checkpoint, MemberCheckpoint};
use super::member;
use super::offences::OffenceCount;
use super::phase_cursor::{OpenPhase, PhaseCursor};
use super::phases::Rejoin;
use super::queues::MAX_SESSIONS;
use super::{Machine, State};

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

impl Checkpoint {
    /// Whether an instance with these parameters can be so.
    pub(super) fn check(&self, params: &Params) -> Checked {
        let (given, processes) = (self.members.len(), params.processes());
        if given != processes as usize {
            return Err(CheckpointError::Processes { given, processes });
        }
        self.check_times()?;
        ensure(self.phase.get() <= LARGEST, "the phase is too large")?;
        ensure(self.accepted <= LARGEST, "the number of accepted accesses is too large")?;
        self.check_list(params)?;
        let mut places = BTreeSet::new();
        for (process, member) in ProcessId::all(processes).zip(&self.members) {
            self.check_member(params, member)
                .and_then(|()| self.check_appends(member, &mut places))
                .map_err(|what| CheckpointError::Process { process, what })?;
        }
        self.check_ready(params)?;
        self.check_early_reports(params)?;
        self.check_offences(params)?;
        self.check_open_phase(params)?;
        self.check_state()
    }

    /// No moment is later than it can be.
    fn check_times(&self) -> Checked {
        let Self { time, .. } = *self;
        ensure(time.as_nanos() <= LARGEST, "the time is too large")?;
        ensure(self.last_step.is_none_or(|step| step <= time), "the last step is in the future")?;
        let latest = Some(time.after(LONGEST_DURATION));
        let timers = [self.join_deadline, self.rejoin_until];
        ensure(timers.into_iter().all(|timer| timer <= latest), "a timer ends too late")
    }

    fn check_list(&self, params: &Params) -> Checked {
        let limit = params.list_limit() as usize;
        ensure(self.entries.len() <= limit, "the list is longer than its limit")?;
        let first_access = params.spec().append_window == AppendWindow::FirstAccess;
        let mut schedule = CachedSchedule::new(Schedule::new(params));
        let (mut last, mut winners) = (None, BTreeSet::new());
        for (position, entry) in (0..).map(Position::new).zip(&self.entries) {
            let phase = entry.phase;
            let what = if !params.contains(entry.process) {
                "its process does not exist"
            } else if !fits(params, &entry.value) {
                "its value is too large"
            } else if last >= Some(phase) || phase >= self.phase || self.sealed.is_some_and(|at| phase >= at)
            {
                "its phase is out of order"
            } else if first_access
                // Costs O(W) at most once a round: they are in order.
                && !(schedule.is_append_phase(phase)
                    && schedule.warp_of(phase) == params.warp_of(entry.process))
            {
                "its phase is none in which its warp may append"
            } else if first_access && !winners.insert(entry.process) {
                "its process has won another one"
            } else {
                last = Some(phase);
                continue;
            };
            return Err(CheckpointError::Entry { position, what });
        }
        let mut phases = PhaseCursor::new(schedule, params.spec().append_window);
        phases.go_to(self.phase);
        let is_due = phases.is_seal_due(self.entries.len() == limit);
        ensure(is_due == self.sealed.is_some(), "the list is sealed too early or too late")?;
        let fits =
            |at: Phase| at <= self.phase && (!first_access || phases.schedule.append_phases_ended_before(at));
        ensure(self.sealed.is_none_or(fits), "the list is sealed in a phase in which it cannot be")
    }

    /// Whether a machine can know this of a process.
    fn check_member(&self, params: &Params, given: &MemberCheckpoint) -> Result<(), &'static str> {
        let ensure = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let ended = self.state.has_ended();
        let pipeline = u64::from(params.spec().pipeline);
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
        // Its first append waits, or was executed (B2).
        let is_compared = !(ended || left) && given.next.get() <= params.append_rounds().into();
        let first_append = given.first_append.as_ref();
        let fits_first = match given.append {
            None => first_append == values.clone().next().filter(|_| is_compared),
            Some(_) => first_append.is_some() == is_compared,
        };
        ensure(fits_first, "its first append is not the one that later ones are compared with")?;
        ensure(
            values.chain(&given.decision).chain(first_append).all(|value| fits(params, value)),
            "a value of it is too large",
        )?;
        ensure(
            given.answers.windows(2).all(|pair| pair[0].phase < pair[1].phase)
                && given.answers.last().is_none_or(|kept| kept.phase < self.phase)
                && given.append.is_none_or(|phase| phase < self.phase && executed > 0),
            "the phases of its answers are out of order",
        )?;
        let acted = given.next.get() > 1 || given.session.is_some() || left;
        ensure(given.joined || !acted, "it acted and has not joined")?;
        ensure(!given.away || !(given.spent || left || ended), "it is away though it is not awaited")?;
        self.check_patience(params, given).then_some(()).ok_or("its patience is impossible")
    }

    /// Whether a process may have this patience left.
    fn check_patience(&self, params: &Params, given: &MemberCheckpoint) -> bool {
        let nothing = given.patience == Patience::Finite(Duration::ZERO);
        if self.state.has_ended() || given.spent {
            return nothing;
        }
        match (given.patience, params.spec().patience) {
            (Patience::Endless, Patience::Endless) => true,
            (Patience::Finite(left), Patience::Finite(whole)) => left <= whole,
            _ => false,
        }
    }

    /// Whether the appends of a process that wait have places of their own in the order of acceptance.
    fn check_appends(
        &self,
        given: &MemberCheckpoint,
        places: &mut BTreeSet<u64>,
    ) -> Result<(), &'static str> {
        let mut appends = given.waiting.iter().filter(|access| matches!(access.op, Op::Append(_)));
        let in_order =
            appends.all(|access| access.accepted < self.accepted && places.insert(access.accepted));
        if in_order { Ok(()) } else { Err("the order of its appends is impossible") }
    }

    /// Whether the queues of the warps name the processes with an access waiting.
    fn check_ready(&self, params: &Params) -> Checked {
        let waits = |process: ProcessId| !self.members[process.index()].waiting.is_empty();
        ensure(
            self.ready.is_sorted_by_key(|process| params.warp_of(*process)),
            "the processes whose accesses wait are not in the order of warps",
        )?;
        let mut named = BTreeSet::new();
        let may_stand =
            |&process: &ProcessId| params.contains(process) && waits(process) && named.insert(process);
        ensure(self.ready.iter().all(may_stand), "a process stands in the order of its warp that may not")?;
        let waiting = self.members.iter().filter(|member| !member.waiting.is_empty()).count();
        ensure(
            self.ready.len() == waiting,
            "a process whose access waits is missing in the order of its warp",
        )
    }

    fn check_early_reports(&self, params: &Params) -> Checked {
        let compared = params.spec().append_window == AppendWindow::FirstAccess;
        let is_awaited = compared && self.sealed.is_none() && !self.state.has_ended();
        let expected = if is_awaited { self.decided() } else { 0 };
        let left = |process: &&ProcessId| {
            params.contains(**process) && self.members[process.index()].decision.is_some()
        };
        let named: BTreeSet<&ProcessId> = self.early_reports.iter().filter(left).collect();
        let right = named.len() == expected && self.early_reports.len() == expected;
        ensure(right, "the reports before the seal are not those of the processes that left")
    }

    fn check_offences(&self, params: &Params) -> Checked {
        let key = |offence: &OffenceCount| (offence.first.process, offence.first.kind);
        ensure(
            self.offences.is_sorted_by(|one, next| key(one) < key(next))
                && self.refusals.is_sorted_by(|one, next| one.0 < next.0),
            "the offences or refusals are not in order",
        )?;
        let counted = self.offences.iter().map(|offence| (offence.first.process, offence.count));
        let mut counted = counted.chain(self.refusals.iter().copied());
        ensure(
            counted.all(|(process, count)| params.contains(process) && (1..=LARGEST).contains(&count)),
            "an offence or a refusal is of no process, or its count is 0 or too large",
        )
    }

    /// Whether a phase may be open, and the time to reconnect may run.
    fn check_open_phase(&self, params: &Params) -> Checked {
        ensure(
            self.rejoin_until.is_some() == self.members.iter().any(|member| member.away),
            "the time to reconnect does not fit the processes that are away",
        )?;
        let Some(since) = self.open_since else { return Ok(()) };
        let mut schedule = CachedSchedule::new(Schedule::new(params));
        let mut members = params.members(schedule.warp_of(self.phase));
        let is_missing = |process: ProcessId| {
            let member = &self.members[process.index()];
            member.waiting.is_empty() && !member.spent && member.decision.is_none()
        };
        let waits = !self.ready.is_empty() && members.any(is_missing);
        ensure(self.state == State::Running && waits, "a phase is open that would have passed")?;
        let latest = self.rejoin_until.map_or(self.time, |until| until.max(self.time));
        ensure(since <= latest, "the open phase opened in the future")
    }

    fn decided(&self) -> usize {
        self.members.iter().filter(|member| member.decision.is_some()).count()
    }

    /// Whether the processes are as they must be in this state.
    fn check_state(&self) -> Checked {
        let all_left = self.decided() == self.members.len();
        let phases_go_on = !self.state.has_ended() || (self.last_step.is_none() && self.accepted == 0);
        ensure(phases_go_on, "an ended instance has what only phases need")?;
        let joined = self.members.iter().filter(|member| member.joined).count();
        let mut members = self.members.iter();
        let fits = match self.state {
            State::Gathering => {
                self.phase == Phase::FIRST
                    && joined < self.members.len()
                    && self.join_deadline.is_some() == (joined > 0)
                    && members.all(|member| !member.spent)
            }
            State::Running => {
                self.join_deadline.is_none()
                    && !all_left
                    && members.all(|member| member.joined || member.spent)
            }
            State::Finished => all_left,
            State::Closed => true,
        };
        ensure(fits, "the processes are not as they must be in the state of the instance")
    }

    /// The machine of which this is the checkpoint, which is one of an instance with these parameters.
    pub(super) fn into_machine(self, params: Arc<Params>) -> Machine {
        let mut machine = Machine::new(params);
        machine.state = self.state;
        machine.now = self.time;
        machine.join_deadline = self.join_deadline;
        machine.last_step = self.last_step;
        machine.accepted = self.accepted;
        machine.phases.go_to(self.phase);
        for entry in self.entries {
            machine.note_win(entry.process);
            machine.list.turn().append(entry);
        }
        if let Some(sealed) = self.sealed {
            machine.list.seal(sealed);
        }
        let away = self.members.iter().map(|member| u32::from(member.away)).sum();
        machine.rejoin = self.rejoin_until.map(|until| Rejoin { until, away });
        for (process, member) in ProcessId::all(machine.params.processes()).zip(self.members) {
            machine.members.restore(process, member);
        }
        self.early_reports.into_iter().for_each(|process| machine.members.report_early(process));
        machine.warps.restore(&machine.params, &machine.members, &self.ready);
        let key = |offence: &OffenceCount| (offence.first.process, offence.first.kind);
        machine.offences.counts = self.offences.into_iter().map(|offence| (key(&offence), offence)).collect();
        machine.offences.refusals = self.refusals.into_iter().collect();
        machine.open_phase = self.open_since.map(|since| {
            let missing =
                machine.params.members(machine.phases.warp()).map(|process| &machine.members[process]);
            let missing = missing.filter(|member| member.is_missing()).map(|member| member.patience);
            OpenPhase::new(since, missing.min().unwrap_or(member::ENDLESS))
        });
        machine
    }
}

fn fits(params: &Params, value: &Value) -> bool {
    value.as_bytes().len() <= params.spec().max_value_bytes as usize
}
