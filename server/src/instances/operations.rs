//! The operations of an instance that clients ask for. Each is one step, see [`Instance`], or none if the instance is
//! gone.

use std::convert::Infallible;
use std::time::Instant;

use stickycas_model::access::{Access, Answer, Refusal};
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::machine::{Admission, State};
use stickycas_model::types::{ProcessId, SessionId, Value};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::completed_access::CompletedAccess;
use super::effects::OpeningSession;
use super::instance::Instance;
use super::lifecycle::{Inner, Lifecycle};
use super::outbox::{Outgoing, PendingWelcome};
use super::sessions::SessionSink;
use super::waiters::Waiter;
use crate::gate::Uncommitted;
use crate::quota::OffenceSink;

/// A session that was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOpened {
    pub(crate) session: SessionId,
    /// Whether it replaces an open session.
    pub(crate) replaces: bool,
}

/// An access on a stream that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// It is new.
    New,
    /// It came before (F8b).
    Repeated,
}

/// An access that came with a unary call.
#[derive(Debug)]
pub(crate) struct UnaryAccess {
    pub(crate) answer: UnaryAnswer,
    /// Whether it came before (F8b).
    pub(crate) repeated: bool,
}

/// What an access that came with a unary call finds.
enum Called {
    /// Its answer.
    Answered(CompletedAccess),
    /// Its answer will come.
    Waits(Waiter),
    /// As many calls wait for the answer as may.
    Crowded,
}

/// How a unary call comes to its answer.
#[derive(Debug)]
pub(crate) enum UnaryAnswer {
    /// The answer, or the refusal, is known.
    Known(Uncommitted<Result<CompletedAccess, RpcRefusal>>),
    /// The answer will come when the access is executed and its phase committed.
    Waiting(Waiter),
}

