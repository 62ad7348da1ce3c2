//! One instance as viewers see it: the latest frames, encoded once for all of them.
//!
//! A viewer reads at its own pace, and only holds the number of its next frame. When that frame is not kept
//! any more its stream ends with an error that says so; nobody else notices. A viewer for which not every
//! frame is kept begins with a snapshot.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use stickycas_client::{Client, WatchFrom, Watched, watch as watching};
use stickycas_model::history::Recorded;
use stickycas_model::machine::State;
use stickycas_model::types::ProcessId;
use stickycas_page::source::Refused;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

use crate::frames::{FeedEnd, Frame, Frames};
use crate::instances::InstanceFacts;
use crate::known::{KeptEvents, Known};
use crate::permits::{Network, too_many};
use crate::refusal::refusal;
use crate::snapshot::Snapshot;

/// How long a snapshot is given to further viewers.
const SNAPSHOT_AGE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) client: Client,
    pub(crate) facts: Arc<InstanceFacts>,
    /// The bound on the bytes of frames.
    limit: usize,
    frames: Mutex<Frames>,
    changed: watch::Sender<()>,
    /// The network of each viewer.
    viewers: Mutex<Vec<Network>>,
    snapshot: tokio::sync::Mutex<Option<(Instant, Arc<Snapshot>)>>,
}

impl Feed {
    /// Of this instance, with frames of so many bytes at most.
    pub(crate) fn new(client: Client, facts: Arc<InstanceFacts>, limit: usize) -> Self {
        Self {
            client,
            facts,
            limit,
            frames: Mutex::default(),
            changed: watch::Sender::new(()),
            viewers: Mutex::default(),
            snapshot: tokio::sync::Mutex::default(),
        }
    }

    /// The frames begin with this event.
    pub(crate) fn begin(&self, first: u64) {
        let mut frames = self.frames();
        (frames.first, frames.next) = (first, first);
        frames.known = Some(Known::new(&self.facts, first));
    }

    /// Adds the frame that `make` makes of the instance as these events leave it, if it makes one; old ones
    /// make room.
    pub(crate) fn push(
        &self,
        events: &[Recorded],
        make: impl FnOnce(&Known) -> Option<(Frame, Vec<ProcessId>)>,
    ) {
        let mut guard = self.frames();
        let frames = &mut *guard;
        let Some(known) = &mut frames.known else { return };
        known.take(events);
        let Some((frame, late)) = make(known) else { return };
        frames.late.extend(late);
        frames.add(frame, self.limit);
        drop(guard);
        self.changed.send_replace(());
    }

    /// The instance has ended in this state.
    pub(crate) fn set_ended(&self, state: State) {
        if let Some(known) = &mut self.frames().known {
            known.ended.get_or_insert(state);
        }
    }

    /// Whether the instance has ended.
    pub(crate) fn is_ended(&self) -> bool {
        self.frames().known.as_ref().is_some_and(|known| known.ended.is_some())
    }

    /// Whether the state of the instance follows from its events.
    pub(crate) fn is_followed(&self) -> bool {
        self.frames().known.as_ref().is_some_and(Known::is_followed)
    }

    /// Whether the state follows from events of which more are still to come.
    pub(crate) fn waits_for_events(&self) -> bool {
        self.frames().known.as_ref().is_some_and(|known| known.is_followed() && known.follower().is_none())
    }

    /// Everything that had happened is encoded.
    pub(crate) fn set_ready(&self) {
        self.frames().ready = true;
        self.changed.send_replace(());
    }

    /// There will be no more frames.
    pub(crate) fn end(&self, end: FeedEnd) {
        self.frames().end.get_or_insert(end);
        self.changed.send_replace(());
    }

