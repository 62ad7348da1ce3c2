//! The inputs of a machine, and what their senders are answered at once.

use std::time::Duration;

use crate::access::{Access, Answer, AppendAnswer, Op, ReadAnswer, Refusal};
use crate::history::{Event, Offence, OffenceKind};
use crate::scheduler::PhaseOrder;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Time, Value};

use super::offences::MisbehaviourCounts;
use super::state::{Machine, State};

/// An input of an instance.
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
    Counts(MisbehaviourCounts),
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
    /// The accesses that wait, in order; the answers will go to this session.
    pub waiting: Vec<(AccessNumber, Op)>,
    /// The answer of the process's first append and its phase, once there is one.
    pub append: Option<(Phase, AppendAnswer)>,
    /// The decision of the process, if it has decided.
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

    /// Files an offence of a message that the server refused before it reached the machine (B2), under the phase that
    /// is open or next.
    ///
    /// # Panics
    /// If the parameters do not have the offence's process.
    pub fn file_offence(&mut self, now: Time, offence: Offence, events: &mut Vec<Event>) {
        self.take(now, events, |machine, _, events| {
            // The server has refused an access, so the later accesses on its stream are out of order through no fault of
            // the process (F8d). If it came by a unary call, this excuses more than it must.
            if offence.number.is_some() {
                machine.changed |= machine.members[offence.process.index()].mark_refused();
            }
            machine.file(offence, events);
        });
    }

    /// All that is due at `now` or was due before happens. See [`Machine::deadline`].
    pub fn tick(&mut self, now: Time, events: &mut Vec<Event>) {
        let before = events.len();
        let now = self.catch_up(now, true, events);
        self.settle(now, before, events);
    }

    /// Takes an input: all that was due before it happens first, then the input, then all that follows from it. Returns what its
    /// sender is answered at once.
    pub(super) fn take<R>(
        &mut self,
        now: Time,
        events: &mut Vec<Event>,
        input: impl FnOnce(&mut Self, Time, &mut Vec<Event>) -> R,
    ) -> R {
        let before = events.len();
        let now = self.catch_up(now, false, events);
        let answer = input(self, now, events);
        self.settle(now, before, events);
        answer
    }

    /// All that was due before `now` happens; with `inclusive` also all that is due exactly then. Returns the moment of the
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

    /// Counts a refusal, records it while the bound allows, and returns it.
    pub(super) fn refuse(
        &mut self,
        process: ProcessId,
        number: Option<AccessNumber>,
        refusal: Refusal,
        events: &mut Vec<Event>,
    ) -> Refusal {
        if self.offences.count_refusal(process) {
            events.push(Event::Refused { process, number, why: refusal.to_string() });
        }
        refusal
    }

    /// Files an offence of a process, perhaps of its access with this number (B2).
    pub(super) fn accuse(
        &mut self,
        process: ProcessId,
        kind: OffenceKind,
        number: Option<AccessNumber>,
        detail: String,
        events: &mut Vec<Event>,
    ) {
        self.file(Offence { process, kind, number, phase: None, detail }, events);
    }

    /// Files an offence under the phase that is open or next.
    fn file(&mut self, offence: Offence, events: &mut Vec<Event>) {
        let phase = (self.state != State::Gathering).then_some(self.phase);
        self.offences.file(Offence { phase, ..offence }, events);
    }
}
