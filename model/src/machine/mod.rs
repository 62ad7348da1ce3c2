//! One instance: the scheduler, the list and the admission of accesses, as a state machine without I/O.
//!
//! # What it is
//! The paper's model (section 2) in which a phase admits one warp, and the StickyCAS object (section 4) that
//! the warp's members access in lock step, brought to processes that arrive when they like. A [`Machine`]
//! takes one [`Input`] and the time, and does all that follows from it in one synchronous step: it never
//! waits, never reads a clock and nothing is half done between two inputs. The results come out as [`Event`]s
//! in order; a caller that waits for an access finds its answer among them.
//!
//! Each kind of input has a method of its own, such as [`Machine::access`], which returns what its sender is
//! answered at once. [`Machine::apply`] takes them all, for a replay.
//!
//! # Time
//! All that was due before the moment of an input happens first. An event that is due exactly then is not yet
//! overdue: an access that arrives at the very end of its process's patience is in time (F3), unless a
//! [`Machine::tick`] of the same moment came first. Should a moment be earlier than the last one, no time has
//! passed.
//!
//! # Restarts of a server
//! A server that keeps a log replays the inputs ([`Machine::take_changed`] says which it must log,
//! [`Machine::take_counts`] what of the others counts), from a [`Checkpoint`] on, and compares what they lead
//! to ([`OutcomeDigest`]). Then it tells the machine that it has restarted ([`Machine::restart`]): no
//! patience drains until the processes had time to reconnect. That is an input like all others.
//!
//! # How phases go
//! ```text
//!  gathering --- all joined, or join timeout (F5) ---> running
//!  running:   no access waits .......... no phase is open, no phase passes (F4)
//!             an access waits .......... pass over the phases of warps in which no member is awaited
//!                                        and no access waits (F4); wait for the pace (F9); open the
//!                                        next phase
//!             open, a member missing ... its patience drains; spent: it is not awaited any more (F3)
//!             open, none missing ....... the step: appends compete, reads read (F2, A1 to A5, R1);
//!                                        if by now no access waits in the warp, the phase passes (F4)
//!  running --- every process left ---> finished          any --- creator closes ---> closed (F10)
//! ```
//!
//! # What it costs
//! An access costs a constant number of operations, whatever n, p and W are: warps keep tallies of their
//! members, so no member is searched for. Three things cost more, and happen rarely: the end of gathering
//! looks at all n once; a timer that fires looks at the members of one warp; and a jump over dead warps looks
//! at some words of bits ([`WarpSet`](crate::scheduler::WarpSet)), or takes O(W) per round for the shuffled
//! order.
//!
//! The time is about constant too, because an access uses little memory: of its process half a cache line, in
//! the order of processes, so that a warp is one piece of memory (`member`); of its warp half a line and a
//! place in a queue (`warps`); for the answer that is kept 16 bytes, beside those of neighbours
//! (`answer_cache`). Nothing is allocated for an access; memory grows with the accesses that wait at once
//! (`queues`) and with the access numbers that processes have come to. `docs/internals/performance.md` has
//! the figures.
//!
//! # What is not here
//! Names, roles, connections, retention and idle lifetime belong to the server. The machine knows processes
//! by number and relies on the server for their identities (SPEC section 10).

mod answer_cache;
mod checkpoint;
mod competition;
mod input;
mod list;
mod member;
mod members;
mod offences;
mod outcome_digest;
mod phase_cursor;
mod phases;
mod processes;
mod queues;
mod restore;
mod snapshot;
mod status;
mod warps;

use std::sync::Arc;

use crate::access::Refusal;
use crate::compact_codec::{Decoder, Encoder};
use crate::history::Event;
use crate::params::{AppendWindow, Params};
use crate::process::mode;
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule, ScriptedSchedule};
use crate::sticky_cas::StickyCas;
use crate::types::{ProcessId, SessionId, Time, Value, WarpId};

pub use self::checkpoint::{Checkpoint, KeptAnswer, MemberCheckpoint, WaitingCheckpoint};
use self::competition::ArbiterRanks;
pub use self::input::{Admission, Input, Welcome};
pub use self::list::Entry;
use self::list::List;
pub use self::member::MemberStatus;
use self::members::Members;
use self::offences::OffenceRecord;
pub(crate) use self::offences::brief_value;
pub use self::offences::{MisbehaviourCounts, OFFENCES_RECORDED, OffenceCount, REFUSALS_RECORDED};
pub use self::outcome_digest::OutcomeDigest;
use self::phase_cursor::{OpenPhase, PhaseCursor};
use self::phases::{Rejoin, StepBuffers};
pub use self::queues::MAX_SESSIONS;
pub use self::restore::CheckpointError;
pub use self::status::{AwaitedMember, Brief, LeftOut, MemberBrief, Status, WaitingMember};
use self::warps::Warps;

