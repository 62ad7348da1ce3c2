//! The state of a machine: the list, the open phase, the members and warps, and the buffers of a step.

use std::ops::Deref;
use std::sync::Arc;

use crate::access::AppendAnswer;
use crate::params::{Arbiter, Params};
use crate::scheduler::{CachedSchedule, PhaseOrder, Schedule, ScriptedSchedule};
use crate::sticky_cas::StickyCas;
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time, Value, WarpId};

use super::answer_cache::AnswerCache;
use super::member::{self, ColdMember, DueAccess, Member};
use super::offences::{MisbehaviourCounts, OffenceRecord};
use super::queues::{AccessQueues, OptionalSession, Warps};

/// One entry of the list, with the process whose append won it and the phase of that append.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The process whose append won.
    pub process: ProcessId,
    /// The phase that it won.
    pub phase: Phase,
}

/// A StickyCAS object that is shared with readers; only the machine appends to it.
#[derive(Debug)]
pub(super) struct SharedList(Arc<StickyCas<Entry>>);

impl SharedList {
    /// An empty list that takes this many entries.
    pub(super) fn with_limit(limit: u32) -> Self {
        Self(Arc::new(StickyCas::with_limit(limit)))
    }

    /// The list for a reader.
    pub(super) fn share(&self) -> &Arc<StickyCas<Entry>> {
        &self.0
    }
}

impl Deref for SharedList {
    type Target = StickyCas<Entry>;

    fn deref(&self) -> &StickyCas<Entry> {
        &self.0
    }
}

/// A copy of the list: what a cloned machine appends is not added to the original's list.
impl Clone for SharedList {
    fn clone(&self) -> Self {
        Self(Arc::new(StickyCas::clone(&self.0)))
    }
}

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

/// A phase that is open and waits for members of its warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPhase {
    /// From when on the patience of missing members drains: when it opened, or when the time to reconnect ends (F3).
    pub(super) since: Time,
    /// When to check for patience that is spent. Never later than the first such moment; `None` if all are endless.
    pub(super) wake: Option<Time>,
}

impl OpenPhase {
    /// For how long patience has drained; `None` if it does not yet (F3).
    pub(super) fn held(&self, now: Time) -> Option<u64> {
        now.as_nanos().checked_sub(self.since.as_nanos())
    }
}

/// Members are away since a restart of the server (F3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejoin {
    /// Patience drains again from then on, also if a member is still away.
    pub(super) until: Time,
    /// How many members are away. Not 0.
    pub(super) away: u32,
}

/// The appends and the reads of a phase.
#[derive(Clone, Debug, Default)]
pub(super) struct StepBuffers {
    pub(super) appends: Vec<CompetingAppend>,
    pub(super) reads: Vec<DueRead>,
}

/// An append that competes in the phase.
#[derive(Clone, Debug)]
pub(super) struct CompetingAppend {
    pub(super) process: ProcessId,
    pub(super) number: AccessNumber,
    pub(super) session: OptionalSession,
    pub(super) value: Value,
    /// The append's place in the order of acceptance.
    pub(super) accepted: u64,
    /// `LimitReached` until the append competes, which it does only inside the append window (A2).
    pub(super) answer: AppendAnswer,
}

/// A read of the phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueRead {
    pub(super) process: ProcessId,
    pub(super) number: AccessNumber,
    pub(super) session: OptionalSession,
    pub(super) start: Position,
}

impl DueRead {
    pub(super) fn new(process: ProcessId, access: DueAccess) -> Self {
        let DueAccess { number, session, content, .. } = access;
        Self { process, number, session, start: Position::new(content) }
    }
}

