//! What happens at an instance, as it happens (SPEC F13).
//!
//! A [`Watch`] goes on by itself after a broken connection: it asks again from the phase that it had reached
//! and passes over what it has given already, so that every event comes once, in order, without gaps. A correct
//! process never decides from it.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::Serialize;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::machine::State as InstanceState;
use stickycas_model::types::Phase;
use stickycas_proto::convert::history::event_from_wire;
use stickycas_proto::names::{InstanceId, InstanceRef};
use stickycas_proto::v1;
use stickycas_proto::v1::watch_response::Content;
use tokio_stream::Stream;
use tonic::Streaming;

use crate::client::Client;
use crate::convert::IntoInstance;
use crate::error::Error;
use crate::info::{InstanceStatus, ListEntry};
use crate::retry::Backoff;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchFrom {
    /// With the earliest event that is kept.
    #[default]
    Start,
    /// Right behind the record of the phase before this one.
    Phase(Phase),
    /// With a snapshot, and then what happens after it.
    Snapshot,
}

/// An item of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The instance when the watch began; only first, and only if asked for.
    Snapshot(Snapshot),
    /// The next event, with its number in the history of the instance, from 0.
    Event(u64, Recorded),
}

/// An instance at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Its status.
    pub status: InstanceStatus,
    /// The list.
    pub entries: Vec<ListEntry>,
    /// The number of the first event after it.
    pub next_index: u64,
}

/// A watch of one instance: a [`Stream`] of what happens there. It ends when the instance is over and everything
/// was given, or after the first error.
///
/// Dropping a future that waits for the next item, as `tokio::select!` does, loses nothing.
#[must_use = "a watch does nothing until it is polled"]
pub struct Watch(State);

enum State {
    /// Given up before the first request.
    Invalid(Error),
    /// Nothing is under way.
    Idle(Box<Source>),
    /// The next items are being fetched.
    Fetching(Pin<Box<Fetch>>),
    Ended,
}

/// Gives the source back, and whether it has more items.
type Fetch = dyn Future<Output = (Box<Source>, Result<bool, Error>)> + Send;

impl Client {
    /// Watches an instance. The first request leaves when the stream is polled.
    ///
    /// # Errors
    /// The items are errors when there is no such instance, the caller may not watch it (F13), or the phase to
    /// begin with is not kept any more; and when retries did not help.
    pub fn watch(&self, instance: impl IntoInstance, from: WatchFrom) -> Watch {
        match instance.into_instance() {
            Ok(instance) => Watch(State::Idle(Box::new(Source {
                client: self.clone(),
                instance,
                cursor: Cursor::new(from),
                stream: None,
                ready: VecDeque::new(),
                backoff: self.backoff(),
            }))),
            Err(error) => Watch(State::Invalid(error)),
        }
    }
}

impl Watch {
    /// The next item; `None` at the end. The same as `try_next` of a stream's extension trait.
    ///
    /// # Errors
    /// See [`Client::watch`]. After an error the watch has ended.
    pub async fn try_next(&mut self) -> Result<Option<Watched>, Error> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await.transpose()
    }
}

