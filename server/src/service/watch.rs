//! Watch: the events of an instance as they are committed (SPEC F13).
//!
//! The stream holds only the index of its next event, so nothing ever waits for a slow watcher: when its next
//! event is not kept any more, the stream ends with an error that says so.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prost::Message as _;
use stickycas_model::machine::Entry;
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::{Phase, Position};
use stickycas_proto::status::{RefusalDetails, RpcRefusal};
use stickycas_proto::v1::watch_response::Content;
use stickycas_proto::v1::{self, EventBatch, RefusalReason, WatchResponse};
use tokio_stream::Stream;
use tonic::Status;

use super::Service;
use super::status::status_to_wire;
use super::streams::StreamEnd;
use crate::instances::{Instance, Snapshot, WatchPoll, WatcherId};
use crate::limits::Limits;
use crate::quota::{Account, Buffer, BufferedBytes, Permit};
use crate::transport::too_many_unread;

/// One Watch stream. See the module.
pub(crate) struct WatchStream {
    service: Service,
    instance: Arc<Instance>,
    watcher: WatcherId,
    /// The rest of the snapshot that is sent first.
    snapshot: Option<SnapshotParts>,
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
        Self { service, instance, watcher, snapshot: None, index, end, over: false, permit }
    }

    /// A snapshot of the instance, and then the events after it.
    ///
    /// # Errors
    /// If there is no room for the list, which nobody else holds.
    pub(super) fn with_snapshot(
        service: &Service,
        instance: Arc<Instance>,
        snapshot: Snapshot,
        end: StreamEnd,
        permit: Permit,
    ) -> Result<Self, RpcRefusal> {
        let mut stream = Self::from_index(service, instance, snapshot.next_index, end, permit);
        let mut parts = SnapshotParts { snapshot, sent: 0, charge: None };
        parts.charge(&stream.instance, stream.permit.account())?;
        stream.snapshot = Some(parts);
        Ok(stream)
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchResponse, Status>>> {
        if let Poll::Ready(refused) = self.end.poll(&self.service, cx) {
            return Poll::Ready(Some(Err(refused.into())));
        }
        let limits = &self.service.0.limits;
        if let Some(snapshot) = &mut self.snapshot {
            if let Err(refused) = snapshot.charge(&self.instance, self.permit.account()) {
                return Poll::Ready(Some(Err(refused.into())));
            }
            let part = snapshot.next(limits);
            if part.last {
                self.snapshot = None;
            }
            return Poll::Ready(Some(Ok(WatchResponse { content: Some(Content::Snapshot(part)) })));
        }
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

/// A snapshot that is sent in parts, each made when the one before it has been taken. The entries are read
/// from the list itself, which needs no lock and never changes what it has.
struct SnapshotParts {
    snapshot: Snapshot,
    /// Entries that were sent.
    sent: u32,
    /// Of the list, if only this stream holds it.
    charge: Option<BufferedBytes>,
}

impl SnapshotParts {
    /// Charges the list to the client as an answer that has not been read, unless it is that of the instance:
    /// a view of an ended one has decoded it for itself, and one that has ended meanwhile has let go of it.
    /// The latter is noticed with the next part, so within `unread_for`.
    fn charge(&mut self, instance: &Instance, account: &Arc<Account>) -> Result<(), RpcRefusal> {
        let list = &self.snapshot.list;
        if self.charge.is_some() || instance.has_list(list) {
            return Ok(());
        }
        let mut charge = BufferedBytes::new(account.clone(), Buffer::Answers);
        if !charge.grow(list_bytes(list)) {
            return Err(too_many_unread());
        }
        self.charge = Some(charge);
        Ok(())
    }

    fn next(&mut self, limits: &Limits) -> v1::Snapshot {
        let Snapshot { status, list, next_index } = &self.snapshot;
        let first_position = self.sent;
        let rest = || list.range(Position::new(first_position), status.length - first_position);
        let sizes = rest().map(|entry| entry.value.as_bytes().len());
        let count = how_many(sizes, limits.events_per_message, limits.bytes_per_answer);
        let entries: Vec<v1::Entry> = rest().take(count).map(entry_to_wire).collect();
        self.sent += u32::try_from(entries.len()).unwrap_or(u32::MAX);
        v1::Snapshot {
            status: (first_position == 0).then(|| status_to_wire(status)),
            next_index: *next_index,
            first_position,
            entries,
            last: self.sent == status.length,
        }
    }
}

/// Bytes of memory that a list takes.
fn list_bytes(list: &StickyCas<Entry>) -> usize {
    /// An entry, its place in the list, and the header of its value.
    const ENTRY: usize = size_of::<Entry>() + 32;
    list.iter().map(|entry| ENTRY + entry.value.as_bytes().len()).sum()
}

fn entry_to_wire(entry: &Entry) -> v1::Entry {
    v1::Entry { value: entry.value.to_bytes(), process: entry.process.get(), phase: entry.phase.get() }
}

/// The number of these sizes that make one message: at most `limit`, no more than fit into `bytes`, but one
/// at least.
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
    use stickycas_model::machine::Machine;
    use stickycas_model::params::{Params, ParamsSpec};
    use stickycas_model::types::{ProcessId, Time, Value};

    use super::*;
    use crate::auth::Principal;
    use crate::commit_log::{CommitLog, MemoryLog};
    use crate::instances::{CreateSpec, Instances};
    use crate::quota::Principals;

    #[tokio::test]
    async fn a_list_is_charged_once_its_instance_lets_go_of_it() {
        let limits = Limits::default();
        let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
        let spec = CreateSpec {
            name: None,
            params: Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap(),
            seed_given: false,
            roster: vec!["p1".to_owned(), "p2".to_owned()],
        };
        let creating = Instances::new(limits.clone(), &log).create(&Principal::new("creator"), spec).await;
        let (instance, _) = creating.unwrap().committed().await.unwrap();
        let account = Principals::new(&limits).account(&Principal::new("p1")).unwrap();
        let snapshot = || async { instance.snapshot().committed().await.unwrap().unwrap() };
        let parts = |snapshot| {
            let mut parts = SnapshotParts { snapshot, sent: 0, charge: None };
            parts.charge(&instance, &account).unwrap();
            parts
        };
        let mut of_live = parts(snapshot().await);
        assert!(of_live.charge.is_none(), "the instance has the list");
        instance.close().committed().await.unwrap().unwrap();
        of_live.charge(&instance, &account).unwrap();
        assert!(of_live.charge.is_some(), "it has let go of it");
        assert!(parts(snapshot().await).charge.is_some(), "it was decoded for this view");
    }

    #[test]
    fn a_snapshot_shows_the_list_as_it_was_part_by_part() {
        let params = Params::try_new(ParamsSpec::new(4, 1, 1)).unwrap();
        let list = Arc::new(StickyCas::with_limit(8));
        let append = |phase: u64| {
            let entry = Entry {
                value: Value::new(&phase.to_be_bytes()).unwrap(),
                process: ProcessId::FIRST,
                phase: Phase::new(phase).unwrap(),
            };
            let _ = list.turn().append(entry);
        };
        (1..=5).for_each(append);
        let mut status = Machine::new(Arc::new(params)).status(Time::ZERO);
        status.length = list.len();
        let snapshot = Snapshot { status, list: list.clone(), next_index: 9 };
        let mut parts = SnapshotParts { snapshot, sent: 0, charge: None };
        append(6);
        let limits = Limits { events_per_message: 2, ..Limits::default() };
        let parts: Vec<v1::Snapshot> = (0..3).map(|_| parts.next(&limits)).collect();
        let phases = |part: &v1::Snapshot| part.entries.iter().map(|entry| entry.phase).collect::<Vec<_>>();
        assert_eq!(parts.iter().map(phases).collect::<Vec<_>>(), [vec![1, 2], vec![3, 4], vec![5]]);
        assert_eq!(parts.iter().map(|part| part.first_position).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(parts.iter().map(|part| part.last).collect::<Vec<_>>(), [false, false, true]);
        assert!(parts[0].status.is_some() && parts[1].status.is_none());
    }

    #[test]
    fn a_message_holds_what_fits_and_one_at_least() {
        assert_eq!(how_many([3, 3, 3].into_iter(), 9, 6), 2);
        assert_eq!(how_many([3, 3, 3].into_iter(), 1, 6), 1);
        assert_eq!(how_many([7, 3].into_iter(), 9, 6), 1);
        assert_eq!(how_many([3, 3, 3].into_iter(), 9, 9), 3);
    }
}
