//! A log in files of our own: two segments that take turns.
//!
//! A batch stands in its segment behind its length, its place and the checksum of all of it. Each file has
//! its whole size from the beginning and is written over, so that a sync has no new length to write. Trimming
//! is the change to the other segment: all that is still needed of the log stands in one segment.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::BatchLog;

/// See the module.
pub(super) struct SegmentLog {
    segments: [File; 2],
    current: usize,
    offset: u64,
    frame: Vec<u8>,
}

impl SegmentLog {
    /// A new log in this folder; `tail`: bytes of batches after which it is trimmed.
    pub(super) fn create(folder: &Path, tail: u64) -> anyhow::Result<Self> {
        // For the heads of its batches, and for the last batch.
        let margin = tail / 32 + (2 << 20);
        let segment = |name: &str| -> anyhow::Result<File> {
            let file = File::create(folder.join(name))?;
            let zeros = vec![0; 1 << 20];
            for mebibyte in 0..(tail + margin) >> 20 {
                file.write_all_at(&zeros, mebibyte << 20)?;
            }
            file.sync_all()?;
            Ok(file)
        };
        Ok(Self { segments: [segment("0")?, segment("1")?], current: 0, offset: 0, frame: Vec::new() })
    }
}

impl BatchLog for SegmentLog {
    fn append(&mut self, place: u64, batch: &[u8], trim: Option<u64>) -> anyhow::Result<()> {
        if trim.is_some() {
            (self.current, self.offset) = (1 - self.current, 0);
        }
        self.frame.clear();
        self.frame.extend((batch.len() as u64).to_le_bytes());
        self.frame.extend(place.to_le_bytes());
        self.frame.extend(batch);
        let checksum = crc32fast::hash(&self.frame);
        self.frame.extend(checksum.to_le_bytes());
        let file = &self.segments[self.current];
        file.write_all_at(&self.frame, self.offset)?;
        file.sync_data()?;
        self.offset += self.frame.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trimmed_log_goes_on_in_the_other_segment() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = SegmentLog::create(folder.path(), 1 << 20).unwrap();
        log.append(1, b"one", None).unwrap();
        log.append(2, b"two", None).unwrap();
        log.append(3, b"three", Some(3)).unwrap();
        let values = |name: &str| {
            let bytes = std::fs::read(folder.path().join(name)).unwrap();
            let (mut at, mut values) = (0, Vec::new());
            loop {
                let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
                if length == 0 {
                    return values;
                }
                let end = at + 16 + length;
                let checksum = crc32fast::hash(&bytes[at..end]).to_le_bytes();
                assert_eq!(bytes[end..end + 4], checksum);
                values.push(String::from_utf8(bytes[at + 16..end].to_vec()).unwrap());
                at = end + 4;
            }
        };
        assert_eq!(values("0"), ["one", "two"]);
        assert_eq!(values("1"), ["three"]);
    }
}
