//! Maintenance of etcd: compaction, defragmentation, and how near its quota the space in use is.
//!
//! etcd keeps every version of every key until it is compacted, and its file grows until the quota is used up; then it takes
//! only what frees space. So one server, the owner of shard 0, compacts to the revision that the store had some minutes ago.
//! That frees space within the file, which etcd uses again; only defragmentation makes the file smaller, and a quota is about
//! the file. A member that is defragmented answers nothing meanwhile, so it is done to one member at a time, to the leader
//! last, only while all members answer, and only where it is worth it:
//!
//! * at least half of the file is free, or
//! * the file is near the quota (80 %), and at least a quarter of it is free.
//!
//! What a compaction has freed counts as free after the next writes only (etcd 3.4).
//!
//! Two servers that both take themselves for the owner do no harm. Every server tells the space ([`Space`]), so that an alarm
//! comes from whichever is asked, before the quota refuses appends. Nothing here disarms etcd's alarm: that is the operator's.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::etcd::{Client, Status};
use crate::keys::Keys;
use crate::store::{KeyRange, Revision, Store, StoreError};

/// The part of the quota, in percent, from which it is near.
const NEAR_PERCENT: u64 = 80;

/// A store whose members can be asked and defragmented.
pub trait Members: Store {
    /// The addresses of the members.
    fn endpoints(&self) -> Vec<String>;

    /// The state of a member.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`].
    fn status(&self, endpoint: &str) -> impl Future<Output = Result<Status, StoreError>> + Send;

    /// Makes the file of a member smaller by what is free in it. The member answers nothing meanwhile.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn defragment(&self, endpoint: &str) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What is done when.
#[derive(Clone, Debug)]
pub struct MaintenanceConfig {
    /// The time between compactions; each goes to the revision of the time of the one before.
    pub compact_every: Duration,
    /// The time between two looks at the members.
    pub look_every: Duration,
    /// Bytes of a member's file from which defragmentation may be worth it.
    pub defragment_from: u64,
    /// The time before the same member is defragmented again.
    pub defragment_again: Duration,
    /// Bytes of a member's file that etcd allows: its `--quota-backend-bytes`, which etcd 3.4 does not tell.
    pub quota: u64,
}

/// The space of the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// By address, those that have answered.
    pub members: BTreeMap<String, MemberSpace>,
    /// Members that have not answered.
    pub silent: usize,
    /// Whether the file of a member has come to 80 % of the quota: there is an alarm to be raised.
    pub near_quota: bool,
}

/// The space of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSpace {
    /// Bytes of its file.
    pub size: u64,
    /// Bytes of its file that are not free.
    pub size_in_use: u64,
    /// Whether it leads the cluster.
    pub is_leader: bool,
}

impl Default for MaintenanceConfig {
    /// Compactions every 5 minutes, looks every 30 seconds, defragmentation from 64 MiB and after 15 minutes again, and
    /// etcd's default quota of 2 GiB.
    fn default() -> Self {
        Self {
            compact_every: Duration::from_mins(5),
            look_every: Duration::from_secs(30),
            defragment_from: 64 << 20,
            defragment_again: Duration::from_mins(15),
            quota: 2 << 30,
        }
    }
}

/// The space of the members as it is told, and the future that does the maintenance. `elected`: whether this server compacts
/// and defragments; [`Membership::owns`](crate::membership::Membership::owns) of shard 0.
pub fn maintenance<S: Members>(
    store: S,
    keys: Keys,
    config: MaintenanceConfig,
    elected: impl Fn() -> bool + Send + Sync + 'static,
) -> (watch::Receiver<Space>, impl Future<Output = ()> + Send) {
    let (space, told) = watch::channel(Space::default());
    let driver = Driver { store, keys, config, elected, space, defragmented: BTreeMap::new() };
    (told, driver.run())
}

struct Driver<S, E> {
    store: S,
    keys: Keys,
    config: MaintenanceConfig,
    elected: E,
    space: watch::Sender<Space>,
    /// When a member was defragmented last.
    defragmented: BTreeMap<String, Instant>,
}

