//! Changes as etcd tells them, on a stream for each watch.
//!
//! etcd never splits the changes of one revision between two answers, except in fragments of one answer,
//! which are put together here. An answer may tell several revisions; they are told one by one.
//!
//! A compaction at a revision also forgets what was deleted at just that revision (etcd before 3.4.34 and
//! 3.5.16), and a watch that begins there misses it without an error. So a watch begins one revision earlier
//! here, and what that one tells is left out: then etcd refuses it.
//!
//! Nothing comes while nothing changes, and a member that is stopped sends nothing either. So an idle watch
//! asks for a sign of life (a progress request), and ends if none comes in time.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::client::{Client, malformed};
use super::convert;
use super::failure::{self, Kind};
use super::wire::watch_client::WatchClient;
use super::wire::watch_request::RequestUnion;
use super::wire::{Event, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};
use crate::store::{Change, KeyRange, Revision, StoreError, Watch};

/// Bytes of an answer. Fragments are as large as a request may be, unless a single change is larger.
const LARGEST_ANSWER: usize = i32::MAX as usize;

/// A watch of [`Client`]. Ends when it is dropped.
pub struct EtcdWatch {
    /// Where progress is asked for; while it is open, so is the stream.
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    pending: Pending,
    /// Why it is over.
    over: Option<StoreError>,
    idle: Duration,
    limit: Duration,
    /// When a sign of life is asked for; once it is, when it must have come.
    deadline: Instant,
    asked: bool,
}

/// The changes that were received and not yet told.
#[derive(Debug, Default)]
struct Pending {
    /// Older changes are not told.
    from: Revision,
    /// Changes of an answer whose last fragment has not come.
    fragments: Vec<Event>,
    /// All changes of a revision each.
    revisions: VecDeque<(Revision, Vec<Change>)>,
}

impl EtcdWatch {
    pub(super) async fn open(client: &Client, range: KeyRange, from: Revision) -> Result<Self, StoreError> {
        let (key, range_end) = convert::range(range)?;
        // 0: from now on.
        let start_revision = match convert::signed(from)? {
            from @ ..2 => from,
            from => from - 1,
        };
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let opened = client.call(Kind::Read, create, |channel, create| async move {
            let (requests, queue) = mpsc::channel(1);
            let (metadata, extensions, create) = create.into_parts();
            // It has room for one.
            let _queued = requests.try_send(request(RequestUnion::CreateRequest(create)));
            let stream = Request::from_parts(metadata, extensions, ReceiverStream::new(queue));
            let mut watches = WatchClient::new(channel).max_decoding_message_size(LARGEST_ANSWER);
            let mut answers = watches.watch(stream).await?.into_inner();
            let answer = answers.message().await?.ok_or_else(ended)?;
            if answer.canceled {
                return Err(cancel_status(&answer));
            }
            if !answer.created {
                return Err(Status::unknown("a watch that was not created tells something"));
            }
            Ok(Response::new((requests, answers)))
        });
        let (requests, answers) = opened.await?;
        let (idle, limit) = (client.shared.config.watch_idle, client.shared.config.request_limit);
        Ok(Self {
            requests,
            answers,
            pending: Pending { from, ..Pending::default() },
            over: None,
            idle,
            limit,
            deadline: Instant::now() + idle,
            asked: false,
        })
    }

    /// Waits for an answer of etcd, and takes it.
    async fn receive(&mut self) -> Result<(), StoreError> {
        loop {
            // An answer that has come already is taken even if it is late.
            let Ok(received) = timeout_at(self.deadline, self.answers.message()).await else {
                if self.asked {
                    return Err(StoreError::NotDone(format!("the watch was silent for {:?}", self.limit)));
                }
                let progress = request(RequestUnion::ProgressRequest(WatchProgressRequest {}));
                // If there is no room, the stream has not even taken the last one: that ends the watch, too.
                let _queued = self.requests.try_send(progress);
                self.asked = true;
                self.deadline = Instant::now() + self.limit;
                continue;
            };
            let answer = received
                .and_then(|answer| answer.ok_or_else(ended))
                .map_err(|status| failure::error(&status, Kind::Read))?;
            self.asked = false;
            self.deadline = Instant::now() + self.idle;
            return self.pending.take(answer);
        }
    }
}

impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        loop {
            if let Some((_, changes)) = self.pending.revisions.pop_front() {
                return Ok(changes);
            }
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            if let Err(error) = self.receive().await {
                self.over = Some(error);
            }
        }
    }
}

impl Pending {
    /// Takes what has come.
    ///
    /// # Errors
    /// The watch is over.
    fn take(&mut self, answer: WatchResponse) -> Result<(), StoreError> {
        if answer.compact_revision != 0 {
            let compacted = convert::revision(answer.compact_revision).map_err(malformed(Kind::Read))?;
            return Err(StoreError::Compacted(compacted.next()));
        }
        if answer.canceled {
            return Err(failure::error(&cancel_status(&answer), Kind::Read));
        }
        self.fragments.extend(answer.events);
        if answer.fragment {
            return Ok(());
        }
        for event in self.fragments.drain(..) {
            let (revision, change) = convert::change(event).map_err(malformed(Kind::Read))?;
            if revision < self.from {
                continue;
            }
            match self.revisions.back_mut() {
                Some((last, changes)) if *last == revision => changes.push(change),
                _ => self.revisions.push_back((revision, vec![change])),
            }
        }
        Ok(())
    }
}

/// Why etcd has ended a watch, as if it were the answer to a request. It writes the reason as Go prints an
/// error of gRPC.
fn cancel_status(answer: &WatchResponse) -> Status {
    let reason = answer.cancel_reason.as_str();
    let description = reason.split_once(" desc = ").map_or(reason, |(_, description)| description);
    Status::unknown(if description.is_empty() { "etcd has ended the watch" } else { description })
}

fn ended() -> Status {
    Status::unknown("etcd has ended the stream")
}

fn request(union: RequestUnion) -> WatchRequest {
    WatchRequest { request_union: Some(union) }
}

impl fmt::Debug for EtcdWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdWatch")
            .field("pending", &self.pending)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::wire::KeyValue;

    /// A put of this key at this revision.
    fn put(key: &'static str, mod_revision: i64) -> Event {
        let kv =
            KeyValue { key: key.into(), mod_revision, create_revision: mod_revision, ..KeyValue::default() };
        Event { kv: Some(kv), ..Event::default() }
    }

    fn answer(events: Vec<Event>, fragment: bool) -> WatchResponse {
        WatchResponse { events, fragment, ..WatchResponse::default() }
    }

    fn told(pending: &Pending) -> Vec<(u64, usize)> {
        pending.revisions.iter().map(|(revision, changes)| (revision.0, changes.len())).collect()
    }

    #[test]
    fn changes_of_a_revision_in_several_fragments_are_told_together() {
        let mut pending = Pending::default();
        pending.take(answer(vec![put("a", 4), put("a", 5)], true)).unwrap();
        assert_eq!(told(&pending), [], "a revision may go on in the next fragment");
        pending.take(answer(vec![put("b", 5)], true)).unwrap();
        pending.take(answer(vec![put("c", 5), put("a", 7)], false)).unwrap();
        assert_eq!(told(&pending), [(4, 1), (5, 3), (7, 1)]);
    }

    #[test]
    fn a_watch_behind_a_compaction_ends_with_the_oldest_revision() {
        let gone = WatchResponse { canceled: true, compact_revision: 9, ..WatchResponse::default() };
        assert_eq!(Pending::default().take(gone), Err(StoreError::Compacted(Revision(10))));
    }

    #[test]
    fn what_is_older_than_was_asked_for_is_not_told() {
        let mut pending = Pending { from: Revision(5), ..Pending::default() };
        pending.take(answer(vec![put("a", 4), put("a", 5)], false)).unwrap();
        assert_eq!(told(&pending), [(5, 1)]);
    }

    #[test]
    fn the_reason_of_an_end_is_read_as_that_of_a_request() {
        let reason = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
        let denied =
            WatchResponse { canceled: true, cancel_reason: reason.to_owned(), ..WatchResponse::default() };
        assert_eq!(
            Pending::default().take(denied),
            Err(StoreError::Refused("etcdserver: permission denied".to_owned()))
        );
    }
}
