//! The tail of a log: batches by place, in a file that is written in order.
//!
//! A batch costs one write and one sync. The file grows by whole slots, which are filled with zeros first,
//! and a slot is used again when no batch in it is needed any more: so a sync has no new length to write. A
//! batch that does not fit into the rest of its slot is divided. Each part of a batch is a record:
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | the checksum: an AES-256-GMAC of all that follows |
//! | 4, 4 | bytes of the part; its number in the batch, with the highest bit if it is the last |
//! | 8, 8 | the place of the batch; the session: the number of the opening that wrote it |
//! | | the part; and zeros up to the next page |
//!
//! No write touches a page in which a committed record stands, but that an opening writes the last batch once
//! more, with the same bytes. The key of the checksum is secret: clients choose bytes that stand in batches,
//! and these could pose as records.
//!
//! One batch is written at a time, so only the last one can be torn, and nobody was told that it was
//! committed: it is cut off. If a later batch is there, the log is damaged. A bit that has flipped in the
//! last batch looks the same, unless the log was closed in order.

mod records;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;

use self::records::{HEADER, Header, Records};
use super::{EngineError, Stored, Visit};

/// The unit of writes: a block of the file system, and a sector of most disks.
pub(super) const PAGE: usize = 4_096;
/// Bytes of the key of checksums.
pub(super) const KEY: usize = 32;
/// Bytes of a slot, in a log that is made now.
pub(super) const SLOT: usize = 4 << 20;

/// Whether slots may have so many bytes.
pub(super) fn is_size_of_slots(bytes: usize) -> bool {
    const MOST: usize = 1 << 30;
    bytes.is_multiple_of(PAGE) && (PAGE..=MOST).contains(&bytes)
}

/// See the module.
pub(super) struct Tail {
    records: Records,
    /// Slots of the file.
    slots: u64,
    /// The slots with batches that are needed, in order; the last one is written to.
    used: VecDeque<u64>,
    free: BTreeSet<u64>,
    /// Bytes of the last slot that are written.
    written: usize,
    session: u64,
    batches: VecDeque<Batch>,
    /// The place of the last batch.
    last: u64,
    bytes: u64,
    /// Those who read it now. Meanwhile no slot becomes free.
    readers: usize,
}

/// A batch in the tail.
#[derive(Clone, Copy, Debug)]
struct Batch {
    start: Start,
    /// With headers and the rests of pages.
    bytes: u64,
}

/// Where a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) place: u64,
    pub(super) slot: u64,
    /// In the slot.
    pub(super) offset: usize,
}

/// What is read of a tail, whatever is written meanwhile.
pub(super) struct Extent {
    records: Records,
    start: Start,
    slots: VecDeque<u64>,
    last: u64,
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail").field("last", &self.last).finish_non_exhaustive()
    }
}

fn failed(error: &io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            EngineError::damaged("its tail was cut off: it is shorter than what was written into it")
        }
        _ => EngineError::failed(error.to_string()),
    }
}

fn not_as_written(place: u64) -> EngineError {
    EngineError::damaged(format!("batch {place} in its tail is not as it was written"))
}

