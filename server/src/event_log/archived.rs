//! The events of an instance that has ended.
//!
//! Behind the last segment stands a trailer with the other data that are kept of the instance. The trailer is
//! no part of the log, and the budget of all logs does not count it.

use std::collections::VecDeque;
use std::sync::Arc;

use stickycas_model::compact_codec::{Decoder, Encoder};
use stickycas_model::history::Recorded;
use stickycas_model::types::Phase;

use super::budget::Budget;
use super::codec::EventDecoder;
use super::read::{EventsView, Segment, SegmentBytes, SegmentView};
use super::segments::{EventLog, OpenSegment};

impl EventLog {
    /// The instance has ended: takes everything out of the log. `trailer` writes the rest of the archive.
    pub(crate) fn archive(&mut self, trailer: impl FnOnce(&mut Encoder)) -> ArchivedLog {
        let OpenSegment { mut encoded, count, last_step, .. } = std::mem::take(&mut self.open);
        let events = u32::try_from(encoded.bytes().len()).expect("a segment of events takes less than 4 GiB");
        let repeated = encoded.repeated_bytes();
        trailer(&mut encoded);
        // Outside the archive, the trailer has each value once more that the events have.
        let repeated = repeated + encoded.remembered_bytes();
        let older = (self.first > 0 || !self.segments.is_empty()).then(|| {
            let segments = std::mem::take(&mut self.segments).into();
            Box::new(OlderSegments { segments, first: self.first, forgotten: self.forgotten })
        });
        let budget = self.holding.release();
        let archived = ArchivedLog {
            encoded: encoded.bytes().into(),
            events,
            count,
            repeated,
            last_step,
            older,
            budget,
        };
        archived.budget.hold(archived.held());
        archived
    }
}

/// The events of an instance that has ended, and a trailer with the other data that are kept of the instance.
#[derive(Debug)]
pub(crate) struct ArchivedLog {
    /// The last segment, and behind it the trailer.
    encoded: Arc<[u8]>,
    /// Bytes of the segment.
    events: u32,
    /// Events in it.
    count: u32,
    /// Bytes of values that stand in the segment or in the trailer and would stand there once more if values
    /// were not remembered.
    repeated: usize,
    last_step: Option<Phase>,
    /// The segments before the last one; `None` if there never was one.
    older: Option<Box<OlderSegments>>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct OlderSegments {
    segments: Vec<Segment>,
    first: u64,
    forgotten: Option<Phase>,
}

impl ArchivedLog {
    /// Bytes that it takes, with the trailer.
    pub(crate) fn size(&self) -> usize {
        self.encoded.len() - self.events as usize + self.held()
    }

    /// The bytes that it would take more if each event, and the trailer, had its values in full.
    pub(crate) fn repeated_bytes(&self) -> usize {
        let older = self.older.iter().flat_map(|older| &older.segments);
        self.repeated + older.map(|segment| segment.repeated as usize).sum::<usize>()
    }

    /// Bytes that its events take.
    pub(super) fn held(&self) -> usize {
        let older = self.older.iter().flat_map(|older| &older.segments).map(Segment::size);
        self.events as usize + older.sum::<usize>()
    }

    /// The trailer, which is read without a lock on the instance.
    pub(crate) fn trailer(&self) -> Trailer {
        Trailer { encoded: self.encoded.clone(), count: self.count }
    }

    /// A log that goes on from here, of at most `limit` events.
    pub(crate) fn reopen(&mut self, limit: usize) -> EventLog {
        let mut open = OpenSegment::default();
        self.last().events().for_each(|Recorded { at, event }| open.add(at, &event));
        let budget = self.budget.clone();
        // The budget counts one log less only when this is dropped; the new log is counted from here on.
        self.budget.shrink(self.held());
        let (segments, first, forgotten) = match self.older.take() {
            Some(older) => (older.segments.into(), older.first, older.forgotten),
            None => (VecDeque::new(), 0, None),
        };
        (self.encoded, self.events) = (Arc::default(), 0);
        let mut log = EventLog { segments, open, first, forgotten, ..EventLog::new(limit, budget) };
        log.count = usize::try_from(log.view().next_index() - first).expect("so many are in memory");
        let held = log.segments.iter().map(Segment::size).sum::<usize>() + log.open.encoded.bytes().len();
        log.holding.add(held);
        log.holding.resolve();
        log
    }

    /// The log as its readers see it.
    pub(crate) fn view(&self) -> EventsView<'_> {
        let last = self.last();
        match &self.older {
            Some(older) => {
                let OlderSegments { segments, first, forgotten } = &**older;
                EventsView { first: *first, forgotten: *forgotten, older: [segments, &[]], last }
            }
            None => EventsView { first: 0, forgotten: None, older: [&[], &[]], last },
        }
    }

    fn last(&self) -> SegmentView<'_> {
        let bytes = SegmentBytes::Closed(&self.encoded);
        SegmentView { bytes, count: self.count, last_step: self.last_step }
    }
}

/// The bytes behind the events of an [`ArchivedLog`].
#[derive(Debug)]
pub(crate) struct Trailer {
    encoded: Arc<[u8]>,
    /// The number of events before it.
    count: u32,
}

impl Trailer {
    /// Reads the trailer from its beginning.
    pub(crate) fn reader(&self) -> Decoder<'_> {
        let mut events = EventDecoder::new(&self.encoded);
        (0..self.count).for_each(|_| drop(events.read()));
        events.into_rest()
    }
}

impl Drop for ArchivedLog {
    fn drop(&mut self) {
        self.budget.release(self.held());
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::history::Event;
    use stickycas_model::types::Time;

    use super::super::segments::SEGMENT;
    use super::super::segments::tests::{long, stepped};
    use super::*;

    #[test]
    fn a_log_that_is_archived_and_reopened_counts_once() {
        let budget = Arc::new(Budget::new(usize::MAX));
        let mut log = EventLog::new(usize::MAX, budget.clone());
        for _ in 0..3 {
            log.extend(Time::ZERO, &[const { Event::Finished }; 300]);
            let mut archived = log.archive(|_| ());
            log = archived.reopen(usize::MAX);
            drop(archived);
            assert_eq!(budget.logs(), 1);
        }
        drop(log);
        assert_eq!((budget.held(), budget.logs()), (0, 0));
    }

    #[test]
    fn a_log_reads_the_same_archived_and_reopened() {
        let segment = SEGMENT as u64;
        for events in [0, 1, segment - 1, segment, segment + 1, 3 * segment + 7] {
            let mut log = long(events);
            let expected: Vec<Recorded> = (0..events)
                .map(|index| Recorded { at: Time::from_nanos(index), event: stepped(1 + index / 2) })
                .collect();
            let check = |what: &dyn Fn(u64, usize) -> Option<Vec<Recorded>>| {
                assert_eq!(what(0, usize::MAX).unwrap(), expected);
                for start in [1, segment - 1, segment, segment + 5, 2 * segment] {
                    let rest = expected.iter().skip(start as usize).take(200);
                    assert!(what(start, 200).unwrap().iter().eq(rest), "from {start} of {events}");
                }
            };
            check(&|index, limit| log.view().from(index, limit));
            let mut archived = log.archive(|out| out.number(77_u64));
            check(&|index, limit| archived.view().from(index, limit));
            assert_eq!(archived.view().next_index(), events);
            assert_eq!(archived.trailer().reader().number(), Some(77));
            let reopened = archived.reopen(usize::MAX);
            check(&|index, limit| reopened.view().from(index, limit));
            assert_eq!((reopened.view().next_index(), reopened.count as u64), (events, events));
        }
    }
}
