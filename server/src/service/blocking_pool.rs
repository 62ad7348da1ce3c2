//! Work that is too much for a thread that serves: it is done on threads for blocking work, little of it at a
//! time.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// See the module.
#[derive(Debug)]
pub(super) struct BlockingPool(Arc<Semaphore>);

impl BlockingPool {
    /// So much is done at a time.
    pub(super) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_a_time)))
    }

    /// Does this when it is its turn; `None`: it panicked. Work that has begun keeps its turn to its end,
    /// even if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.0.clone().acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_turn() {
        let pool = BlockingPool::new(1);
        let (go_on, wait) = mpsc::channel();
        timeout(SHORT, pool.run(move || wait.recv())).await.unwrap_err();
        timeout(SHORT, pool.run(|| ())).await.unwrap_err();
        go_on.send(()).unwrap();
        assert_eq!(pool.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_turn_back() {
        let pool = BlockingPool::new(1);
        assert_eq!(pool.run(|| panic!("as a bug would")).await, None::<()>);
        assert_eq!(pool.run(|| 7).await, Some(7));
    }
}
