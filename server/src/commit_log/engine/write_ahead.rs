//! A file that is written with zeros ahead of the database that grows in it.
//!
//! The database makes its file longer without writing it, so the file system has to find room for each page at its
//! first write, and a sync then has to write the journal of the file system too. Where zeros were written before, a sync
//! has only the pages to write.
//!
//! Never touched is what a file held when it was opened, nor anything that was written since.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use redb::StorageBackend;

/// Bytes of zeros that are written at once.
const ZEROS: usize = 1024 * 1024;

/// A backend of a database in which zeros are written ahead of the data. The log of a server is on one; public for
/// programs that measure it.
#[derive(Debug)]
pub struct WriteAhead<B> {
    backend: B,
    /// How far ahead zeros are written.
    ahead: u64,
    /// Everything before this place has been written. Grows only under the lock.
    written: AtomicU64,
    growing: Mutex<()>,
}

impl WriteAhead<()> {
    /// How far ahead a server writes: some milliseconds of work of a disk, for as many commits as fill it.
    pub const BYTES: u64 = 16 * 1024 * 1024;
}

impl<B: StorageBackend> WriteAhead<B> {
    /// On this backend, whose content stays as it is. `ahead`: how many bytes of zeros are written ahead.
    ///
    /// # Errors
    /// If its length cannot be read.
    pub fn new(backend: B, ahead: u64) -> io::Result<Self> {
        let written = AtomicU64::new(backend.len()?);
        Ok(Self { backend, ahead, written, growing: Mutex::new(()) })
    }

    /// Writes zeros ahead of this place, which is to be written next, but not behind the end of the file.
    fn reach(&self, end: u64) -> io::Result<()> {
        if end <= self.written.load(Ordering::Acquire) {
            return Ok(());
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = self.written.load(Ordering::Acquire);
        if end <= written {
            return Ok(());
        }
        let until = end.saturating_add(self.ahead).min(self.backend.len()?).max(end);
        let zeros = vec![0; ZEROS];
        while written < until {
            let bytes = usize::try_from(until - written).map_or(ZEROS, |bytes| bytes.min(ZEROS));
            self.backend.write(written, &zeros[..bytes])?;
            written += bytes as u64;
        }
        self.written.store(until, Ordering::Release);
        Ok(())
    }
}

impl<B: StorageBackend> StorageBackend for WriteAhead<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        self.written.fetch_min(len, Ordering::AcqRel);
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.reach(offset + data.len() as u64)?;
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    fn content(file: &impl StorageBackend) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read(0, &mut content).unwrap();
        content
    }

    /// A backend that counts what it is given to write.
    #[derive(Debug, Default)]
    struct Counting(InMemoryBackend, AtomicU64);

    impl StorageBackend for Counting {
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
            self.1.fetch_add(data.len() as u64, Ordering::Relaxed);
            self.0.write(offset, data)
        }
    }

    #[test]
    fn zeros_are_written_once_and_only_ahead() {
        let file = WriteAhead::new(Counting::default(), 100).unwrap();
        let bytes = || file.backend.1.load(Ordering::Relaxed);
        file.set_len(1_000).unwrap();
        file.write(500, b"later").unwrap();
        assert_eq!(bytes(), 605 + 5, "up to 100 behind the end of the write");
        file.write(20, b"before").unwrap();
        file.write(600, b"ahead").unwrap();
        assert_eq!(bytes(), 610 + 6 + 5, "where zeros are, nothing but the data is written");
        file.write(990, b"at the end").unwrap();
        assert_eq!(bytes(), 621 + (1_000 - 605) + 10, "not behind the end of the file");
        let mut expected = vec![0; 1_000];
        for (place, data) in [(20, &b"before"[..]), (500, b"later"), (600, b"ahead"), (990, b"at the end")] {
            expected[place..place + data.len()].copy_from_slice(data);
        }
        assert_eq!(content(&file), expected);
    }

    #[test]
    fn what_a_file_held_when_it_was_opened_stays() {
        let backend = InMemoryBackend::new();
        backend.set_len(300).unwrap();
        backend.write(200, b"kept").unwrap();
        let file = WriteAhead::new(backend, 1_000).unwrap();
        file.write(10, b"new").unwrap();
        file.set_len(600).unwrap();
        file.write(400, b"more").unwrap();
        let content = content(&file);
        assert_eq!(
            (&content[10..13], &content[200..204], &content[400..404]),
            (&b"new"[..], &b"kept"[..], &b"more"[..])
        );
    }

    #[test]
    fn a_file_that_shrank_and_grew_again_is_written_again() {
        let file = WriteAhead::new(Counting::default(), 100).unwrap();
        file.set_len(200).unwrap();
        file.write(100, b"x").unwrap();
        file.set_len(50).unwrap();
        file.set_len(200).unwrap();
        let before = file.backend.1.load(Ordering::Relaxed);
        file.write(60, b"y").unwrap();
        assert_eq!(file.backend.1.load(Ordering::Relaxed) - before, 111 + 1);
        assert_eq!(content(&file)[60], b'y');
    }
}
