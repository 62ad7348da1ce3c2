//! How much of the log's disk instances may come to take (SPEC B1).
//!
//! At its creation an instance reserves what it may take while it lives, for the server and for its creator. So when the
//! disk runs short only Create is refused, and the instances that live come to their end. An instance that has ended
//! counts with what it takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the log that are reserved: of the server, or of one creator.
#[derive(Clone, Debug, Default)]
pub(super) struct LogReserve(Arc<AtomicUsize>);

impl LogReserve {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one instance has reserved; given back when dropped.
#[derive(Debug)]
pub(super) struct LogShare {
    reserves: [LogReserve; 2],
    bytes: usize,
}

impl LogShare {
    /// Reserves so many bytes of both.
    pub(super) fn new(reserves: [&LogReserve; 2], bytes: usize) -> Self {
        for LogReserve(reserve) in reserves {
            reserve.fetch_add(bytes, Ordering::Relaxed);
        }
        Self { reserves: reserves.map(LogReserve::clone), bytes }
    }

    /// The instance has ended and takes so many bytes.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        for LogReserve(reserve) in &self.reserves {
            reserve.fetch_sub(less, Ordering::Relaxed);
        }
        self.bytes -= less;
    }
}

impl Drop for LogShare {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_reserved_until_it_is_not_needed() {
        let (server, one, other) = (LogReserve::default(), LogReserve::default(), LogReserve::default());
        let mut first = LogShare::new([&server, &one], 100);
        let second = LogShare::new([&server, &other], 50);
        assert_eq!((server.bytes(), one.bytes(), other.bytes()), (150, 100, 50));
        first.shrink(30);
        first.shrink(40);
        assert_eq!((server.bytes(), one.bytes()), (80, 30), "a share never grows");
        drop((first, second));
        assert_eq!((server.bytes(), one.bytes(), other.bytes()), (0, 0, 0));
    }
}
