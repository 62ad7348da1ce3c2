//! The events of an instance that has ended.
//!
//! Behind the last segment stands a trailer with the other data that are kept of the instance. The trailer is
//! no part of the log, and the budget of all logs does not count it.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use stickycas_model::compact_codec::{Decoder, Encoder};
use stickycas_model::history::Recorded;
use stickycas_model::types::Phase;
use stickycas_proto::log::v1::{self as log, Archive};

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

    /// The archive as a checkpoint has it, with the same bytes.
    pub(crate) fn to_log(&self) -> ArchivedEvents {
        let EventsView { first, forgotten, older: [older, _], .. } = self.view();
        let last = Segment {
            bytes: self.encoded.clone(),
            count: self.count,
            repeated: u32::try_from(self.repeated).unwrap_or(u32::MAX),
            last_step: self.last_step,
        };
        let segments = older.iter().chain([&last]).map(Segment::to_log).collect();
        let archive = Archive { segments, events_bytes: self.events };
        ArchivedEvents { first, forgotten, archive }
    }

    /// The archive of which a checkpoint has this; `None` if that is none, or if `check` says so of its
    /// trailer. While the budget is exceeded the oldest segments are left out that are above its share.
    pub(crate) fn from_log(
        archived: ArchivedEvents,
        budget: Arc<Budget>,
        check: impl FnOnce(&mut Decoder<'_>) -> bool,
    ) -> Option<Self> {
        let ArchivedEvents { first, forgotten, archive } = archived;
        let mut segments: Vec<Segment> = archive.segments.iter().map(Segment::from_log).collect();
        let Segment { bytes: encoded, count, repeated, last_step } = segments.pop()?;
        let older = (first > 0 || !segments.is_empty())
            .then(|| Box::new(OlderSegments { segments, first, forgotten }));
        let events = archive.events_bytes;
        let older_segments = older.iter().flat_map(|older| &older.segments);
        let is_whole = older_segments.map(|it| behind(&it.bytes, it.count)).all(|rest| rest.is_some())
            && events as usize <= encoded.len()
            && behind(&encoded, count).is_some_and(|mut trailer| check(&mut trailer));
        if !is_whole {
            return None;
        }
        let mut archived =
            Self { encoded, events, count, repeated: repeated as usize, last_step, older, budget };
        archived.budget.hold(archived.held());
        while archived.budget.share().is_some_and(|share| archived.held() > share) && archived.drop_oldest() {
        }
        Some(archived)
    }

    /// Drops the oldest segment; false if it is the only one.
    fn drop_oldest(&mut self) -> bool {
        let Some(older) = self.older.as_mut().filter(|older| !older.segments.is_empty()) else {
            return false;
        };
        let oldest = older.segments.remove(0);
        older.first += u64::from(oldest.count);
        older.forgotten = oldest.last_step.or(older.forgotten);
        self.budget.shrink(oldest.size());
        true
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

/// An [`ArchivedLog`] as a checkpoint has it.
#[derive(Debug)]
pub(crate) struct ArchivedEvents {
    /// The index of the oldest event kept, and the last phase whose step is not kept.
    pub(crate) first: u64,
    pub(crate) forgotten: Option<Phase>,
    pub(crate) archive: Archive,
}

impl Segment {
    fn to_log(&self) -> log::Segment {
        log::Segment {
            encoded: Bytes::from_owner(self.bytes.clone()),
            count: self.count,
            last_phase: self.last_step.map_or(0, Phase::get),
            repeated_bytes: self.repeated,
        }
    }

    fn from_log(segment: &log::Segment) -> Self {
        Self {
            bytes: (*segment.encoded).into(),
            count: segment.count,
            repeated: segment.repeated_bytes,
            last_step: Phase::new(segment.last_phase),
        }
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
        behind(&self.encoded, self.count).expect("the events are there")
    }
}

/// The bytes behind so many events; `None` if there are fewer.
fn behind(bytes: &[u8], count: u32) -> Option<Decoder<'_>> {
    let mut events = EventDecoder::new(bytes);
    (0..count).try_for_each(|_| events.read().map(drop))?;
    Some(events.into_rest())
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
    fn an_archive_is_in_a_checkpoint_as_it_is() {
        let budget = Arc::new(Budget::new(usize::MAX));
        for events in [0, 3, 3 * SEGMENT as u64 + 7] {
            let archived = long(events).archive(|out| out.number(77_u64));
            let from_log = |archived, budget: &Arc<Budget>| {
                ArchivedLog::from_log(archived, budget.clone(), |trailer| trailer.number() == Some(77))
            };
            let again = from_log(archived.to_log(), &budget).unwrap();
            assert_eq!((again.view().first, again.view().next_index()), (0, events));
            assert_eq!(again.view().from(0, usize::MAX), archived.view().from(0, usize::MAX));
            assert_eq!(again.view().oldest_phase(), archived.view().oldest_phase());
            assert_eq!(again.trailer().reader().number(), Some(77));
            assert_eq!((again.size(), again.repeated_bytes()), (archived.size(), archived.repeated_bytes()));
            assert_eq!((budget.held(), budget.logs()), (again.held(), 1));
            let (mut empty, mut cut) = (archived.to_log(), archived.to_log());
            empty.archive.segments.clear();
            cut.archive.events_bytes = u32::MAX;
            let mut fewer = archived.to_log();
            fewer.archive.segments.iter_mut().for_each(|segment| segment.count += 1);
            for none in [empty, cut, fewer] {
                assert!(from_log(none, &budget).is_none());
            }
            let forgotten = Phase::new(2);
            let later = ArchivedEvents { first: 5, forgotten, ..archived.to_log() };
            let later = from_log(later, &budget).unwrap().to_log();
            assert_eq!((later.first, later.forgotten), (5, forgotten));
            // Where the budget is exceeded it leaves out whole segments.
            let small = Arc::new(Budget::new(archived.held() / 2));
            let small = from_log(archived.to_log(), &small).unwrap();
            let first = small.view().first;
            let expected = if events > SEGMENT as u64 { 2 * SEGMENT as u64 } else { 0 };
            assert_eq!((first, small.view().next_index()), (expected, events));
            assert_eq!(small.view().forgotten, (first > 0).then(|| Phase::new(first / 2).unwrap()));
        }
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
