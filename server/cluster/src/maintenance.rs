//! Maintenance of etcd: compaction, defragmentation, and how near its quota the space in use is.
//!
//! etcd keeps every version of every key until it is compacted, and its file grows until the quota is used
//! up; then it takes only what frees space. So one server, the owner of shard 0, compacts to the revision
//! that the store had some minutes ago. That frees space within the file, which etcd uses again; only
//! defragmentation makes the file smaller, and a quota is about the file. A member that is defragmented
//! answers nothing meanwhile, so it is done to one member at a time, to the leader last, only while all
//! members answer, and only where it is worth it:
//!
//! * at least half of the file is free, or
//! * the file is near the quota (80 %), and at least an eighth of it is free.
//!
//! While an only member is defragmented, nobody answers, and if that takes longer than a lease, all shards
//! are without an owner for a moment. So it is left as it is before its file is near the quota: then the
//! alternative is a store that takes nothing.
//!
//! Use is measured as what is not free in the largest file. From 70 % of the quota on there is a warning: a
//! file that nobody can make smaller is never nearer its quota than that without one. From 90 % on, and while
//! etcd's alarm NOSPACE is raised, the store is taken for full: the rest is for what goes on.
//!
//! Space that a compaction has freed counts as free after the next writes only (etcd 3.4).
//!
//! Two servers that both take themselves for the owner do no harm. Every server tells the space ([`Space`]),
//! so that an alarm comes from whichever is asked, before the quota refuses appends. Nothing here disarms
//! etcd's alarm: that is the operator's.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::keys::Keys;
use crate::store::{KeyRange, MemberSpace, Members, Revision, StoreError};

/// The part of the quota, in percent, from which a file is near it.
const FILE_NEAR_PERCENT: u64 = 80;
/// Near the quota a file is made smaller if so much of it is free: one part of this many.
const FREE_PART_NEAR: u64 = 8;
/// The same of any other file.
const FREE_PART: u64 = 2;
/// The use, in percent of the quota, from which there is a warning; not more than what files near the quota
/// have that are not made smaller.
const NEAR_PERCENT: u64 = 70;
/// The use, in percent of the quota, from which the store is taken for full.
const FULL_PERCENT: u64 = 90;
/// While the use is near the quota, the members are looked at so many times as often.
const LOOK_OFTENER: u32 = 6;

/// The times and limits of maintenance.
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
    /// The quota that the use is compared with.
    pub quota: u64,
    /// Whether etcd has raised the alarm NOSPACE: it takes only what frees space.
    pub alarm: bool,
}

/// How full the store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    /// There is space.
    #[default]
    Enough,
    /// The use has come to 70 % of the quota.
    Near,
    /// The use has come to 90 % of the quota, or the alarm NOSPACE is raised.
    Full,
}

impl Space {
    /// The largest use of a member, in bytes.
    pub fn used(&self) -> u64 {
        self.members.values().map(|member| member.size_in_use).max().unwrap_or(0)
    }

    /// How full the store is.
    pub fn fullness(&self) -> Fullness {
        let is_from = |percent| self.quota > 0 && self.used() >= self.quota / 100 * percent;
        if self.alarm || is_from(FULL_PERCENT) {
            Fullness::Full
        } else if is_from(NEAR_PERCENT) {
            Fullness::Near
        } else {
            Fullness::Enough
        }
    }
}

impl Default for MaintenanceConfig {
    /// Compactions every 5 minutes, looks every 3 seconds, defragmentation from 64 MiB and after 15 minutes
    /// again, and etcd's default quota of 2 GiB.
    fn default() -> Self {
        Self {
            compact_every: Duration::from_mins(5),
            look_every: Duration::from_secs(3),
            defragment_from: 64 << 20,
            defragment_again: Duration::from_mins(15),
            quota: 2 << 30,
        }
    }
}

/// The space of the members as it is told, and the future that does the maintenance. `elected`: whether this
/// server compacts and defragments; [`Membership::owns`](crate::membership::Membership::owns) of shard 0.
pub fn maintenance<S: Members>(
    store: S,
    keys: Keys,
    config: MaintenanceConfig,
    elected: impl Fn() -> bool + Send + Sync + 'static,
) -> (watch::Receiver<Space>, impl Future<Output = ()> + Send) {
    // Nobody has told anything yet.
    let silent = store.endpoints().len();
    let (space, told) = watch::channel(Space { silent, quota: config.quota, ..Space::default() });
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
            let is_near = self.space.borrow().fullness() >= Fullness::Near;
            sleep(self.config.look_every / if is_near { LOOK_OFTENER } else { 1 }).await;
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
            if self.store.endpoints().len() == 1 {
                tracing::warn!(
                    endpoint,
                    "the only member of etcd is defragmented, since its file is near the quota: nothing is committed until it is \
                     done; next time do it at a quiet time (etcdctl defrag), or run three members"
                );
            }
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
        let mut space = Space { quota: self.config.quota, ..Space::default() };
        for endpoint in self.store.endpoints() {
            match self.store.space(&endpoint).await {
                Ok(member) => drop(space.members.insert(endpoint, member)),
                Err(error) => {
                    tracing::debug!(endpoint, %error, "a member of etcd does not tell its state");
                    space.silent += 1;
                }
            }
        }
        // While nobody tells, it is as it was.
        space.alarm = self.store.alarm().await.unwrap_or_else(|_| self.space.borrow().alarm);
        space
    }

    /// The member to defragment, if any is worth it.
    fn candidate(&self, space: &Space) -> Option<String> {
        let recently = |endpoint: &String| {
            self.defragmented.get(endpoint).is_some_and(|at| at.elapsed() < self.config.defragment_again)
        };
        let all_answer = space.silent == 0 && space.members.values().any(|member| member.is_leader);
        let is_only = space.members.len() == 1;
        let worth = space.members.iter().filter(|(endpoint, member)| {
            let may_pause = !is_only || is_near(member, &self.config);
            all_answer && may_pause && !recently(endpoint) && is_worth_it(member, &self.config)
        });
        let first = worth.min_by_key(|(_, member)| (member.is_leader, Reverse(member.free())));
        first.map(|(endpoint, _)| endpoint.clone())
    }

    fn tell(&self, space: Space) {
        let (before, now) = (self.space.borrow().fullness(), space.fullness());
        let (used, quota, alarm) = (space.used(), space.quota, space.alarm);
        match now {
            _ if now == before => {}
            Fullness::Enough => tracing::info!(used, quota, "etcd is not near its quota any more"),
            Fullness::Near => tracing::warn!(
                used,
                quota,
                "etcd is near its quota: let instances expire sooner (--retention), or give etcd a higher \
                 --quota-backend-bytes and the servers the same --etcd-quota"
            ),
            Fullness::Full => tracing::error!(
                used,
                quota,
                alarm,
                "etcd is full: no instances are created until there is space; while its alarm NOSPACE is raised nothing is \
                 committed, and the alarm stays until it is disarmed (etcdctl alarm disarm)"
            ),
        }
        self.space.send_replace(space);
    }
}

/// Whether the file of a member is near the quota.
fn is_near(member: &MemberSpace, config: &MaintenanceConfig) -> bool {
    member.size >= config.quota / 100 * FILE_NEAR_PERCENT
}

/// Whether defragmentation makes the file of a member much smaller; see the module.
fn is_worth_it(member: &MemberSpace, config: &MaintenanceConfig) -> bool {
    let part = if is_near(member, config) { FREE_PART_NEAR } else { FREE_PART };
    member.size >= config.defragment_from && member.free() >= member.size / part
}

#[cfg(test)]
mod tests;
