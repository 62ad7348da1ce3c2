//! The end of the server, as its streams see it: a flag to look at, and a place to wait that takes a lock when
//! it is taken and when it is left, and not each time that a stream is polled.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use slab::Slab;

/// Whether the server takes nothing new any more. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    begun: AtomicBool,
    waiting: Mutex<Slab<Waker>>,
}

impl Drain {
    /// From now on nothing new is taken; wakes whoever waits for that.
    pub(crate) fn begin(&self) {
        let mut waiting = self.waiting();
        self.0.begun.store(true, Ordering::SeqCst);
        waiting.drain().for_each(Waker::wake);
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// Completes when it begins.
    pub(crate) fn wait(&self) -> WaitForDrain {
        WaitForDrain { drain: self.clone(), place: None }
    }

    fn waiting(&self) -> MutexGuard<'_, Slab<Waker>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The future of [`Drain::wait`].
#[derive(Debug)]
pub(crate) struct WaitForDrain {
    drain: Drain,
    /// The key of its waker, and the waker again, to compare without the lock.
    place: Option<(usize, Waker)>,
}

impl Future for WaitForDrain {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain.has_begun() {
            return Poll::Ready(());
        }
        if self.place.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        let drain = self.drain.clone();
        let mut waiting = drain.waiting();
        // It begins under this lock: either it sees the waker, or the waker's owner sees that it has begun.
        if drain.has_begun() {
            return Poll::Ready(());
        }
        let key = match self.place.take() {
            Some((key, _)) => {
                waiting[key].clone_from(cx.waker());
                key
            }
            None => waiting.insert(cx.waker().clone()),
        };
        self.place = Some((key, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for WaitForDrain {
    fn drop(&mut self) {
        if let Some((key, _)) = self.place.take() {
            // Gone already if it has begun.
            self.drain.waiting().try_remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_woken_and_who_comes_later_does_not_wait() {
        let drain = Drain::default();
        let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(drain.wait())).collect();
        tokio::task::yield_now().await;
        assert!(!drain.has_begun());
        drain.begin();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        drain.wait().await;
    }

    #[tokio::test]
    async fn who_goes_leaves_nothing_behind() {
        let drain = Drain::default();
        let mut waiting = Box::pin(drain.wait());
        assert!(std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        assert_eq!(drain.waiting().len(), 1);
        drop(waiting);
        assert!(drain.waiting().is_empty());
    }
}
