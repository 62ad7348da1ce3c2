//! A table of the database of a log, whose values carry checksums.

use redb::{ReadableTable, ReadableTableMetadata};

use super::storage_error;
use crate::commit_log::engine::EngineError;

/// Gives the rows of a table to `visit`.
///
/// # Errors
/// If they are not as they were written, or not all there; or that of `visit`.
pub(super) fn read_table(
    table: &impl ReadableTable<u64, &'static [u8]>,
    name: &str,
    mut visit: impl FnMut(u64, &[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut count = 0;
    for row in table.iter().map_err(storage_error)? {
        let (key, value) = row.map_err(storage_error)?;
        let (key, value) = (key.value(), value.value());
        visit(key, open(name, key, value)?)?;
        count += 1;
    }
    check_count(table, name, count)
}

/// The number of rows stands in another page than the rows: none has been overlooked.
fn check_count(table: &impl ReadableTableMetadata, name: &str, found: u64) -> Result<(), EngineError> {
    let rows = table.len().map_err(storage_error)?;
    if rows == found {
        return Ok(());
    }
    Err(EngineError::damaged(format!("{found} rows were read from {name}, and {rows} were written")))
}

/// Bytes that a sealed value has more.
pub(super) const SEAL: usize = size_of::<u32>();

/// The value and, behind it, its checksum.
pub(super) fn seal(table: &str, key: u64, value: &[u8]) -> Vec<u8> {
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
