//! Work on several threads: one piece after the other is taken in order, and its result is told on the thread
//! of the caller.
//!
//! Which thread does which piece, and in which order pieces end, is left to chance. So a result must depend
//! on its piece alone, and the caller must add results up the same in any order.

use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, SyncSender};

use anyhow::Context as _;
use rayon::iter::{ParallelBridge as _, ParallelIterator as _};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Does the work of each piece on so many threads, and tells its result. An error of `tell` ends the work,
/// once the pieces that are under way are done.
///
/// # Errors
/// If the threads cannot be started, or what `tell` returns.
pub(crate) fn for_each<P: Send, R: Send>(
    jobs: NonZeroUsize,
    pieces: impl Iterator<Item = P> + Send,
    work: impl Fn(P) -> R + Send + Sync,
    tell: impl FnMut(R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // No thread is further ahead of the caller than by the one result that it has made.
    let (results, receiver) = mpsc::sync_channel(jobs.get());
    pool(jobs)?.in_place_scope(|scope| {
        scope.spawn(|_| work_all(pieces, work, results));
        receiver.into_iter().try_for_each(tell)
    })
}

/// The same for work that is not awaited once the receiver is gone: pieces that are under way then go on by
/// themselves. If one panics, the receiver ends before all results have come.
///
/// # Errors
/// If the threads cannot be started.
pub(crate) fn detached<P: Send + 'static, R: Send + 'static>(
    jobs: NonZeroUsize,
    pieces: impl Iterator<Item = P> + Send + 'static,
    work: impl Fn(P) -> R + Send + Sync + 'static,
) -> anyhow::Result<Receiver<R>> {
    let (results, receiver) = mpsc::sync_channel(jobs.get());
    pool(jobs)?.spawn(move || work_all(pieces, work, results));
    Ok(receiver)
}

fn pool(jobs: NonZeroUsize) -> anyhow::Result<ThreadPool> {
    // Of detached work that panics the receiver ends early, which its owner sees; the message is on standard
    // error.
    let builder = ThreadPoolBuilder::new().num_threads(jobs.get()).panic_handler(drop);
    builder.build().context("cannot start the threads")
}

/// Until there is no piece left, or results are no longer received.
fn work_all<P: Send, R: Send>(
    pieces: impl Iterator<Item = P> + Send,
    work: impl Fn(P) -> R + Sync,
    results: SyncSender<R>,
) {
    let send = |results: &mut SyncSender<R>, piece| results.send(work(piece)).ok();
    // That the receiver is gone is what the caller wanted.
    let _ = pieces.par_bridge().try_for_each_with(results, send);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    #[test]
    fn every_piece_is_done_once_on_any_number_of_threads() {
        for threads in [1, 2, 7] {
            let mut results = Vec::new();
            let tell = |result| {
                results.push(result);
                Ok(())
            };
            for_each(jobs(threads), 0..1_000_u64, |piece| piece * piece, tell).unwrap();
            results.sort_unstable();
            assert_eq!(results, (0..1_000).map(|piece| piece * piece).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn one_thread_tells_results_in_the_order_of_the_pieces() {
        let mut results = Vec::new();
        let tell = |result| {
            results.push(result);
            Ok(())
        };
        for_each(jobs(1), 0..100, |piece| piece, tell).unwrap();
        assert_eq!(results, (0..100).collect::<Vec<u32>>());
    }

    #[test]
    fn a_refused_result_ends_the_work() {
        let mut told = 0;
        let tell = |_| {
            told += 1;
            anyhow::ensure!(told < 3, "enough");
            Ok(())
        };
        let error = for_each(jobs(2), 0_u64.., |piece| piece, tell).unwrap_err();
        assert_eq!((error.to_string().as_str(), told), ("enough", 3));
    }

    #[test]
    fn detached_work_ends_with_its_receiver() {
        let results = detached(jobs(2), 0_u64.., |piece| piece).unwrap();
        let first: Vec<u64> = results.iter().take(3).collect();
        assert_eq!(first.len(), 3);
        drop(results);
    }
}
