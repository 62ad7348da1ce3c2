//! The engine of one server with a disk: the [tail](super::tail) in a file of its own, and checkpoints in an
//! embedded database, redb.
//!
//! A batch is durable in the tail before the checkpoints that are written with it, and these are before the
//! tail is trimmed. So whatever is cut off, each instance has its checkpoint or the records that it covers.
//!
//! Each transaction of the database takes two syncs: the values in it come from hostile clients, and with a
//! single sync redb relies on a checksum that such a client could forge to tell a torn commit from a whole
//! one.
//!
//! When it is opened, the whole database is walked through and every page is compared with its checksum,
//! after a crash or not. Otherwise redb trusts what it finds: of flipped bits it noticed none in values, and
//! panicked at some. A recovery reads everything anyway.
//!
//! The database does not verify the checksum of a page that it reads again later, and a damage that it finds
//! has no name. So each checkpoint carries a checksum of its table, its key and its bytes besides, which is
//! verified whenever it is read. It is no protection against users that may write the disk.

mod database;
mod meta;
mod opening;
mod place;
mod table;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Database, Durability, ReadableDatabase as _, StorageBackend, TableDefinition, TableHandle as _,
    WriteTransaction,
};

use stickycas_certificates::private_files::create_private_file;

use self::database::{HEADER, LogDatabase, warn_if_cut_off};
use self::meta::{IDENTITY, format, meta, set_tail};
use self::opening::{make, open};
use self::place::FilePlace;
use self::table::{SEAL, read_table, seal};
use super::read_only::ReadOnlyFile;
use super::tail::{self, Tail};
use super::{Done, Engine, EngineError, Outcome, StoreUsage, Stored, Visit, WriteBatch};
use crate::limits::LOG_CACHE;
use crate::memory::Memory;

/// The batches of a log of format 1.
const BATCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");
const CHECKPOINTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("checkpoints");
/// The version of the log that this program writes.
const FORMAT_VERSION: u32 = 2;
/// The version of a log whose batches are in the database.
const WITHOUT_TAIL: u32 = 1;
/// Memory for pages that the database has read or will write, where everything is read or written in its
/// order: little is needed twice.
const SMALL_CACHE: usize = 4 * 1024 * 1024;

/// See the module.
pub(crate) struct DiskEngine {
    database: LogDatabase,
    tail: Mutex<Tail>,
    /// Those of the log that are files.
    files: Vec<FilePlace>,
    checkpoints: Mutex<StoreUsage>,
    /// The batch that [`Self::write_last`] has noted.
    noted: AtomicU64,
}

/// The two files of a log, or what stands for them.
pub(crate) struct Files<D> {
    pub(crate) database: D,
    pub(crate) tail: D,
}

impl fmt::Debug for DiskEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskEngine").finish_non_exhaustive()
    }
}

