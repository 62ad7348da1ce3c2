//! How far a recovery is, for the log of the program.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How often it is told.
const EVERY: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug)]
pub(super) struct Progress {
    /// The length of the file that is read. Not all of it is in use.
    file_bytes: Option<u64>,
    read: u64,
    told: Instant,
}

impl Progress {
    /// Nothing was read of a file of this length; `None`: it is not in a file.
    pub(super) fn new(file_bytes: Option<u64>, now: Instant) -> Self {
        Self { file_bytes, read: 0, told: now }
    }

    /// So many bytes are about to be replayed. The progress in words, if it is time to tell it.
    pub(super) fn add(&mut self, bytes: usize, now: Instant) -> Option<String> {
        let before = self.read;
        self.read += bytes as u64;
        if now.saturating_duration_since(self.told) < EVERY {
            return None;
        }
        self.told = now;
        let mut words = format!("{before} bytes");
        if let Some(all) = self.file_bytes {
            let _ = write!(words, " of a file of {all}");
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_every_few_seconds() {
        let begin = Instant::now();
        let mut progress = Progress::new(Some(9_000), begin);
        let mut told = Vec::new();
        for tenths in 0..100 {
            told.extend(progress.add(10, begin + Duration::from_millis(100 * tenths)));
        }
        assert_eq!(told, [300, 600, 900].map(|bytes| format!("{bytes} bytes of a file of 9000")));
        let mut unknown = Progress::new(None, begin);
        assert_eq!(unknown.add(10, begin + EVERY), Some("0 bytes".to_owned()));
    }
}