impl<S: Members, E: Fn() -> bool + Send + Sync> Driver<S, E> {
    async fn run(mut self) {
        let mut noted: Option<(Revision, Instant)> = None;
        loop {
            self.look().await;
            if noted.is_none_or(|(_, at)| at.elapsed() >= self.config.compact_every) {
                if let Some((revision, _)) = noted {
                    self.compact(revision).await;
                }
                // If it fails, the next turn compacts further.
                if let Ok(answer) = self.store.range(KeyRange::one(self.keys.identity()), 1).await {
                    noted = Some((answer.revision, Instant::now()));
                }
            }
            sleep(self.config.look_every).await;
        }
    }

    async fn compact(&self, revision: Revision) {
        if !(self.elected)() {
            return;
        }
        match self.store.compact(revision).await {
            Ok(()) => tracing::debug!(revision = revision.0, "etcd is compacted"),
            // Another server, or etcd itself, was faster.
            Err(StoreError::Compacted(_)) => {}
            Err(error) => tracing::warn!(revision = revision.0, %error, "etcd is not compacted"),
        }
    }

    async fn look(&mut self) {
        let space = self.ask().await;
        let candidate = self.candidate(&space);
        self.tell(space);
        if let Some(endpoint) = candidate
            && (self.elected)()
        {
            self.defragmented.insert(endpoint.clone(), Instant::now());
            match self.store.defragment(&endpoint).await {
                Ok(()) => tracing::info!(endpoint, "a member of etcd is defragmented"),
                Err(error) => tracing::warn!(endpoint, %error, "a member of etcd is not defragmented"),
            }
            let space = self.ask().await;
            self.tell(space);
        }
    }

    async fn ask(&self) -> Space {
        let mut space = Space::default();
        for endpoint in self.store.endpoints() {
            match self.store.status(&endpoint).await {
                Ok(status) => {
                    space.near_quota |= is_near(status.size, self.config.quota);
                    let is_leader = status.leader == Some(status.member);
                    let Status { size, size_in_use, .. } = status;
                    space.members.insert(endpoint, MemberSpace { size, size_in_use, is_leader });
                }
                Err(error) => {
                    tracing::debug!(endpoint, %error, "a member of etcd does not tell its state");
                    space.silent += 1;
                }
            }
        }
        space
    }

    /// The member to defragment, if any is worth it.
    fn candidate(&self, space: &Space) -> Option<String> {
        let recently = |endpoint: &String| {
            self.defragmented.get(endpoint).is_some_and(|at| at.elapsed() < self.config.defragment_again)
        };
        let all_answer = space.silent == 0 && space.members.values().any(|member| member.is_leader);
        let worth = space.members.iter().filter(|(endpoint, member)| {
            all_answer && !recently(endpoint) && is_worth_it(member, &self.config)
        });
        let first = worth.min_by_key(|(_, member)| (member.is_leader, Reverse(member.free())));
        first.map(|(endpoint, _)| endpoint.clone())
    }

    fn tell(&self, space: Space) {
        let before = self.space.borrow().near_quota;
        if space.near_quota && !before {
            tracing::warn!(?space, quota = self.config.quota, "etcd is near its quota");
        } else if before && !space.near_quota {
            tracing::info!("etcd is not near its quota any more");
        }
        self.space.send_replace(space);
    }
}

impl MemberSpace {
    fn free(&self) -> u64 {
        self.size.saturating_sub(self.size_in_use)
    }
}

fn is_near(size: u64, quota: u64) -> bool {
    size >= quota / 100 * NEAR_PERCENT
}

/// Whether defragmentation makes the file of a member much smaller; see the module.
fn is_worth_it(member: &MemberSpace, config: &MaintenanceConfig) -> bool {
    let part = if is_near(member.size, config.quota) { 4 } else { 2 };
    member.size >= config.defragment_from && member.free() >= member.size / part
}

impl Members for Client {
    fn endpoints(&self) -> Vec<String> {
        Self::endpoints(self)
    }

    async fn status(&self, endpoint: &str) -> Result<Status, StoreError> {
        Self::status(self, endpoint).await
    }

    async fn defragment(&self, endpoint: &str) -> Result<(), StoreError> {
        Self::defragment(self, endpoint).await
    }
}

#[cfg(test)]
mod tests;
