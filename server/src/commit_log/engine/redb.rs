//! The engine of one server with a disk: an embedded database, redb.
//!
//! Each write is one transaction and so one sync of the disk, or rather two: the values in it come from
//! hostile clients, and with a single sync redb relies on a checksum that such a client could forge to tell a
//! torn commit from a whole one.
//!
//! When it is opened, the whole database is walked through and every page is compared with its checksum,
//! after a crash or not. Otherwise redb trusts what it finds: of flipped bits it noticed none in values, and
//! panicked at some. A recovery reads everything anyway.
//!
//! The database does not verify the checksum of a page that it reads again later, and a damage that it finds
//! has no name. So each value carries a checksum of its table, its key and its bytes besides, which is
//! verified whenever it is read. It is no protection against users that may write the disk.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use redb::{
    Database, Durability, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata, TableDefinition,
    TableHandle as _,
};

use super::read_only::ReadOnlyFile;
use super::{Done, Engine, EngineError, Outcome, StoreUsage, Stored, Visit, WriteBatch};
use crate::limits::LOG_CACHE;
use crate::memory::Memory;

const BATCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");
const CHECKPOINTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("checkpoints");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The key of META under which the version of the tables stands.
const FORMAT: &str = "format";
/// The key of META under which the identity of the log stands.
const IDENTITY: &str = "identity";
/// The version of the tables that this program reads and writes.
const FORMAT_VERSION: u32 = 1;
/// Bytes at the start of a database that [`NOT_CLOSED`] is in.
const HEADER: usize = FLAGS + 1;
/// The place of the flags in a database.
const FLAGS: usize = 9;
/// The flag that a database has as long as it is open.
const NOT_CLOSED: u8 = 2;
/// Memory for pages that the database has read or will write, where everything is read or written in its
/// order: little is needed twice.
const SMALL_CACHE: usize = 4 * 1024 * 1024;

/// See the module.
pub(crate) struct RedbEngine {
    database: Database,
    /// `None`: it is no file.
    file: Option<FilePlace>,
    usage: Mutex<StoreUsage>,
}

impl fmt::Debug for RedbEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbEngine").finish_non_exhaustive()
    }
}