/// The state of an instance (F10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Phase 1 has not opened: processes join (F5).
    Gathering,
    /// Phases open and pass.
    Running,
    /// Every process has left.
    Finished,
    /// The creator closed it.
    Closed,
}

impl State {
    /// Whether no phase opens any more (F10).
    pub(super) fn has_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Closed)
    }
}

/// One instance. See the [module](self). Its phases come in the order of `S`.
#[derive(Clone, Debug)]
pub struct Machine<S = CachedSchedule> {
    params: Arc<Params>,
    state: State,
    /// The latest moment of an input.
    now: Time,
    /// Accesses accepted so far: the order in which `first_come` arbitrates.
    accepted: u64,
    list: List,
    members: Members,
    warps: Warps,
    /// The phase that is open, or the first that has not passed.
    phases: PhaseCursor<S>,
    open_phase: Option<OpenPhase>,
    last_step: Option<Time>,
    /// The pace (F9), in nanoseconds.
    pace: u64,
    /// When gathering ends; set by the first join.
    join_deadline: Option<Time>,
    /// While members are away since a restart of the server (F3).
    rejoin: Option<Rejoin>,
    arbiter: ArbiterRanks,
    step_buffers: StepBuffers,
    offences: OffenceRecord,
    /// See [`Machine::take_changed`].
    changed: bool,
    /// See [`Machine::take_opened_phases`].
    opened_phases: u32,
}

impl Machine {
    /// A new instance: no process has joined, the list is empty.
    #[must_use]
    pub fn new(params: Arc<Params>) -> Self {
        let schedule = CachedSchedule::new(Schedule::new(&params));
        Self::with_order(params, schedule)
    }

    /// A new instance in the memory of this one: what [`Machine::new`] makes, with fewer allocations.
    pub fn reset(&mut self, params: Arc<Params>) {
        let schedule = CachedSchedule::new(Schedule::new(&params));
        let reused = Self {
            members: std::mem::take(&mut self.members),
            warps: std::mem::take(&mut self.warps),
            step_buffers: std::mem::take(&mut self.step_buffers),
            ..Self::without_members(params, schedule)
        };
        *self = reused.with_members();
    }

    /// The machine of which this is the checkpoint: from now on it does the same.
    ///
    /// # Errors
    /// If it is no checkpoint of an instance with these parameters.
    pub fn from_checkpoint(params: Arc<Params>, checkpoint: Checkpoint) -> Result<Self, CheckpointError> {
        checkpoint.check(&params)?;
        Ok(checkpoint.into_machine(params))
    }

    /// The state in these bytes, which are checked to be a snapshot of an instance with these parameters that
    /// ended at this time, so that [`Self::from_snapshot`] makes a machine of them: they are trusted in
    /// nothing.
    ///
    /// # Errors
    /// What is wrong with them; `None` if they are no snapshot.
    pub fn check_snapshot(
        params: &Params,
        ended: Time,
        bytes: &mut Decoder<'_>,
    ) -> Result<State, Option<CheckpointError>> {
        let checkpoint = Checkpoint { time: ended, ..snapshot::read(params, bytes).ok_or(None)? };
        checkpoint.check(params)?;
        Ok(checkpoint.state)
    }

    /// The machine of which the snapshot was written; `None` if these bytes are no snapshot with these
    /// parameters.
    #[must_use]
    pub fn from_snapshot(params: Arc<Params>, bytes: &mut Decoder<'_>) -> Option<Self> {
        Some(snapshot::read(&params, bytes)?.into_machine(params))
    }
}

impl Machine<ScriptedSchedule> {
    /// A new instance in which [`Machine::schedule_next`] says which warp comes next.
    pub(crate) fn scripted(params: Arc<Params>) -> Self {
        let schedule = ScriptedSchedule::new(&params);
        Self::with_order(params, schedule)
    }

    /// Schedules this warp for the first phase that has none. Every phase must be scheduled before it can
    /// open, which is before anything waits.
    pub(crate) fn schedule_next(&mut self, warp: WarpId) {
        self.phases.schedule.push(warp);
        self.phases.go_to(self.phases.phase());
    }
}

impl<S: PhaseOrder> Machine<S> {
    /// A new instance whose phases come in the order of this schedule.
    fn with_order(params: Arc<Params>, schedule: S) -> Self {
        Self::without_members(params, schedule).with_members()
    }

