//! What the database of a log says of the log.

use redb::{Database, ReadableDatabase as _, TableDefinition, WriteTransaction};

use super::storage_error;
use crate::commit_log::engine::EngineError;
use crate::commit_log::engine::tail::{PAGE, Start, Tail, is_size_of_slots};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The key under which the version of the tables stands.
pub(super) const FORMAT: &str = "format";
/// The key under which the identity of the log stands.
pub(super) const IDENTITY: &str = "identity";
/// The key under which the key of the tail's checksums stands.
pub(super) const TAIL_KEY: &str = "tail key";
/// The key under which stands where the tail begins, how large its slots are, and a batch that is in it: five
/// numbers.
const TAIL: &str = "tail";

/// The version of the log in this database, if it has one.
///
/// # Errors
/// If it cannot be read.
pub(super) fn format(database: &Database) -> Result<Option<u32>, EngineError> {
    let Some(format) = find_meta(database, FORMAT)? else { return Ok(None) };
    let format = format.try_into().map_err(|_| EngineError::damaged("the format is no number"))?;
    Ok(Some(u32::from_le_bytes(format)))
}

fn find_meta(database: &Database, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
    let read = database.begin_read().map_err(storage_error)?;
    let meta = match read.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(storage_error(error)),
    };
    Ok(meta.get(key).map_err(storage_error)?.map(|value| value.value().to_vec()))
}

/// What stands under this key.
///
/// # Errors
/// If nothing does, or it cannot be read.
pub(super) fn meta(database: &Database, key: &str) -> Result<Vec<u8>, EngineError> {
    find_meta(database, key)?.ok_or_else(|| EngineError::damaged(format!("the log has no {key}")))
}

/// Sets what stands under these keys.
///
/// # Errors
/// If it cannot be written.
pub(super) fn set_meta(write: &WriteTransaction, values: &[(&str, &[u8])]) -> Result<(), redb::Error> {
    let mut meta = write.open_table(META)?;
    for (key, value) in values {
        meta.insert(*key, *value)?;
    }
    Ok(())
}

/// What a database says of the tail.
pub(super) struct TailPlace {
    pub(super) start: Start,
    /// Bytes of its slots.
    pub(super) slot_bytes: usize,
    /// The place of a batch that is in it, for certain.
    pub(super) last: u64,
}

/// What the database says of the tail.
///
/// # Errors
/// If it says nothing.
pub(super) fn tail_place(database: &Database) -> Result<TailPlace, EngineError> {
    let bytes = meta(database, TAIL)?;
    let numbers = match bytes.as_chunks() {
        (numbers, []) => <[[u8; 8]; 5]>::try_from(numbers).ok(),
        _ => None,
    };
    let [place, slot, offset, slot_bytes, last] = numbers.map_or([0; 5], |it| it.map(u64::from_le_bytes));
    let [offset, slot_bytes] = [offset, slot_bytes].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if place == 0 || !is_size_of_slots(slot_bytes) || offset > slot_bytes || !offset.is_multiple_of(PAGE) {
        return Err(EngineError::damaged("where its tail begins is not as it was written"));
    }
    Ok(TailPlace { start: Start { place, slot, offset }, slot_bytes, last })
}

/// Writes where the tail begins if the batches before `trim` are not needed any more, and returns it.
pub(super) fn set_tail(write: &WriteTransaction, tail: &Tail, trim: u64) -> Result<Start, redb::Error> {
    let start = tail.start_without(trim);
    let numbers = [start.place, start.slot, start.offset as u64, tail.slot_bytes() as u64, tail.last()];
    set_meta(write, &[(TAIL, numbers.map(u64::to_le_bytes).as_flattened())])?;
    Ok(start)
}
