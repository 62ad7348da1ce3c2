//! One instance: the scheduler, the list and the admission of accesses, as a state machine without I/O.
//!
//! # What it is
//! The paper's model (section 2) in which a phase admits one warp, and the StickyCAS object (section 4) that the
//! warp's members access in lock step, brought to processes that arrive when they like. A [`Machine`] takes one
//! [`Input`] and the time, and does all that follows from it in one synchronous step: it never waits, never reads a clock and keeps nothing that could be half done. What happened comes out as
//! [`Event`]s in order; a caller that waits for an access finds its answer among them.
//!
//! Each kind of input has a method of its own, such as [`Machine::access`], which returns what its sender is answered at
//! once. [`Machine::apply`] takes them all, for a replay.
//!
//! # Time
//! Whatever was due before the moment of an input happens first. What is due exactly then is not yet overdue: an access
//! that arrives at the very end of its process's patience is in time (F3), unless a [`Machine::tick`] of the same moment
//! came first. Should a moment be earlier than the last one, no time has passed.
//!
//! # How phases go
//! ```text
//!  gathering --- all joined, or join timeout (F5) ---> running
//!  running:   nothing waits ............ no phase is open, nothing moves (F4)
//!             something waits .......... pass over phases of warps where nobody is awaited and nothing
//!                                        waits (F4); wait for the pace (F9); open the next phase
//!             open, a member missing ... its patience drains; spent: it is not awaited any more (F3)
//!             open, none missing ....... the step: appends compete, reads read (F2, A1 to A5, R1);
//!                                        if by now nothing waits in the warp, the phase passes (F4)
//!  running --- every process left ---> finished          any --- creator closes ---> closed (F10)
//! ```
//!
//! # What it costs
//! An access costs a constant number of operations, whatever n, p and W are: warps keep tallies of their
//! members, so nobody is searched for. Three things cost more, and each is paid for rarely: the end of
//! gathering looks at all n once; a timer that fires looks at the members of one warp; and a jump over
//! dead warps looks at some words of bits ([`WarpSet`]), or takes O(W) per round for the shuffled order.
//!
//! It takes about the same time, too, because what it touches stays small: of a process half a cache line, in
//! order, so that a warp is one piece of memory (`member`); of its warp half a line and a place in line (`warp`); for
//! the answer that is kept 16 bytes, beside those of its neighbours (`kept`). Nothing is allocated for an access;
//! memory grows with what waits at once (`queues`) and with the numbers that accesses have come to.
//! `docs/benchmarks.md` has the figures.
//!
//! # What is not here
//! Names, roles, connections, retention and idle lifetime belong to the server. The machine knows processes
//! by number and takes it for granted that the server knows who is who (SPEC section 10).

mod admission;
mod given;
mod kept;
mod list;
mod member;
mod offences;
mod packed;
mod phases;
mod queues;
mod status;
mod step;
mod warp;

use std::sync::Arc;

use crate::access::{Access, Answer, AppendAnswer, Op, ReadAnswer, Refusal};
use crate::history::{Event, Offence};
use crate::params::{Arbiter, Params};
use crate::scheduler::{Calendar, Schedule, WarpSet};
use crate::sticky_cas::StickyCas;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value, WarpId};

pub use member::MemberStatus;
pub use offences::{OFFENCES_RECORDED, OffenceCount, REFUSALS_RECORDED};
pub use status::{Awaited, Status, WaitingMember};

use kept::Answers;
use list::List;
use member::{Member, Rare};
use offences::Offences;
use phases::Hold;
use queues::Queues;
use warp::{Lines, Warp};

/// The most sessions that one process may open at one instance. A correct client needs one, and one more
/// for each time that its connection breaks.
pub const MAX_SESSIONS: u32 = 1_000;