impl Instance {
    /// Opens a session whose answers go to `sink` from now on, the welcome first (F8e).
    ///
    /// # Errors
    /// Why the hello was refused, which the client is told on `sink`.
    pub(crate) fn hello(
        &self,
        process: ProcessId,
        incarnation: u64,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<SessionOpened, RefusalReason> {
        self.session_step(sink, None, at, |live, effects| {
            let welcome = live.hello(process, incarnation, effects)?;
            let opened = SessionOpened { session: welcome.session, replaces: live.has_session(process) };
            let (session, sink) = (welcome.session, sink.clone());
            let welcome = PendingWelcome::new(sink.channel, process, welcome, &self.config);
            let opening = OpeningSession { process, session, sink, welcome, stream_ended: false };
            effects.opening = Some(Box::new(opening));
            Ok(opened)
        })
    }

    /// Takes an access that came on a session at this moment. Its answer goes to the process's newest session.
    ///
    /// # Errors
    /// Why the access was refused, which the client is told on `sink`.
    pub(crate) fn access(
        &self,
        access: Access,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<Submitted, RefusalReason> {
        let number = access.number;
        self.session_step(sink, Some(number), at, |live, effects| {
            let (submitted, answered) = match live.access(access, effects)? {
                Admission::Accepted => return Ok(Submitted::New),
                Admission::AlreadyWaiting => return Ok(Submitted::Repeated),
                Admission::AnsweredBefore { phase, answer } => {
                    (Submitted::Repeated, live.completed(Some(phase), answer))
                }
                Admission::ReadOutsidePhases(read) => {
                    (Submitted::New, live.completed(None, Answer::Read(read)))
                }
            };
            effects.reply_outgoing(sink, Outgoing::Answer(sink.channel, number, answered));
            Ok(submitted)
        })
    }

    /// Takes an access that came with a unary call.
    pub(crate) fn call(&self, access: Access) -> UnaryAccess {
        let (process, number) = (access.process, access.number);
        let inner = &mut *self.lock();
        let outcome = self.step(inner, Instant::now(), |live, effects| {
            let repeated = match live.access(access, effects)? {
                Admission::Accepted => false,
                Admission::AlreadyWaiting => true,
                Admission::AnsweredBefore { phase, answer } => {
                    return Ok((Called::Answered(live.completed(Some(phase), answer)), true));
                }
                Admission::ReadOutsidePhases(read) => {
                    return Ok((Called::Answered(live.completed(None, Answer::Read(read))), false));
                }
            };
            // The answer may be among the events of this step already, which are told after this.
            Ok((live.waiters.add(process, number).map_or(Called::Crowded, Called::Waits), repeated))
        });
        let (known, repeated) = match outcome {
            Ok(Ok((Called::Waits(waiter), repeated))) => {
                return UnaryAccess { answer: UnaryAnswer::Waiting(waiter), repeated };
            }
            Ok(Ok((Called::Answered(completed), repeated))) => (Ok(Ok(completed)), repeated),
            Ok(Ok((Called::Crowded, _))) => (Ok(Err(self.too_many_waiters(process, inner))), false),
            Ok(Err(refused)) => (Ok(Err(refused)), false),
            Err(gone) => (Err(gone), false),
        };
        UnaryAccess { answer: UnaryAnswer::Known(inner.outcome(known)), repeated }
    }

    /// Refuses a call because as many wait for its access as may, which is an offence (B2).
    fn too_many_waiters(&self, process: ProcessId, inner: &mut Inner) -> RpcRefusal {
        let limits = &self.context().limits;
        let why = format!("{} calls wait for this access, as many as may", limits.callers_per_access);
        let (kind, detail) = (OffenceKind::QuotaExceeded, why.clone());
        let offence = Offence { process, kind, number: None, phase: None, detail };
        // The instance has just taken a step, so it is not gone.
        let _ = self.step(inner, Instant::now(), |live, effects| live.file_offence(offence, effects));
        RpcRefusal::new(RefusalReason::TooManyWaiting, why).with_retry_after(limits.retry_after)
    }

    /// A process reports its decision on a session and leaves (F10), unless a newer session has replaced this one (F8f).
    ///
    /// # Errors
    /// Why the decision was refused, which the client is told on `sink`.
    pub(crate) fn decide(
        &self,
        process: ProcessId,
        session: SessionId,
        value: Value,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<(), RefusalReason> {
        self.session_step(sink, None, at, |live, effects| {
            let current = live.machine.session(process);
            if current != Some(session) {
                return Err(RpcRefusal::from(&Refusal::OlderSession { given: session, current }));
            }
            live.decide(process, value, effects)?;
            effects.reply_outgoing(sink, Outgoing::Decided(sink.channel));
            Ok(())
        })
    }

    /// A process reports its decision by a unary call and leaves (F10).
    pub(crate) fn call_decide(
        &self,
        process: ProcessId,
        value: Value,
    ) -> Uncommitted<Result<(), RpcRefusal>> {
        self.unary_step(|live, effects| {
            live.decide(process, value, effects)?;
            Ok(())
        })
    }

    /// Files an offence of a message that was refused before it came to the machine (B2).
    pub(crate) fn file_offence(&self, offence: Offence) {
        // An instance that is gone keeps no offences.
        let _ = self.step(&mut self.lock(), Instant::now(), |live, effects| {
            live.file_offence(offence, effects);
        });
    }

    /// Refuses a message that came on a session before it comes to the machine, which is an offence (B2). The client is
    /// told on `sink`, when the offence is committed. Returns why.
    pub(crate) fn refuse(
        &self,
        offence: Offence,
        refused: RpcRefusal,
        sink: &SessionSink,
        at: Instant,
    ) -> RefusalReason {
        let number = offence.number;
        let told = self.session_step(sink, number, at, |live, effects| {
            live.file_offence(offence, effects);
            Err::<Infallible, _>(refused)
        });
        match told {
            Ok(never) => match never {},
            Err(reason) => reason,
        }
    }

    /// Refuses a unary call likewise.
    pub(crate) fn refuse_call<T>(
        &self,
        offence: Offence,
        refused: RpcRefusal,
    ) -> Uncommitted<Result<T, RpcRefusal>> {
        self.unary_step(|live, effects| {
            live.file_offence(offence, effects);
            Err(refused)
        })
    }

    /// The creator closes the instance (F10).
    ///
    /// # Errors
    /// Why the instance is gone, if it is.
    pub(crate) fn close(&self) -> Uncommitted<Result<(), RpcRefusal>> {
        {
            let inner = self.lock();
            if let Lifecycle::Archived(archived) = &inner.lifecycle
                && archived.state == State::Closed
                && self.gone(&inner).is_none()
            {
                // It need not be restored to be closed again.
                return Uncommitted::new(Ok(()), self.shard.ownership());
            }
        }
        self.unary_step(|live, effects| {
            live.close(effects);
            Ok(())
        })
    }

    /// The stream of this session has ended. The session's accesses stay (F8a).
    pub(crate) fn close_session(&self, process: ProcessId, session: SessionId) {
        // Also called while a panic unwinds, and a second one would end the server.
        let Ok(mut inner) = self.inner.lock() else { return };
        match &mut inner.lifecycle {
            Lifecycle::Live(live) => live.close_session(process, session),
            Lifecycle::Archived(archived) => {
                if let Some(sessions) = &mut archived.sessions {
                    sessions.close(process, session);
                    if sessions.is_empty() {
                        archived.sessions = None;
                    }
                }
            }
        }
    }

    /// The server drains: unary calls find that no answer will come. Their accesses stay.
    pub(super) fn cancel_waiters(&self) {
        if let Ok(inner) = &mut self.inner.lock()
            && let Lifecycle::Live(live) = &mut inner.lifecycle
        {
            live.waiters.cancel_all();
        }
    }
}

impl OffenceSink for Instance {
    fn file_offence(&self, offence: Offence) {
        Self::file_offence(self, offence);
    }
}

#[cfg(test)]
mod tests;
