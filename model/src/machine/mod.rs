//! One instance: the scheduler, the list and the admission of accesses, as a state machine without I/O.
//!
//! # What it is
//! The paper's model (section 2) in which a phase admits one warp, and the StickyCAS object (section 4) that the
//! warp's members access in lock step, brought to processes that arrive when they like. [`Machine::apply`]
//! takes one [`Input`] and the time, and does all that follows from it in one synchronous step: it never
//! waits, never reads a clock and keeps nothing that could be half done. What happened comes out as
//! [`Event`]s in order; a caller that waits for an access finds its answer among them.
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
//! dead warps takes O(log W), or O(W) per round for the shuffled order.
//!
//! # What is not here
//! Names, roles, connections, retention and idle lifetime belong to the server. The machine knows processes
//! by number and takes it for granted that the server knows who is who (SPEC section 10).

mod admission;
mod member;
mod offences;
mod status;
mod step;
mod warp;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::access::{Access, Answer, AppendAnswer, Op, Refusal};
use crate::history::{Event, Offence};
use crate::params::{AppendWindow, Arbiter, Params};
use crate::scheduler::{Calendar, Schedule};
use crate::sticky_cas::StickyCas;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value, WarpId};

pub use member::MemberStatus;
pub use offences::{OFFENCES_RECORDED, OffenceCount, REFUSALS_RECORDED};
pub use status::{Awaited, Status, WaitingMember};

use member::Member;
use offences::Offences;
use warp::Warp;

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
    /// The server's border refused something that counts as an offence (B2).
    Offence(Offence),
    /// The creator closes the instance (F10).
    Close,
    /// Time has come: [`Machine::deadline`] is reached.
    Tick,
}

/// What the sender of an input is told at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a hello.
    Welcome(Welcome),
    /// The access is accepted and waits. Its answer comes as an event, perhaps with this very step.
    Accepted,
    /// The same access waits already (F8b); its answer will come as an event.
    Waiting,
    /// The first answer once more (F8b), or a read outside phases (F10).
    Answered {
        /// The phase in which it was executed; `None` outside phases.
        phase: Option<Phase>,
        /// The answer.
        answer: Answer,
    },
    /// Done; there is nothing to tell.
    Done,
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

/// A phase that is open and waits for members of its warp.
#[derive(Clone, Copy, Debug)]
struct Hold {
    /// Since when; the patience of whoever is missing drains from here on.
    since: Time,
    /// When to look whose patience is spent. Never later than the first; `None` if nobody's can be.
    wake: Option<Time>,
}

/// One instance. See the module.
#[derive(Clone, Debug)]
pub struct Machine {
    params: Arc<Params>,
    calendar: Calendar,
    /// Rank of each process under a `priority` arbiter, else empty.
    ranks: Box<[u32]>,
    list: StickyCas<Entry>,
    members: Box<[Member]>,
    warps: Box<[Warp]>,
    /// The warps whose phases do not pass unseen: somebody is awaited, or something waits.
    live: BTreeSet<WarpId>,
    state: State,
    /// The latest moment that it was told.
    now: Time,
    /// When gathering ends; set by the first join.
    join_deadline: Option<Time>,
    joined: u32,
    left: u32,
    /// Members with an access waiting. Phases pass only while this is not 0 (F4).
    ready: u32,
    /// The phase that is open or will be looked at next. All before it have passed.
    phase: Phase,
    /// The warp of that phase.
    warp: WarpId,
    hold: Option<Hold>,
    last_step: Option<Time>,
    sealed: bool,
    /// Accesses accepted so far: the order in which `first_come` arbitrates.
    accepted: u64,
    /// Who reported a decision before the list was sealed, to be compared then (D3).
    early_reports: Vec<ProcessId>,
    /// The mode of the sealed list, once somebody needed it.
    sealed_mode: Option<Option<Value>>,
    offences: Offences,
    scratch: step::Scratch,
}