impl RedbEngine {
    /// Makes a new database in this file, which does not exist.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self, EngineError> {
        Self::new(builder(SMALL_CACHE).create(path).map_err(storage_error)?, &[], None)
    }

    /// Opens the database in this file.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or has a newer format.
    pub(crate) fn open(path: &Path) -> Result<Self, EngineError> {
        let mut header = Vec::new();
        if let Ok(file) = File::open(path) {
            let read = file.take(HEADER as u64).read_to_end(&mut header);
            read.map_err(storage_error)?;
        }
        let database = builder(cache_size()).open(path).map_err(storage_error)?;
        let file = FilePlace::of(path).map_err(storage_error)?;
        Self::new(database, &header, Some(file))
    }

    /// Opens the database in this file, which is not written.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_to_read(path: &Path) -> Result<Self, EngineError> {
        let file = ReadOnlyFile::open(path).map_err(storage_error)?;
        if redb::StorageBackend::len(&file).map_err(storage_error)? == 0 {
            return Err(EngineError::damaged("it is no log: it is empty"));
        }
        // Other pages than those of a log may make the database panic.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::on(file, SMALL_CACHE)));
        opened.unwrap_or_else(|_| Err(EngineError::damaged("it is no log: its database cannot be opened")))
    }

    /// A database in memory.
    ///
    /// # Errors
    /// None that is known.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Result<Self, EngineError> {
        let backend = redb::backends::InMemoryBackend::new();
        Self::new(builder(cache_size()).create_with_backend(backend).map_err(storage_error)?, &[], None)
    }

    /// Opens the database that this backend keeps.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[cfg(feature = "simulation")]
    pub(crate) fn with_backend(backend: impl redb::StorageBackend) -> Result<Self, EngineError> {
        Self::on(backend, cache_size())
    }

    fn on(backend: impl redb::StorageBackend, cache: usize) -> Result<Self, EngineError> {
        let mut header =
            vec![0; backend.len().map_or(0, |length| HEADER.min(usize::try_from(length).unwrap_or(0)))];
        backend.read(0, &mut header).map_err(storage_error)?;
        Self::new(builder(cache).create_with_backend(backend).map_err(storage_error)?, &header, None)
    }

    /// `header`: the first bytes as they were before it was opened.
    fn new(database: Database, header: &[u8], file: Option<FilePlace>) -> Result<Self, EngineError> {
        if was_cut_off(header) {
            tracing::warn!(
                "the server before this one did not end in order: what it had written and not committed is cut off"
            );
        }
        let engine = Self { database, file, usage: Mutex::default() };
        match engine.format()? {
            Some(FORMAT_VERSION) => {}
            Some(newer) => {
                return Err(EngineError::failed(format!(
                    "the log has format {newer}, and this program knows formats up to {FORMAT_VERSION}: use a newer \
                     stickycas-server"
                )));
            }
            None if header.is_empty() => engine.create_tables().map_err(storage_error)?,
            None => return Err(EngineError::damaged("it is no log: it has no format")),
        }
        Ok(engine)
    }

    /// Closes the database.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn close(self) -> Result<(), EngineError> {
        self.database.close().map_err(storage_error)
    }

    fn format(&self) -> Result<Option<u32>, EngineError> {
        let read = self.database.begin_read().map_err(storage_error)?;
        let meta = match read.open_table(META) {
            Ok(meta) => meta,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(storage_error(error)),
        };
        let Some(format) = meta.get(FORMAT).map_err(storage_error)? else { return Ok(None) };
        let format =
            format.value().try_into().map_err(|_| EngineError::damaged("the format is no number"))?;
        Ok(Some(u32::from_le_bytes(format)))
    }

    /// Gives back to the system the disk that is not in use.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn compact(&mut self) -> Result<bool, EngineError> {
        self.database.compact().map_err(storage_error)
    }

    /// Adds what `fill` gives to the function that it gets, all of it or nothing.
    ///
    /// # Errors
    /// That of `fill`; or if it cannot be written.
    pub(crate) fn fill<T, E: From<EngineError>>(
        &self,
        fill: impl FnOnce(Visit<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let write = begin(&self.database).map_err(storage_error)?;
        let filled = {
            let mut batches = write.open_table(BATCHES).map_err(storage_error)?;
            let mut checkpoints = write.open_table(CHECKPOINTS).map_err(storage_error)?;
            fill(&mut |stored| {
                let inserted = match stored {
                    Stored::Checkpoint(instance, state) => {
                        checkpoints.insert(instance, &*seal(CHECKPOINTS.name(), instance, state))
                    }
                    Stored::Batch(log_index, batch) => {
                        batches.insert(log_index, &*seal(BATCHES.name(), log_index, batch))
                    }
                };
                inserted.map(drop).map_err(storage_error)
            })?
        };
        write.commit().map_err(storage_error)?;
        Ok(filled)
    }

    fn create_tables(&self) -> Result<(), redb::Error> {
        let write = begin(&self.database)?;
        {
            let mut meta = write.open_table(META)?;
            meta.insert(FORMAT, FORMAT_VERSION.to_le_bytes().as_slice())?;
            meta.insert(IDENTITY, rand::random::<[u8; 16]>().as_slice())?;
        }
        write.open_table(BATCHES)?;
        write.open_table(CHECKPOINTS)?;
        write.commit()?;
        Ok(())
    }

    fn commit(&self, write: &WriteBatch) -> Result<(), redb::Error> {
        let mut usage = Engine::usage(self);
        let transaction = begin(&self.database)?;
        {
            let mut batches = transaction.open_table(BATCHES)?;
            batches.insert(write.log_index, &*seal(BATCHES.name(), write.log_index, &write.batch))?;
            usage.batches += write.batch.len() as u64;
            if let Some(trim) = write.trim {
                batches.retain_in(..trim, |_, batch| {
                    usage.batches = usage.batches.saturating_sub(batch.len().saturating_sub(SEAL) as u64);
                    false
                })?;
            }
        }
        if !write.checkpoints.is_empty() {
            let mut checkpoints = transaction.open_table(CHECKPOINTS)?;
            for (instance, state) in &write.checkpoints {
                let before = match state {
                    Some(state) => {
                        checkpoints.insert(*instance, &*seal(CHECKPOINTS.name(), *instance, state))?
                    }
                    None => checkpoints.remove(*instance)?,
                };
                let before = before.map(|before| before.value().len().saturating_sub(SEAL));
                usage.replace_checkpoint(before, state.as_ref().map(Vec::len));
            }
        }
        transaction.commit()?;
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        Ok(())
    }
}