impl Stream for Watch {
    type Item = Result<Watched, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::mem::replace(&mut self.0, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Invalid(error) => return Poll::Ready(Some(Err(error))),
                State::Idle(mut source) => {
                    if let Some(watched) = source.ready.pop_front() {
                        self.0 = State::Idle(source);
                        return Poll::Ready(Some(Ok(watched)));
                    }
                    self.0 = State::Fetching(Box::pin(source.fetch()));
                }
                State::Fetching(mut fetch) => match fetch.as_mut().poll(context) {
                    Poll::Pending => {
                        self.0 = State::Fetching(fetch);
                        return Poll::Pending;
                    }
                    Poll::Ready((source, Ok(true))) => self.0 = State::Idle(source),
                    Poll::Ready((_, Ok(false))) => return Poll::Ready(None),
                    Poll::Ready((_, Err(error))) => return Poll::Ready(Some(Err(error))),
                },
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Fetches the items of a watch.
struct Source {
    client: Client,
    /// By its id from the first request on.
    instance: InstanceRef,
    cursor: Cursor,
    stream: Option<Streaming<v1::WatchResponse>>,
    ready: VecDeque<Watched>,
    backoff: Backoff,
}

impl Source {
    async fn fetch(mut self: Box<Self>) -> (Box<Self>, Result<bool, Error>) {
        let fetched = self.fill().await;
        (self, fetched)
    }

    /// Waits until items are ready; false at the end.
    async fn fill(&mut self) -> Result<bool, Error> {
        while self.ready.is_empty() {
            match self.message().await {
                Ok(Some(response)) => {
                    self.backoff.progress();
                    if self.cursor.take(response, &mut self.ready)? == Next::Request {
                        self.stream = None;
                    }
                }
                Ok(None) => {
                    self.cursor.ended()?;
                    return Ok(false);
                }
                Err(error) => {
                    self.stream = None;
                    self.cursor.lost();
                    tokio::time::sleep(self.backoff.failed(error)?).await;
                }
            }
        }
        Ok(true)
    }

    async fn message(&mut self) -> Result<Option<v1::WatchResponse>, Error> {
        let connection = &self.client.connection;
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let id = self.client.find(&self.instance).await?;
                // A name may lead to another instance later.
                self.instance = InstanceRef::Id(id);
                let opened = connection.instances().watch(self.cursor.request(id)).await;
                none.insert(opened.map_err(|status| connection.error(&status))?.into_inner())
            }
        };
        stream.message().await.map_err(|status| connection.error(&status))
    }
}

/// How far a watch has come. Pure.
#[derive(Debug)]
struct Cursor {
    from: WatchFrom,
    /// The number of the next event to give; `None` before the first.
    next: Option<u64>,
    /// The event before that, once given.
    last: Option<Recorded>,
    /// Whether that event is still to come again, since the stream broke.
    resumed: bool,
    /// The parts of a snapshot that have come.
    snapshot: Option<Snapshot>,
    /// The snapshot, once given, until an event is.
    given: Option<Snapshot>,
    /// Whether the instance is still to be compared with that snapshot, since the stream broke. An event would show by
    /// itself whether it is the same one; the events of a shorter history come late or never.
    compares: bool,
}

/// How a watch goes on behind a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// With the next message of the stream.
    Message,
    /// With another stream.
    Request,
}

impl Cursor {
    fn new(from: WatchFrom) -> Self {
        Self { from, next: None, last: None, resumed: false, snapshot: None, given: None, compares: false }
    }

    fn request(&self, instance: InstanceId) -> v1::WatchRequest {
        let (from_phase, snapshot_first) = match self.from {
            _ if self.compares => (0, true),
            WatchFrom::Start => (0, false),
            WatchFrom::Phase(phase) => (phase.get(), false),
            WatchFrom::Snapshot => (0, true),
        };
        v1::WatchRequest { instance_id: instance.to_string(), from_phase, snapshot_first }
    }

    /// The stream broke: half a snapshot is none.
    fn lost(&mut self) {
        self.snapshot = None;
        self.resumed = self.last.is_some();
        self.compares = self.given.is_some();
    }

