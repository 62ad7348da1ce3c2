//! Encodes what happens at one instance, for all of its viewers: at most 20 frames a second, of what is committed.
//!
//! A frame ends where the state was looked at, so that the two belong together. What had happened before the first viewer
//! came is encoded at once, as far as it is kept and not too much.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;
use stickycas_model::access::Op;
use stickycas_model::history::{Event, Recorded};
use stickycas_page::events;
use stickycas_page::frame::{AWAITED, Framer, Now};
use stickycas_page::source::Refused;
use tokio::time::{Instant, sleep, timeout};

use super::feed::{Feed, FeedEnd, Frame};
use super::viewer::refusal;
use crate::event_log::SharedEvents;
use crate::instances::{Instance, WatchPoll, WatcherId};

/// The time between two frames.
const FRAME_EVERY: Duration = Duration::from_millis(50);
/// How often the state is looked at where no event comes: a phase may open silently.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long an encoder goes on without viewers.
const IDLE: Duration = Duration::from_secs(10);
/// The most events in a frame, and the most bytes of the values in it.
const EVENTS: usize = 4_096;
const VALUE_BYTES: usize = 256 * 1024;
/// The longest history that is encoded from its beginning, and how many of the last events of a longer one are.
const WHOLE: u64 = 65_536;
const LAST: u64 = 16_384;

/// Encodes until nobody has looked for a while, and `leave` agrees.
pub(super) async fn run(feed: &Feed, leave: &(impl Fn() -> bool + Sync)) {
    let mut encoder = Encoder::new(feed, leave);
    if let Some(end) = encoder.encode().await {
        feed.end(end);
        while !encoder.is_idle() {
            sleep(LOOK_EVERY).await;
        }
    }
}

struct Encoder<'a, L> {
    feed: &'a Feed,
    leave: &'a L,
    framer: Framer,
    watcher: Watcher,
    /// What was told last of the state.
    told: Option<Now>,
    /// Since when nobody looks.
    unseen: Option<Instant>,
}

impl<'a, L: Fn() -> bool + Sync> Encoder<'a, L> {
    fn new(feed: &'a Feed, leave: &'a L) -> Self {
        let (first, next) = feed.instance.kept_indices();
        let from = if first == 0 && next <= WHOLE { 0 } else { first.max(next.saturating_sub(LAST)) };
        feed.begin(from);
        Self {
            feed,
            leave,
            framer: Framer::new(&feed.params, from),
            watcher: Watcher(feed.instance.clone(), feed.instance.next_watcher()),
            told: None,
            unseen: None,
        }
    }

    /// Why there are no more frames; `None`: nobody wants any.
    async fn encode(&mut self) -> Option<FeedEnd> {
        let mut is_ready = false;
        loop {
            if let Err(end) = self.encode_new().await {
                return Some(end);
            }
            if !is_ready {
                self.feed.set_ready();
                is_ready = true;
            }
            sleep(FRAME_EVERY).await;
            if self.is_idle() {
                return None;
            }
            // Whatever it brings, and if it is nothing, it is looked at again.
            if let Ok(Err(end)) = timeout(LOOK_EVERY, self.changed()).await {
                return Some(end);
            }
        }
    }

    /// Encodes everything up to the present moment, and the state at that moment.
    async fn encode_new(&mut self) -> Result<(), FeedEnd> {
        let Feed { instance, params, .. } = self.feed;
        let look = instance
            .observe(|machine, now, next| (Now::new(params, &machine.status_rows(now, AWAITED), now), next));
        // An instance that is gone still tells its last events.
        let (now, until) = match look.committed().await.and_then(|looked| looked) {
            Ok((now, next)) => (Some(now), next),
            Err(_) => (None, u64::MAX),
        };
        while self.framer.next_index() < until {
            let wanted = usize::try_from(until - self.framer.next_index()).unwrap_or(usize::MAX).min(EVENTS);
            match self.poll(wanted).await {
                WatchPoll::Events(events) => self.push(&events, now.as_ref(), until),
                WatchPoll::Pending => return Ok(()),
                end => return Err(end_of(end)),
            }
            // Other tasks have their turns.
            tokio::task::yield_now().await;
        }
        let Some(now) = now else { return Ok(()) };
        if self.told.as_ref().is_none_or(|told| !is_same(told, &now)) {
            self.push_frame(&[], Some(now));
        }
        Ok(())
    }

    /// Completes when something has happened, with an error if nothing more can.
    async fn changed(&mut self) -> Result<(), FeedEnd> {
        let (instance, index, watcher) = (&self.feed.instance, self.framer.next_index(), self.watcher.1);
        poll_fn(|cx| match instance.poll_recorded(index, 1, watcher, cx.waker()) {
            WatchPoll::Pending => Poll::Pending,
            WatchPoll::Events(_) => Poll::Ready(Ok(())),
            end => Poll::Ready(Err(end_of(end))),
        })
        .await
    }

    /// What comes next, without waiting.
    async fn poll(&self, limit: usize) -> WatchPoll<SharedEvents> {
        let (instance, index, watcher) = (&self.feed.instance, self.framer.next_index(), self.watcher.1);
        poll_fn(|cx| Poll::Ready(instance.poll_recorded(index, limit, watcher, cx.waker()))).await
    }

    fn push(&mut self, shared: &SharedEvents, now: Option<&Now>, until: u64) {
        let mut bytes = 0;
        let mut events: Vec<Recorded> = Vec::new();
        for recorded in shared.read() {
            bytes += value_bytes(&recorded.event);
            events.push(recorded);
            if bytes > VALUE_BYTES {
                break;
            }
        }
        let is_last = self.framer.next_index() + events.len() as u64 == until;
        self.push_frame(&events, now.filter(|_| is_last).cloned());
    }

    fn push_frame(&mut self, events: &[Recorded], now: Option<Now>) {
        if now.is_some() {
            self.told.clone_from(&now);
        }
        let first = self.framer.next_index();
        let frame = self.framer.frame(&self.feed.params, events, now);
        let json = serde_json::to_vec(&frame).expect("a frame is plain data");
        let late = frame.late;
        let next = self.framer.next_index();
        self.feed.push(Frame { first, next, event: events::frame(next, &json) }, &late);
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

/// Bytes of the values of clients in an event.
fn value_bytes(event: &Event) -> usize {
    match event {
        Event::Accepted { op: Op::Append(value), .. }
        | Event::Added { value, .. }
        | Event::Decided { value, .. } => value.as_bytes().len(),
        Event::Offence(offence) => offence.detail.len(),
        _ => 0,
    }
}

/// Whether two states differ in nothing but time.
fn is_same(one: &Now, other: &Now) -> bool {
    let processes = |now: &Now| now.awaited.iter().map(|awaited| awaited.process).collect::<Vec<_>>();
    (one.state, one.phase, one.open, one.awaited_count, one.joined)
        == (other.state, other.phase, other.open, other.awaited_count, other.joined)
        && processes(one) == processes(other)
}

fn end_of(end: WatchPoll<SharedEvents>) -> FeedEnd {
    match end {
        WatchPoll::Gone(refused) => FeedEnd::Refused(refusal(&refused)),
        WatchPoll::TooSlow(_) => {
            let why = "more happened than could be shown: look again";
            FeedEnd::Refused(Refused { status: StatusCode::TOO_MANY_REQUESTS, why: why.to_owned() })
        }
        WatchPoll::End | WatchPoll::Events(_) | WatchPoll::Pending => FeedEnd::Over,
    }
}

/// Is told of events until it is dropped.
struct Watcher(Arc<Instance>, WatcherId);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.remove_watcher(self.1);
    }
}