impl Machine {
    /// A new instance: nobody has joined, the list is empty.
    #[must_use]
    pub fn new(params: Arc<Params>) -> Self {
        let patience = member::patience_nanos(params.spec().patience);
        let calendar = Calendar::new(Schedule::new(&params));
        let all_warps = || (0..params.warps() as usize).filter_map(WarpId::from_index);
        let size = |warp| u32::try_from(params.members(warp).count()).unwrap_or(u32::MAX);
        Self {
            ranks: ranks(&params),
            list: StickyCas::with_limit(params.list_limit()),
            members: (0..params.processes()).map(|_| Member::new(patience)).collect(),
            warps: all_warps().map(|warp| Warp::new(size(warp), patience)).collect(),
            live: all_warps().collect(),
            state: State::Gathering,
            now: Time::ZERO,
            join_deadline: None,
            joined: 0,
            left: 0,
            ready: 0,
            phase: Phase::FIRST,
            warp: calendar.schedule().warp_of(Phase::FIRST),
            hold: None,
            last_step: None,
            sealed: false,
            accepted: 0,
            early_reports: Vec::new(),
            sealed_mode: None,
            offences: Offences::default(),
            scratch: step::Scratch::default(),
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

    /// Where the instance is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the list takes no more entries (A2).
    #[must_use]
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// Takes one input at the moment `now`, pushing what happened onto `events`.
    ///
    /// Whatever was due before `now` happens first. What is due exactly now is not yet overdue: an access that
    /// arrives at the very end of its process's patience is in time (F3), unless a [`Input::Tick`] of the same
    /// moment came first. Should `now` be earlier than the last time told, no time has passed.
    ///
    /// # Errors
    /// Why the input is refused; it has then changed nothing but the record of refusals and offences.
    ///
    /// # Panics
    /// If an input names a process that the parameters do not have: who is who was settled before.
    pub fn apply(&mut self, now: Time, input: Input, events: &mut Vec<Event>) -> Result<Reply, Refusal> {
        let now = now.max(self.now);
        self.now = now;
        self.let_time_pass(now, matches!(input, Input::Tick), events);
        let reply = match input {
            Input::Hello { process, incarnation } => self.hello(now, process, incarnation, events),
            Input::Access(access) => self.access(now, access, events),
            Input::Decide { process, value } => self.decide(now, process, value, events),
            Input::Offence(offence) => {
                // The border has refused an access: what follows it on its stream is out of order through no
                // fault (F8d). If it came by a unary call, this excuses more than it must.
                self.members[offence.process.index()].refused_on_stream |= offence.number.is_some();
                self.offences.file(offence, events);
                Ok(Reply::Done)
            }
            Input::Close => {
                self.close(events);
                Ok(Reply::Done)
            }
            Input::Tick => Ok(Reply::Done),
        };
        self.advance(now, events);
        reply
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

    /// The earliest moment at which the next phase may open (F9).
    fn opens_at(&self) -> Time {
        self.last_step.map_or(Time::ZERO, |step| step.after(self.params.spec().pace))
    }

    /// Lets everything happen that is due before `now`, or with `inclusive` also what is due exactly now.
    fn let_time_pass(&mut self, now: Time, inclusive: bool, events: &mut Vec<Event>) {
        while let Some(due) = self.deadline().filter(|&due| due < now || (inclusive && due == now)) {
            match (self.state, self.hold) {
                (State::Gathering, _) => self.end_gathering(events),
                (_, Some(hold)) => self.spend_patience(now.since(hold.since), inclusive, events),
                // The pace is over: the phase is open since then, whether or not anybody noticed.
                (_, None) => {
                    self.open(due, events);
                }
            }
            self.advance(now, events);
        }
    }

    /// Opens, passes over and executes phases as long as anything may go on.
    fn advance(&mut self, now: Time, events: &mut Vec<Event>) {
        if self.state == State::Gathering && self.joined == self.params.processes() {
            self.end_gathering(events);
        }
        if self.state != State::Running {
            return;
        }
        while self.ready > 0 {
            if self.hold.is_none() && !self.open(now, events) {
                return;
            }
            let warp = &self.warps[self.warp.index()];
            if warp.missing > 0 {
                return;
            }
            if warp.ready > 0 {
                self.step(now, events);
            } else {
                // Whoever it was open for is not awaited any more: it passes without a step (F4).
                self.hold = None;
            }
        }
        self.stand_still(now, events);
    }

    /// Ends gathering: phase 1 may open, and nobody who has not joined is awaited (F5).
    fn end_gathering(&mut self, events: &mut Vec<Event>) {
        self.state = State::Running;
        self.join_deadline = None;
        events.push(Event::GatheringEnded { joined: self.joined });
        if self.joined < self.params.processes() {
            for process in ProcessId::all(self.params.processes()) {
                if !self.members[process.index()].joined {
                    self.give_up_on(process, events);
                }
            }
        }
    }

    /// Passes over dead phases and opens the next one (F4), unless the pace forbids it yet (F9). Something
    /// must be waiting.
    fn open(&mut self, now: Time, events: &mut Vec<Event>) -> bool {
        if now < self.opens_at() {
            return false;
        }
        let phase = self.next_live_phase(None);
        self.go_to(phase);
        self.seal_if_due(events);
        let warp = &self.warps[self.warp.index()];
        self.hold = Some(Hold { since: now, wake: wake(now, warp.least_patience) });
        true
    }

    /// All phases before `phase` have passed.
    fn go_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.warp = self.calendar.warp_of(phase);
    }

    /// The first phase from the current one on whose warp is live, counting `also` as live.
    fn next_live_phase(&mut self, also: Option<WarpId>) -> Phase {
        if also == Some(self.warp) || self.warps[self.warp.index()].is_live() {
            return self.phase;
        }
        let live = self.calendar.next_phase_among(self.phase, &self.live);
        match also {
            Some(warp) if self.live.is_empty() => self.calendar.next_phase_of(warp, self.phase),
            Some(warp) => live.min(self.calendar.next_phase_of(warp, self.phase)),
            None => live,
        }
    }

    /// Nothing waits any more while a phase is open: it is put back, and what it cost so far is booked (F4).
    fn stand_still(&mut self, now: Time, events: &mut Vec<Event>) {
        let Some(hold) = self.hold.take() else { return };
        let held = member::nanos(now.since(hold.since));
        for process in self.params.members(self.warp) {
            if self.members[process.index()].is_missing() {
                self.drain(process, held, events);
            }
        }
    }

    /// Books the time for which the open phase waited for `process`, whose patience may end with it (F3).
    fn drain(&mut self, process: ProcessId, held: u64, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if member.patience == member::ENDLESS {
            return;
        }
        member.patience = member.patience.saturating_sub(held);
        if member.patience == 0 {
            self.give_up_on(process, events);
        } else {
            let warp = &mut self.warps[self.params.warp_of(process).index()];
            warp.least_patience = warp.least_patience.min(member.patience);
        }
    }

    /// The timer of an open phase fired: whose patience was shorter than the hold is not awaited any more.
    fn spend_patience(&mut self, held: Duration, inclusive: bool, events: &mut Vec<Event>) {
        let held = member::nanos(held);
        let (mut least, mut least_missing) = (member::ENDLESS, member::ENDLESS);
        for process in self.params.members(self.warp) {
            let member = &self.members[process.index()];
            let missing = member.is_missing();
            if missing && (member.patience < held || (inclusive && member.patience == held)) {
                self.give_up_on(process, events);
            } else if member.is_awaited() {
                least = least.min(member.patience);
                least_missing = least_missing.min(if missing { member.patience } else { member::ENDLESS });
            }
        }
        self.warps[self.warp.index()].least_patience = least;
        if let Some(hold) = &mut self.hold {
            hold.wake = wake(hold.since, least_missing);
        }
    }

    /// Awaits a process no more: its patience is spent, or it has not joined in time (F3, F5).
    fn give_up_on(&mut self, process: ProcessId, events: &mut Vec<Event>) {
        let member = &mut self.members[process.index()];
        if !member.is_awaited() {
            return;
        }
        let missing = member.is_missing();
        member.patience = 0;
        member.spent = true;
        events.push(Event::PatienceSpent { process });
        self.await_no_more(process, missing);
    }

    /// Takes a member off the tallies of those awaited.
    fn await_no_more(&mut self, process: ProcessId, missing: bool) {
        let warp = self.params.warp_of(process);
        let tally = &mut self.warps[warp.index()];
        tally.awaited -= 1;
        tally.missing -= u32::from(missing);
        self.note_life_of(warp);
    }

    /// Keeps the set of live warps in step with a warp's tallies.
    fn note_life_of(&mut self, warp: WarpId) {
        if self.warps[warp.index()].is_live() {
            self.live.insert(warp);
        } else {
            self.live.remove(&warp);
        }
    }

    /// Seals the list when it is due (A2): once every warp has had its first phase, or with the last of n
    /// entries.
    fn seal_if_due(&mut self, events: &mut Vec<Event>) {
        let due = match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.phase.get() > u64::from(self.params.warps()),
            AppendWindow::Open => self.list.len() == self.list.limit(),
        };
        if !due || self.sealed {
            return;
        }
        self.sealed = true;
        events.push(Event::Sealed { phase: self.phase, length: self.list.len() });
        for process in std::mem::take(&mut self.early_reports) {
            self.compare_report(process, events);
        }
    }
}

/// When the first patience of a hold is spent; `None` if all is endless.
fn wake(since: Time, patience: u64) -> Option<Time> {
    (patience != member::ENDLESS).then(|| since.after(Duration::from_nanos(patience)))
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
