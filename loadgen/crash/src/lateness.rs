//! How long a thread of this machine waits for its turn.
//!
//! Patience is a total over the life of an instance, and on a machine that gives clients no turn a correct process may spend
//! it through no fault of the server. A thread that sleeps and looks how late it wakes measures that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the thread sleeps.
const BEAT: Duration = Duration::from_millis(10);

/// See the module. The thread ends with it.
#[derive(Debug)]
pub(crate) struct Lateness(Arc<AtomicU64>);

impl Lateness {
    /// Begins to measure.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn measure() -> std::io::Result<Self> {
        let late = Arc::new(AtomicU64::new(0));
        let shared = Arc::downgrade(&late);
        thread::Builder::new().name("lateness".to_owned()).spawn(move || {
            while let Some(late) = shared.upgrade() {
                let asleep = Instant::now();
                thread::sleep(BEAT);
                let nanos = asleep.elapsed().saturating_sub(BEAT).as_nanos();
                late.fetch_add(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        })?;
        Ok(Self(late))
    }

    /// By how much the thread has woken too late so far, in all.
    pub(crate) fn so_far(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
