//! The state of the model: keys, leases, history. One call is one request that is applied at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::store::{
    Change, Compare, KeyRange, KeyValue, LeaseId, Op, RangeAnswer, Revision, StoreError, Txn, TxnAnswer,
};

/// etcd's default of `--max-txn-ops`.
const MAX_OPERATIONS: usize = 128;
/// etcd's default of `--max-request-bytes`.
const MAX_REQUEST_BYTES: usize = 3 << 19;

#[derive(Clone, Debug)]
pub(super) struct State {
    revision: u64,
    compacted: u64,
    keys: BTreeMap<Bytes, KeyValue>,
    leases: BTreeMap<i64, Lease>,
    last_lease: i64,
    history: Vec<(Revision, Vec<Change>)>,
    quota: Option<u64>,
    used: u64,
    /// The most bytes in use since the last defragmentation.
    size: u64,
    alarm: bool,
    /// Writes that were refused since there was no space.
    refused: u64,
}

#[derive(Clone, Debug)]
struct Lease {
    time_to_live: Duration,
    /// How much later than its time it ends: etcd looks for ended leases now and then.
    slack: Duration,
    ends: Instant,
    keys: BTreeSet<Bytes>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            // As etcd begins.
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            history: Vec::new(),
            quota: None,
            used: 0,
            size: 0,
            alarm: false,
            refused: 0,
        }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision)
    }

    pub(super) fn history(&self) -> &[(Revision, Vec<Change>)] {
        &self.history
    }

    /// Sets the quota of the size, and lifts the alarm.
    pub(super) fn set_quota(&mut self, quota: Option<u64>) {
        self.quota = quota;
        self.alarm = false;
    }

    /// Writes that were refused and not applied, since there was no space.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes of keys and values that are not compacted away.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of the file: the most in use since the last defragmentation.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether the quota was used up.
    pub(super) fn alarm(&self) -> bool {
        self.alarm
    }

    pub(super) fn defragment(&mut self) {
        self.size = self.used;
    }

    /// Ends the leases whose time is over; each is a change of its own.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(id) = self.leases.iter().find(|(_, lease)| lease.ends <= now).map(|(&id, _)| id) {
            self.end_lease(id);
        }
    }

    /// Gives each lease its full time.
    pub(super) fn renew_leases(&mut self, now: Instant) {
        for lease in self.leases.values_mut() {
            lease.ends = now + lease.time_to_live + lease.slack;
        }
    }

    /// When the next lease ends.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.ends).min()
    }

    pub(super) fn txn(&mut self, txn: &Txn) -> Result<TxnAnswer, StoreError> {
        check(txn)?;
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.otherwise };
        let puts = || {
            ops.iter().filter_map(|op| {
                if let Op::Put { key, value, lease } = op { Some((key, value, lease)) } else { None }
            })
        };
        if puts().any(|(.., lease)| lease.is_some_and(|lease| !self.leases.contains_key(&lease.0))) {
            return Err(StoreError::NoLease);
        }
        let size: usize = puts().map(|(key, value, _)| key.len() + value.len()).sum();
        // etcd asks whether a transaction could put, and not whether it does.
        let could_put = txn.then.iter().chain(&txn.otherwise).any(|op| matches!(op, Op::Put { .. }));
        let crosses = could_put && self.crosses_quota(size)?;
        let mut changes = Vec::new();
        let mut found = Vec::new();
        let revision = Revision(self.revision + 1);
        for op in ops {
            match op {
                Op::Put { key, value, lease } => {
                    changes.push(Change::Put(self.put(key, value, *lease, revision)));
                }
                Op::Delete(range) => {
                    for key in self.select(range) {
                        self.delete(&key);
                        changes.push(Change::Deleted(key, revision));
                    }
                }
                Op::Get(range) => found.push(self.get(range).cloned().collect()),
            }
        }
        self.record(changes);
        if crosses {
            return Err(StoreError::NoSpace);
        }
        Ok(TxnAnswer { revision: Revision(self.revision), succeeded, found })
    }

    pub(super) fn range(&self, range: &KeyRange, limit: usize) -> RangeAnswer {
        let mut found: Vec<KeyValue> = self.get(range).cloned().collect();
        let more = limit > 0 && found.len() > limit;
        if more {
            found.truncate(limit);
        }
        RangeAnswer { revision: Revision(self.revision), found, more }
    }

    pub(super) fn grant(
        &mut self,
        now: Instant,
        time_to_live: Duration,
        slack: Duration,
    ) -> Result<LeaseId, StoreError> {
        let crosses = self.crosses_quota(0)?;
        self.last_lease += 1;
        let lease = Lease { time_to_live, slack, ends: now + time_to_live + slack, keys: BTreeSet::new() };
        self.leases.insert(self.last_lease, lease);
        if crosses {
            return Err(StoreError::NoSpace);
        }
        Ok(LeaseId(self.last_lease))
    }

    pub(super) fn keep_alive(&mut self, now: Instant, lease: LeaseId) -> Result<Duration, StoreError> {
        let lease = self.leases.get_mut(&lease.0).ok_or(StoreError::NoLease)?;
        lease.ends = now + lease.time_to_live + lease.slack;
        Ok(lease.time_to_live)
    }

    pub(super) fn revoke(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        if !self.leases.contains_key(&lease.0) {
            return Err(StoreError::NoLease);
        }
        self.end_lease(lease.0);
        Ok(())
    }

    pub(super) fn compact(&mut self, revision: Revision) -> Result<(), StoreError> {
        if revision.0 <= self.compacted {
            return Err(StoreError::Compacted(Revision(self.compacted)));
        }
        if revision.0 > self.revision {
            return Err(StoreError::Refused("mvcc: required revision is a future revision".into()));
        }
        self.compacted = revision.0;
        let kept =
            self.keys.values().filter(|kv| kv.modified <= revision).map(|kv| kv.key.len() + kv.value.len());
        let newer = self.history.iter().filter(|(at, _)| *at > revision).flat_map(|(_, changes)| changes);
        self.used = (kept.sum::<usize>() + newer.map(size_of_change).sum::<usize>()) as u64;
        Ok(())
    }

    /// The first changes of these keys from this revision on.
    pub(super) fn changes(
        &self,
        range: &KeyRange,
        from: Revision,
    ) -> Result<Option<(Revision, Vec<Change>)>, StoreError> {
        if from.0 <= self.compacted {
            return Err(StoreError::Compacted(Revision(self.compacted + 1)));
        }
        let first = self.history.partition_point(|(revision, _)| *revision < from);
        Ok(self.history[first..].iter().find_map(|(revision, changes)| {
            let changes: Vec<Change> =
                changes.iter().filter(|change| contains(range, key_of(change))).cloned().collect();
            (!changes.is_empty()).then_some((*revision, changes))
        }))
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Created(key, revision) => {
                self.keys.get(key).map_or(Revision(0), |kv| kv.created) == *revision
            }
            Compare::Value(key, value) => self.keys.get(key).is_some_and(|kv| kv.value == *value),
        }
    }

    /// Whether a request of this size crosses the quota: it raises the alarm, is applied, and is answered
    /// with an error. Its error is for the requests behind it, which are not applied.
    fn crosses_quota(&mut self, size: usize) -> Result<bool, StoreError> {
        if self.alarm {
            self.refused += 1;
            return Err(StoreError::NoSpace);
        }
        self.alarm = self.quota.is_some_and(|quota| self.size + size as u64 > quota);
        Ok(self.alarm)
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, lease: Option<LeaseId>, revision: Revision) -> KeyValue {
        let before = self.keys.get(key);
        let created = before.map_or(revision, |kv| kv.created);
        if let Some(old) = before.and_then(|kv| kv.lease).and_then(|old| self.leases.get_mut(&old.0)) {
            old.keys.remove(key);
        }
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease.0)) {
            lease.keys.insert(key.clone());
        }
        let kv = KeyValue { key: key.clone(), value: value.clone(), created, modified: revision, lease };
        self.keys.insert(key.clone(), kv.clone());
        kv
    }

    fn delete(&mut self, key: &Bytes) {
        let lease = self.keys.remove(key).and_then(|kv| kv.lease);
        if let Some(lease) = lease.and_then(|lease| self.leases.get_mut(&lease.0)) {
            lease.keys.remove(key);
        }
    }

    fn end_lease(&mut self, id: i64) {
        let Some(lease) = self.leases.remove(&id) else { return };
        let revision = Revision(self.revision + 1);
        let changes = lease.keys.into_iter().map(|key| {
            self.keys.remove(&key);
            Change::Deleted(key, revision)
        });
        let changes = changes.collect();
        self.record(changes);
    }

    fn record(&mut self, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.revision += 1;
            self.used += changes.iter().map(size_of_change).sum::<usize>() as u64;
            self.size = self.size.max(self.used);
            self.history.push((Revision(self.revision), changes));
        }
    }

    fn get<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a KeyValue> {
        self.keys.range(range.from.clone()..).map(|(_, kv)| kv).take_while(|kv| contains(range, &kv.key))
    }

    fn select(&self, range: &KeyRange) -> Vec<Bytes> {
        self.get(range).map(|kv| kv.key.clone()).collect()
    }
}

