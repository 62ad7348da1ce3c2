//! Values with a checksum of their own.
//!
//! The database has checksums of its pages and verifies them when it is opened. It does not when it reads a page again
//! later, and a damage that it finds has no name. So each value carries a checksum of its table, its key and its bytes,
//! which is verified whenever it is read. It is no protection against those who may write the disk.

use super::EngineError;

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
pub(super) fn open<'a>(table: &str, key: u64, sealed: &'a [u8]) -> Result<&'a [u8], EngineError> {
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
