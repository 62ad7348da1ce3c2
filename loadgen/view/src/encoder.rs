//! Encodes what happens at one instance, for all of its viewers: at most 20 frames a second, of what one
//! Watch tells.
//!
//! The state at the end of a frame is that of a machine that follows the events. Where it cannot, since the
//! first events are not kept, the server is asked for the state once a second; by an observer only, since
//! such a call of a member or the creator prolongs the life of the instance (F10).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use stickycas_client::{Error, Watch, WatchFrom, Watched};
use stickycas_model::history::Recorded;
use stickycas_model::machine::State;
use stickycas_model::types::ProcessId;
use stickycas_page::events;
use stickycas_page::frame::{Framer, Now};
use tokio::time::{Instant, sleep, timeout};
use tokio_stream::Stream as _;

use crate::feed::Feed;
use crate::frames::{FeedEnd, Frame};
use crate::instances::InstanceFacts;
use crate::known::value_bytes;
use crate::offences::RecentOffences;
use crate::refusal::refusal;
use crate::status;

/// The time between two frames.
const FRAME_EVERY: Duration = Duration::from_millis(50);
/// How often the state is looked at where no event comes: a phase may open silently.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long an encoder goes on without viewers.
const IDLE: Duration = Duration::from_secs(10);
/// The most events in a frame, and the most bytes of the values in it.
const EVENTS: usize = 4_096;
const VALUE_BYTES: usize = 256 * 1024;

/// Encodes until nobody has looked for a while, and `leave` agrees.
pub(crate) async fn run(feed: &Arc<Feed>, offences: &RecentOffences, leave: &(impl Fn() -> bool + Sync)) {
    let mut encoder = Encoder::new(feed, offences, leave);
    if let Some(end) = encoder.encode().await {
        feed.end(end);
        while !encoder.is_idle() {
            sleep(LOOK_EVERY).await;
        }
    }
}

struct Encoder<'a, L> {
    feed: &'a Feed,
    offences: &'a RecentOffences,
    leave: &'a L,
    watch: Watch,
    /// The item that the watch has given and that was not taken yet; `Some(None)`: its end.
    next: Option<Option<Result<Watched, Error>>>,
    /// `None` before the first event.
    framer: Option<Framer>,
    is_ready: bool,
    /// The state that was told last.
    told: Option<Now>,
    /// When the server was asked for the state.
    asked: Option<Instant>,
    /// Since when nobody looks.
    unseen: Option<Instant>,
}

impl<'a, L: Fn() -> bool + Sync> Encoder<'a, L> {
    fn new(feed: &'a Feed, offences: &'a RecentOffences, leave: &'a L) -> Self {
        let watch = feed.client.watch(feed.facts.id, WatchFrom::Start);
        let (next, framer, told, asked, unseen) = (None, None, None, None, None);
        Self { feed, offences, leave, watch, next, framer, is_ready: false, told, asked, unseen }
    }

    /// Why there are no more frames; `None`: nobody wants any.
    async fn encode(&mut self) -> Option<FeedEnd> {
        // It tells up to which event everything has happened before.
        let snapshot = match self.feed.watched_snapshot().await {
            Ok(snapshot) => snapshot,
            Err(refused) => return Some(FeedEnd::Refused(refused)),
        };
        if snapshot.next_index == 0 {
            self.begin(0);
        }
        loop {
            let end = self.encode_new().await;
            if end.is_some() && self.framer.is_none() {
                self.begin(snapshot.next_index);
            }
            if matches!(snapshot.status.state, State::Finished | State::Closed) {
                self.feed.set_ended(snapshot.status.state);
            }
            if end.is_some() {
                return end;
            }
            if !self.is_ready && self.framer.as_ref().is_some_and(|it| it.next_index() >= snapshot.next_index)
            {
                self.feed.set_ready();
                self.is_ready = true;
            }
            if self.is_ready {
                sleep(FRAME_EVERY).await;
            }
            if self.is_idle() {
                return None;
            }
            let longest = if self.feed.waits_for_events() { FRAME_EVERY } else { LOOK_EVERY };
            // Whatever it brings, and if it is nothing, it is looked at again.
            let _ = timeout(longest, self.changed()).await;
        }
    }

    fn begin(&mut self, first: u64) {
        self.feed.begin(first);
        self.framer = Some(Framer::new(&self.feed.facts.params, first));
    }

