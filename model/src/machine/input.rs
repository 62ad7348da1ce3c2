//! The inputs of a machine, and what their senders are answered at once.

use std::time::Duration;

use crate::access::{Access, Answer, AppendAnswer, Op, ReadAnswer, Refusal};
use crate::history::{Event, Offence};
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value};

use super::offence_record::Counts;
use super::state::Machine;

/// What can happen to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A process opens a session (F8e).
    Hello {
        /// The process.
        process: ProcessId,
        /// Names one life of the client: another after a restart; 0 if the client does not say.
        incarnation: u64,
    },
    /// A process sends an access (F8).
    Access(Access),
    /// A process reports its decision and leaves (F10).
    Decide {
        /// The process.
        process: ProcessId,
        /// Its decision.
        value: Value,
    },
    /// The server refused a message before it reached the machine, and that counts as an offence (B2). The machine
    /// adds the phase.
    Offence(Offence),
    /// The creator closes the instance (F10).
    Close,
    /// [`Machine::deadline`] is reached.
    Tick,
    /// The server has restarted (F3).
    Restart {
        /// How long patience waits for processes to reconnect.
        rejoin: Duration,
    },
    /// Counters as they were left by inputs that changed nothing else and were not logged (B2).
    Counts(Counts),
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

/// The answer to a hello, with which a restarted client can go on (F8e).
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

impl<S: PhaseOrder> Machine<S> {
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
            Input::Restart { rejoin } => {
                self.restart(now, rejoin, events);
                Ok(())
            }
            Input::Counts(counts) => {
                self.set_counts(&counts);
                Ok(())
            }
        }
    }

    /// A process opens a session, which replaces its older one (F8e, F8f).
    ///
    /// # Errors
    /// If the process has opened [`MAX_SESSIONS`](super::MAX_SESSIONS).
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
        let before = events.len();
        let now = self.catch_up(now, false, events);
        let welcome = self.open_session(now, process, incarnation, events);
        self.settle(now, before, events);
        welcome
    }

    /// A process sends an access (F8).
    ///
    /// # Errors
    /// Why the access is refused; it has then changed nothing but the record of refusals and offences.
    ///
    /// # Panics
    /// If the parameters do not have the access's process.
    #[expect(clippy::needless_pass_by_value, reason = "like every input, an access is handed over")]
    pub fn access(
        &mut self,
        now: Time,
        access: Access,
        events: &mut Vec<Event>,
    ) -> Result<Admission, Refusal> {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        // Nearly all accesses take this short way.
        if self.is_plain(&access) {
            self.accept(now, &access, events);
            self.advance(now, events);
            self.changed = true;
            return Ok(Admission::Accepted);
        }
        let admission = self.admit_or_refuse(now, &access, events);
        self.settle(now, before, events);
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
        let before = events.len();
        let now = self.catch_up(now, false, events);
        let decided = self.leave(now, process, value, events);
        self.settle(now, before, events);
        decided
    }

    /// Files an offence of a message that the server refused before it reached the machine (B2), under the phase that
    /// is open or next.
    ///
    /// # Panics
    /// If the parameters do not have the offence's process.
    pub fn file_offence(&mut self, now: Time, offence: Offence, events: &mut Vec<Event>) {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        // The server has refused an access, so the later accesses on its stream are out of order through no fault of
        // the process (F8d). If it came by a unary call, this excuses more than it must.
        if offence.number.is_some() {
            self.changed |= self.members[offence.process.index()].mark_refused();
        }
        self.file(offence, events);
        self.settle(now, before, events);
    }

    /// The creator closes the instance; everything that waits is withdrawn (F10).
    pub fn close(&mut self, now: Time, events: &mut Vec<Event>) {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        self.withdraw_all(events);
        self.settle(now, before, events);
    }

    /// What is due at `now` happens, and all that was due before. See [`Machine::deadline`].
    pub fn tick(&mut self, now: Time, events: &mut Vec<Event>) {
        let before = events.len();
        let now = self.catch_up(now, true, events);
        self.settle(now, before, events);
    }

    /// What was due before `now` happens; with `inclusive` also what is due exactly then. Returns the moment of the
    /// input, which is never earlier than that of the one before.
    pub(super) fn catch_up(&mut self, now: Time, inclusive: bool, events: &mut Vec<Event>) -> Time {
        let now = now.max(self.now);
        self.now = now;
        self.let_time_pass(now, inclusive, events);
        now
    }

    /// All that follows from an input happens. `before` is how many events there were when it came.
    pub(super) fn settle(&mut self, now: Time, before: usize, events: &mut Vec<Event>) {
        self.advance(now, events);
        self.changed |= events.len() > before;
    }
}
