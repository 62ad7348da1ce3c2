//! The requests of this crate to etcd, and no others: transactions, linearizable reads, leases, watches.
//!
//! Two things implement it: the client of etcd, and a model of etcd on the time of a simulation. Both answer
//! alike, so code on a [`Store`] runs on either. Nothing is sent twice behind the caller's back: only the
//! caller knows whether a request that may have taken effect may be repeated.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// The number of a change of the whole store, from 1; 0: before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Names a lease. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// Keys from `from` up to and without `to`, in the order of their bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key.
    pub from: Bytes,
    /// The first key behind the range; `None`: only the key `from`.
    pub to: Option<Bytes>,
}

/// A key, and what the store keeps of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The revision at which the key was created; once it is deleted, its next creation has another one.
    pub created: Revision,
    /// The revision at which the value was set.
    pub modified: Revision,
    /// The lease at whose end the key is deleted.
    pub lease: Option<LeaseId>,
}

/// A condition for the operations of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was created at this revision; [`Revision`] 0: there is no such key.
    Created(Bytes, Revision),
    /// The key has this value.
    Value(Bytes, Bytes),
}

/// An operation of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key.
    Put {
        /// The key.
        key: Bytes,
        /// Its value.
        value: Bytes,
        /// The lease at whose end the key is deleted.
        lease: Option<LeaseId>,
    },
    /// Deletes keys.
    Delete(KeyRange),
    /// Reads keys.
    Get(KeyRange),
}

/// Operations that take effect all at once, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions.
    pub compare: Vec<Compare>,
    /// The operations if all conditions hold.
    pub then: Vec<Op>,
    /// The operations otherwise.
    pub otherwise: Vec<Op>,
}

/// The outcome of a [`Txn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnAnswer {
    /// The revision of the store after it.
    pub revision: Revision,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// The keys that each [`Op::Get`] that was done has found, in their order.
    pub found: Vec<Vec<KeyValue>>,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAnswer {
    /// The revision of the store at which it was read.
    pub revision: Revision,
    /// Keys in order, at most as many as were asked for.
    pub found: Vec<KeyValue>,
    /// Whether there are more.
    pub more: bool,
}

/// A change that a [`Watch`] tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key was set.
    Put(KeyValue),
    /// A key was deleted, by a request or with its lease, at this revision.
    Deleted(Bytes, Revision),
}

impl Change {
    /// The revision of the store at which it happened.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(kv) => kv.modified,
            Self::Deleted(_, revision) => *revision,
        }
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It has not taken effect, and may be sent again.
    #[error("etcd has not taken the request: {0}")]
    NotDone(String),
    /// Nobody knows whether it has taken effect.
    #[error("it is not known whether etcd has taken the request: {0}")]
    Unknown(String),
    /// There is no such lease, or it has ended.
    #[error("the lease has ended")]
    NoLease,
    /// The revision that was asked for is compacted away. The oldest revision whose changes are kept: the one
    /// after the compaction, since etcd before 3.4.34 forgets what was deleted at the revision of the
    /// compaction itself.
    #[error("etcd has compacted what lies before revision {}", .0.0)]
    Compacted(Revision),
    /// The store is full, and takes only what frees space. Nobody knows whether this request has taken
    /// effect: etcd applies the one that is the first to cross the quota, and answers with the same error.
    #[error("etcd has no space left (mvcc: database space exceeded)")]
    NoSpace,
    /// The request can never be taken: it is too large, or names a key twice, say. It has not taken effect.
    #[error("etcd refuses the request: {0}")]
    Refused(String),
}