impl DiskEngine {
    /// Makes a new log in these files, which do not exist.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(crate) fn create(paths: &Files<PathBuf>) -> Result<Self, EngineError> {
        let database = builder(SMALL_CACHE).create(&paths.database).map_err(storage_error)?;
        let tail =
            make_tail_file(paths).and_then(|()| File::options().read(true).write(true).open(&paths.tail));
        Self::with(database, file(tail), |database, tail| make(database, tail, tail::SLOT))
    }

    /// Opens the log in these files.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or has a newer format.
    pub(crate) fn open(paths: &Files<PathBuf>) -> Result<Self, EngineError> {
        let mut header = Vec::new();
        if let Ok(file) = File::open(&paths.database) {
            let read = file.take(HEADER as u64).read_to_end(&mut header);
            read.map_err(storage_error)?;
        }
        let database = builder(cache_size()).open(&paths.database).map_err(storage_error)?;
        warn_if_cut_off(&header);
        if has_no_tail(&database)? {
            make_tail_file(paths).map_err(storage_error)?;
        }
        let tail = File::options().read(true).write(true).open(&paths.tail);
        let mut engine = Self::with(database, file(tail), |database, tail| open(database, tail, tail::SLOT))?;
        for path in [&paths.database, &paths.tail] {
            engine.files.push(FilePlace::of(path).map_err(storage_error)?);
        }
        Ok(engine)
    }

    /// Opens the log in these files, which are not written.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_to_read(paths: &Files<PathBuf>) -> Result<Self, EngineError> {
        let database = ReadOnlyFile::open(&paths.database).map_err(storage_error)?;
        if database.len().map_err(storage_error)? == 0 {
            return Err(EngineError::damaged("it is no log: it is empty"));
        }
        let opened = || {
            let database = open_backend(database, SMALL_CACHE)?;
            let tail: Arc<dyn StorageBackend> = match ReadOnlyFile::open(&paths.tail) {
                Ok(tail) => Arc::new(tail),
                Err(_) if has_no_tail(&database)? => Arc::new(InMemoryBackend::new()),
                Err(error) => return Err(tail_error(&error)),
            };
            Self::with(database, Ok(tail), |database, tail| open(database, tail, tail::SLOT))
        };
        // Other pages than those of a log may make the database panic.
        let opened = catch_unwind(AssertUnwindSafe(opened));
        opened.unwrap_or_else(|_| Err(EngineError::damaged("it is no log: its database cannot be opened")))
    }

    /// A log in memory.
    ///
    /// # Errors
    /// None that is known.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Result<Self, EngineError> {
        let database = builder(cache_size()).create_with_backend(InMemoryBackend::new());
        let file: Arc<dyn StorageBackend> = Arc::new(InMemoryBackend::new());
        let make = |database: &Database, tail| make(database, tail, 4 * tail::PAGE);
        Self::with(database.map_err(storage_error)?, Ok(file), make)
    }

    /// Opens the log in these files, or makes one if they are empty, with slots of so many bytes in its tail.
    ///
    /// # Errors
    /// As [`Self::open`].
    #[cfg(feature = "simulation")]
    pub(crate) fn on(files: Files<impl StorageBackend>, slot_bytes: usize) -> Result<Self, EngineError> {
        let is_new = files.database.len().map_err(storage_error)? == 0;
        let database = open_backend(files.database, cache_size())?;
        let open = if is_new { make } else { open };
        Self::with(database, Ok(Arc::new(files.tail)), |database, tail| open(database, tail, slot_bytes))
    }

    fn with(
        database: Database,
        tail: Result<Arc<dyn StorageBackend>, EngineError>,
        open: impl FnOnce(&Database, Arc<dyn StorageBackend>) -> Result<Tail, EngineError>,
    ) -> Result<Self, EngineError> {
        let database = LogDatabase::from(database);
        let tail = tail.and_then(|tail| open(&database, tail)).inspect_err(|_| database.give_up())?;
        let (tail, files, checkpoints) = (Mutex::new(tail), Vec::new(), Mutex::default());
        Ok(Self { database, tail, files, checkpoints, noted: AtomicU64::new(0) })
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the log.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn close(self) -> Result<(), EngineError> {
        self.write_last().map_err(storage_error)
    }

    /// Notes the place of the last batch, so that its loss is noticed.
    fn write_last(&self) -> Result<(), redb::Error> {
        let tail = self.tail();
        if self.database.is_given_up() || self.noted.swap(tail.last(), Ordering::Relaxed) == tail.last() {
            return Ok(());
        }
        self.database.give_up();
        let write = begin(&self.database)?;
        set_tail(&write, &tail, 0)?;
        write.commit()?;
        self.database.keep();
        Ok(())
    }

    /// Gives back to the system the disk that is not in use.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn compact(&mut self) -> Result<bool, EngineError> {
        let is_smaller = self.database.compact().map_err(storage_error)?;
        self.tail().shrink().map_err(storage_error)?;
        Ok(is_smaller)
    }

    /// Adds what `fill` gives to the function that it gets, all of it or nothing.
    ///
    /// # Errors
    /// That of `fill`; or if it cannot be written.
    pub(crate) fn fill<T, E: From<EngineError>>(
        &self,
        fill: impl FnOnce(Visit<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tail = self.tail();
        let write = begin(&self.database).map_err(storage_error)?;
        // Until it has succeeded.
        self.database.give_up();
        let filled = {
            let mut checkpoints = write.open_table(CHECKPOINTS).map_err(storage_error)?;
            fill(&mut |stored| match stored {
                Stored::Checkpoint(instance, state) => {
                    let inserted = checkpoints.insert(instance, &*seal(CHECKPOINTS.name(), instance, state));
                    inserted.map(drop).map_err(storage_error)
                }
                Stored::Batch(place, batch) => tail.append(place, batch).map_err(storage_error),
            })?
        };
        tail.sync().map_err(storage_error)?;
        set_tail(&write, &tail, 0).map_err(storage_error)?;
        write.commit().map_err(storage_error)?;
        self.database.keep();
        Ok(filled)
    }

    fn commit(&self, write: &WriteBatch) -> Result<(), redb::Error> {
        let mut tail = self.tail();
        tail.append(write.log_index, &write.batch)?;
        tail.sync()?;
        if write.checkpoints.is_empty() && write.trim.is_none() {
            return Ok(());
        }
        let mut usage = *self.checkpoints();
        let transaction = begin(&self.database)?;
        {
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
        let start = set_tail(&transaction, &tail, write.trim.unwrap_or(0))?;
        transaction.commit()?;
        tail.trim(start);
        *self.checkpoints() = usage;
        Ok(())
    }

    fn checkpoints(&self) -> MutexGuard<'_, StoreUsage> {
        self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who reads the tail, until this is dropped.
struct Reading<'a>(&'a DiskEngine);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.tail().end_read();
    }
}

