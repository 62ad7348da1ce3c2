use std::ops::Range;
use std::sync::Mutex;

use super::*;

const KEY_BYTES: [u8; KEY] = [7; KEY];
const SLOT_BYTES: usize = 4 * PAGE;
const FIRST: Start = Start { place: 1, slot: 0, offset: 0 };

/// A file that shares its content.
#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn of(content: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(content)))
    }

    fn content(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
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
        Ok(self.0.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let content = self.0.lock().unwrap();
        let start = offset as usize;
        out.copy_from_slice(content.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let start = offset as usize;
        self.0.lock().unwrap()[start..start + data.len()].copy_from_slice(data);
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
        let mut torn_again = whole;
        let first = torn_again.len() - SLOT_BYTES;
        torn_again[first..].fill(0);
        let found = Shared::of(torn_again).open(FIRST, 3);
        assert!(found.is_ok_and(|found| found.last() <= 4));
    }
}

#[test]
fn damage_before_the_last_batch_is_named() {
    let file = Shared::default();
    let mut tail = file.create();
    append(&mut tail, 1..9);
    let (content, last) = (file.content(), tail.batches.back().unwrap().bytes as usize);
    let expected = batch(8);
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
    assert!(last >= expected.len());
    let cut = |length| Shared::of(content[..length].to_vec()).open(FIRST, 8);
    for length in [0, 1, SLOT_BYTES, SLOT_BYTES + 1, content.len() - SLOT_BYTES, content.len() - 1] {
        assert!(cut(length).unwrap_err().is_damage(), "{length}");
    }
    assert!(cut(content.len()).is_ok());
    let other = Tail::open(Arc::new(file), &[8; KEY], SLOT_BYTES, FIRST, 8);
    assert!(other.unwrap_err().is_damage(), "the tail of another log");
}