    /// The stream has ended, since the instance is over.
    ///
    /// # Errors
    /// [`Error::Lost`] if events are missing that were given before.
    fn ended(&self) -> Result<(), Error> {
        match self.next {
            Some(next) if self.resumed => {
                Err(Error::Lost(format!("the instance had {next} events, and now it is over with fewer")))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, response: v1::WatchResponse, ready: &mut VecDeque<Watched>) -> Result<Next, Error> {
        match response.content {
            Some(Content::Snapshot(part)) => match (self.part(&part)?, &self.given) {
                (None, _) => {}
                (Some(snapshot), Some(given)) => {
                    compare(given, &snapshot)?;
                    self.compares = false;
                    if snapshot.next_index > given.next_index {
                        // The events in between are wanted too.
                        return Ok(Next::Request);
                    }
                }
                (Some(snapshot), None) => {
                    // From here on the watch resumes at the phase of the snapshot. Should the phases behind it not be
                    // kept by then, it is refused, which is better than a gap.
                    self.next = Some(snapshot.next_index);
                    self.from = snapshot.status.phase.map_or(WatchFrom::Start, WatchFrom::Phase);
                    self.given = Some(snapshot.clone());
                    ready.push_back(Watched::Snapshot(snapshot));
                }
            },
            Some(Content::Events(batch)) => {
                for event in &batch.events {
                    let (index, recorded) = event_from_wire(event)?;
                    ready.extend(self.event(index, recorded)?);
                }
            }
            None => {}
        }
        Ok(Next::Message)
    }

    /// A part of a snapshot; gives the whole with the last part.
    fn part(&mut self, part: &v1::Snapshot) -> Result<Option<Snapshot>, Error> {
        if let Some(status) = &part.status {
            let status = InstanceStatus::from_wire(status)?;
            self.snapshot = Some(Snapshot { status, entries: Vec::new(), next_index: part.next_index });
        }
        let Some(snapshot) = &mut self.snapshot else {
            return Err(Error::Protocol("the first part of a snapshot has no status".to_owned()));
        };
        for (position, entry) in (part.first_position..).zip(&part.entries) {
            snapshot.entries.push(ListEntry::from_wire(position, entry)?);
        }
        if !part.last {
            return Ok(None);
        }
        Ok(self.snapshot.take())
    }

    /// An event; gives nothing if it was given before.
    fn event(&mut self, index: u64, recorded: Recorded) -> Result<Option<Watched>, Error> {
        match self.next {
            Some(next) if index < next => {
                if index + 1 == next {
                    self.resumed = false;
                    if self.last.as_ref().is_some_and(|last| *last != recorded) {
                        return Err(Error::Lost(format!("event {index} of the history is another one now")));
                    }
                }
                return Ok(None);
            }
            Some(next) if index > next => {
                return Err(Error::Protocol(format!("event {index} came where {next} was due")));
            }
            _ => {}
        }
        self.next = Some(index + 1);
        self.given = None;
        self.last = Some(recorded.clone());
        if let Event::Stepped { phase, .. } = recorded.event {
            self.from = WatchFrom::Phase(phase);
        }
        Ok(Some(Watched::Event(index, recorded)))
    }
}

/// The instance is at least what it was: nothing that only grows is less, its list begins as it did, and with as many
/// events the same accesses wait.
///
/// Its history alone does not show that: a server that is started again adds an event, which may take the place of one that
/// was lost. What else a status says may change without an event, such as the patience that is left.
///
/// # Errors
/// [`Error::Lost`] if it is less.
fn compare(before: &Snapshot, now: &Snapshot) -> Result<(), Error> {
    for ((what, had), (_, has)) in what_grows(before).into_iter().zip(what_grows(now)) {
        if has < had {
            return Err(Error::Lost(format!("{what}: it was {had}, and now it is {has}")));
        }
    }
    if now.next_index == before.next_index && now.status.waiting != before.status.waiting {
        return Err(Error::Lost("other accesses wait than in the snapshot, without an event".to_owned()));
    }
    if !now.entries.starts_with(&before.entries) {
        return Err(Error::Lost(
            "the list does not begin any more with the entries of the snapshot".to_owned(),
        ));
    }
    Ok(())
}

/// What is never less at a later moment, with its name.
fn what_grows(Snapshot { status, next_index, .. }: &Snapshot) -> [(&'static str, u64); 6] {
    let left = status.left.shown.len() as u64 + u64::from(status.left.left_out);
    [
        ("the number of events", *next_index),
        ("the phase", status.phase.map_or(0, Phase::get)),
        ("the number of processes that have joined", status.joined.into()),
        ("the number of processes that have left", left),
        ("whether the list is sealed", status.sealed.into()),
        (
            "whether it has ended",
            matches!(status.state, InstanceState::Finished | InstanceState::Closed).into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::{ProcessId, Time, WarpId};
    use stickycas_proto::convert::history::event_to_wire;

    use super::*;

    fn joined() -> Event {
        Event::Joined { process: ProcessId::FIRST }
    }

    fn stepped(phase: u64) -> Event {
        Event::Stepped { phase: Phase::new(phase).unwrap(), warp: WarpId::FIRST, length: 0 }
    }

    fn batch(events: &[(u64, Event)]) -> v1::WatchResponse {
        let wire = |(index, event): &(u64, Event)| {
            event_to_wire(*index, &Recorded { at: Time::ZERO, event: event.clone() })
        };
        let events = events.iter().map(wire).collect();
        v1::WatchResponse { content: Some(Content::Events(v1::EventBatch { events })) }
    }

    fn indices(ready: &VecDeque<Watched>) -> Vec<u64> {
        let index = |watched: &Watched| match watched {
            Watched::Event(index, _) => Some(*index),
            Watched::Snapshot(_) => None,
        };
        ready.iter().filter_map(index).collect()
    }

    #[test]
    fn a_watch_resumes_at_its_phase_and_gives_each_event_once() {
        let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Start), VecDeque::new());
        cursor.take(batch(&[(0, joined()), (1, stepped(3)), (2, joined())]), &mut ready).unwrap();
        cursor.lost();
        assert_eq!(cursor.request(InstanceId::new(1)).from_phase, 3);
        cursor.take(batch(&[(1, stepped(3)), (2, joined()), (3, stepped(4))]), &mut ready).unwrap();
        assert_eq!(indices(&ready), [0, 1, 2, 3]);
        assert_eq!(cursor.request(InstanceId::new(1)).from_phase, 4);
    }

    #[tokio::test]
    async fn a_watch_of_no_instance_gives_one_error_and_ends() {
        let client = Client::builder("http://127.0.0.1:1").principal("ann").connect_lazy().unwrap();
        let mut watch = client.watch("no/name", WatchFrom::Start);
        assert!(matches!(watch.try_next().await, Err(Error::InvalidArgument(_))));
        assert!(matches!(watch.try_next().await, Ok(None)));
    }

    #[test]
    fn a_history_that_was_put_back_is_lost() {
        let given = |again: &[(u64, Event)]| {
            let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Start), VecDeque::new());
            cursor.take(batch(&[(0, joined()), (1, stepped(3)), (2, joined())]), &mut ready).unwrap();
            cursor.lost();
            cursor.take(batch(again), &mut ready).and_then(|_| cursor.ended())
        };
        given(&[(1, stepped(3)), (2, joined())]).unwrap();
        given(&[(1, stepped(3)), (2, joined()), (3, stepped(4))]).unwrap();
        for less in [&[][..], &[(1, stepped(3))], &[(1, stepped(3)), (2, stepped(4))]] {
            let error = given(less).unwrap_err();
            assert!(matches!(error, Error::Lost(_)), "{error}");
        }
    }

    #[test]
    fn a_gap_is_an_error() {
        let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Start), VecDeque::new());
        let error = cursor.take(batch(&[(0, joined()), (2, joined())]), &mut ready).unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
    }

    fn snapshot_of(next_index: u64, entries: &[&'static str]) -> v1::WatchResponse {
        let status =
            v1::Status { state: v1::State::Running.into(), phase: 5, warp: 1, ..v1::Status::default() };
        let entry = |value: &&'static str| v1::Entry { value: (*value).into(), process: 1, phase: 1 };
        let entries = entries.iter().map(entry).collect();
        let snapshot =
            v1::Snapshot { status: Some(status), next_index, first_position: 0, entries, last: true };
        v1::WatchResponse { content: Some(Content::Snapshot(snapshot)) }
    }

    #[test]
    fn an_instance_that_is_less_than_its_snapshot_is_lost() {
        let resumed = || {
            let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Snapshot), VecDeque::new());
            cursor.take(snapshot_of(9, &["a"]), &mut ready).unwrap();
            ready.clear();
            cursor.lost();
            assert!(cursor.request(InstanceId::new(1)).snapshot_first, "no event says what was there");
            (cursor, ready)
        };
        for less in [snapshot_of(8, &["a"]), snapshot_of(9, &[]), snapshot_of(12, &["b", "a"])] {
            let (mut cursor, mut ready) = resumed();
            let error = cursor.take(less, &mut ready).unwrap_err();
            assert!(matches!(error, Error::Lost(_)), "{error}");
        }
        let (mut cursor, mut ready) = resumed();
        assert_eq!(cursor.take(snapshot_of(9, &["a"]), &mut ready).unwrap(), Next::Message);
        cursor.take(batch(&[(9, joined())]), &mut ready).unwrap();
        assert_eq!((indices(&ready), ready.len()), (vec![9], 1), "the snapshot is given once");

        let (mut cursor, mut ready) = resumed();
        assert_eq!(cursor.take(snapshot_of(11, &["a", "b"]), &mut ready).unwrap(), Next::Request);
        let request = cursor.request(InstanceId::new(1));
        assert_eq!((request.from_phase, request.snapshot_first), (5, false));
        cursor.take(batch(&[(8, joined()), (9, joined()), (10, joined())]), &mut ready).unwrap();
        assert_eq!(indices(&ready), [9, 10]);
        cursor.lost();
        assert!(!cursor.request(InstanceId::new(1)).snapshot_first, "the last event says what was there");
    }

    #[test]
    fn events_of_restarts_do_not_make_up_for_lost_ones() {
        let status = v1::Status {
            state: v1::State::Finished.into(),
            phase: 5,
            joined: 3,
            sealed: true,
            left: vec![1, 2],
            waiting: vec![v1::WaitingProcess { process: 3, append_numbers: vec![], read_numbers: vec![4] }],
            ..v1::Status::default()
        };
        let response = |next_index, change: fn(&mut v1::Status)| {
            let mut status = status.clone();
            change(&mut status);
            let status = Some(status);
            let snapshot =
                v1::Snapshot { status, next_index, first_position: 0, entries: vec![], last: true };
            v1::WatchResponse { content: Some(Content::Snapshot(snapshot)) }
        };
        let compared = |now| {
            let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Snapshot), VecDeque::new());
            cursor.take(response(9, |_| {}), &mut ready).unwrap();
            cursor.lost();
            cursor.take(now, &mut ready)
        };
        let less: [fn(&mut v1::Status); 5] = [
            |status| status.phase = 4,
            |status| status.joined = 2,
            |status| status.sealed = false,
            |status| status.left = vec![1],
            |status| status.state = v1::State::Running.into(),
        ];
        for change in less {
            for next_index in [9, 12] {
                let error = compared(response(next_index, change)).unwrap_err();
                assert!(matches!(error, Error::Lost(_)), "{error}");
            }
        }
        let error = compared(response(9, |status| status.waiting.clear())).unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
        // Its end is an event, and so is each answer.
        compared(response(12, |status| status.waiting.clear())).unwrap();
        // More, without an event: phases without processes pass.
        compared(response(9, |status| (status.phase, status.phase_open) = (6, true))).unwrap();
    }

    #[test]
    fn a_snapshot_in_parts_is_given_whole_and_then_what_follows_it() {
        let status =
            v1::Status { state: v1::State::Running.into(), phase: 5, warp: 1, ..v1::Status::default() };
        let entry = v1::Entry { value: "a".into(), process: 1, phase: 1 };
        let part = |status: Option<&v1::Status>, first_position, last| v1::WatchResponse {
            content: Some(Content::Snapshot(v1::Snapshot {
                status: status.cloned(),
                next_index: 9,
                first_position,
                entries: vec![entry.clone()],
                last,
            })),
        };
        let (mut cursor, mut ready) = (Cursor::new(WatchFrom::Snapshot), VecDeque::new());
        assert!(cursor.request(InstanceId::new(1)).snapshot_first);
        cursor.take(part(Some(&status), 0, false), &mut ready).unwrap();
        assert!(ready.is_empty());
        cursor.take(part(None, 1, true), &mut ready).unwrap();
        let Some(Watched::Snapshot(snapshot)) = ready.pop_front() else { panic!("no snapshot") };
        let positions: Vec<u32> = snapshot.entries.iter().map(|entry| entry.position.get()).collect();
        assert_eq!(positions, [0, 1]);
        assert_eq!(cursor.request(InstanceId::new(1)).from_phase, 5);
        cursor.take(batch(&[(8, joined()), (9, joined())]), &mut ready).unwrap();
        assert_eq!(indices(&ready), [9]);
    }
}