/// What can happen to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A process opens a session (F8e).
    Hello {
        /// Whose.
        process: ProcessId,
        /// Names one life of the client; 0 if not told.
        incarnation: u64,
    },
    /// A process sends an access (F8).
    Access(Access),
    /// A process reports its decision and leaves (F10).
    Decide {
        /// Who.
        process: ProcessId,
        /// Its decision.
        value: Value,
    },
    /// The server's border refused something that counts as an offence (B2). The phase is noted here.
    Offence(Offence),
    /// The creator closes the instance (F10).
    Close,
    /// Time has come: [`Machine::deadline`] is reached.
    Tick,
}

/// How an access is admitted that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The access is accepted and waits. Its answer comes as an event, perhaps of this very step.
    Accepted,
    /// The same access waits already (F8b); its answer will come as an event.
    AlreadyWaiting,
    /// The same access was answered before: the first answer once more (F8b).
    AnsweredBefore {
        /// The phase in which it was executed.
        phase: Phase,
        /// The first answer.
        answer: Answer,
    },
    /// A read of a finished or closed instance, answered at once and outside phases (F10).
    ReadOutsidePhases(ReadAnswer),
}

/// What a hello is answered with, so that a restarted client can go on (F8e).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The session that is now open.
    pub session: SessionId,
    /// The number of the process's next access.
    pub next: AccessNumber,
    /// What waits, in order; the answers will go to this session.
    pub waiting: Vec<(AccessNumber, Op)>,
    /// The answer of the process's first append and its phase, once there is one.
    pub append: Option<(Phase, AppendAnswer)>,
    /// What the process decided, if it has.
    pub decided: Option<Value>,
}

/// Where an instance is in its life (F10).
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

/// One entry of the list, with whose append won it and in which phase.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The process whose append won.
    pub process: ProcessId,
    /// The phase that it won.
    pub phase: Phase,
}

/// One instance. See the module.
#[derive(Clone, Debug)]
pub struct Machine {
    params: Arc<Params>,
    calendar: Calendar,
    /// Rank of each process under a `priority` arbiter, else empty.
    ranks: Box<[u32]>,
    list: List,
    /// By process.
    members: Vec<Member>,
    /// By process.
    rare: Vec<Rare>,
    queues: Queues,
    answers: Answers,
    warps: Vec<Warp>,
    lines: Lines,
    /// The warps whose phases do not pass unseen: somebody is awaited, or something waits.
    live: WarpSet,
    state: State,
    /// The latest moment that it was told.
    now: Time,
    /// When gathering ends; set by the first join.
    join_deadline: Option<Time>,
    joined: u32,
    /// The decisions of those who left, in order.
    decisions: Vec<Value>,
    /// Members with an access waiting. Phases pass only while this is not 0 (F4).
    ready: u32,
    /// The phase that is open or will be looked at next. All before it have passed.
    phase: Phase,
    /// The warp of that phase.
    warp: WarpId,
    hold: Option<Hold>,
    last_step: Option<Time>,
    /// The pace (F9), in nanoseconds.
    pace: u64,
    /// The first phase that finds the list sealed, once it is.
    sealed: Option<Phase>,
    /// Accesses accepted so far: the order in which `first_come` arbitrates.
    accepted: u64,
    /// Who reported a decision before the list was sealed, to be compared then (D3).
    early_reports: Vec<ProcessId>,
    /// The mode of the sealed list, once somebody needed it.
    sealed_mode: Option<Option<Value>>,
    offences: Offences,
    scratch: step::Scratch,
}

/// What of an instance another one can use again.
#[derive(Default)]
struct Memory {
    members: Vec<Member>,
    rare: Vec<Rare>,
    queues: Queues,
    answers: Answers,
    warps: Vec<Warp>,
    lines: Lines,
    decisions: Vec<Value>,
    early_reports: Vec<ProcessId>,
    scratch: step::Scratch,
}

