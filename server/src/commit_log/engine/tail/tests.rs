use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use super::*;

const KEY_BYTES: [u8; KEY] = [7; KEY];
const SLOT_BYTES: usize = 4 * PAGE;
const FIRST: Start = Start { place: 1, slot: 0, offset: 0 };

/// A file that shares its content.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Pages>>);

/// The pages of a file, as the system holds them and as the disk does.
#[derive(Debug, Default)]
struct Pages {
    content: Vec<u8>,
    on_disk: Vec<u8>,
    /// Bytes that the next sync writes.
    unsynced: Vec<Range<usize>>,
    /// The next sync fails: what it was to write is taken for written.
    fails: bool,
    /// So many reads later, one gives a bit that is not there.
    misread_in: Option<u32>,
}

impl Shared {
    fn of(content: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Pages { on_disk: content.clone(), content, ..Pages::default() })))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap()
    }

    fn content(&self) -> Vec<u8> {
        self.pages().content.clone()
    }

    fn create(&self) -> Tail {
        Tail::create(Arc::new(self.clone()), &KEY_BYTES, SLOT_BYTES).unwrap()
    }

    fn open(&self, start: Start, last: u64) -> Result<Tail, EngineError> {
        Tail::open(Arc::new(self.clone()), &KEY_BYTES, SLOT_BYTES, start, last)
    }
}

impl StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        Ok(self.pages().content.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (mut pages, start) = (self.pages(), offset as usize);
        out.copy_from_slice(pages.content.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        pages.misread_in = match pages.misread_in {
            Some(0) => {
                out[HEADER] ^= 1;
                None
            }
            reads => reads.map(|reads| reads - 1),
        };
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let pages = &mut *self.pages();
        pages.content.resize(length as usize, 0);
        pages.on_disk.resize(length as usize, 0);
        pages.unsynced.retain(|range| range.end <= length as usize);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let Pages { content, on_disk, unsynced, fails, .. } = &mut *self.pages();
        let unsynced = std::mem::take(unsynced);
        if std::mem::take(fails) {
            return Err(io::Error::other("an error of the disk"));
        }
        unsynced.into_iter().for_each(|range| on_disk[range.clone()].copy_from_slice(&content[range]));
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (pages, range) = (&mut *self.pages(), offset as usize..offset as usize + data.len());
        pages.content[range.clone()].copy_from_slice(data);
        pages.unsynced.push(range);
        Ok(())
    }
}

/// The content of the batch at this place: some take several slots.
fn batch(place: u64) -> Vec<u8> {
    let bytes = [1, 30, PAGE - HEADER, PAGE, 3 * SLOT_BYTES, 0, SLOT_BYTES - HEADER][place as usize % 7];
    (0..bytes).map(|byte| (byte as u64 ^ place) as u8).collect()
}

fn append(tail: &mut Tail, places: Range<u64>) {
    places.for_each(|place| tail.append(place, &batch(place)).unwrap());
    tail.sync().unwrap();
}

fn read(tail: &mut Tail) -> Result<Vec<u64>, EngineError> {
    let mut places = Vec::new();
    let read = tail.begin_read().read(&mut |stored| {
        let Stored::Batch(place, content) = stored else { panic!("a tail has batches alone") };
        assert_eq!(content, batch(place));
        places.push(place);
        Ok(())
    });
    tail.end_read();
    read.map(|()| places)
}

#[test]
fn what_was_appended_is_read_and_found_again() {
    let file = Shared::default();
    let mut tail = file.create();
    assert!(read(&mut tail).unwrap().is_empty());
    for last in 1..30 {
        append(&mut tail, last..last + 1);
        assert_eq!(read(&mut tail).unwrap(), (1..=last).collect::<Vec<_>>());
        let mut found = file.open(FIRST, last).unwrap();
        assert_eq!((found.last(), found.bytes()), (tail.last(), tail.bytes()));
        assert_eq!(read(&mut found).unwrap(), (1..=last).collect::<Vec<_>>());
        // Every other batch is written by another opening.
        if last % 2 == 0 {
            tail = found;
        }
    }
}

#[test]
fn slots_are_used_again() {
    let file = Shared::default();
    let (mut tail, mut start) = (file.create(), FIRST);
    for round in 0..40 {
        let places = 1 + round * 7..8 + round * 7;
        append(&mut tail, places.clone());
        start = tail.start_without(places.start + 3);
        assert_eq!(start.place, places.start + 3);
        tail.trim(start);
        assert_eq!(read(&mut tail).unwrap(), (places.start + 3..places.end).collect::<Vec<_>>());
        if round % 3 == 0 {
            tail = file.open(start, tail.last()).unwrap();
        }
    }
    assert!(file.content().len() <= 20 * SLOT_BYTES, "it has {} bytes", file.content().len());
    assert_eq!(tail.start_without(u64::MAX).place, tail.last(), "the last one stays");
    assert_eq!(read(&mut file.open(start, 0).unwrap()).unwrap().first(), Some(&start.place));
}

