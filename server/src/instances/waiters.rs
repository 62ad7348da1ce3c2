//! Unary calls that wait for an access to be executed.

use std::collections::BTreeMap;

use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::status::RpcRefusal;
use tokio::sync::oneshot;

use super::completed_access::CompletedAccess;

/// Receives the answer to an access, or the reason why none will come. The sender is dropped without a message when the
/// server ends.
pub(crate) type Waiter = oneshot::Receiver<Result<CompletedAccess, Box<RpcRefusal>>>;

/// As many calls wait for one access as may.
#[derive(Debug)]
pub(super) struct TooManyWaiters;

type WaiterSender = oneshot::Sender<Result<CompletedAccess, Box<RpcRefusal>>>;

/// The unary calls that wait at one instance. The sender of a call that was cancelled stays until the access is
/// executed, or until its place is needed.
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