impl Memory {
    /// As it is before anything happens.
    fn made_new(mut self, params: &Params) -> Self {
        let (processes, patience) = (params.processes(), member::patience_nanos(params.spec().patience));
        self.members.clear();
        self.members.resize(processes as usize, Member::new(patience));
        self.rare.clear();
        self.rare.resize(processes as usize, Rare::default());
        self.queues.clear();
        self.answers.reset(processes, params.spec().pipeline);
        self.warps.clear();
        let sizes = (0..params.warps()).map(|warp| {
            let before = warp * params.warp_size();
            params.warp_size().min(processes - before)
        });
        self.warps.extend(sizes.map(|size| Warp::new(size, patience)));
        self.lines.reset(processes);
        self.decisions.clear();
        self.early_reports.clear();
        self
    }
}

impl Machine {
    /// A new instance: nobody has joined, the list is empty.
    #[must_use]
    pub fn new(params: Arc<Params>) -> Self {
        Self::within(Memory::default(), params)
    }

    /// A new instance in the memory of this one: what [`Machine::new`] makes, for less.
    pub fn reset(&mut self, params: Arc<Params>) {
        let memory = Memory {
            members: std::mem::take(&mut self.members),
            rare: std::mem::take(&mut self.rare),
            queues: std::mem::take(&mut self.queues),
            answers: std::mem::take(&mut self.answers),
            warps: std::mem::take(&mut self.warps),
            lines: std::mem::take(&mut self.lines),
            decisions: std::mem::take(&mut self.decisions),
            early_reports: std::mem::take(&mut self.early_reports),
            scratch: std::mem::take(&mut self.scratch),
        };
        *self = Self::within(memory, params);
    }

