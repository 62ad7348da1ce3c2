//! Watch: the events of an instance as they are committed (SPEC F13).
//!
//! The stream holds only the index of its next event, so nothing ever waits for a slow watcher: when its next event
//! is not kept any more, the stream ends with an error that says so.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message as _;
use stickycas_model::machine::Entry;
use stickycas_model::types::Phase;
use stickycas_proto::status::{RefusalDetails, RpcRefusal};
use stickycas_proto::v1::watch_response::Content;
use stickycas_proto::v1::{self, EventBatch, RefusalReason, WatchResponse};
use tokio_stream::Stream;
use tonic::Status;

use super::Service;
use super::status::status_to_wire;
use super::stream_end::StreamEnd;
use crate::instances::{Instance, Snapshot, WatchPoll, WatcherId};
use crate::limits::Limits;
use crate::quota::Permit;

/// One Watch stream. See the module.
pub(crate) struct WatchStream {
    service: Service,
    instance: Arc<Instance>,
    watcher: WatcherId,
    /// The parts of the snapshot that are still to be sent, last part first.
    snapshot: Vec<v1::Snapshot>,
    /// The index of the next event.
    index: u64,
    end: StreamEnd,
    over: bool,
    permit: Permit,
}

impl WatchStream {
    /// From this event on.
    pub(super) fn from_index(
        service: &Service,
        instance: Arc<Instance>,
        index: u64,
        end: StreamEnd,
        permit: Permit,
    ) -> Self {
        let service = service.clone();
        let watcher = instance.next_watcher();
        Self { service, instance, watcher, snapshot: Vec::new(), index, end, over: false, permit }
    }

    /// A snapshot of the instance, and then the events after it.
    pub(super) fn with_snapshot(
        service: &Service,
        instance: Arc<Instance>,
        snapshot: &Snapshot,
        end: StreamEnd,
        permit: Permit,
    ) -> Self {
        let limits = &service.0.limits;
        let parts = snapshot_to_wire(snapshot, limits);
        let mut stream = Self::from_index(service, instance, snapshot.next_index, end, permit);
        stream.snapshot = parts;
        stream
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchResponse, Status>>> {
        if let Poll::Ready(refused) = self.end.poll(&self.service, cx) {
            return Poll::Ready(Some(Err(refused.into())));
        }
        if let Some(part) = self.snapshot.pop() {
            return Poll::Ready(Some(Ok(WatchResponse { content: Some(Content::Snapshot(part)) })));
        }
        let limits = &self.service.0.limits;
        match self.instance.poll_events(self.index, limits.events_per_message, self.watcher, cx.waker()) {
            WatchPoll::Pending => Poll::Pending,
            WatchPoll::End => Poll::Ready(None),
            WatchPoll::Gone(gone) => Poll::Ready(Some(Err(gone.into()))),
            WatchPoll::Events(mut events) => {
                let sizes = events.iter().map(v1::Event::encoded_len);
                events.truncate(how_many(sizes, limits.events_per_message, limits.bytes_per_answer));
                self.index += events.len() as u64;
                let content = Some(Content::Events(EventBatch { events }));
                Poll::Ready(Some(Ok(WatchResponse { content })))
            }
            WatchPoll::TooSlow(oldest) => Poll::Ready(Some(Err(too_slow(oldest).into()))),
        }
    }
}

impl Stream for WatchStream {
    type Item = Result<WatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let next = self.next(cx);
        if let Poll::Ready(Some(Err(status))) = &next {
            self.permit.account().count_status(status);
        }
        self.over = matches!(next, Poll::Ready(None | Some(Err(_))));
        next
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.instance.remove_watcher(self.watcher);
    }
}

fn too_slow(oldest: Phase) -> RpcRefusal {
    let why = format!("you read too slowly: what you missed is kept from phase {oldest} on");
    let details = RefusalDetails { resume_phase: Some(oldest), ..RefusalDetails::default() };
    RpcRefusal::new(RefusalReason::WatcherTooSlow, why).with_details(details)
}

/// The parts of a snapshot, last part first.
fn snapshot_to_wire(snapshot: &Snapshot, limits: &Limits) -> Vec<v1::Snapshot> {
    let part = |first_position: usize, entries: &[Entry]| v1::Snapshot {
        status: (first_position == 0).then(|| status_to_wire(&snapshot.status, limits.status_rows)),
        next_index: snapshot.next_index,
        first_position: u32::try_from(first_position).unwrap_or(u32::MAX),
        entries: entries.iter().map(entry_to_wire).collect(),
        last: first_position + entries.len() == snapshot.entries.len(),
    };
    if snapshot.entries.is_empty() {
        return vec![part(0, &[])];
    }
    let mut parts = Vec::new();
    let mut first = 0;
    while first < snapshot.entries.len() {
        let rest = &snapshot.entries[first..];
        let sizes = rest.iter().map(|entry| entry.value.as_bytes().len());
        let count = how_many(sizes, limits.events_per_message, limits.bytes_per_answer);
        parts.push(part(first, &rest[..count]));
        first += count;
    }
    parts.reverse();
    parts
}

fn entry_to_wire(entry: &Entry) -> v1::Entry {
    v1::Entry { value: entry.value.to_bytes(), process: entry.process.get(), phase: entry.phase.get() }
}

/// How many of these sizes make one message: at most `limit`, no more than fit into `bytes`, but one at least.
fn how_many(sizes: impl Iterator<Item = usize>, limit: usize, bytes: usize) -> usize {
    let mut sum = 0_usize;
    let fitting = sizes.take(limit).take_while(|size| {
        sum += size;
        sum <= bytes
    });
    fitting.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_holds_what_fits_and_one_at_least() {
        assert_eq!(how_many([3, 3, 3].into_iter(), 9, 6), 2);
        assert_eq!(how_many([3, 3, 3].into_iter(), 1, 6), 1);
        assert_eq!(how_many([7, 3].into_iter(), 9, 6), 1);
        assert_eq!(how_many([3, 3, 3].into_iter(), 9, 9), 3);
    }
}
