//! How a log is made and opened.

use std::sync::Arc;

use redb::{Database, ReadableDatabase as _, StorageBackend, TableHandle as _, WriteTransaction};

use super::meta::{FORMAT, IDENTITY, TAIL_KEY, format, meta, set_meta, set_tail, tail_place};
use super::table::read_table;
use super::{BATCHES, CHECKPOINTS, FORMAT_VERSION, WITHOUT_TAIL, begin, storage_error};
use crate::commit_log::engine::EngineError;
use crate::commit_log::engine::tail::{self, Tail};

/// Makes a log in this database: returns its tail.
///
/// # Errors
/// If it cannot be written.
pub(super) fn make(
    database: &Database,
    tail: Arc<dyn StorageBackend>,
    slot_bytes: usize,
) -> Result<Tail, EngineError> {
    let key = rand::random::<[u8; tail::KEY]>();
    let tail = Tail::create(tail, &key, slot_bytes)?;
    let write = begin(database).map_err(storage_error)?;
    let identity = rand::random::<[u8; 16]>();
    set_meta(&write, &[(IDENTITY, &identity)]).map_err(storage_error)?;
    commit_new(write, &tail, &key).map_err(storage_error)?;
    Ok(tail)
}

/// Commits a tail that is new.
fn commit_new(write: WriteTransaction, tail: &Tail, key: &[u8]) -> Result<(), redb::Error> {
    set_meta(&write, &[(FORMAT, &FORMAT_VERSION.to_le_bytes()), (TAIL_KEY, key)])?;
    set_tail(&write, tail, 0)?;
    write.open_table(CHECKPOINTS)?;
    Ok(write.commit()?)
}

/// Opens the log in this database: returns its tail. One of format 1 gets a tail, which is made anew.
///
/// # Errors
/// If it cannot be read, is damaged, or has a newer format.
pub(super) fn open(
    database: &Database,
    tail: Arc<dyn StorageBackend>,
    slot_bytes: usize,
) -> Result<Tail, EngineError> {
    match format(database)? {
        Some(FORMAT_VERSION) => {
            let (key, place) = (meta(database, TAIL_KEY)?, tail_place(database)?);
            let key = key.as_slice().try_into();
            let key = key.map_err(|_| EngineError::damaged("the key of its tail is no key"))?;
            Tail::open(tail, key, place.slot_bytes, place.start, place.last)
        }
        Some(WITHOUT_TAIL) => convert(database, tail, slot_bytes),
        Some(newer) => Err(EngineError::failed(format!(
            "the log has format {newer}, and this program knows formats up to {FORMAT_VERSION}: use a newer \
             stickycas-server"
        ))),
        None => Err(EngineError::damaged("it is no log: it has no format")),
    }
}

/// Moves the batches of a log of format 1 into a tail. If that is cut off, the log has format 1 still.
fn convert(
    database: &Database,
    tail: Arc<dyn StorageBackend>,
    slot_bytes: usize,
) -> Result<Tail, EngineError> {
    let key = rand::random::<[u8; tail::KEY]>();
    let mut tail = Tail::create(tail, &key, slot_bytes)?;
    {
        let read = database.begin_read().map_err(storage_error)?;
        read_table(&read.open_table(BATCHES).map_err(storage_error)?, BATCHES.name(), |place, batch| {
            tail.append(place, batch).map_err(storage_error)
        })?;
    }
    tail.sync().map_err(storage_error)?;
    let write = begin(database).map_err(storage_error)?;
    write.delete_table(BATCHES).map_err(storage_error)?;
    commit_new(write, &tail, &key).map_err(storage_error)?;
    Ok(tail)
}