    fn within(memory: Memory, params: Arc<Params>) -> Self {
        let memory = memory.made_new(&params);
        let calendar = Calendar::new(Schedule::new(&params));
        Self {
            ranks: ranks(&params),
            list: List::with_limit(params.list_limit()),
            members: memory.members,
            rare: memory.rare,
            queues: memory.queues,
            answers: memory.answers,
            warps: memory.warps,
            lines: memory.lines,
            live: WarpSet::all(params.warps()),
            state: State::Gathering,
            now: Time::ZERO,
            join_deadline: None,
            joined: 0,
            decisions: memory.decisions,
            ready: 0,
            phase: Phase::FIRST,
            warp: calendar.schedule().warp_of(Phase::FIRST),
            hold: None,
            last_step: None,
            pace: member::nanos(params.spec().pace),
            sealed: None,
            accepted: 0,
            early_reports: memory.early_reports,
            sealed_mode: None,
            offences: Offences::default(),
            scratch: memory.scratch,
            calendar,
            params,
        }
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

    /// The list for a reader who goes on reading while the machine goes on: entries never change (A3), so an
    /// answer can be looked up long after its phase, without the machine.
    #[must_use]
    pub fn shared_list(&self) -> &Arc<StickyCas<Entry>> {
        self.list.share()
    }

    /// Where the instance is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the list takes no more entries (A2).
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Takes one input of any kind; what the methods for each kind return is left out. See there.
    ///
    /// # Errors
    /// Why the input is refused.
    ///
    /// # Panics
    /// If the input names a process that the parameters do not have.
    pub fn apply(&mut self, now: Time, input: Input, events: &mut Vec<Event>) -> Result<(), Refusal> {
        match input {
            Input::Hello { process, incarnation } => {
                self.hello(now, process, incarnation, events).map(|_| ())
            }
            Input::Access(access) => self.access(now, access, events).map(|_| ()),
            Input::Decide { process, value } => self.decide(now, process, value, events),
            Input::Offence(offence) => {
                self.file_offence(now, offence, events);
                Ok(())
            }
            Input::Close => {
                self.close(now, events);
                Ok(())
            }
            Input::Tick => {
                self.tick(now, events);
                Ok(())
            }
        }
    }

    /// A process opens a session, which replaces its older one (F8e, F8f).
    ///
    /// # Errors
    /// If the process has opened [`MAX_SESSIONS`].
    ///
    /// # Panics
    /// If the parameters do not have this process.
    pub fn hello(
        &mut self,
        now: Time,
        process: ProcessId,
        incarnation: u64,
        events: &mut Vec<Event>,
    ) -> Result<Welcome, Refusal> {
        let now = self.catch_up(now, false, events);
        let welcome = self.open_session(now, process, incarnation, events);
        self.advance(now, events);
        welcome
    }

    /// A process sends an access (F8).
    ///
    /// # Errors
    /// Why the access is refused; it has then changed nothing but the record of refusals and offences.
    ///
    /// # Panics
    /// If the parameters do not have the access's process.
    pub fn access(
        &mut self,
        now: Time,
        access: Access,
        events: &mut Vec<Event>,
    ) -> Result<Admission, Refusal> {
        let now = self.catch_up(now, false, events);
        // Nearly all accesses are such: they are read where they stand, and nothing else is asked.
        if self.is_plain(&access) {
            self.accept(now, &access, events);
            self.advance(now, events);
            return Ok(Admission::Accepted);
        }
        let admission = self.admit_or_refuse(now, &access, events);
        self.advance(now, events);
        admission
    }

    /// A process reports its decision and leaves (F10, D3). The same decision again changes nothing.
    ///
    /// # Errors
    /// If the process decided on another value before, or the instance is closed.
    ///
    /// # Panics
    /// If the parameters do not have this process.
    pub fn decide(
        &mut self,
        now: Time,
        process: ProcessId,
        value: Value,
        events: &mut Vec<Event>,
    ) -> Result<(), Refusal> {
        let now = self.catch_up(now, false, events);
        let decided = self.leave(now, process, value, events);
        self.advance(now, events);
        decided
    }

    /// Files an offence that the server has seen before the machine (B2), under the phase that is open or next.
    ///
    /// # Panics
    /// If the parameters do not have the offence's process.
    pub fn file_offence(&mut self, now: Time, offence: Offence, events: &mut Vec<Event>) {
        let now = self.catch_up(now, false, events);
        // The server has refused an access: what follows it on its stream is out of order through no fault (F8d).
        // If it came by a unary call, this excuses more than it must.
        if offence.number.is_some() {
            self.members[offence.process.index()].note_refusal();
        }
        self.file(offence, events);
        self.advance(now, events);
    }

    /// The creator closes the instance; everything that waits is withdrawn (F10).
    pub fn close(&mut self, now: Time, events: &mut Vec<Event>) {
        self.catch_up(now, false, events);
        self.withdraw_all(events);
    }

    /// Time has come: what is due at `now` happens. See [`Machine::deadline`].
    pub fn tick(&mut self, now: Time, events: &mut Vec<Event>) {
        let now = self.catch_up(now, true, events);
        self.advance(now, events);
    }

    /// What was due before `now` happens; with `inclusive` also what is due exactly then. The moment that it is: time
    /// never goes back.
    fn catch_up(&mut self, now: Time, inclusive: bool, events: &mut Vec<Event>) -> Time {
        let now = now.max(self.now);
        self.now = now;
        self.let_time_pass(now, inclusive, events);
        now
    }

    /// When a [`Input::Tick`] is due; `None` if nothing will happen by time alone.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Gathering => self.join_deadline,
            State::Running if self.ready == 0 => None,
            State::Running => match self.hold {
                Some(hold) => hold.wake,
                None => Some(self.opens_at()),
            },
            State::Finished | State::Closed => None,
        }
    }
}

/// Pushes an event. It is made after its place, and so written there: `Vec::push` takes one that was made before, which
/// must lie somewhere else first, field by field, and to copy it from there waits for the last field.
#[inline(always)]
fn note(events: &mut Vec<Event>, event: impl FnOnce() -> Event) {
    events.extend(std::iter::once_with(event));
}

/// Rank of each process under a `priority` arbiter: those named in their order, the others behind (A4).
fn ranks(params: &Params) -> Box<[u32]> {
    let Arbiter::Priority(order) = &params.spec().arbiter else { return Box::default() };
    let named = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let mut ranks: Box<[u32]> = (0..params.processes()).map(|index| named.saturating_add(index)).collect();
    for (rank, process) in (0..).zip(order) {
        ranks[process.index()] = rank;
    }
    ranks
}
