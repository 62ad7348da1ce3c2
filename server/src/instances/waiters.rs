//! The answers to executed accesses, and the unary calls that wait for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use stickycas_model::access::Answer;
use stickycas_model::machine::Entry;
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId};
use stickycas_proto::status::RpcRefusal;
use tokio::sync::oneshot;

/// The answer to an executed access, on its way to the session or call that waits for it.
///
/// The answer to a read is a few numbers and a reference to the list. Its entries are looked up when the
/// answer is encoded, without the machine and its lock, since entries never change (SPEC A3, R2). So an
/// answer that nobody fetches takes the same little memory, however many entries it names.
#[derive(Clone, Debug)]
pub(crate) struct CompletedAccess {
    /// The phase in which the access was executed; `None`: outside phases (F10).
    pub(crate) phase: Option<Phase>,
    /// The answer to the access.
    pub(crate) answer: Answer,
    /// The list that a read refers to; `None` for an append, which returns no entries.
    list: Option<Arc<StickyCas<Entry>>>,
}

impl CompletedAccess {
    /// An executed access of the instance with this list.
    pub(crate) fn new(phase: Option<Phase>, answer: Answer, list: &Arc<StickyCas<Entry>>) -> Self {
        let list = matches!(answer, Answer::Read(_)).then(|| list.clone());
        Self { phase, answer, list }
    }

    /// The values that a read returned, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let (start, count) = match self.answer {
            Answer::Read(read) => (read.start.get(), read.count),
            Answer::Append(_) => (0, 0),
        };
        let entries = self.list.iter().flat_map(move |list| list.range(Position::new(start), count));
        entries.map(|entry| entry.value.as_bytes())
    }
}

/// Receives the answer to an access, or the reason why none will come. The sender is dropped without a
/// message when the server ends.
pub(crate) type Waiter = oneshot::Receiver<Result<CompletedAccess, Box<RpcRefusal>>>;

/// As many calls wait for one access as may.
#[derive(Debug)]
pub(super) struct TooManyWaiters;

type WaiterSender = oneshot::Sender<Result<CompletedAccess, Box<RpcRefusal>>>;

/// The unary calls that wait at one instance. The sender of a call that was cancelled stays until the access
/// is executed, or until its place is needed.
#[derive(Debug)]
pub(super) struct Waiters {
    by_access: BTreeMap<(ProcessId, AccessNumber), Vec<WaiterSender>>,
    limit: usize,
}

impl Waiters {
    /// No call waits; at most `limit` may wait for one access.
    pub(super) fn new(limit: usize) -> Self {
        Self { by_access: BTreeMap::new(), limit }
    }

    /// Adds a waiter for this access.
    ///
    /// # Errors
    /// If as many calls wait for the access as may.
    pub(super) fn add(&mut self, process: ProcessId, number: AccessNumber) -> Result<Waiter, TooManyWaiters> {
        let senders = self.by_access.entry((process, number)).or_default();
        if senders.len() >= self.limit {
            senders.retain(|sender| !sender.is_closed());
        }
        if senders.len() >= self.limit {
            return Err(TooManyWaiters);
        }
        let (sender, waiter) = oneshot::channel();
        senders.push(sender);
        Ok(waiter)
    }

    /// The access was executed. `completed` is called only if a call waits.
    pub(super) fn complete(
        &mut self,
        process: ProcessId,
        number: AccessNumber,
        completed: impl FnOnce() -> CompletedAccess,
    ) {
        if self.by_access.is_empty() {
            return;
        }
        if let Some(senders) = self.by_access.remove(&(process, number)) {
            send_all(senders, &Ok(completed()));
        }
    }

    /// The access was withdrawn.
    pub(super) fn refuse(&mut self, process: ProcessId, number: AccessNumber, why: &RpcRefusal) {
        if let Some(senders) = self.by_access.remove(&(process, number)) {
            send_all(senders, &Err(Box::new(why.clone())));
        }
    }

    /// No access will be answered any more.
    pub(super) fn refuse_all(&mut self, why: &RpcRefusal) {
        for senders in std::mem::take(&mut self.by_access).into_values() {
            send_all(senders, &Err(Box::new(why.clone())));
        }
    }

    /// The server ends: drops every sender. The accesses stay.
    pub(super) fn cancel_all(&mut self) {
        self.by_access.clear();
    }
}

fn send_all(senders: Vec<WaiterSender>, outcome: &Result<CompletedAccess, Box<RpcRefusal>>) {
    for sender in senders {
        // A client whose call was cancelled can ask again (F8b).
        let _ = sender.send(outcome.clone());
    }
}
