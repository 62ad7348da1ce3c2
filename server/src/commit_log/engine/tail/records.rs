//! The records of a tail: how a part of a batch stands in the file, and how batches are found again.

use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use redb::StorageBackend;

use super::{Batch, KEY, PAGE, Start, is_size_of_slots};
use crate::commit_log::engine::EngineError;

/// The bit of a part's number that the last part has.
const LAST_PART: u32 = 1 << 31;
const CHECKSUM: usize = 16;
/// Bytes in front of a part.
pub(super) const HEADER: usize = CHECKSUM + 24;

/// The file of a tail, divided into slots of so many bytes.
#[derive(Clone)]
pub(super) struct Records {
    pub(super) file: Arc<dyn StorageBackend>,
    key: Arc<LessSafeKey>,
    pub(super) slot_bytes: usize,
}

/// The header of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The place of the batch.
    pub(super) place: u64,
    /// The opening of the log that wrote it.
    pub(super) session: u64,
    /// The number of the part, from 0.
    pub(super) part: u32,
    pub(super) is_last: bool,
}

/// A record that is as it was written.
pub(super) struct Record<'a> {
    pub(super) header: Header,
    part: &'a [u8],
    /// With the rest of its last page.
    bytes: usize,
}

/// A batch that was found, whole.
pub(super) struct Found<'a> {
    pub(super) batch: Batch,
    pub(super) content: &'a [u8],
    /// The slots up to its end, from that on in which the walk began.
    pub(super) slots: &'a [u64],
    /// Where it ends in the last of them.
    pub(super) end: usize,
}

impl Records {
    pub(super) fn new(file: Arc<dyn StorageBackend>, key: &[u8; KEY], slot_bytes: usize) -> Self {
        debug_assert!(is_size_of_slots(slot_bytes), "a slot is whole pages");
        let key = UnboundKey::new(&AES_256_GCM, key).expect("it has the length of a key");
        Self { file, key: Arc::new(LessSafeKey::new(key)), slot_bytes }
    }

    /// The place of a slot in the file.
    pub(super) fn offset(&self, slot: u64) -> u64 {
        slot * self.slot_bytes as u64
    }

    /// A part, as it stands in the file.
    pub(super) fn encode(&self, header: Header, part: &[u8]) -> Vec<u8> {
        let length = u32::try_from(part.len()).expect("a part is smaller than a slot");
        let number = header.part | if header.is_last { LAST_PART } else { 0 };
        let pages = (HEADER + part.len()).next_multiple_of(PAGE);
        let mut record = Vec::with_capacity(pages);
        record.extend([0; CHECKSUM]);
        record.extend(length.to_le_bytes());
        record.extend(number.to_le_bytes());
        record.extend(header.place.to_le_bytes());
        record.extend(header.session.to_le_bytes());
        record.extend(part);
        let checksum = self.checksum(header, &record[CHECKSUM..]);
        record[..CHECKSUM].copy_from_slice(&checksum);
        record.resize(pages, 0);
        record
    }

    /// No two records that are found have the same place, session and part. A part that is torn may have had
    /// those of another one; but nobody but the server sees checksums.
    fn checksum(&self, header: Header, bytes: &[u8]) -> [u8; CHECKSUM] {
        let Header { place, session, part, .. } = header;
        let [place, session] = [place, session].map(u64::to_le_bytes);
        let mut nonce = [0; NONCE_LEN];
        nonce[..6].copy_from_slice(&place[..6]);
        nonce[6..9].copy_from_slice(&session[..3]);
        nonce[9..].copy_from_slice(&part.to_le_bytes()[..3]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []);
        *tag.expect("a record is short enough").as_ref().first_chunk().expect("it has this length")
    }

    /// The record that these bytes begin with, if it is as it was written.
    pub(super) fn decode<'a>(&self, bytes: &'a [u8]) -> Option<Record<'a>> {
        let (checksum, record) = bytes.split_first_chunk()?;
        let (length, fields) = record.split_first_chunk()?;
        let (number, fields) = fields.split_first_chunk()?;
        let (place, fields) = fields.split_first_chunk()?;
        let (session, rest) = fields.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (part, number) = (rest.get(..length)?, u32::from_le_bytes(*number));
        let header = Header {
            place: u64::from_le_bytes(*place),
            session: u64::from_le_bytes(*session),
            part: number & !LAST_PART,
            is_last: number & LAST_PART != 0,
        };
        let is_intact = self.checksum(header, &record[..HEADER - CHECKSUM + length]) == *checksum;
        is_intact.then(|| Record { header, part, bytes: (HEADER + length).next_multiple_of(PAGE) })
    }

    pub(super) fn slot(&self, slot: u64) -> Result<Vec<u8>, EngineError> {
        let mut content = vec![0; self.slot_bytes];
        self.file.read(self.offset(slot), &mut content).map_err(|error| super::failed(&error))?;
        Ok(content)
    }

    /// Gives the headers of all records in these slots to `visit`, with slot and offset, whether their
    /// batches are needed or not.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn headers(
        &self,
        slots: impl Iterator<Item = u64>,
        mut visit: impl FnMut(u64, usize, Header),
    ) -> Result<(), EngineError> {
        for slot in slots {
            let (content, mut at) = (self.slot(slot)?, 0);
            while at < self.slot_bytes {
                let record = self.decode(&content[at..]);
                if let Some(record) = &record {
                    visit(slot, at, record.header);
                }
                // What stands in a record is of clients, and is not looked at.
                at += record.map_or(PAGE, |record| record.bytes);
            }
        }
        Ok(())
    }

    /// Visits the batches from `start` on, as long as they are whole and follow each other. `next_slot`: the
    /// slot that begins with this part of this batch; a part that is not the first, of this session.
    ///
    /// # Errors
    /// If the file cannot be read; or that of `visit`.
    pub(super) fn walk(
        &self,
        start: Start,
        mut next_slot: impl FnMut(&Header) -> Option<u64>,
        visit: &mut dyn FnMut(Found<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let (mut slots, mut at) = (vec![start.slot], start.offset);
        let mut content = self.slot(start.slot)?;
        let mut expected = Header { place: start.place, session: 0, part: 0, is_last: false };
        let (mut whole, mut batch) = (Vec::new(), Batch { start, bytes: 0 });
        loop {
            if at == self.slot_bytes {
                let Some(next) = next_slot(&expected) else { return Ok(()) };
                slots.push(next);
                (at, content) = (0, self.slot(next)?);
            }
            let Some(Record { header, part, bytes }) = self.decode(&content[at..]) else { return Ok(()) };
            if expected.part == 0 {
                expected.session = header.session;
                let slot = *slots.last().expect("it begins in one");
                batch = Batch { start: Start { place: expected.place, slot, offset: at }, bytes: 0 };
            }
            if (header.place, header.part, header.session)
                != (expected.place, expected.part, expected.session)
            {
                return Ok(());
            }
            (at, batch.bytes) = (at + bytes, batch.bytes + bytes as u64);
            whole.extend_from_slice(part);
            if !header.is_last {
                expected.part += 1;
                continue;
            }
            visit(Found { batch, content: &whole, slots: &slots, end: at })?;
            whole.clear();
            (expected.place, expected.part) = (expected.place + 1, 0);
        }
    }
}
