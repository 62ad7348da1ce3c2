//! The instances that viewers look at, each with one encoder as long as somebody does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use http::StatusCode;
use stickycas_client::{Client, InstanceId};
use stickycas_page::source::Refused;
use tokio_util::task::AbortOnDropHandle;

use crate::encoder;
use crate::feed::{Entered, Feed};
use crate::frames::FeedEnd;
use crate::instances::InstanceFacts;
use crate::offences::RecentOffences;
use crate::permits::{Bounds, Network, too_many};

/// A network that looks at more than this part of the instances can open only those that others look at too.
const SHARE: usize = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Feeds {
    client: Client,
    /// How many there may be.
    limit: usize,
    /// Bytes of the frames of one.
    frame_bytes: usize,
    /// Of all instances.
    pub(crate) offences: Arc<RecentOffences>,
    feeds: Mutex<HashMap<InstanceId, Running>>,
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
    pub(crate) fn new(client: Client, bounds: &Bounds) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            client,
            limit: bounds.instances,
            frame_bytes: bounds.frame_bytes,
            offences: Arc::default(),
            feeds: Mutex::default(),
            itself: itself.clone(),
        })
    }

    /// One viewer more of this instance.
    ///
    /// # Errors
    /// If too many instances are looked at, or too many from this network.
    pub(crate) fn enter(&self, facts: &Arc<InstanceFacts>, network: Network) -> Result<Entered, Refused> {
        let id = facts.id;
        let mut feeds = self.feeds();
        // In the place of one that cannot go on perhaps a new one can be made; those who look at it are told.
        let running = feeds.get(&id).filter(|running| !running.feed.is_refused());
        if running.is_none_or(|running| running.feed.viewers() == 0)
            && !network.is_loopback()
            && feeds.values().filter(|it| it.feed.is_viewed_by(network)).count() > self.limit / SHARE
        {
            let why = "you look at so many instances that the next can only be one that others look at too";
            return Err(too_many(why));
        }
        if let Some(running) = running {
            return Ok(running.feed.enter(network));
        }
        feeds.remove(&id);
        if feeds.len() >= self.limit {
            feeds.retain(|_, running| running.feed.viewers() > 0);
        }
        if feeds.len() >= self.limit {
            return Err(too_many("viewers look at so many instances that no other can be shown for now"));
        }
        let feed = Arc::new(Feed::new(self.client.clone(), facts.clone(), self.frame_bytes));
        let entered = feed.enter(network);
        let (own, feeds_again, offences) = (feed.clone(), self.itself.clone(), self.offences.clone());
        let encoder = tokio::spawn(async move {
            let leave = || feeds_again.upgrade().is_none_or(|feeds| feeds.leave(id, &own));
            let _ends = Ends(&own);
            encoder::run(&own, &offences, &leave).await;
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

    fn feeds(&self) -> MutexGuard<'_, HashMap<InstanceId, Running>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::tests::facts;

    /// Nobody answers its questions.
    fn feeds(instances: usize) -> Arc<Feeds> {
        let client = Client::builder("http://127.0.0.1:1").principal("observer").connect_lazy().unwrap();
        Feeds::new(client, &Bounds { instances, ..Bounds::default() })
    }

    fn network(address: &str) -> Network {
        Network::of(address.parse().unwrap())
    }

    #[tokio::test]
    async fn a_feed_that_cannot_go_on_makes_room_for_a_new_one() {
        let (feeds, facts, here) = (feeds(1), facts(1), network("127.0.0.1"));
        let feed = || feeds.feeds()[&facts.id].feed.clone();
        let _one = feeds.enter(&facts, here).unwrap();
        let first = feed();
        let _other = feeds.enter(&facts, here).unwrap();
        assert!(Arc::ptr_eq(&first, &feed()));
        // As when the encoder panics.
        drop(Ends(&first));
        let _third = feeds.enter(&facts, here).unwrap();
        assert!(!Arc::ptr_eq(&first, &feed()) && !feed().is_refused());
        assert_eq!((first.viewers(), feed().viewers(), feeds.feeds().len()), (2, 1, 1));
    }

    #[tokio::test]
    async fn one_network_does_not_take_all_instances_that_may_be_viewed() {
        let feeds = feeds(8);
        let (ann, bob) = (network("10.0.0.1"), network("10.0.0.2"));
        let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(facts);
        let mut of_ann: Vec<_> =
            [&one, &two, &three].into_iter().map(|facts| feeds.enter(facts, ann).unwrap()).collect();
        let refused = feeds.enter(&four, ann).err().unwrap();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let _of_bob = feeds.enter(&four, bob).unwrap();
        of_ann.push(feeds.enter(&four, ann).unwrap());
        drop(feeds.enter(&five, bob).unwrap());
        assert!(feeds.enter(&five, ann).is_err(), "nobody looks at it any more");
        of_ann.truncate(2);
        feeds.enter(&five, ann).unwrap();
    }
}
