//! Unary calls that wait for an access to be executed.

use std::collections::BTreeMap;

use stickycas_model::access::Refusal;
use stickycas_model::types::{AccessNumber, ProcessId};
use tokio::sync::oneshot;

use super::answered::Answered;

/// Where the answer will come, or why the access was withdrawn.
pub(crate) type Ticket = oneshot::Receiver<Result<Answered, Refusal>>;

/// As many calls wait for one access as may.
#[derive(Debug)]
pub(super) struct TooMany;

/// The other end of a [`Ticket`].
type Place = oneshot::Sender<Result<Answered, Refusal>>;

/// The calls that wait at one instance. A caller that hangs up leaves its place behind until its access is
/// executed, or until the place is wanted.
#[derive(Debug)]
pub(super) struct Callers {
    waiting: BTreeMap<(ProcessId, AccessNumber), Vec<Place>>,
    limit: usize,
}

impl Callers {
    /// Nobody waits; at most `limit` may for one access.
    pub(super) fn new(limit: usize) -> Self {
        Self { waiting: BTreeMap::new(), limit }
    }

    /// Waits for this access.
    pub(super) fn wait(&mut self, process: ProcessId, number: AccessNumber) -> Result<Ticket, TooMany> {
        let places = self.waiting.entry((process, number)).or_default();
        if places.len() >= self.limit {
            places.retain(|place| !place.is_closed());
        }
        if places.len() >= self.limit {
            return Err(TooMany);
        }
        let (place, ticket) = oneshot::channel();
        places.push(place);
        Ok(ticket)
    }

    /// The access was executed; `answered` is asked for if anybody waits.
    pub(super) fn answer(
        &mut self,
        process: ProcessId,
        number: AccessNumber,
        answered: impl FnOnce() -> Answered,
    ) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(places) = self.waiting.remove(&(process, number)) {
            tell(places, &Ok(answered()));
        }
    }

    /// The instance or the server ends: whoever waits finds the other end of its ticket gone.
    pub(super) fn dismiss(&mut self) {
        self.waiting.clear();
    }

    /// The access was withdrawn.
    pub(super) fn withdraw(&mut self, process: ProcessId, number: AccessNumber, why: &Refusal) {
        if let Some(places) = self.waiting.remove(&(process, number)) {
            tell(places, &Err(why.clone()));
        }
    }
}

fn tell(places: Vec<Place>, outcome: &Result<Answered, Refusal>) {
    for place in places {
        // Whoever hung up can ask again (F8b).
        let _ = place.send(outcome.clone());
    }
}
