//! The file of a log that is read and never written. A database that was not closed in order is repaired when
//! it is opened: the few writes of the repair stay in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// Bytes of a block, the unit in which writes are kept.
const BLOCK: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub(super) struct ReadOnlyFile {
    file: File,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    length: u64,
    /// Bytes of the file that still count: behind them it was cut off.
    of_file: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl ReadOnlyFile {
    /// Opens the file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let written = Mutex::new(Written { length, of_file: length, blocks: BTreeMap::new() });
        Ok(Self { file, written })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of the file from here on, and zeros behind its end.
    fn read_file(&self, of_file: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let length = usize::try_from(of_file.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let (file, behind) = out.split_at_mut(length);
        behind.fill(0);
        self.file.read_exact_at(file, offset)
    }
}

/// The blocks that a range touches: the number of each, and where in it and in the range they meet.
fn blocks(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let position = offset + at as u64;
        let within = usize::try_from(position % BLOCK).expect("a block is small");
        let end = length.min(at + (BLOCK as usize - within));
        let part = at..end;
        at = end;
        (!part.is_empty()).then_some((position / BLOCK, within, part))
    })
}

impl StorageBackend for ReadOnlyFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > written.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_file(written.of_file, offset, out)?;
        if written.blocks.is_empty() {
            return Ok(());
        }
        for (number, within, part) in blocks(offset, out.len()) {
            if let Some(block) = written.blocks.get(&number) {
                out[part.clone()].copy_from_slice(&block[within..within + part.len()]);
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let written = &mut *self.written();
        written.of_file = written.of_file.min(length);
        written.blocks.split_off(&length.div_ceil(BLOCK));
        if let Some(block) = written.blocks.get_mut(&(length / BLOCK)) {
            block[usize::try_from(length % BLOCK).expect("a block is small")..].fill(0);
        }
        written.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let written = &mut *self.written();
        for (number, within, part) in blocks(offset, data.len()) {
            let block = match written.blocks.entry(number) {
                std::collections::btree_map::Entry::Occupied(block) => block.into_mut(),
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    let mut block = vec![0; BLOCK as usize];
                    self.read_file(written.of_file, number * BLOCK, &mut block)?;
                    vacant.insert(block)
                }
            };
            block[within..within + part.len()].copy_from_slice(&data[part]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_file_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| (number % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let read_only = ReadOnlyFile::open(&path).unwrap();
        let mut expected = bytes.clone();
        let check = |expected: &[u8]| {
            assert_eq!(read_only.len().unwrap(), expected.len() as u64);
            for range in [0..expected.len(), 1..4_097.min(expected.len()), expected.len() / 2..expected.len()]
            {
                let mut out = vec![9; range.len()];
                read_only.read(range.start as u64, &mut out).unwrap();
                assert_eq!(out, expected[range]);
            }
            let kind = read_only.read(1, &mut vec![0; expected.len()]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof);
        };
        check(&expected);
        for (offset, length) in [(0, 1), (4_095, 2), (100, 9_000), (19_000, 1_000)] {
            read_only.write(offset, &vec![255; length]).unwrap();
            expected[offset as usize..offset as usize + length].fill(255);
            check(&expected);
        }
        for length in [30_000, 8_300, 5_000, 25_000] {
            read_only.set_len(length as u64).unwrap();
            expected.resize(length, 0);
            check(&expected);
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
