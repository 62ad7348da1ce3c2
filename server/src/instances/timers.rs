//! The timers of all instances: one heap, one task.
//!
//! An instance sets a timer only when it needs one earlier than the one it has, so in the usual run, where
//! phases follow each other at once, it sets one every patience and not one every phase. A timer that fires
//! too early is set again; none is ever taken back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use stickycas_proto::names::InstanceId;

/// See the module. Each living instance has at most a few entries, each set because it was earlier than those
/// before it.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Mutex<BinaryHeap<Reverse<(Instant, InstanceId)>>>,
    earlier: Notify,
}

impl Timers {
    /// Has this instance woken at `at`.
    pub(super) fn set(&self, at: Instant, id: InstanceId) {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let first = heap.peek().is_none_or(|Reverse((first, _))| at < *first);
        heap.push(Reverse((at, id)));
        drop(heap);
        if first {
            self.earlier.notify_one();
        }
    }

    /// Wakes instances when their time has come, for ever.
    pub(super) async fn run(&self, wake: impl Fn(InstanceId)) {
        loop {
            let next = match self.take_due(Instant::now()) {
                Ok(due) => {
                    due.into_iter().for_each(&wake);
                    continue;
                }
                Err(next) => next,
            };
            match next {
                None => self.earlier.notified().await,
                Some(at) => {
                    let _ = tokio::time::timeout_at(at.into(), self.earlier.notified()).await;
                }
            }
        }
    }

    /// The instances whose time has come; if there are none, when the first one's will.
    fn take_due(&self, now: Instant) -> Result<Vec<InstanceId>, Option<Instant>> {
        let mut heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = Vec::new();
        while let Some(Reverse((at, id))) = heap.peek().copied() {
            if at > now {
                break;
            }
            heap.pop();
            due.push(id);
        }
        if due.is_empty() { Err(heap.peek().map(|Reverse((at, _))| *at)) } else { Ok(due) }
    }
}