/// Whether the last commit to a database that begins with these bytes may be cut off when it is opened.
fn was_cut_off(header: &[u8]) -> bool {
    header.get(FLAGS).is_some_and(|flags| flags & NOT_CLOSED != 0)
}

/// The place of the file of a log when it was opened.
struct FilePlace {
    path: PathBuf,
    id: (u64, u64),
}

impl FilePlace {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: file_id(path)? })
    }

    fn check(&self) -> Result<(), EngineError> {
        match file_id(&self.path) {
            Ok(id) if id == self.id => Ok(()),
            // It may still be there.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            _ => {
                tracing::error!(
                    "{} was removed or replaced, or its folder or mount, while the server uses it",
                    self.path.display()
                );
                Err(EngineError::failed("its file was removed or replaced"))
            }
        }
    }
}

/// Of which file system a file is, and which one there.
fn file_id(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// The number of rows stands in another page than the rows: none has been overlooked.
fn check_count(table: &impl ReadableTableMetadata, name: &str, found: u64) -> Result<(), EngineError> {
    let rows = table.len().map_err(storage_error)?;
    if rows == found {
        return Ok(());
    }
    Err(EngineError::damaged(format!("{found} rows were read from {name}, and {rows} were written")))
}

/// Memory for the pages of the log of a server.
fn cache_size() -> usize {
    usize::try_from(LOG_CACHE.with(Memory::of_process().bytes)).unwrap_or(usize::MAX)
}

fn builder(cache: usize) -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(cache);
    builder.set_check_integrity_on_open(true);
    builder
}

fn begin(database: &Database) -> Result<redb::WriteTransaction, redb::Error> {
    let mut write = database.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    write.set_two_phase_commit(true);
    Ok(write)
}

fn storage_error(error: impl Into<redb::Error>) -> EngineError {
    match error.into() {
        redb::Error::Corrupted(what) => EngineError::damaged(format!(
            "its pages are not as they were written ({what}), so nothing is served from it: restore a backup \
             (stickycas-server data)"
        )),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => EngineError::damaged(
            "it was cut off: it is shorter than what was written into it: restore a backup (stickycas-server data)",
        ),
        redb::Error::Io(error)
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) =>
        {
            EngineError::damaged(format!(
                "it is no log ({error}): give another folder, or restore a backup in one (stickycas-server data)"
            ))
        }
        // No version of this program has written another format.
        error @ redb::Error::UpgradeRequired(_) => EngineError::damaged(format!("it is no log ({error})")),
        error => EngineError::failed(error.to_string()),
    }
}

impl Engine for RedbEngine {
    fn depth(&self) -> usize {
        1
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        let committed = self.commit(&batch).map_err(storage_error);
        // In a file that has been removed nobody finds it again.
        done(match committed.and_then(|()| self.check_place()) {
            Ok(()) => Outcome::Committed,
            Err(error) => Outcome::Unknown(error),
        });
    }

