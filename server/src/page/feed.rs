//! One instance as viewers see it: the latest frames, encoded once for all of them.
//!
//! A viewer reads at its own pace, and only holds the number of its next frame. When that frame is not kept any more its
//! stream ends with an error that says so; nobody else notices. A viewer for which not every frame is kept begins with a
//! snapshot.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;
use stickycas_page::source::Refused;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

use super::permits::{Bound, Permits};
use super::snapshot::Snapshot;
use crate::auth::Principal;
use crate::instances::Instance;

/// How long a snapshot is given to further viewers.
const SNAPSHOT_AGE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) instance: Arc<Instance>,
    pub(super) params: Arc<Params>,
    permits: Arc<Permits>,
    /// The bound on the bytes of frames.
    limit: usize,
    frames: Mutex<Frames>,
    changed: watch::Sender<()>,
    /// Who looks, as often as it does.
    viewers: Mutex<Vec<Option<Principal>>>,
    snapshot: tokio::sync::Mutex<Option<(Instant, Arc<Snapshot>)>>,
    /// Frames that all feeds have encoded.
    encoded: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Frames {
    kept: VecDeque<Frame>,
    bytes: usize,
    /// How many frames are not kept any more.
    dropped: u64,
    /// The index of the first event of the frames that are kept, and of the one behind them.
    first: u64,
    next: u64,
    /// Whether everything that had happened when the feed began is encoded.
    ready: bool,
    /// The processes that were seen to be late.
    late: Vec<ProcessId>,
    end: Option<FeedEnd>,
}

/// Some events, encoded.
#[derive(Debug)]
pub(super) struct Frame {
    /// The index of its first event, and the one behind its last.
    pub(super) first: u64,
    pub(super) next: u64,
    /// As it is sent.
    pub(super) event: Bytes,
}

/// Why there will be no more frames.
#[derive(Clone, Debug)]
pub(super) enum FeedEnd {
    /// Nothing more can happen at the instance.
    Over,
    /// They cannot be made.
    Refused(Refused),
}

impl Feed {
    /// Of this instance, with frames of so many bytes at most.
    pub(super) fn new(
        instance: Arc<Instance>,
        limit: usize,
        permits: Arc<Permits>,
        encoded: Arc<AtomicU64>,
    ) -> Self {
        Self {
            params: Arc::new(instance.config().params()),
            instance,
            permits,
            limit,
            frames: Mutex::default(),
            changed: watch::Sender::new(()),
            viewers: Mutex::default(),
            snapshot: tokio::sync::Mutex::default(),
            encoded,
        }
    }

    /// The frames begin with this event.
    pub(super) fn begin(&self, first: u64) {
        let mut frames = self.frames();
        (frames.first, frames.next) = (first, first);
    }

    /// Adds a frame; old ones make room.
    pub(super) fn push(&self, frame: Frame, late: &[ProcessId]) {
        self.encoded.fetch_add(1, Ordering::Relaxed);
        let mut frames = self.frames();
        frames.late.extend(late);
        frames.next = frame.next;
        frames.bytes += frame.event.len();
        frames.kept.push_back(frame);
        while frames.bytes > self.limit
            && frames.kept.len() > 1
            && let Some(oldest) = frames.kept.pop_front()
        {
            frames.bytes -= oldest.event.len();
            frames.dropped += 1;
            frames.first = oldest.next;
        }
        drop(frames);
        self.changed.send_replace(());
    }

    /// Everything that had happened is encoded.
    pub(super) fn set_ready(&self) {
        self.frames().ready = true;
        self.changed.send_replace(());
    }

    /// There will be no more frames.
    pub(super) fn end(&self, end: FeedEnd) {
        self.frames().end.get_or_insert(end);
        self.changed.send_replace(());
    }

    /// Whether there will be no more frames because they cannot be made.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.frames().end, Some(FeedEnd::Refused(_)))
    }

    /// How many look.
    pub(super) fn viewers(&self) -> usize {
        self.viewing().len()
    }

    /// Whether this principal looks.
    pub(super) fn is_viewed_by(&self, principal: &Principal) -> bool {
        self.viewing().iter().any(|it| it.as_ref() == Some(principal))
    }

    /// Bytes of the frames that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.frames().bytes
    }

    /// One viewer more, until what is returned is dropped.
    pub(super) fn enter(self: &Arc<Self>, principal: Option<&Principal>) -> Entered {
        self.viewing().push(principal.cloned());
        Entered(self.clone(), principal.cloned())
    }

    fn viewing(&self) -> MutexGuard<'_, Vec<Option<Principal>>> {
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
        let late = self.frames().late.clone();
        let snapshot = Arc::new(Snapshot::make(&self.instance, &self.params, &late).await?);
        *latest = Some((Instant::now(), snapshot.clone()));
        Ok(snapshot)
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Frames {
    /// The number of the first frame that somebody needs who wants this event and all behind it; `None` if it may be
    /// dropped before it is read.
    fn start(&self, event: u64, limit: usize) -> Option<u64> {
        if event < self.first {
            return None;
        }
        let mut place = self.kept.partition_point(|frame| frame.next <= event);
        // A last frame without events tells the state.
        if place == self.kept.len()
            && self.kept.back().is_some_and(|last| (last.first, last.next) == (event, event))
        {
            place -= 1;
        }
        let bytes: usize = self.kept.range(place..).map(|frame| frame.event.len()).sum();
        // While frames come, the older half is about to make room.
        let fits = self.end.is_some() || bytes <= limit / 2;
        fits.then_some(self.dropped + place as u64)
    }
}

