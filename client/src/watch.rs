//! The events of an instance, as they happen (SPEC F13).
//!
//! A [`Watch`] goes on by itself after a broken connection: it asks again from the phase that it had reached
//! and passes over what it has given already, so that every event comes once, in order, without gaps. A
//! correct process never decides from it.

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
use stickycas_proto::v1::watch_response::Content;
use stickycas_proto::{NEXT_EVENT_KEY, v1};
use tokio::time::{Instant, timeout};
use tokio_stream::Stream;
use tonic::Streaming;
use tonic::metadata::MetadataMap;

use crate::client::{ANSWER_TIMEOUT, Client};
use crate::cluster::{NextTry, Route};
use crate::connection::Connection;
use crate::error::{Error, NO_ANSWER};
use crate::info::{InstanceStatus, ListEntry};
use crate::retry::{Backoff, noticed};

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

/// A watch of one instance: a [`Stream`] of what happens there. It ends when the instance is over and
/// everything was given, or after the first error.
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

impl Watch {
    pub(crate) fn new(client: Client, instance: Result<InstanceRef, Error>, from: WatchFrom) -> Self {
        match instance {
            Ok(instance) => Self(State::Idle(Box::new(Source {
                instance,
                cursor: Cursor::new(from),
                route: None,
                stream: None,
                ready: VecDeque::new(),
                backoff: client.backoff(),
                client,
            }))),
            Err(error) => Self(State::Invalid(error)),
        }
    }

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
    /// To the owner of the instance, once its id is known.
    route: Option<Route>,
    stream: Option<OpenStream>,
    ready: VecDeque<Watched>,
    backoff: Backoff,
}

struct OpenStream {
    connection: Connection,
    messages: Streaming<v1::WatchResponse>,
    opened: Instant,
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
                    if let Some(route) = &mut self.route {
                        route.note_answer();
                    }
                    if self.cursor.take(response, &mut self.ready)? == Next::Request {
                        self.stream = None;
                    }
                }
                Ok(None) => {
                    self.cursor.ended()?;
                    return Ok(false);
                }
                Err(error) => {
                    // Trying to open one is no progress, however long it takes.
                    if let Some(stream) = self.stream.take() {
                        self.backoff.lasted(stream.opened.elapsed());
                    }
                    self.cursor.lost();
                    self.pause(error).await?;
                }
            }
        }
        Ok(true)
    }

    /// Waits as long as it takes before the next request.
    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        let error = match &mut self.route {
            Some(route) => match route.next_try(route.diagnosed(error, &self.backoff).await).await {
                NextTry::Now => return Ok(()),
                NextTry::Later(error) => error,
                NextTry::Stop(error) => return Err(error),
            },
            None => error,
        };
        tokio::time::sleep(self.backoff.failed(error)?).await;
        if let Some(route) = &mut self.route {
            route.note_pause();
        }
        Ok(())
    }

    async fn message(&mut self) -> Result<Option<v1::WatchResponse>, Error> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                self.backoff.begin();
                let id = self.client.find(&self.instance).await?;
                // A name may lead to another instance later.
                self.instance = InstanceRef::Id(id);
                let route = self.route.get_or_insert_with(|| self.client.cluster.route_to(id));
                let connection = route.connection().await?;
                let call = async { connection.instances().watch(self.cursor.request(id)).await };
                let longest = self.backoff.limit(ANSWER_TIMEOUT, route.has_others());
                let opened =
                    noticed(connection.config().server(), self.backoff.has_noticed(), timeout(longest, call))
                        .await;
                let opened = opened.map_err(|_| connection.no_answer(NO_ANSWER))?;
                let opened = opened.map_err(|status| connection.error(&status))?;
                self.cursor.opened(opened.metadata())?;
                none.insert(OpenStream { connection, messages: opened.into_inner(), opened: Instant::now() })
            }
        };
        stream.messages.message().await.map_err(|status| stream.connection.stream_error(&status))
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
    /// Whether the instance is still to be compared with that snapshot, since the stream broke. An event
    /// would show by itself whether it is the same one; the events of a shorter history come late or never.
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

    /// A stream has begun.
    ///
    /// # Errors
    /// [`Error::Lost`] if the server says that fewer events have happened than were given.
    fn opened(&self, metadata: &MetadataMap) -> Result<(), Error> {
        let next = metadata.get(NEXT_EVENT_KEY).and_then(|next| next.to_str().ok()?.parse::<u64>().ok());
        match (self.next, next) {
            (Some(had), Some(has)) if has < had => {
                Err(Error::Lost(format!("the instance had {had} events, and now it has {has}")))
            }
            _ => Ok(()),
        }
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
                    // From here on the watch resumes at the phase of the snapshot. Should the phases behind
                    // it not be kept by then, it is refused, which is better than a gap.
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

/// The instance is at least what it was: nothing that only grows is less, its list begins as it did, and with
/// as many events the same accesses wait.
///
/// Its history alone does not show that: a server that is started again adds an event, which may take the
/// place of one that was lost. The rest of a status may change without an event, such as the patience that is
/// left.
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

/// The numbers that are never less at a later moment, with their names.
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
mod tests;
