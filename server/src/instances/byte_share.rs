//! The bytes that instances may come to take: of memory, and of the log's disk (SPEC B1).
//!
//! At its creation an instance reserves the bytes that it may take while it lives, for the server and for its
//! creator. So when they run short only Create is refused, and the instances that live come to their end. An
//! instance that has ended counts with what it takes; that may grow, since offences at it are still filed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::expirations::Expirations;

/// The bytes that instances have reserved: those of one creator, or all.
#[derive(Debug, Default)]
pub(super) struct ReservedBytes {
    memory: AtomicUsize,
    log: AtomicUsize,
}

impl ReservedBytes {
    pub(super) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    pub(super) fn log(&self) -> usize {
        self.log.load(Ordering::Relaxed)
    }
}

/// What a creator's instances have reserved, and the moments at which the server lets go of these instances.
#[derive(Debug, Default)]
pub(super) struct CreatorReserve {
    pub(super) own: ReservedBytes,
    /// Of the instances of all creators.
    all: Arc<ReservedBytes>,
    pub(super) expirations: Expirations,
}

impl CreatorReserve {
    /// Nothing is reserved yet. `all`: what the instances of all creators have reserved.
    pub(super) fn new(all: &Arc<ReservedBytes>) -> Self {
        Self { all: all.clone(), ..Self::default() }
    }
}

/// The bytes that one instance has reserved; given back when dropped.
#[derive(Debug)]
pub(super) struct InstanceShare {
    creator: Arc<CreatorReserve>,
    memory: Share,
    log: Share,
}

impl InstanceShare {
    /// Reserves so many bytes for an instance of this creator. Without a log on disk, `log` is 0.
    pub(super) fn new(creator: &Arc<CreatorReserve>, memory: usize, log: usize) -> Self {
        let unused = |most| Share { bytes: 0, most };
        let mut share = Self { creator: creator.clone(), memory: unused(memory), log: unused(log) };
        share.resize_memory(memory);
        share.resize_log(log);
        share
    }

    /// The instance takes so many bytes of memory.
    pub(super) fn resize_memory(&mut self, bytes: usize) {
        let CreatorReserve { own, all, .. } = &*self.creator;
        self.memory.resize(bytes, [&own.memory, &all.memory]);
    }

    /// The instance takes so many bytes of the log's disk.
    pub(super) fn resize_log(&mut self, bytes: usize) {
        let CreatorReserve { own, all, .. } = &*self.creator;
        self.log.resize(bytes, [&own.log, &all.log]);
    }

    /// The instance takes at least so many bytes of the log's disk.
    pub(super) fn grow_log_to(&mut self, bytes: usize) {
        self.resize_log(bytes.max(self.log.bytes));
    }

    /// The instance has ended, and the server lets go of it at the moment `due`.
    pub(super) fn add_expiration(&self, due: u64) {
        self.creator.expirations.add(due);
    }
}

impl Drop for InstanceShare {
    fn drop(&mut self) {
        self.resize_memory(0);
        self.resize_log(0);
    }
}

/// Bytes that are counted as reserved.
#[derive(Debug)]
struct Share {
    bytes: usize,
    /// The bytes that were reserved at the creation. The instance never takes more.
    most: usize,
}

impl Share {
    fn resize(&mut self, bytes: usize, reserved: [&AtomicUsize; 2]) {
        let bytes = bytes.min(self.most);
        let (more, less) = (bytes.saturating_sub(self.bytes), self.bytes.saturating_sub(bytes));
        for reserved in reserved {
            reserved.fetch_add(more, Ordering::Relaxed);
            reserved.fetch_sub(less, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_reserved_until_it_is_not_needed() {
        let all = Arc::default();
        let [one, other] = [(); 2].map(|()| Arc::new(CreatorReserve::new(&all)));
        let bytes = || (all.memory(), one.own.memory(), other.own.memory());
        let mut first = InstanceShare::new(&one, 10, 100);
        let mut second = InstanceShare::new(&other, 5, 0);
        assert_eq!((bytes(), all.log(), one.own.log()), ((15, 10, 5), 100, 100));
        first.resize_memory(3);
        first.resize_log(30);
        first.grow_log_to(20);
        assert_eq!((bytes(), all.log(), one.own.log()), ((8, 3, 5), 30, 30));
        first.grow_log_to(40);
        assert_eq!((all.log(), one.own.log()), (40, 40));
        first.grow_log_to(110);
        assert_eq!((all.log(), one.own.log()), (100, 100), "never more than at its creation");
        second.grow_log_to(50);
        assert_eq!((all.log(), other.own.log()), (100, 0), "nothing without a log");
        drop((first, second));
        assert_eq!((bytes(), all.log(), one.own.log()), ((0, 0, 0), 0, 0));
    }
}