/// The checks of etcd before it takes a transaction.
fn check(txn: &Txn) -> Result<(), StoreError> {
    let refused = |why: &str| Err(StoreError::Refused(why.to_owned()));
    if txn.compare.len().max(txn.then.len()).max(txn.otherwise.len()) > MAX_OPERATIONS {
        return refused("etcdserver: too many operations in txn request");
    }
    let compares = txn.compare.iter().map(|compare| match compare {
        Compare::Created(key, _) => key.len() + 8,
        Compare::Value(key, value) => key.len() + value.len(),
    });
    let ops = txn.then.iter().chain(&txn.otherwise).map(|op| match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete(range) | Op::Get(range) => range.from.len() + range.to.as_ref().map_or(0, Bytes::len),
    });
    if compares.chain(ops).sum::<usize>() > MAX_REQUEST_BYTES {
        return refused("etcdserver: request is too large");
    }
    for ops in [&txn.then, &txn.otherwise] {
        let mut puts = BTreeSet::new();
        for op in ops {
            if let Op::Put { key, .. } = op
                && !puts.insert(key)
            {
                return refused("etcdserver: duplicate key given in txn request");
            }
        }
        let deleted =
            |key: &Bytes| ops.iter().any(|op| matches!(op, Op::Delete(range) if contains(range, key)));
        if puts.into_iter().any(deleted) {
            return refused("etcdserver: duplicate key given in txn request");
        }
    }
    Ok(())
}

fn contains(range: &KeyRange, key: &Bytes) -> bool {
    match &range.to {
        None => *key == range.from,
        Some(to) => *key >= range.from && *key < *to,
    }
}

fn key_of(change: &Change) -> &Bytes {
    match change {
        Change::Put(kv) => &kv.key,
        Change::Deleted(key, _) => key,
    }
}

fn size_of_change(change: &Change) -> usize {
    match change {
        Change::Put(kv) => kv.key.len() + kv.value.len(),
        Change::Deleted(key, _) => key.len(),
    }
}