/// One instance. See the [module](super). Its phases come in the order of `S`.
#[derive(Clone, Debug)]
pub struct Machine<S = CachedSchedule> {
    pub(super) params: Arc<Params>,
    pub(super) schedule: S,
    /// Rank of each process under a `priority` arbiter, else empty.
    pub(super) ranks: Box<[u32]>,
    pub(super) list: SharedList,
    /// By process.
    pub(super) members: Vec<Member>,
    /// By process.
    pub(super) cold_members: Vec<ColdMember>,
    pub(super) queues: AccessQueues,
    pub(super) answers: AnswerCache,
    pub(super) warps: Warps,
    pub(super) state: State,
    /// The latest moment of an input.
    pub(super) now: Time,
    /// When gathering ends; set by the first join.
    pub(super) join_deadline: Option<Time>,
    pub(super) joined: u32,
    /// The decisions of the processes that left, in order.
    pub(super) decisions: Vec<Value>,
    /// The phase that is open, or the first that has not passed.
    pub(super) phase: Phase,
    /// The warp of that phase.
    pub(super) warp: WarpId,
    pub(super) open_phase: Option<OpenPhase>,
    pub(super) last_step: Option<Time>,
    /// While members are away since a restart of the server (F3).
    pub(super) rejoin: Option<Rejoin>,
    /// The pace (F9), in nanoseconds.
    pub(super) pace: u64,
    /// The phase that was open or next when the list was sealed, once it is: no later phase adds an entry.
    pub(super) sealed: Option<Phase>,
    /// Accesses accepted so far: the order in which `first_come` arbitrates.
    pub(super) accepted: u64,
    /// The processes that reported a decision before the list was sealed, which is compared then (D3).
    pub(super) early_reports: Vec<ProcessId>,
    /// The mode of the sealed list, once a report was compared with it.
    pub(super) sealed_mode: Option<Option<Value>>,
    pub(super) offences: OffenceRecord,
    pub(super) step_buffers: StepBuffers,
    /// See [`Machine::take_changed`].
    pub(super) changed: bool,
    /// See [`Machine::take_opened_phases`].
    pub(super) opened_phases: u32,
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
            cold_members: std::mem::take(&mut self.cold_members),
            queues: std::mem::take(&mut self.queues),
            answers: std::mem::take(&mut self.answers),
            warps: std::mem::take(&mut self.warps),
            decisions: std::mem::take(&mut self.decisions),
            early_reports: std::mem::take(&mut self.early_reports),
            step_buffers: std::mem::take(&mut self.step_buffers),
            ..Self::without_members(params, schedule)
        };
        *self = reused.with_members();
    }
}

impl Machine<ScriptedSchedule> {
    /// A new instance in which [`Machine::schedule_next`] says which warp comes next.
    pub(crate) fn scripted(params: Arc<Params>) -> Self {
        let schedule = ScriptedSchedule::new(params.warps());
        Self::with_order(params, schedule)
    }

    /// Schedules this warp for the first phase that has none. Every phase must be scheduled before it can open, which
    /// is before anything waits.
    pub(crate) fn schedule_next(&mut self, warp: WarpId) {
        self.schedule.push(warp);
        self.go_to(self.phase);
    }
}

impl<S: PhaseOrder> Machine<S> {
    /// A new instance whose phases come in the order of this schedule.
    fn with_order(params: Arc<Params>, schedule: S) -> Self {
        Self::without_members(params, schedule).with_members()
    }

    /// The machine of a new instance, but for what it holds of its processes and warps.
    fn without_members(params: Arc<Params>, mut schedule: S) -> Self {
        Self {
            ranks: ranks(&params),
            list: SharedList::with_limit(params.list_limit()),
            members: Vec::new(),
            cold_members: Vec::new(),
            queues: AccessQueues::default(),
            answers: AnswerCache::default(),
            warps: Warps::default(),
            state: State::Gathering,
            now: Time::ZERO,
            join_deadline: None,
            joined: 0,
            decisions: Vec::new(),
            phase: Phase::FIRST,
            warp: schedule.warp_of(Phase::FIRST),
            open_phase: None,
            last_step: None,
            rejoin: None,
            pace: member::nanos(params.spec().pace),
            sealed: None,
            accepted: 0,
            early_reports: Vec::new(),
            sealed_mode: None,
            offences: OffenceRecord::default(),
            step_buffers: StepBuffers::default(),
            changed: false,
            opened_phases: 0,
            schedule,
            params,
        }
    }