#[test]
fn a_reader_keeps_what_is_trimmed() {
    let file = Shared::default();
    let mut tail = file.create();
    append(&mut tail, 1..10);
    let (extent, mut places) = (tail.begin_read(), Vec::new());
    tail.trim(tail.start_without(9));
    append(&mut tail, 10..30);
    let visit = &mut |stored: Stored<'_>| {
        let Stored::Batch(place, content) = stored else { panic!("a tail has batches alone") };
        assert_eq!(content, batch(place));
        places.push(place);
        Ok(())
    };
    extent.read(visit).unwrap();
    assert_eq!(places, (1..10).collect::<Vec<_>>());
    let free = tail.free.len();
    tail.end_read();
    assert!(tail.free.len() > free, "its slots are free");
}

/// A torn batch may have left any of its pages.
#[test]
fn a_torn_batch_is_cut_off_and_never_mixed_with_another() {
    let file = Shared::default();
    let mut tail = file.create();
    append(&mut tail, 1..4);
    let before = file.content();
    append(&mut tail, 4..5);
    let after = file.content();
    let pages = (0..after.len() / PAGE).map(|page| page * PAGE..(page + 1) * PAGE);
    let written: Vec<_> =
        pages.filter(|page| before.get(page.clone()) != Some(&after[page.clone()])).collect();
    assert!(written.len() > 8, "it takes several slots");
    // No page, every page, and patterns.
    for kept in
        [0, u64::MAX].into_iter().chain((1..60).map(|seed: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    {
        let mut torn = before.clone();
        torn.resize(after.len(), 0);
        for (_, page) in written.iter().enumerate().filter(|(number, _)| kept >> (number % 64) & 1 == 1) {
            torn[page.clone()].copy_from_slice(&after[page.clone()]);
        }
        let torn = Shared::of(torn);
        let mut tail = torn.open(FIRST, 3).unwrap();
        if kept == u64::MAX {
            assert_eq!(read(&mut tail).unwrap(), [1, 2, 3, 4], "nothing is missing");
            continue;
        }
        assert_eq!(read(&mut tail).unwrap(), [1, 2, 3], "{kept:b}");
        // Another batch has its place, which may be torn too.
        let other = vec![9; 2 * SLOT_BYTES];
        tail.append(4, &other).unwrap();
        let whole = torn.content();
        let mut found = torn.open(FIRST, 3).unwrap();
        let mut last = Vec::new();
        found
            .begin_read()
            .read(&mut |stored| {
                if let Stored::Batch(_, content) = stored {
                    last = content.to_vec();
                }
                Ok(())
            })
            .unwrap();
        assert!(found.last() == 4 && last == other, "{kept:b}");
        // Without one of its slots it is cut off.
        let mut torn_again = whole;
        let first = torn_again.chunks(PAGE).position(|page| page.ends_with(&[9; 64])).unwrap() * PAGE;
        torn_again[first..first + PAGE].fill(0);
        let mut found = Shared::of(torn_again).open(FIRST, 3).unwrap();
        assert_eq!(read(&mut found).unwrap(), [1, 2, 3], "{kept:b}");
    }
}

/// After a sync that failed, the system takes what was not written for written.
#[test]
fn a_batch_that_is_found_again_is_on_the_disk() {
    for place in 4..12 {
        let file = Shared::default();
        let mut tail = file.create();
        append(&mut tail, 1..place);
        tail.append(place, &batch(place)).unwrap();
        file.pages().fails = true;
        tail.sync().unwrap_err();
        let mut found = file.open(FIRST, place - 1).unwrap();
        assert_eq!(read(&mut found).unwrap(), (1..=place).collect::<Vec<_>>());
        let mut after_loss_of_power = Shared::of(file.pages().on_disk.clone()).open(FIRST, 0).unwrap();
        assert_eq!(read(&mut after_loss_of_power).unwrap(), (1..=place).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_misread_is_not_written() {
    let file = Shared::default();
    append(&mut file.create(), 1..2);
    // The slot is read for its headers, for its batches, and to be written again.
    file.pages().misread_in = Some(2);
    assert!(file.open(FIRST, 0).unwrap_err().is_damage());
    assert_eq!(read(&mut file.open(FIRST, 0).unwrap()).unwrap(), [1]);
}

#[test]
fn damage_before_the_last_batch_is_named() {
    let file = Shared::default();
    let mut tail = file.create();
    append(&mut tail, 1..9);
    let content = file.content();
    for at in (0..content.len()).step_by(61) {
        let mut flipped = content.clone();
        flipped[at] ^= 1 << (at % 8);
        match Shared::of(flipped).open(FIRST, 0) {
            Ok(mut found) => {
                let places = read(&mut found).unwrap();
                // A rest of a page says nothing.
                assert!(places.len() >= 7, "{at}: {places:?}");
            }
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
    }
    let cut = |length| Shared::of(content[..length].to_vec()).open(FIRST, 8);
    for length in [0, 1, SLOT_BYTES, SLOT_BYTES + 1, content.len() - SLOT_BYTES, content.len() - 1] {
        assert!(cut(length).unwrap_err().is_damage(), "{length}");
    }
    assert!(cut(content.len()).is_ok());
    let other = Tail::open(Arc::new(file), &[8; KEY], SLOT_BYTES, FIRST, 8);
    assert!(other.unwrap_err().is_damage(), "the tail of another log");
}
