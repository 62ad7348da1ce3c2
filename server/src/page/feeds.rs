//! The instances that viewers look at, each with one encoder as long as somebody does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use http::StatusCode;
use stickycas_page::source::Refused;
use stickycas_proto::names::InstanceId;
use tokio_util::task::AbortOnDropHandle;

use super::encoder;
use super::feed::{Entered, Feed, FeedEnd};
use super::permits::{Bound, Permits};
use crate::auth::Principal;
use crate::instances::Instance;
use crate::limits::Limits;

/// A principal that looks at more than this part of the instances that may be looked at opens none that nobody looks at.
const SHARE: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Feeds {
    /// How many there may be.
    limit: usize,
    /// Bytes of the frames of one.
    frame_bytes: usize,
    permits: Arc<Permits>,
    feeds: Mutex<HashMap<InstanceId, Running>>,
    encoded: Arc<AtomicU64>,
    itself: Weak<Self>,
}

/// A feed with its encoder.
#[derive(Debug)]
struct Running {
    feed: Arc<Feed>,
    _encoder: AbortOnDropHandle<()>,
}

/// Ends a feed when its encoder does, so that nobody waits for one that has panicked.
struct Ends<'a>(&'a Feed);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let why = "the frames could not be made: look again".to_owned();
        // Unless it has ended already.
        self.0.end(FeedEnd::Refused(Refused { status: StatusCode::INTERNAL_SERVER_ERROR, why }));
    }
}

impl Feeds {
    pub(super) fn new(limits: &Limits, permits: Arc<Permits>) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            limit: limits.page_instances,
            frame_bytes: limits.page_frame_bytes,
            permits,
            feeds: Mutex::default(),
            encoded: Arc::default(),
            itself: itself.clone(),
        })
    }

    /// One viewer more of this instance.
    ///
    /// # Errors
    /// If too many instances are looked at, or too many by this principal.
    pub(super) fn enter(
        &self,
        instance: &Arc<Instance>,
        principal: Option<&Principal>,
    ) -> Result<Entered, Refused> {
        let id = instance.config().id;
        let mut feeds = self.feeds();
        // In the place of one that cannot go on perhaps a new one can be made; those who look at it are told.
        let running = feeds.get(&id).filter(|running| !running.feed.is_refused());
        if running.is_none_or(|running| running.feed.viewers() == 0)
            && let Some(principal) = principal
            && feeds.values().filter(|it| it.feed.is_viewed_by(principal)).count() > self.limit / SHARE
        {
            let why = "you look at so many instances that the next can only be one that others look at too";
            return Err(self.permits.refuse(Bound::Instances, why));
        }
        if let Some(running) = running {
            return Ok(running.feed.enter(principal));
        }
        feeds.remove(&id);
        if feeds.len() >= self.limit {
            feeds.retain(|_, running| running.feed.viewers() > 0);
        }
        if feeds.len() >= self.limit {
            let why = "viewers look at so many instances that no other can be shown for now";
            return Err(self.permits.refuse(Bound::Instances, why));
        }
        let permits = self.permits.clone();
        let feed = Arc::new(Feed::new(instance.clone(), self.frame_bytes, permits, self.encoded.clone()));
        let entered = feed.enter(principal);
        let (own, feeds_again) = (feed.clone(), self.itself.clone());
        let encoder = tokio::spawn(async move {
            let leave = || feeds_again.upgrade().is_none_or(|feeds| feeds.leave(id, &own));
            let _ends = Ends(&own);
            encoder::run(&own, &leave).await;
        });
        feeds.insert(id, Running { feed, _encoder: AbortOnDropHandle::new(encoder) });
        Ok(entered)
    }

    /// Nobody has looked at this feed for a while; false if somebody does again.
    fn leave(&self, id: InstanceId, feed: &Arc<Feed>) -> bool {
        let mut feeds = self.feeds();
        // Viewers enter under this lock.
        if feed.viewers() > 0 {
            return false;
        }
        if feeds.get(&id).is_some_and(|running| Arc::ptr_eq(&running.feed, feed)) {
            let removed = feeds.remove(&id);
            drop(feeds);
            drop(removed);
        }
        true
    }

    /// How many instances are looked at, and the bytes of frames of the one with most.
    pub(super) fn usage(&self) -> (usize, usize) {
        let feeds = self.feeds();
        (feeds.len(), feeds.values().map(|running| running.feed.bytes()).max().unwrap_or_default())
    }

    /// Frames that were encoded.
    pub(super) fn frames(&self) -> u64 {
        self.encoded.load(Ordering::Relaxed)
    }

    fn feeds(&self) -> MutexGuard<'_, HashMap<InstanceId, Running>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::{Params, ParamsSpec};

    use super::*;
    use crate::commit_log::{CommitLog, MemoryLog};
    use crate::instances::{CreateSpec, Instances};

    async fn instance() -> Arc<Instance> {
        let log: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
        let spec = CreateSpec {
            name: None,
            params: Params::try_new(ParamsSpec::new(1, 1, 1)).unwrap(),
            seed_given: false,
            roster: vec!["p1".to_owned()],
        };
        let creating = Instances::new(Limits::default(), &log).create(&Principal::new("creator"), spec).await;
        creating.unwrap().committed().await.unwrap().0
    }

    fn feeds(page_instances: usize) -> Arc<Feeds> {
        let limits = Limits { page_instances, ..Limits::default() };
        Feeds::new(&limits, Arc::new(Permits::new(&limits)))
    }

    #[tokio::test]
    async fn a_feed_that_cannot_go_on_makes_room_for_a_new_one() {
        let (feeds, instance) = (feeds(1), instance().await);
        let feed = || feeds.feeds()[&instance.config().id].feed.clone();
        let _one = feeds.enter(&instance, None).unwrap();
        let first = feed();
        let _other = feeds.enter(&instance, None).unwrap();
        assert!(Arc::ptr_eq(&first, &feed()));
        // As when the encoder panics.
        drop(Ends(&first));
        let _third = feeds.enter(&instance, None).unwrap();
        assert!(!Arc::ptr_eq(&first, &feed()) && !feed().is_refused());
        assert_eq!((first.viewers(), feed().viewers(), feeds.usage().0), (2, 1, 1));
    }

    #[tokio::test]
    async fn one_principal_does_not_take_all_instances_that_may_be_viewed() {
        let feeds = feeds(8);
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let [one, two, three, four] =
            [instance().await, instance().await, instance().await, instance().await];
        let mut of_ann = [&one, &two, &three]
            .map(|instance| feeds.enter(instance, Some(&ann)).unwrap())
            .into_iter()
            .collect::<Vec<_>>();
        let refused = feeds.enter(&four, Some(&ann)).err().unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let _of_bob = feeds.enter(&four, Some(&bob)).unwrap();
        of_ann.push(feeds.enter(&four, Some(&ann)).unwrap());
        let five = instance().await;
        drop(feeds.enter(&five, Some(&bob)).unwrap());
        assert!(feeds.enter(&five, Some(&ann)).is_err(), "nobody looks at it any more");
        of_ann.truncate(2);
        feeds.enter(&five, Some(&ann)).unwrap();
    }
}