impl Drop for DiskEngine {
    fn drop(&mut self) {
        if let Err(error) = self.write_last() {
            tracing::warn!(%error, "the end of the log cannot be written");
        }
    }
}

/// Makes an empty file of the tail, of the owner of the database, whose name is on the disk.
fn make_tail_file(paths: &Files<PathBuf>) -> io::Result<()> {
    match fs::remove_file(&paths.tail) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (made, owner) = (create_private_file(&paths.tail)?, paths.database.metadata()?);
    if made.metadata()?.uid() != owner.uid() {
        fchown(&made, Some(owner.uid()), Some(owner.gid()))?;
    }
    let folder = paths.tail.parent().expect("a file is in a folder");
    File::open(folder)?.sync_all()
}

/// An open file of the tail.
fn file(opened: io::Result<File>) -> Result<Arc<dyn StorageBackend>, EngineError> {
    let opened = opened.map_err(|error| tail_error(&error))?;
    Ok(Arc::new(FileBackend::new(opened).map_err(storage_error)?))
}

fn tail_error(error: &io::Error) -> EngineError {
    if error.kind() == io::ErrorKind::NotFound {
        return EngineError::damaged(
            "the file of its tail is missing: put both files in the folder, or restore a backup (stickycas-server data)",
        );
    }
    EngineError::failed(format!("its tail: {error}"))
}

fn open_backend(backend: impl StorageBackend, cache: usize) -> Result<Database, EngineError> {
    let mut header =
        vec![0; backend.len().map_or(0, |length| HEADER.min(usize::try_from(length).unwrap_or(0)))];
    backend.read(0, &mut header).map_err(storage_error)?;
    let database = builder(cache).create_with_backend(backend).map_err(storage_error)?;
    warn_if_cut_off(&header);
    Ok(database)
}

fn has_no_tail(database: &Database) -> Result<bool, EngineError> {
    Ok(format(database)? == Some(WITHOUT_TAIL))
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

fn begin(database: &Database) -> Result<WriteTransaction, redb::Error> {
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

impl Engine for DiskEngine {
    fn depth(&self) -> usize {
        1
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        // Until it has succeeded.
        self.database.give_up();
        let committed = self.commit(&batch).map_err(storage_error);
        // In a file that has been removed nobody finds it again.
        done(match committed.and_then(|()| self.check_place()) {
            Ok(()) => {
                self.database.keep();
                Outcome::Committed
            }
            Err(error) => {
                self.files.iter().for_each(FilePlace::drop_cached);
                Outcome::Unknown(error)
            }
        });
    }

    fn read(&self, visit: Visit<'_>) -> Result<(), EngineError> {
        let (extent, read) = {
            let mut tail = self.tail();
            (tail.begin_read(), self.database.begin_read())
        };
        let _reading = Reading(self);
        let (read, mut usage) = (read.map_err(storage_error)?, StoreUsage::default());
        let checkpoints = read.open_table(CHECKPOINTS).map_err(storage_error)?;
        read_table(&checkpoints, CHECKPOINTS.name(), |instance, state| {
            usage.replace_checkpoint(None, Some(state.len()));
            visit(Stored::Checkpoint(instance, state))
        })?;
        extent.read(visit)?;
        *self.checkpoints() = usage;
        Ok(())
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        meta(&self.database, IDENTITY)
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage { batches: self.tail().bytes(), ..*self.checkpoints() }
    }

    fn check_place(&self) -> Result<(), EngineError> {
        self.files.iter().try_for_each(FilePlace::check).inspect_err(|_| self.database.give_up())
    }
}

#[cfg(test)]
mod tests;