/// See the module. Futures are cancelled by being dropped; then nobody knows whether the request has taken
/// effect.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Changes that come one by one.
    type Watch: Watch;

    /// Does this transaction.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn txn(&self, txn: Txn) -> impl Future<Output = Result<TxnAnswer, StoreError>> + Send;

    /// Reads at most `limit` keys of the newest state (linearizable), the first ones in order; 0: all.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`], since a read changes nothing.
    fn range(
        &self,
        range: KeyRange,
        limit: usize,
    ) -> impl Future<Output = Result<RangeAnswer, StoreError>> + Send;

    /// Makes a lease that ends when it was not kept alive for so long. etcd counts in seconds: rounded up,
    /// and more if they are fewer than its election takes; [`Store::keep_alive`] tells.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn grant(&self, time_to_live: Duration) -> impl Future<Output = Result<LeaseId, StoreError>> + Send;

    /// Keeps a lease alive for its full time from now on; returns that time.
    ///
    /// # Errors
    /// [`StoreError::NoLease`], or see there.
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<Duration, StoreError>> + Send;

    /// Ends a lease, and deletes its keys.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn revoke(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Tells the changes of these keys from this revision on; 0: those that come from now on.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn watch(
        &self,
        range: KeyRange,
        from: Revision,
    ) -> impl Future<Output = Result<Self::Watch, StoreError>> + Send;

    /// The newest revision that a transaction or a read of this connection was answered with, since it was
    /// forgotten: the store has come to it, unless it was put back.
    fn newest(&self) -> Revision {
        Revision(0)
    }

    /// The store was put back.
    fn forget_newest(&self) {}

    /// Forgets what was overwritten or deleted before this revision.
    ///
    /// # Errors
    /// [`StoreError::Compacted`]: it was compacted as far already, at least up to the revision in the error.
    /// [`StoreError::Refused`]: the store has not come to this revision. Or see there.
    fn compact(&self, revision: Revision) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The space of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberSpace {
    /// Bytes of its file; a quota (`--quota-backend-bytes`) is about these.
    pub size: u64,
    /// Bytes of its file that are not free.
    pub size_in_use: u64,
    /// Whether it leads the cluster.
    pub is_leader: bool,
}

impl MemberSpace {
    /// Bytes of its file that are free.
    pub fn free(&self) -> u64 {
        self.size.saturating_sub(self.size_in_use)
    }
}

/// A store whose members can be asked and defragmented.
pub trait Members: Store {
    /// The addresses of the members.
    fn endpoints(&self) -> Vec<String>;

    /// The space of a member.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`].
    fn space(&self, endpoint: &str) -> impl Future<Output = Result<MemberSpace, StoreError>> + Send;

    /// Makes the file of a member smaller by what is free in it. The member answers nothing meanwhile.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn defragment(&self, endpoint: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether the alarm is raised that the quota is used up.
    ///
    /// # Errors
    /// See [`StoreError`]; never [`StoreError::Unknown`].
    fn alarm(&self) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// Changes, in the order of their revisions.
pub trait Watch: Send + 'static {
    /// The next changes: all of one revision are told together.
    ///
    /// # Errors
    /// [`StoreError::Compacted`], or the connection has ended; after an error the watch is over.
    fn next(&mut self) -> impl Future<Output = Result<Vec<Change>, StoreError>> + Send;
}

impl StoreError {
    /// Whether the request may have taken effect: then it must be resolved by a read before it is sent again.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::NoSpace => true,
            Self::NotDone(_) | Self::NoLease | Self::Compacted(_) | Self::Refused(_) => false,
        }
    }

    /// Whether the same request may be taken later, without anybody's help or when there is space.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::NotDone(_) | Self::Unknown(_) | Self::NoSpace => true,
            Self::NoLease | Self::Compacted(_) | Self::Refused(_) => false,
        }
    }
}

impl KeyRange {
    /// One key.
    pub fn one(key: impl Into<Bytes>) -> Self {
        Self { from: key.into(), to: None }
    }

    /// All keys that begin with this; it has a byte that is not 255.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let from = prefix.into();
        let mut to = from.to_vec();
        while to.last() == Some(&u8::MAX) {
            to.pop();
        }
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        Self { from, to: Some(to.into()) }
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Some(to) => write!(f, "{:?}..{to:?}", self.from),
            None => write!(f, "{:?}", self.from),
        }
    }
}