    /// The machine of a new instance, but for what it holds of its processes and warps.
    fn without_members(params: Arc<Params>, schedule: S) -> Self {
        Self {
            state: State::Gathering,
            now: Time::ZERO,
            accepted: 0,
            list: List::with_limit(params.list_limit()),
            members: Members::default(),
            warps: Warps::default(),
            phases: PhaseCursor::new(schedule, params.spec().append_window),
            open_phase: None,
            last_step: None,
            pace: member::nanos(params.spec().pace),
            join_deadline: None,
            rejoin: None,
            arbiter: ArbiterRanks::new(&params),
            step_buffers: StepBuffers::default(),
            offences: OffenceRecord::default(),
            changed: false,
            opened_phases: 0,
            params,
        }
    }

    /// The machine with new members and warps, in the memory of those that it has.
    fn with_members(mut self) -> Self {
        let patience = member::patience_nanos(self.params.spec().patience);
        self.members.reset(&self.params, patience);
        self.warps.reset(&self.params, patience);
        self
    }

    /// An append of a process has won (K1).
    pub(super) fn note_win(&mut self, process: ProcessId) {
        if self.phases.wins_once() {
            self.members[process].exclude();
        }
    }

    /// Takes one input of any kind, as a replay does. The methods for the kinds return more.
    ///
    /// # Errors
    /// Why the input is refused.
    ///
    /// # Panics
    /// If the input names a process that the parameters do not have.
    pub fn apply(&mut self, now: Time, input: Input, events: &mut Vec<Event>) -> Result<(), Refusal> {
        match input {
            Input::Hello { process, incarnation } => {
                return self.hello(now, process, incarnation, events).map(|_| ());
            }
            Input::Access(access) => return self.access(now, access, events).map(|_| ()),
            Input::Decide { process, value } => return self.decide(now, process, value, events),
            Input::Offence(offence) => self.file_offence(now, offence, events),
            Input::Close => self.close(now, events),
            Input::Tick => self.tick(now, events),
            Input::Restart { rejoin } => self.restart(now, rejoin, events),
            Input::Counts(counts) => self.set_counts(&counts),
        }
        Ok(())
    }

    /// The parameters of the instance.
    #[must_use]
    pub fn params(&self) -> &Arc<Params> {
        &self.params
    }

    /// The list.
    #[must_use]
    pub fn list(&self) -> &StickyCas<Entry> {
        &self.list
    }

    /// The list for a reader that goes on reading while the machine goes on: entries never change (A3), so
    /// the entries of an answer can be read long after its phase, without the machine.
    #[must_use]
    pub fn shared_list(&self) -> &Arc<StickyCas<Entry>> {
        self.list.share()
    }