    /// Whether there will be no more frames because they cannot be made.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.frames().end, Some(FeedEnd::Refused(_)))
    }

    /// How many look.
    pub(crate) fn viewers(&self) -> usize {
        self.viewing().len()
    }

    /// Whether somebody of this network looks.
    pub(crate) fn is_viewed_by(&self, network: Network) -> bool {
        self.viewing().contains(&network)
    }

    /// One viewer more, until what is returned is dropped.
    pub(crate) fn enter(self: &Arc<Self>, network: Network) -> Entered {
        self.viewing().push(network);
        Entered(self.clone(), network)
    }

    fn viewing(&self) -> MutexGuard<'_, Vec<Network>> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_ready(&self) -> Result<(), Refused> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let frames = self.frames();
                match &frames.end {
                    Some(FeedEnd::Refused(refused)) => return Err(refused.clone()),
                    Some(FeedEnd::Over) => return Ok(()),
                    None if frames.ready => return Ok(()),
                    None => {}
                }
            }
            // The sender is ours.
            let _ = changed.changed().await;
        }
    }

    /// A snapshot that is new enough, and behind which frames are kept.
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Refused> {
        let mut latest = self.snapshot.lock().await;
        if let Some((made, snapshot)) = &*latest
            && made.elapsed() < SNAPSHOT_AGE
            && self.frames().start(snapshot.index, self.limit).is_some()
        {
            return Ok(snapshot.clone());
        }
        let snapshot = Arc::new(self.make_snapshot().await?);
        *latest = Some((Instant::now(), snapshot.clone()));
        Ok(snapshot)
    }

    async fn make_snapshot(&self) -> Result<Snapshot, Refused> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let frames = self.frames();
                if frames.end.is_some() {
                    break;
                }
                let known = frames.known.as_ref().filter(|known| known.is_followed());
                let Some(known) = known else { break };
                if let Some(snapshot) = Snapshot::of_known(&self.facts, known, frames.next, &frames.late) {
                    return Ok(snapshot);
                }
            }
            // The sender is ours. The events that the machine waits for come within a frame or two.
            let _ = changed.changed().await;
        }
        let snapshot = Snapshot::of_watch(&self.facts, &self.watched_snapshot().await?);
        let is_behind = || {
            let frames = self.frames();
            frames.end.is_none() && frames.is_behind(snapshot.index)
        };
        while is_behind() {
            let _ = changed.changed().await;
        }
        Ok(snapshot)
    }

    /// A snapshot of the instance, as the server tells it.
    ///
    /// # Errors
    /// If the server does not.
    pub(crate) async fn watched_snapshot(&self) -> Result<watching::Snapshot, Refused> {
        let mut watch = self.client.watch(self.facts.id, WatchFrom::Snapshot);
        match watch.try_next().await.map_err(|error| refusal(&error))? {
            Some(Watched::Snapshot(snapshot)) => Ok(snapshot),
            Some(Watched::Event(..)) | None => {
                let why = "the server tells no snapshot of the instance".to_owned();
                Err(Refused { status: StatusCode::BAD_GATEWAY, why })
            }
        }
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a viewer of a feed.
pub(crate) struct Entered(Arc<Feed>, Network);

impl Entered {
    /// The frames from the event with this index on, with a snapshot first where they are not kept, and
    /// whether more may happen.
    ///
    /// # Errors
    /// If there is no such event, no snapshot can be made, or what comes behind it is not kept.
    pub(crate) async fn open(
        self,
        from: Option<u64>,
    ) -> Result<(Option<Arc<Snapshot>>, FeedStream, bool), Refused> {
        self.0.until_ready().await?;
        let from = from.unwrap_or(0);
        let (start, next, live) = {
            let frames = self.0.frames();
            let ended = frames.known.as_ref().is_some_and(|known| known.ended.is_some());
            (frames.start(from, self.0.limit), frames.next, !ended)
        };
        if from > next {
            let why = format!("the history of the instance has {next} events, not {from}: begin again");
            return Err(Refused { status: StatusCode::CONFLICT, why });
        }
        if let Some(number) = start {
            return Ok((None, self.stream(number), live));
        }
        let snapshot = self.0.snapshot().await?;
        let stream = self.behind(&snapshot)?;
        Ok((Some(snapshot), stream, live))
    }

    /// The frames behind a snapshot.
    ///
    /// # Errors
    /// If some of it is not kept any more, so that there would be a gap.
    fn behind(self, snapshot: &Snapshot) -> Result<FeedStream, Refused> {
        let start = self.0.frames().start(snapshot.index, self.0.limit);
        start
            .map(|number| self.stream(number))
            .ok_or_else(|| too_many("more happens at the instance than can be shown"))
    }

    /// All events that are known up to now.
    ///
    /// # Errors
    /// If they cannot be had, or are too many.
    pub(crate) async fn events(self) -> Result<KeptEvents, Refused> {
        self.0.until_ready().await?;
        match &self.0.frames().known {
            Some(known) => known.events(),
            None => Ok(KeptEvents::default()),
        }
    }

    fn stream(self, number: u64) -> FeedStream {
        let changes = WatchStream::from_changes(self.0.changed.subscribe());
        FeedStream { feed: self, number, changes }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut viewing = self.0.viewing();
        if let Some(place) = viewing.iter().position(|it| *it == self.1) {
            viewing.swap_remove(place);
        }
    }
}

/// The frames for one viewer.
pub(crate) struct FeedStream {
    feed: Entered,
    /// Of the next frame.
    number: u64,
    changes: WatchStream<()>,
}

impl FeedStream {
    /// The next frame, if it is there. Ends when nothing more can happen.
    fn next(&mut self) -> Poll<Option<Result<Bytes, Refused>>> {
        let frames = self.feed.0.frames();
        let Some(place) = self.number.checked_sub(frames.dropped) else {
            drop(frames);
            let why = "what comes next for you is not kept any more, you read too slowly";
            return Poll::Ready(Some(Err(too_many(why))));
        };
        match (frames.kept.get(usize::try_from(place).unwrap_or(usize::MAX)), &frames.end) {
            (Some(frame), _) => {
                self.number += 1;
                Poll::Ready(Some(Ok(frame.event.clone())))
            }
            (None, Some(FeedEnd::Over)) => Poll::Ready(None),
            (None, Some(FeedEnd::Refused(refused))) => Poll::Ready(Some(Err(refused.clone()))),
            (None, None) => Poll::Pending,
        }
    }
}

impl Stream for FeedStream {
    type Item = Result<Bytes, Refused>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Poll::Ready(next) = self.next() {
                return Poll::Ready(next);
            }
            // A change after that look ends this wait.
            if ready!(Pin::new(&mut self.changes).poll_next(cx)).is_none() {
                return Poll::Ready(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use std::net::{IpAddr, Ipv4Addr};

    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::instances::tests::facts;

    const LIMIT: usize = 100;
    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn feed() -> Arc<Feed> {
        let client = Client::builder("http://127.0.0.1:1").principal("observer").connect_lazy().unwrap();
        let feed = Arc::new(Feed::new(client, facts(1), LIMIT));
        feed.begin(0);
        feed
    }

    impl Feed {
        fn add(&self, frame: Frame) {
            self.push(&[], |_| Some((frame, Vec::new())));
        }

        fn look(self: &Arc<Self>) -> Entered {
            self.enter(Network::of(HERE))
        }
    }

    /// A frame of one event, which has 10 bytes.
    fn frame(number: u64) -> Frame {
        Frame { first: number, next: number + 1, event: format!("{number:010}").into() }
    }

    async fn numbers(stream: FeedStream, count: usize) -> Vec<u64> {
        let frames: Vec<_> = stream.take(count).collect().await;
        frames
            .into_iter()
            .map(|frame| std::str::from_utf8(&frame.unwrap()).unwrap().parse().unwrap())
            .collect()
    }

    #[tokio::test]
    async fn a_viewer_that_falls_behind_loses_its_stream_and_no_other() {
        let feed = feed();
        feed.add(frame(0));
        feed.set_ready();
        let [slow, quick] = [feed.look(), feed.look()];
        let (snapshot, mut slow, live) = slow.open(None).await.unwrap();
        assert!(snapshot.is_none() && live);
        let (_, mut quick, _) = quick.open(None).await.unwrap();
        assert_eq!(feed.viewers(), 2);
        for number in 1..=20 {
            assert!(quick.next().is_ready());
            feed.add(frame(number));
        }
        assert!(feed.frames().bytes <= LIMIT);
        let refused = poll_fn(|cx| Pin::new(&mut slow).poll_next(cx)).await.unwrap().unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        drop(slow);
        assert_eq!(numbers(quick, 1).await, [20]);
        assert_eq!(feed.viewers(), 0);
    }

    #[tokio::test]
    async fn a_viewer_goes_on_where_it_was_while_that_is_kept() {
        let feed = feed();
        (0..30).for_each(|number| feed.add(frame(number)));
        feed.set_ready();
        let start = |event| feed.frames().start(event, LIMIT);
        assert_eq!((start(28), start(30)), (Some(28), Some(30)));
        assert_eq!(start(19), None, "not kept");
        assert_eq!(start(22), None, "about to make room");
        feed.end(FeedEnd::Over);
        assert_eq!(start(22), Some(22), "nothing comes any more");
        let waiting = feed.look().stream(28);
        assert_eq!(numbers(waiting, 9).await, [28, 29]);
    }

    #[tokio::test]
    async fn where_frames_are_not_kept_a_snapshot_comes_first() {
        let feed = feed();
        (0..30).for_each(|number| feed.add(frame(number)));
        feed.set_ready();
        let (snapshot, stream, _) = feed.look().open(None).await.unwrap();
        assert_eq!(snapshot.unwrap().index, 30);
        feed.add(frame(30));
        assert_eq!(numbers(stream, 1).await, [30]);
        let (none, stream, _) = feed.look().open(Some(28)).await.unwrap();
        assert!(none.is_none());
        assert_eq!(numbers(stream, 3).await, [28, 29, 30]);
    }

    #[tokio::test]
    async fn nobody_begins_behind_a_gap() {
        let feed = feed();
        (0..30).for_each(|number| feed.add(frame(number)));
        feed.set_ready();
        let behind = |index| {
            let snapshot = Snapshot { index, json: Bytes::new() };
            feed.look().behind(&snapshot).map_err(|refused| refused.status)
        };
        for gone in [0, 19, 22] {
            assert_eq!(behind(gone).err(), Some(StatusCode::TOO_MANY_REQUESTS), "{gone}");
        }
        assert_eq!(numbers(behind(28).ok().unwrap(), 2).await, [28, 29]);
    }

    #[tokio::test]
    async fn a_history_that_is_shorter_than_before_is_told() {
        let feed = feed();
        feed.set_ready();
        let refused = feed.look().open(Some(1)).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::CONFLICT);
    }
}
