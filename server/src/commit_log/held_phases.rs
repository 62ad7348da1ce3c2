//! The instances of a log that hold a phase open, or gather: while there is one, the log tells the time every
//! second (SPEC F3). An instance that is idle is none of them, and costs nothing (F4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The number of these instances. See the module.
#[derive(Debug, Default)]
pub(crate) struct HeldPhases {
    count: AtomicUsize,
    /// Notified when there is one again.
    first: Notify,
}

/// An instance that counts among them until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldPhase(Arc<HeldPhases>);

impl HeldPhases {
    /// An instance holds a phase open from now on, or gathers.
    pub(crate) fn hold(self: &Arc<Self>) -> HeldPhase {
        if self.count.fetch_add(1, Ordering::SeqCst) == 0 {
            self.first.notify_one();
        }
        HeldPhase(self.clone())
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Completes when there is one. One task at a time waits.
    pub(super) async fn wait(&self) {
        while self.is_empty() {
            // The permit of one that has come and gone may be left: so it is looked again.
            self.first.notified().await;
        }
    }
}

impl Drop for HeldPhase {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn who_waits_for_a_held_phase_is_woken_by_one_that_is_still_held() {
        let phases = Arc::<HeldPhases>::default();
        let mut context = Context::from_waker(Waker::noop());
        drop(phases.hold());
        let mut waiting = pin!(phases.wait());
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "it is held no more");
        let (first, second, last) = (phases.hold(), phases.hold(), phases.hold());
        assert!(waiting.poll(&mut context).is_ready());
        drop((first, second));
        assert!(!phases.is_empty(), "the last one is held");
        drop(last);
        assert!(phases.is_empty());
    }
}