    /// Encodes everything up to the present moment, and the state at that moment. Why nothing comes any more,
    /// if so.
    async fn encode_new(&mut self) -> Option<FeedEnd> {
        let mut came = false;
        loop {
            let (events, end) = self.ready_events().await;
            if events.is_empty() {
                if end.is_none() && !came {
                    self.push_frame(&[]);
                }
                if !came || self.asked.is_none() {
                    self.ask().await;
                }
                return end;
            }
            came = true;
            if self.is_ready {
                events.iter().for_each(|recorded| self.offences.add(&self.feed.facts, &recorded.event));
            }
            self.push_frame(&events);
            if end.is_some() {
                return end;
            }
            // Other tasks have their turns.
            tokio::task::yield_now().await;
        }
    }

    /// Completes when something has happened, or nothing more can.
    async fn changed(&mut self) {
        if self.next.is_none() {
            self.next = Some(self.watch.try_next().await.transpose());
        }
    }

    /// The events that have come and fit into a frame, and the reason why no more will come, if so.
    async fn ready_events(&mut self) -> (Vec<Recorded>, Option<FeedEnd>) {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < EVENTS && bytes <= VALUE_BYTES {
            let next = match self.next.take() {
                Some(next) => next,
                None => {
                    let watch = &mut self.watch;
                    match poll_fn(|cx| Poll::Ready(Pin::new(&mut *watch).poll_next(cx))).await {
                        Poll::Ready(next) => next,
                        Poll::Pending => break,
                    }
                }
            };
            match next {
                Some(Ok(Watched::Event(index, recorded))) => {
                    if self.framer.is_none() {
                        self.begin(index);
                    }
                    bytes += value_bytes(&recorded.event);
                    events.push(recorded);
                }
                Some(Ok(Watched::Snapshot(_))) => {}
                Some(Err(error)) => return (events, Some(FeedEnd::Refused(refusal(&error)))),
                None => return (events, Some(FeedEnd::Over)),
            }
        }
        (events, None)
    }

    /// Tells these events and the state behind them; or, if there are none, the state if it is another one.
    fn push_frame(&mut self, events: &[Recorded]) {
        let (facts, told) = (&self.feed.facts, &mut self.told);
        let Some(framer) = &mut self.framer else { return };
        self.feed.push(events, |known| {
            let now = known.now(facts);
            let is_same = now.as_ref().is_none_or(|now| told.as_ref().is_some_and(|told| is_same(told, now)));
            if events.is_empty() && is_same {
                return None;
            }
            if now.is_some() {
                told.clone_from(&now);
            }
            Some(frame(framer, facts, events, now))
        });
    }

    /// Asks the server for the state of an instance that is not followed and goes on, once a second.
    async fn ask(&mut self) {
        let recently = self.asked.is_some_and(|asked| asked.elapsed() < LOOK_EVERY);
        let is_wanted = !self.feed.is_followed() && (self.asked.is_none() || !self.feed.is_ended());
        if recently || !is_wanted || self.feed.facts.get_touches {
            return;
        }
        self.asked = Some(Instant::now());
        let (facts, told) = (&self.feed.facts, &mut self.told);
        // If it is gone, the watch tells.
        let Ok(view) = self.feed.client.get(facts.id).await else { return };
        let now = status::now(facts, &view.status);
        let Some(framer) = &mut self.framer else { return };
        if told.as_ref().is_some_and(|told| is_same(told, &now)) {
            return;
        }
        *told = Some(now.clone());
        self.feed.push(&[], |_| Some(frame(framer, facts, &[], Some(now))));
    }

    /// Whether nobody has looked for a while, and nobody will look at this feed again.
    fn is_idle(&mut self) -> bool {
        if self.feed.viewers() > 0 {
            self.unseen = None;
            return false;
        }
        self.unseen.get_or_insert_with(Instant::now).elapsed() >= IDLE && (self.leave)()
    }
}

/// These events with the state behind them, encoded, and the processes that they show to be late.
fn frame(
    framer: &mut Framer,
    facts: &InstanceFacts,
    events: &[Recorded],
    now: Option<Now>,
) -> (Frame, Vec<ProcessId>) {
    let first = framer.next_index();
    let frame = framer.frame(&facts.params, events, now);
    let json = serde_json::to_vec(&frame).expect("a frame is plain data");
    let late = frame.late;
    let next = framer.next_index();
    (Frame { first, next, event: events::frame(next, &json) }, late)
}

/// Whether two states differ in nothing but time.
fn is_same(one: &Now, other: &Now) -> bool {
    let processes = |now: &Now| now.awaited.iter().map(|awaited| awaited.process).collect::<Vec<_>>();
    (one.state, one.phase, one.open, one.awaited_count, one.joined)
        == (other.state, other.phase, other.open, other.awaited_count, other.joined)
        && processes(one) == processes(other)
}
