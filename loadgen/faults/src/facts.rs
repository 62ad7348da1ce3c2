//! The answers and events that clients received: recorded outside the server, in the order in which the
//! clients received them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stickycas_client::info::InstanceView;
use stickycas_client::raw::Told;
use stickycas_client::{Error, MemberState, RefusalReason, State};
use stickycas_model::history::Recorded;
use stickycas_model::types::ProcessId;
use tokio::time::Instant;

/// A fact: an answer or event that a client of an instance received.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The instance exists, with the parameters that were asked for.
    Created,
    /// A process received this.
    Told(ProcessId, Told),
    /// Get was answered.
    Status(MemberStatus),
    /// An observer received these events, from the first on.
    Watched(Vec<Recorded>),
    /// The instance is closed.
    Closed,
    /// There is no such instance.
    Unknown,
    /// The client of a process was killed, and is started again without its memory.
    ClientKilled(ProcessId),
    /// No client received this: the server was killed.
    Killed,
    /// No client received this: a server that had been killed serves again.
    ServesAgain,
}

/// The answer to Get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The number of facts before the request: the answer must show at least these.
    pub asked_after: usize,
    /// Where the instance is in its life.
    pub state: State,
    /// Length of the list.
    pub length: u32,
    /// Whether it takes no more entries.
    pub sealed: bool,
    /// The state of the process that asked; `None`: it is none.
    pub own: Option<MemberState>,
}

impl MemberStatus {
    pub(crate) fn new(asked_after: usize, view: InstanceView) -> Self {
        let InstanceView { status, own, .. } = view;
        Self { asked_after, state: status.state, length: status.length, sealed: status.sealed, own }
    }
}

/// The facts of one instance.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    all: Mutex<Vec<Fact>>,
    /// The times at which processes received the answer to an executed access.
    answered_at: Mutex<Vec<Instant>>,
}

impl Facts {
    pub(crate) fn note(&self, fact: Fact) {
        if matches!(fact, Fact::Told(_, Told::Answered { phase: Some(_), .. })) {
            self.answered_at.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        }
        self.note_again(fact);
    }

    /// Notes the repeated answer to a client that asked again: it does not show that the instance has gone
    /// on.
    pub(crate) fn note_again(&self, fact: Fact) {
        self.all().push(fact);
    }

    /// Notes the fact that an error shows, if any.
    pub(crate) fn note_error(&self, error: &Error) {
        if error.reason() == Some(RefusalReason::InstanceUnknown) {
            self.note(Fact::Unknown);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn was_created(&self) -> bool {
        self.all().contains(&Fact::Created)
    }

    /// Whether this process was welcomed.
    pub(crate) fn was_welcomed(&self, process: ProcessId) -> bool {
        let welcome = |fact: &Fact| matches!(fact, Fact::Told(of, Told::Welcome(_)) if *of == process);
        self.all().iter().any(welcome)
    }

    /// Whether the decision of this process was acknowledged.
    pub(crate) fn has_decided(&self, process: ProcessId) -> bool {
        let decided = |fact: &Fact| matches!(fact, Fact::Told(of, Told::Decided(_)) if *of == process);
        self.all().iter().any(decided)
    }

    /// The last access of this process that was answered on a stream or by a call.
    pub(crate) fn last_answered(&self, process: ProcessId) -> Option<Told> {
        let is_answer = |fact: &Fact| match fact {
            Fact::Told(of, told @ Told::Answered { op: Some(_), phase: Some(_), .. }) if *of == process => {
                Some(told.clone())
            }
            _ => None,
        };
        self.all().iter().rev().find_map(is_answer)
    }

    /// Whether a process received the answer to an executed access before this moment.
    pub(crate) fn answered_before(&self, moment: Instant) -> bool {
        let answered_at = self.answered_at.lock().unwrap_or_else(PoisonError::into_inner);
        answered_at.iter().any(|at| *at < moment)
    }

    /// The first time, from this moment on, at which a process received the answer to an executed access.
    pub(crate) fn answered_from(&self, from: Instant) -> Option<Instant> {
        let answered_at = self.answered_at.lock().unwrap_or_else(PoisonError::into_inner);
        answered_at.iter().copied().filter(|at| *at >= from).min()
    }

    pub(crate) fn take(&self) -> Vec<Fact> {
        std::mem::take(&mut *self.all())
    }

    fn all(&self) -> MutexGuard<'_, Vec<Fact>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