    /// The machine with new members and warps, in the memory of those that it has.
    fn with_members(mut self) -> Self {
        let params = &self.params;
        let (processes, patience) = (params.processes(), member::patience_nanos(params.spec().patience));
        self.members.clear();
        self.members.resize(processes as usize, Member::new(patience));
        self.cold_members.clear();
        self.cold_members.resize(processes as usize, ColdMember::default());
        self.queues.clear();
        self.answers.reset(processes, params.spec().pipeline);
        self.warps.reset(params, patience);
        self.decisions.clear();
        self.early_reports.clear();
        self
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

    /// The list for a reader that goes on reading while the machine goes on: entries never change (A3), so the
    /// entries of an answer can be read long after its phase, without the machine.
    #[must_use]
    pub fn shared_list(&self) -> &Arc<StickyCas<Entry>> {
        self.list.share()
    }

    /// The state of the instance (F10).
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether no phase opens any more (F10).
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::Finished | State::Closed)
    }

    /// Whether the list takes no more entries (A2).
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// The latest moment of an input. An input of an earlier moment counts as one of this.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Whether the inputs since the last call have changed anything but counters of refusals and offences. What has not
    /// changed anything need not be logged: a replay without it comes to the same, apart from the counters
    /// ([`Machine::take_counts`]).
    ///
    /// An input that changed something is to be logged with its effective moment, [`Machine::now`].
    // Every change is shown by an event, with two exceptions: a phase opens silently, and a refused access leaves a
    // mark (F8d). What the end of a timer changes without an event is a cache: the moment at which to look again.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// How many phases have opened since the last call. A phase that is open when no access waits any more closes without a
    /// step (F4), and counts again when it opens again.
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

    /// Whether time that passes now is taken off somebody's patience or off the join timeout: a phase is held open, or
    /// processes gather and one has joined (F3, F5).
    #[must_use]
    pub fn drains(&self) -> bool {
        match self.state {
            State::Gathering => self.join_deadline.is_some(),
            State::Running => self.open_phase.is_some_and(|open_phase| open_phase.wake.is_some()),
            State::Finished | State::Closed => false,
        }
    }

    /// Whether time that passes now changes what comes later: it drains, or the next phase may not open yet (F9).
    #[must_use]
    pub fn awaits_time(&self) -> bool {
        self.drains() || (self.state == State::Running && self.now < self.opens_at())
    }

    /// The counters of offences and refusals that have risen without an event since the last call, as they stand now; `None` if none has.
    ///
    /// Above [`OFFENCES_RECORDED`](super::OFFENCES_RECORDED) and [`REFUSALS_RECORDED`](super::REFUSALS_RECORDED) an input
    /// that is refused or accused leaves no event and changes nothing but a counter, so nobody need log it: a client could
    /// fill the log with such inputs. A log holds the counters themselves from time to time. They are at most n times the
    /// number of kinds of offences, and n of refusals.
    ///
    /// One that rose with an input which is logged for another reason may be among them: to set it again changes
    /// nothing.
    pub fn take_counts(&mut self) -> Option<MisbehaviourCounts> {
        self.offences.take_silent()
    }

    /// Raises counters to these numbers, as a replay does. None is lowered. Takes no time, and a counter that was never
    /// recorded stays at 0: its first offences are events of logged inputs.
    pub fn set_counts(&mut self, counts: &MisbehaviourCounts) {
        self.offences.raise(counts);
    }
}

/// Rank of each process under a `priority` arbiter: the named processes in their order, the others behind (A4).
fn ranks(params: &Params) -> Box<[u32]> {
    let Arbiter::Priority(order) = &params.spec().arbiter else { return Box::default() };
    let named = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let mut ranks: Box<[u32]> = (0..params.processes()).map(|index| named.saturating_add(index)).collect();
    for (rank, process) in (0..).zip(order) {
        ranks[process.index()] = rank;
    }
    ranks
}
