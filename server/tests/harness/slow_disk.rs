//! A disk that tells commits when the test says so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redb::backends::InMemoryBackend;
use stickycas_server::simulation::{Disk, StorageBackend};
use tokio::sync::watch;

use super::with_timeout;

/// See the module. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct SlowDisk {
    files: [SharedFile; 2],
    tells: watch::Sender<bool>,
    /// Commits that are written and not told.
    waiting: Arc<AtomicUsize>,
}

impl SlowDisk {
    /// A disk that tells every commit at once, or none.
    pub(crate) fn new(tells: bool) -> Self {
        let (tells, waiting) = (watch::channel(tells).0, Arc::default());
        let files = [(); 2].map(|()| SharedFile(Arc::new(InMemoryBackend::new())));
        Self { files, tells, waiting }
    }

    /// Tells the commits that wait and all later ones; or no more.
    pub(crate) fn set_tells(&self, tells: bool) {
        self.tells.send_replace(tells);
    }

    /// Waits until there is a commit that is not told.
    pub(crate) async fn until_waiting(&self) {
        with_timeout(async {
            while self.waiting.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A test that has failed does not wait for the disk either.
impl Drop for SlowDisk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.set_tells(true);
        }
    }
}

impl Disk for SlowDisk {
    type File = SharedFile;

    fn files(&self) -> [SharedFile; 2] {
        self.files.clone()
    }

    async fn tell(&self, _: bool) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let told = self.tells.subscribe().wait_for(|tells| *tells).await.is_ok();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        told
    }
}

/// A file whose clones are the same file.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile(Arc<InMemoryBackend>);

impl StorageBackend for SharedFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