    fn read(&self, visit: Visit<'_>) -> Result<(), EngineError> {
        let read = self.database.begin_read().map_err(storage_error)?;
        let checkpoints = read.open_table(CHECKPOINTS).map_err(storage_error)?;
        let (mut usage, mut count) = (StoreUsage::default(), 0);
        for row in checkpoints.iter().map_err(storage_error)? {
            let (instance, state) = row.map_err(storage_error)?;
            let (instance, state) = (instance.value(), state.value());
            let state = open(CHECKPOINTS.name(), instance, state)?;
            usage.replace_checkpoint(None, Some(state.len()));
            visit(Stored::Checkpoint(instance, state))?;
        }
        check_count(&checkpoints, CHECKPOINTS.name(), usage.checkpoint_count)?;
        let batches = read.open_table(BATCHES).map_err(storage_error)?;
        for row in batches.iter().map_err(storage_error)? {
            let (log_index, batch) = row.map_err(storage_error)?;
            let (log_index, batch) = (log_index.value(), batch.value());
            let batch = open(BATCHES.name(), log_index, batch)?;
            usage.batches += batch.len() as u64;
            visit(Stored::Batch(log_index, batch))?;
            count += 1;
        }
        check_count(&batches, BATCHES.name(), count)?;
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = usage;
        Ok(())
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        let read = self.database.begin_read().map_err(storage_error)?;
        let meta = read.open_table(META).map_err(storage_error)?;
        let identity = meta.get(IDENTITY).map_err(storage_error)?;
        identity.map(|it| it.value().to_vec()).ok_or_else(|| EngineError::damaged("the log has no identity"))
    }

    fn usage(&self) -> StoreUsage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_place(&self) -> Result<(), EngineError> {
        self.file.as_ref().map_or(Ok(()), FilePlace::check)
    }
}

/// Bytes that a sealed value has more.
const SEAL: usize = size_of::<u32>();

/// The value and, behind it, its checksum.
fn seal(table: &str, key: u64, value: &[u8]) -> Vec<u8> {
    [value, &checksum_of(table, key, value).to_le_bytes()].concat()
}

/// The value in these bytes.
///
/// # Errors
/// If they are not as they were written.
fn open<'a>(table: &str, key: u64, sealed: &'a [u8]) -> Result<&'a [u8], EngineError> {
    let parts = sealed.split_last_chunk::<SEAL>();
    let intact = parts.filter(|(value, checksum)| checksum_of(table, key, value).to_le_bytes() == **checksum);
    intact.map(|(value, _)| value).ok_or_else(|| {
        let bytes = sealed.len();
        EngineError::damaged(format!("the {bytes} bytes under {key} in {table} are not as they were written"))
    })
}

fn checksum_of(table: &str, key: u64, value: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(table.as_bytes());
    checksum.update(&key.to_le_bytes());
    checksum.update(value);
    checksum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_a_newer_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let engine = RedbEngine::create(&path).unwrap();
        let write = begin(&engine.database).unwrap();
        let newer = (FORMAT_VERSION + 1).to_le_bytes();
        write.open_table(META).unwrap().insert(FORMAT, newer.as_slice()).unwrap();
        write.commit().unwrap();
        engine.close().unwrap();
        let refused = RedbEngine::open(&path).unwrap_err().to_string();
        let expected =
            "the log has format 2, and this program knows formats up to 1: use a newer stickycas-server";
        assert_eq!(refused, expected);
    }

    #[test]
    fn what_was_cut_off_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let header = || was_cut_off(&std::fs::read(&path).unwrap());
        let engine = RedbEngine::create(&path).unwrap();
        engine.write(WriteBatch { log_index: 1, ..WriteBatch::default() }, Box::new(|_| ()));
        assert!(header(), "as a crash would leave it");
        engine.close().unwrap();
        assert!(!header(), "it was closed");
        assert!(!was_cut_off(&[]), "a new log");
    }

    #[test]
    fn a_sealed_value_opens_under_its_own_key_and_unchanged() {
        let value = b"a value";
        let sealed = seal("batches", 3, value);
        assert_eq!(open("batches", 3, &sealed).unwrap(), value);
        let refused = open("batches", 4, &sealed).unwrap_err().to_string();
        assert_eq!(refused, "the 11 bytes under 4 in batches are not as they were written");
        open("checkpoints", 3, &sealed).unwrap_err();
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            open("batches", 3, &flipped).unwrap_err();
        }
        for shorter in 0..sealed.len() {
            open("batches", 3, &sealed[..shorter]).unwrap_err();
        }
    }
}
