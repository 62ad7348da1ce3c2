//! Where the answers of open sessions go: the outbox of the Attach stream that each came on.

use std::sync::Arc;

use stickycas_model::access::Refusal;
use stickycas_model::machine::Welcome;
use stickycas_model::types::{AccessNumber, ProcessId, Seed, SessionId};
use stickycas_proto::attach::encode_welcome;
use stickycas_proto::convert::member_state::MemberState;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{self, Replaced};

use super::answered::Answered;
use super::outbox::Outbox;
use super::terms::{Definition, Terms};

/// One channel of one Attach stream.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) channel: u32,
}

impl Outlet {
    /// The session is open.
    pub(super) fn welcome(&self, process: ProcessId, welcome: Welcome, definition: &Definition) {
        let Welcome { session, next, waiting, append, decided } = welcome;
        let own = v1::Own::from(&MemberState { process, next, waiting, append, decided });
        let (terms, seed) = (definition.terms.clone(), definition.seed);
        self.outbox.welcome(Welcoming { channel: self.channel, session, own, terms, seed });
    }
}

/// That a session is open, as it waits to be sent.
#[derive(Debug)]
pub(crate) struct Welcoming {
    channel: u32,
    session: SessionId,
    own: v1::Own,
    terms: Arc<Terms>,
    seed: Seed,
}

impl Welcoming {
    pub(super) fn write(&self, message: &mut Vec<u8>) {
        let Self { channel, session, own, terms, seed } = self;
        encode_welcome(message, *channel, session.get(), own, &terms.written, seed.get());
    }
}

/// The open sessions of one instance.
#[derive(Debug, Default)]
pub(super) struct Outlets {
    /// By process; empty until the first session opens.
    sessions: Vec<Option<(SessionId, Outlet)>>,
    /// How many there are.
    open: usize,
}

impl Outlets {
    /// Answers of `process` go to `outlet` from now on, `waiting` of them at least. An older session waits for
    /// them no more and is told that it was replaced (F8f). True if there was one.
    pub(super) fn open(
        &mut self,
        process: ProcessId,
        session: SessionId,
        outlet: Outlet,
        waiting: usize,
        processes: u32,
    ) -> bool {
        if self.sessions.is_empty() {
            self.sessions.resize(processes as usize, None);
        }
        outlet.outbox.expect(waiting);
        let older = self.sessions[process.index()].replace((session, outlet));
        let Some((_, older)) = older else {
            self.open += 1;
            return false;
        };
        older.outbox.expect_no_more(waiting);
        older.outbox.free(older.channel);
        older.outbox.push(Replaced { channel: older.channel, session: session.get() });
        true
    }

    /// The stream of this session is gone, unless a newer one has taken its place already.
    pub(super) fn close(&mut self, process: ProcessId, session: SessionId) {
        if self.is_open(process, session) {
            self.sessions[process.index()] = None;
            self.open -= 1;
        }
    }

    /// Whether no session is open.
    pub(super) fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Whether this session is open and was not replaced.
    pub(super) fn is_open(&self, process: ProcessId, session: SessionId) -> bool {
        let place = self.sessions.get(process.index()).and_then(Option::as_ref);
        place.is_some_and(|(open, _)| *open == session)
    }

    fn of(&self, process: ProcessId) -> Option<&Outlet> {
        self.sessions.get(process.index())?.as_ref().map(|(_, outlet)| outlet)
    }

    /// An access of the process was accepted: its answer is still to come.
    pub(super) fn expect(&self, process: ProcessId) {
        if let Some(outlet) = self.of(process) {
            outlet.outbox.expect(1);
        }
    }

    /// An access was executed; `answered` is asked for if anybody listens.
    pub(super) fn answer(
        &self,
        process: ProcessId,
        number: AccessNumber,
        answered: impl FnOnce() -> Answered,
    ) {
        if let Some(outlet) = self.of(process) {
            outlet.outbox.answer(outlet.channel, number, answered());
        }
    }

    /// The instance is gone: nothing comes from it any more.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (ProcessId, Outlet)> + use<> {
        let sessions = std::mem::take(self).sessions.into_iter().enumerate();
        sessions.filter_map(|(index, session)| Some((ProcessId::from_index(index)?, session?.1)))
    }

    /// A waiting access was withdrawn.
    pub(super) fn withdraw(&self, process: ProcessId, number: AccessNumber, why: &Refusal) {
        if let Some(outlet) = self.of(process) {
            outlet.outbox.withdraw(RpcRefusal::from(why).to_frame(outlet.channel, Some(number)));
        }
    }
}