/// Counts a viewer of a feed.
pub(super) struct Entered(Arc<Feed>, Option<Principal>);

impl Entered {
    /// The frames from the event with this index on, with a snapshot first where they are not kept.
    ///
    /// # Errors
    /// If there is no such event, no snapshot can be made, or what comes behind it is not kept.
    pub(super) async fn open(
        self,
        from: Option<u64>,
    ) -> Result<(Option<Arc<Snapshot>>, FeedStream), Refused> {
        self.0.until_ready().await?;
        let from = from.unwrap_or(0);
        let (_, committed) = self.0.instance.kept_indices();
        if from > committed {
            let why = format!("the history of the instance has {committed} events, not {from}: begin again");
            return Err(Refused { status: StatusCode::CONFLICT, why });
        }
        let start = self.0.frames().start(from, self.0.limit);
        if let Some(number) = start {
            return Ok((None, self.stream(number)));
        }
        let snapshot = self.0.snapshot().await?;
        let start = self.0.frames().start(snapshot.index, self.0.limit);
        match start {
            Some(number) => Ok((Some(snapshot), self.stream(number))),
            // What comes behind the snapshot would be missing.
            None => Err(self
                .0
                .permits
                .refuse(Bound::FrameBytes, "more happens at the instance than can be shown")),
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
pub(super) struct FeedStream {
    feed: Entered,
    /// Of the next frame.
    number: u64,
    changes: WatchStream<()>,
}

impl FeedStream {
    /// The next frame, if it is there. Ends when nothing more can happen.
    fn next(&mut self) -> Poll<Option<Result<Bytes, Refused>>> {
        let feed = &self.feed.0;
        let frames = feed.frames();
        let Some(place) = self.number.checked_sub(frames.dropped) else {
            drop(frames);
            let why = "what comes next for you is not kept any more, you read too slowly";
            return Poll::Ready(Some(Err(feed.permits.refuse(Bound::FrameBytes, why))));
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
            // What changes between the two is seen by this.
            if ready!(Pin::new(&mut self.changes).poll_next(cx)).is_none() {
                return Poll::Ready(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use stickycas_model::params::ParamsSpec;
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::commit_log::{CommitLog, MemoryLog};
    use crate::instances::{CreateSpec, Instances};
    use crate::limits::Limits;

    const LIMIT: usize = 100;

    async fn feed() -> Arc<Feed> {
        let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
        let spec = CreateSpec {
            name: None,
            params: Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap(),
            seed_given: false,
            roster: vec!["p1".to_owned(), "p2".to_owned()],
        };
        let creating = Instances::new(Limits::default(), &log).create(&Principal::new("creator"), spec).await;
        let (instance, _) = creating.unwrap().committed().await.unwrap();
        let permits = Arc::new(Permits::new(&Limits::default()));
        let feed = Arc::new(Feed::new(instance, LIMIT, permits, Arc::default()));
        feed.begin(0);
        feed
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
        let feed = feed().await;
        feed.push(frame(0), &[]);
        feed.set_ready();
        let [slow, quick] = [feed.enter(None), feed.enter(None)];
        let (snapshot, mut slow) = slow.open(None).await.unwrap();
        assert!(snapshot.is_none());
        let (_, mut quick) = quick.open(None).await.unwrap();
        assert_eq!(feed.viewers(), 2);
        for number in 1..=20 {
            assert!(quick.next().is_ready());
            feed.push(frame(number), &[]);
        }
        assert!(feed.bytes() <= LIMIT);
        let refused = poll_fn(|cx| Pin::new(&mut slow).poll_next(cx)).await.unwrap().unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        drop(slow);
        assert_eq!(numbers(quick, 1).await, [20]);
        assert_eq!((feed.viewers(), feed.permits.refused(Bound::FrameBytes)), (0, 1));
    }

    #[tokio::test]
    async fn a_viewer_goes_on_where_it_was_while_that_is_kept() {
        let feed = feed().await;
        (0..30).for_each(|number| feed.push(frame(number), &[]));
        feed.set_ready();
        let start = |event| feed.frames().start(event, LIMIT);
        assert_eq!((start(28), start(30)), (Some(28), Some(30)));
        assert_eq!(start(19), None, "not kept");
        assert_eq!(start(22), None, "about to make room");
        feed.end(FeedEnd::Over);
        assert_eq!(start(22), Some(22), "nothing comes any more");
        let waiting = feed.enter(None).stream(28);
        assert_eq!(numbers(waiting, 9).await, [28, 29]);
    }

    #[tokio::test]
    async fn nobody_begins_behind_a_gap() {
        let feed = feed().await;
        // The instance itself has no event yet, so its snapshot is from before all frames.
        (0..30).for_each(|number| feed.push(frame(number), &[]));
        feed.set_ready();
        let refused = feed.enter(None).open(None).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!((feed.viewers(), feed.permits.refused(Bound::FrameBytes)), (0, 1));
    }

    #[tokio::test]
    async fn a_history_that_is_shorter_than_before_is_told() {
        let feed = feed().await;
        feed.set_ready();
        let refused = feed.enter(None).open(Some(1)).await.err().unwrap();
        assert_eq!(refused.status, StatusCode::CONFLICT);
    }
}
