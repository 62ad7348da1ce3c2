//! The bytes that instances may come to take: of memory, and of the log's disk (SPEC B1).
//!
//! At its creation an instance reserves the bytes that it may take while it lives, for the server and for its
//! creator. So when they run short only Create is refused, and the instances that live come to their end. An
//! instance that has ended counts with what it takes; that may grow, since offences at it are still filed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::expirations::Expirations;

/// Bytes that are reserved: of the server, or of one creator.
#[derive(Clone, Debug, Default)]
pub(super) struct ByteReserve(Arc<AtomicUsize>);

impl ByteReserve {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bytes that one instance has reserved; given back when dropped.
#[derive(Debug)]
pub(super) struct ByteShare {
    reserves: [ByteReserve; 2],
    bytes: usize,
    /// The bytes that were reserved at the creation.
    most: usize,
}

impl ByteShare {
    /// Reserves so many bytes of both.
    pub(super) fn new(reserves: [&ByteReserve; 2], bytes: usize) -> Self {
        for ByteReserve(reserve) in reserves {
            reserve.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { reserves: reserves.map(ByteReserve::clone), bytes, most: bytes }
    }

    /// The instance has ended and takes so many bytes. It never takes more than was reserved at its creation.
    pub(super) fn resize(&mut self, bytes: usize) {
        let bytes = bytes.min(self.most);
        let (more, less) = (bytes.saturating_sub(self.bytes), self.bytes.saturating_sub(bytes));
        for ByteReserve(reserve) in &self.reserves {
            reserve.fetch_add(more, Ordering::Relaxed);
            reserve.fetch_sub(less, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// The instance takes so many bytes at least.
    pub(super) fn grow_to(&mut self, bytes: usize) {
        self.resize(bytes.max(self.bytes));
    }
}

impl Drop for ByteShare {
    fn drop(&mut self) {
        self.resize(0);
    }
}

/// The reservations of one instance, and the expirations of all instances of its creator.
#[derive(Debug)]
pub(super) struct InstanceShares {
    pub(super) memory: ByteShare,
    /// `None`: there is no log on disk.
    pub(super) log: Option<ByteShare>,
    /// The moment at which the server lets go of the instance is added here.
    pub(super) expirations: Expirations,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_reserved_until_it_is_not_needed() {
        let (server, one, other) = (ByteReserve::default(), ByteReserve::default(), ByteReserve::default());
        let mut first = ByteShare::new([&server, &one], 100);
        let second = ByteShare::new([&server, &other], 50);
        assert_eq!((server.bytes(), one.bytes(), other.bytes()), (150, 100, 50));
        first.resize(30);
        first.grow_to(20);
        assert_eq!((server.bytes(), one.bytes()), (80, 30));
        first.grow_to(40);
        assert_eq!((server.bytes(), one.bytes()), (90, 40));
        first.grow_to(110);
        assert_eq!((server.bytes(), one.bytes()), (150, 100), "never more than at its creation");
        drop((first, second));
        assert_eq!((server.bytes(), one.bytes(), other.bytes()), (0, 0, 0));
    }
}