    /// The state of the instance (F10).
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the list takes no more entries (A2).
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.list.sealed().is_some()
    }

    /// The latest moment of an input. An input of an earlier moment counts as one of this.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether the inputs since the last call have changed anything but counters of refusals and offences.
    /// Inputs that have changed nothing else need not be logged: a replay without them comes to the same,
    /// apart from the counters ([`Machine::take_counts`]).
    ///
    /// An input that changed something is to be logged with its effective moment, [`Machine::now`].
    // Every change is shown by an event, with two exceptions: a phase opens silently, and a refused access
    // leaves a mark (F8d). Without an event, the end of a timer changes only a cache: the moment at which to
    // look again.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// How many phases have opened since the last call. A phase that is open when no access waits any more
    /// closes without a step (F4), and counts again when it opens again.
    pub fn take_opened_phases(&mut self) -> u32 {
        std::mem::take(&mut self.opened_phases)
    }

    /// When a [`Machine::tick`] is due; `None` if nothing will happen by time alone.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Gathering => self.join_deadline,
            State::Running if self.warps.ready() == 0 => None,
            State::Running => match self.open_phase {
                Some(open_phase) => open_phase.wake,
                None => Some(self.opens_at()),
            },
            State::Finished | State::Closed => None,
        }
    }

    /// Whether time that passes now is taken off somebody's patience or off the join timeout: a phase is held
    /// open, or processes gather and one has joined (F3, F5).
    #[must_use]
    pub fn drains(&self) -> bool {
        match self.state {
            State::Gathering => self.join_deadline.is_some(),
            State::Running => self.open_phase.is_some_and(|open_phase| open_phase.wake.is_some()),
            State::Finished | State::Closed => false,
        }
    }

    /// Whether time that passes now changes what comes later: it drains, or the next phase may not open yet
    /// (F9).
    #[must_use]
    pub fn awaits_time(&self) -> bool {
        self.drains() || (self.state == State::Running && self.now < self.opens_at())
    }

    /// The counters of offences and refusals that have risen without an event since the last call, as they
    /// stand now; `None` if none has.
    ///
    /// Above [`OFFENCES_RECORDED`] and [`REFUSALS_RECORDED`] an input that is refused or accused leaves no
    /// event and changes nothing but a counter, so nobody need log it: a client could fill the log with such
    /// inputs. A log holds the counters themselves from time to time. They are at most n times the number of
    /// kinds of offences, and n of refusals.
    ///
    /// One that rose with an input which is logged for another reason may be among them: to set it again
    /// changes nothing.
    pub fn take_counts(&mut self) -> Option<MisbehaviourCounts> {
        self.offences.take_silent()
    }

    /// Raises counters to these numbers, as a replay does. None is lowered. Takes no time, and a counter that
    /// was never recorded stays at 0: its first offences are events of logged inputs.
    pub fn set_counts(&mut self, counts: &MisbehaviourCounts) {
        self.offences.raise(counts);
    }

    /// Accesses of all processes that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.members.iter().map(|(_, member)| usize::from(member.waiting())).sum()
    }

    /// The newest session of a process; `None` before its first.
    ///
    /// # Panics
    /// If the parameters do not have this process.
    #[must_use]
    pub fn session(&self, process: ProcessId) -> Option<SessionId> {
        self.members[process].session.get()
    }

    /// The state of one process, as the machine tells it to that process (F8e).
    ///
    /// # Panics
    /// If the parameters do not have this process.
    #[must_use]
    pub fn member(&self, process: ProcessId) -> MemberStatus {
        let member = &self.members[process];
        let append = self.members.append_phase(process);
        MemberStatus {
            session: member.session.get(),
            next: member.next,
            waiting: self.members.queue(process).map(|(number, _, op)| (number, op)).collect(),
            append: append.map(|phase| (phase, self.append_answer(process, phase))),
            decided: self.members.decision(process).cloned(),
        }
    }

    /// How many processes have reported a decision.
    #[must_use]
    pub fn decided(&self) -> u32 {
        self.members.decided()
    }

    /// The decision that processes have reported, if it is the same one. Under `first_access` reports count
    /// that are the mode of the sealed list (D3), or all while it is not sealed. Costs O(n).
    #[must_use]
    pub fn decision_in_common(&self) -> Option<&Value> {
        let decisions = self.members.decisions();
        if self.sealed() && self.params.spec().append_window == AppendWindow::FirstAccess {
            let mode = mode(self.list.iter().map(|entry| &entry.value))?;
            return decisions.contains(mode).then_some(mode);
        }
        let first = decisions.first()?;
        decisions.iter().all(|decision| decision == first).then_some(first)
    }

    /// The processes that were refused, and those that have an offence on record.
    pub fn refused_and_accused(&self) -> (impl Iterator<Item = ProcessId>, impl Iterator<Item = ProcessId>) {
        let accused = self.offences.counts.keys().map(|(process, _)| *process);
        (self.offences.refusals.keys().copied(), accused)
    }

    /// The instance as it stands at the moment `now`. Costs O(n).
    #[must_use]
    pub fn status(&self, now: Time) -> Status {
        self.status_rows(now, usize::MAX)
    }

    /// The same, with at most so many processes or offences of each sort named one by one. It looks at every
    /// process once and copies no more than the rows: a server does it while others wait for the instance.
    #[must_use]
    pub fn status_rows(&self, now: Time, rows: usize) -> Status {
        Status::of(self, now, rows)
    }

    /// The instance in a line. Costs the same for any number of processes.
    #[must_use]
    pub fn brief(&self) -> Brief {
        Brief::of(self)
    }

    /// Every process in short, in order. Costs O(n).
    pub fn members_in_brief(&self) -> impl Iterator<Item = MemberBrief> {
        self.members.iter().map(|(process, member)| MemberBrief {
            joined: member.has_joined(),
            executed: self.members.executed(process) > 0,
            appended: self.members.append_phase(process),
            left: member.has_left(),
            given_up: member.is_spent() && !member.has_left(),
        })
    }

    /// The machine as data. Costs O(n).
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::of(self)
    }

    /// Writes a snapshot of the machine. The instance must have ended.
    pub fn write_snapshot(&self, out: &mut Encoder) {
        snapshot::write(self, out);
    }
}