impl Tail {
    /// A tail without batches in this file, whatever stands in it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn create(
        file: Arc<dyn StorageBackend>,
        key: &[u8; KEY],
        slot_bytes: usize,
    ) -> Result<Self, EngineError> {
        file.set_len(0).map_err(|error| failed(&error))?;
        let mut tail = Self::new(Records::new(file, key, slot_bytes), 0, 0);
        tail.enter_slot().map_err(|error| failed(&error))?;
        Ok(tail)
    }

    fn new(records: Records, slots: u64, last: u64) -> Self {
        Self {
            records,
            slots,
            used: VecDeque::new(),
            free: BTreeSet::new(),
            written: 0,
            session: 1,
            batches: VecDeque::new(),
            last,
            bytes: 0,
            readers: 0,
        }
    }

    /// The tail in this file, from `start` on. `last`: the place of a batch that it had at least.
    ///
    /// # Errors
    /// If it cannot be read, or is not as it was written.
    pub(super) fn open(
        file: Arc<dyn StorageBackend>,
        key: &[u8; KEY],
        slot_bytes: usize,
        start: Start,
        last: u64,
    ) -> Result<Self, EngineError> {
        let length = file.len().map_err(|error| failed(&error))?;
        // A slot that was added before a loss of power may not be whole: nothing is in it.
        let slots = length / slot_bytes as u64;
        if start.slot >= slots {
            return Err(EngineError::damaged(format!("its tail was cut off: {length} bytes are left of it")));
        }
        let mut tail = Self::new(Records::new(file, key, slot_bytes), slots, start.place - 1);
        let (mut heads, mut latest) = (Vec::new(), 0);
        let records = tail.records.clone();
        records.headers(0..slots, |slot, offset, header| {
            if offset == 0 {
                heads.push((slot, header));
            }
            latest = latest.max(header.place);
            tail.session = tail.session.max(header.session + 1);
        })?;
        // Something may be left of a batch that was torn, in a slot that was not used again.
        let next_slot = |expected: &Header| {
            let fits = |(_, head): &&(u64, Header)| {
                (head.place, head.part) == (expected.place, expected.part)
                    && (expected.part == 0 || head.session == expected.session)
            };
            Some(heads.iter().filter(fits).max_by_key(|(_, head)| head.session)?.0)
        };
        tail.written = start.offset;
        tail.used.push_back(start.slot);
        records.walk(start, next_slot, &mut |found| {
            tail.used.extend(&found.slots[tail.used.len()..]);
            tail.written = found.end;
            tail.add(found.batch);
            Ok(())
        })?;
        tail.free = (0..slots).filter(|slot| !tail.used.contains(slot)).collect();
        // What was torn is the batch behind the last one.
        if tail.last < last.max(latest.saturating_sub(1)) {
            return Err(EngineError::damaged(format!(
                "its tail is whole up to batch {}, and later ones were written: restore a backup \
                 (stickycas-server data)",
                tail.last
            )));
        }
        // What a server before this one has written and not synced is served from now on.
        if tail.last > last {
            tail.write_last_again()?;
        }
        tail.sync().map_err(|error| failed(&error))?;
        Ok(tail)
    }

    /// Writes the bytes of the last batch once more: after a sync that failed, the system may take pages for
    /// written that are not on the disk, and would write them no more.
    fn write_last_again(&self) -> Result<(), EngineError> {
        let Some(Batch { start, .. }) = self.batches.back() else { return Ok(()) };
        let Records { file, slot_bytes, .. } = &self.records;
        let slots = self.used.iter().copied().skip_while(|slot| *slot != start.slot);
        for slot in slots {
            let from = if slot == start.slot { start.offset } else { 0 };
            let to = if Some(&slot) == self.used.back() { self.written } else { *slot_bytes };
            let content = self.records.slot(slot)?;
            let record = &content[from..to];
            if self.records.decode(record).is_none_or(|found| found.header.place != start.place) {
                return Err(not_as_written(start.place));
            }
            let written = file.write(self.records.offset(slot) + from as u64, record);
            written.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// Gives the slots at the end of the file that are free back to the system.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn shrink(&mut self) -> io::Result<()> {
        while self.free.remove(&(self.slots - 1)) {
            self.slots -= 1;
        }
        self.records.file.set_len(self.records.offset(self.slots))?;
        self.sync()
    }

    /// Writes a batch behind the others. It is durable after the next [`Self::sync`].
    ///
    /// # Errors
    /// If it cannot be written. Then nothing more may be.
    pub(super) fn append(&mut self, place: u64, batch: &[u8]) -> io::Result<()> {
        let is_first = self.batches.is_empty() && place > 0;
        if place != self.last + 1 && !is_first {
            let why = format!("batch {place} does not follow batch {}", self.last);
            return Err(io::Error::other(why));
        }
        let (mut rest, mut part, mut added) = (batch, 0, None);
        loop {
            if self.written == self.records.slot_bytes {
                self.enter_slot()?;
            }
            let slot = *self.used.back().expect("it is entered");
            let (now, later) = rest.split_at(rest.len().min(self.records.slot_bytes - self.written - HEADER));
            let header = Header { place, session: self.session, part, is_last: later.is_empty() };
            let record = self.records.encode(header, now);
            self.records.file.write(self.records.offset(slot) + self.written as u64, &record)?;
            let start = Start { place, slot, offset: self.written };
            added.get_or_insert(Batch { start, bytes: 0 }).bytes += record.len() as u64;
            self.written += record.len();
            (rest, part) = (later, part + 1);
            if rest.is_empty() {
                break;
            }
        }
        self.add(added.expect("it has a part"));
        Ok(())
    }

    fn add(&mut self, batch: Batch) {
        self.batches.push_back(batch);
        (self.last, self.bytes) = (batch.start.place, self.bytes + batch.bytes);
    }

    /// Goes on in a slot that is free, or new.
    fn enter_slot(&mut self) -> io::Result<()> {
        let slot = match self.free.pop_first() {
            Some(free) => free,
            None => {
                let (slot, file) = (self.slots, &self.records.file);
                file.set_len(self.records.offset(slot + 1))?;
                file.write(self.records.offset(slot), &vec![0; self.records.slot_bytes])?;
                file.sync_data()?;
                self.slots += 1;
                slot
            }
        };
        self.used.push_back(slot);
        self.written = 0;
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// If nobody knows whether it is. Then nothing more may be written.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.records.file.sync_data()
    }

    /// Where it begins when the batches before this place are not needed any more. The last one stays.
    pub(super) fn start_without(&self, before: u64) -> Start {
        let first = self.batches.iter().find(|batch| batch.start.place >= before).or(self.batches.back());
        let nothing = || Start { place: self.last + 1, slot: self.used[0], offset: self.written };
        first.map_or_else(nothing, |first| first.start)
    }

    /// It begins here from now on.
    pub(super) fn trim(&mut self, start: Start) {
        while let Some(batch) = self.batches.pop_front_if(|batch| batch.start.place < start.place) {
            self.bytes -= batch.bytes;
        }
        self.free_slots();
    }

    fn free_slots(&mut self) {
        let Start { slot: first, .. } = self.start_without(0);
        while self.readers == 0
            && let Some(slot) = self.used.pop_front_if(|slot| *slot != first)
        {
            self.free.insert(slot);
        }
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.records.slot_bytes
    }

    /// Bytes of the batches, with all that stands between them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of the last batch.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Begins to read it: no slot is used again before [`Self::end_read`].
    pub(super) fn begin_read(&mut self) -> Extent {
        self.readers += 1;
        let start = self.start_without(0);
        let slots = self.used.iter().copied().skip_while(|slot| *slot != start.slot).skip(1).collect();
        Extent { records: self.records.clone(), start, slots, last: self.last }
    }

    pub(super) fn end_read(&mut self) {
        self.readers -= 1;
        self.free_slots();
    }
}

impl Extent {
    /// Gives its batches to `visit`, in the order of their places.
    ///
    /// # Errors
    /// If they cannot be read, or are not as they were written; or that of `visit`.
    pub(super) fn read(mut self, visit: Visit<'_>) -> Result<(), EngineError> {
        let mut place = self.start.place - 1;
        let next_slot = |_: &Header| self.slots.pop_front();
        self.records.walk(self.start, next_slot, &mut |found| {
            place = found.batch.start.place;
            if place > self.last { Ok(()) } else { visit(Stored::Batch(place, found.content)) }
        })?;
        if place < self.last {
            return Err(not_as_written(place + 1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
