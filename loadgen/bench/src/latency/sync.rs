//! The duration of a sync of the disk, without a server.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::variant::Timing;
use crate::disk;

/// Bytes that are written before a sync: a page of the log's database.
const PAGE: usize = 4096;
/// Pages of the file, written one after the other, and then again from the first.
const PAGES: u64 = 256;

/// Writes a page and syncs it, so many times in a row; and all of that this many times.
pub(super) fn repeat(directory: &Path, times: usize, syncs: usize) -> anyhow::Result<Vec<Timing>> {
    let folder = disk::folder(directory, "sync")?;
    let file = File::create(folder.path().join("file"))?;
    // Whole from the beginning: a file that grows has its new length synced too.
    file.write_all_at(&vec![0; PAGE * usize::try_from(PAGES)?], 0)?;
    file.sync_all()?;
    let (mut timings, mut written) = (Vec::new(), 0);
    for _ in 0..times {
        let started = Instant::now();
        for _ in 0..syncs {
            file.write_all_at(&[1; PAGE], written % PAGES * PAGE as u64)?;
            file.sync_data()?;
            written += 1;
        }
        timings.push(Timing { create: Duration::ZERO, decide: started.elapsed() });
    }
    Ok(timings)
}
