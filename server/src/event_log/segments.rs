//! The store that forgets: the latest events of one instance, in memory, for its watchers.
//!
//! Bounded: when it is full the oldest events make room. Readers hold no place in it, only the index of the
//! event that they want next, so a slow one costs nothing and notices by itself that it was too slow.
//!
//! ReadEvents are packed as they come, so many in a segment ([`super::codec`]). When an instance has ended nothing more
//! comes, and its [`EventLog`] becomes a [`SealedLog`]: behind the last segment stands what else is to be kept of the instance.
//! That is no part of the record, and the budget of all records does not know of it.

use std::collections::VecDeque;
use std::sync::Arc;

use stickycas_model::dense::{Reader, Writer};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, Time};

use super::budget::{Budget, Holding};
use super::codec::{EventReader, EventWriter};
use super::read::{ReadEvents, SegmentView, step_of};

/// So many events make a segment, unless the record may not hold four of them: what a reader has to pass over.
const SEGMENT: usize = 128;

/// The latest events of one instance.
#[derive(Debug)]
pub(crate) struct EventLog {
    segments: VecDeque<Segment>,
    /// Behind the segments.
    open: OpenSegment,
    /// The index of the oldest event kept.
    first: u64,
    /// The last phase whose step is not kept any more.
    forgotten: Option<Phase>,
    /// How many events may be kept.
    limit: usize,
    /// How many are.
    count: usize,
    holding: Holding,
}

/// A segment to which events are added.
#[derive(Debug, Default)]
struct OpenSegment {
    writer: EventWriter,
    packed: Writer,
    count: u32,
    last_step: Option<Phase>,
}

impl OpenSegment {
    fn add(&mut self, at: Time, event: &Event) {
        self.writer.write(at, event, &mut self.packed);
        self.count += 1;
        self.last_step = step_of(event).or(self.last_step);
    }

    fn view(&self) -> SegmentView<'_> {
        SegmentView { bytes: self.packed.bytes(), count: self.count, last_step: self.last_step }
    }

    /// The segment as it is; the next one begins.
    fn close(&mut self) -> Segment {
        let segment =
            Segment { bytes: self.packed.bytes().into(), count: self.count, last_step: self.last_step };
        self.packed.clear();
        *self = Self { packed: std::mem::take(&mut self.packed), ..Self::default() };
        segment
    }
}

/// ReadEvents that follow each other, in few bytes.
#[derive(Debug)]
struct Segment {
    bytes: Box<[u8]>,
    count: u32,
    /// The last phase executed in it.
    last_step: Option<Phase>,
}

impl Segment {
    fn view(&self) -> SegmentView<'_> {
        SegmentView { bytes: &self.bytes, count: self.count, last_step: self.last_step }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

impl EventLog {
    /// An empty record that keeps at most `limit` events, and what it may of `budget`.
    pub(crate) fn new(limit: usize, budget: Arc<Budget>) -> Self {
        Self {
            segments: VecDeque::new(),
            open: OpenSegment::default(),
            first: 0,
            forgotten: None,
            limit,
            count: 0,
            holding: Holding::new(budget),
        }
    }

    /// Adds what happened at the moment `at`.
    pub(crate) fn extend(&mut self, at: Time, events: &[Event]) {
        let segment = SEGMENT.min(self.limit / 4).max(1);
        for event in events {
            let before = self.open.packed.bytes().len();
            self.open.add(at, event);
            self.holding.add(self.open.packed.bytes().len() - before);
            self.count += 1;
            if self.open.count as usize >= segment {
                self.close_piece();
            }
            while self.count > self.limit {
                self.forget_oldest();
            }
        }
        if self.holding.settle() {
            while self.holding.is_too_much() && self.count > 0 {
                self.forget_oldest();
            }
            self.holding.settle();
        }
    }

    fn close_piece(&mut self) {
        self.segments.push_back(self.open.close());
        self.holding.add(size_of::<Segment>());
    }

    fn forget_oldest(&mut self) {
        if self.segments.is_empty() {
            self.close_piece();
        }
        let Some(segment) = self.segments.pop_front() else { return };
        self.holding.remove(segment.size());
        self.forgotten = segment.last_step.or(self.forgotten);
        self.first += u64::from(segment.count);
        self.count -= segment.count as usize;
    }

    /// Nothing more will happen: takes everything out. Behind the last events `also` writes what else is to be kept.
    pub(crate) fn end(&mut self, trailer: impl FnOnce(&mut Writer)) -> SealedLog {
        let OpenSegment { mut packed, count, last_step, .. } = std::mem::take(&mut self.open);
        let events = u32::try_from(packed.bytes().len()).expect("a segment of events takes less than 4 GiB");
        trailer(&mut packed);
        let older = (self.first > 0 || !self.segments.is_empty()).then(|| {
            let segments = std::mem::take(&mut self.segments).into();
            Box::new(OlderSegments { segments, first: self.first, forgotten: self.forgotten })
        });
        let budget = self.holding.release();
        let past = SealedLog { packed: packed.bytes().into(), events, count, last_step, older, budget };
        past.budget.hold(past.held());
        past
    }
}

/// The record of an instance that has ended, and behind it whatever else is kept of the instance.
#[derive(Debug)]
pub(crate) struct SealedLog {
    /// The last segment, and what was written behind it.
    packed: Box<[u8]>,
    /// Bytes of the segment.
    events: u32,
    /// ReadEvents in it.
    count: u32,
    last_step: Option<Phase>,
    /// `None` if the last segment is all there ever was.
    older: Option<Box<OlderSegments>>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct OlderSegments {
    segments: Vec<Segment>,
    first: u64,
    forgotten: Option<Phase>,
}

impl SealedLog {
    /// Bytes that it takes, with what else is kept.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.packed.len() - self.events as usize + self.held()
    }

    /// Bytes that its events take.
    fn held(&self) -> usize {
        let older = self.older.iter().flat_map(|older| &older.segments).map(Segment::size);
        self.events as usize + older.sum::<usize>()
    }

    /// What was written behind the events, for whoever reads it while this goes on.
    pub(crate) fn trailer(&self) -> Trailer {
        Trailer { packed: self.packed.clone(), count: self.count }
    }

    /// A record that goes on from here, of at most `limit` events.
    pub(crate) fn reopen(&mut self, limit: usize) -> EventLog {
        let mut open = OpenSegment::default();
        self.last().events().for_each(|Recorded { at, event }| open.add(at, &event));
        let budget = self.budget.clone();
        // One record less there is only when this is dropped, in whose place the new one is.
        self.budget.shrink(self.held());
        let (segments, first, forgotten) = match self.older.take() {
            Some(older) => (older.segments.into(), older.first, older.forgotten),
            None => (VecDeque::new(), 0, None),
        };
        (self.packed, self.events) = (Box::default(), 0);
        let mut record = EventLog { segments, open, first, forgotten, ..EventLog::new(limit, budget) };
        record.count = record.segments().map(|segment| segment.count as usize).sum();
        let held =
            record.segments.iter().map(Segment::size).sum::<usize>() + record.open.packed.bytes().len();
        record.holding.add(held);
        record.holding.settle();
        record
    }

    fn last(&self) -> SegmentView<'_> {
        SegmentView { bytes: &self.packed, count: self.count, last_step: self.last_step }
    }
}

/// What was written behind the events of a [`SealedLog`].
#[derive(Debug)]
pub(crate) struct Trailer {
    packed: Box<[u8]>,
    /// ReadEvents that come before it.
    count: u32,
}

impl Trailer {
    /// From its beginning, for whoever wrote it with the same writer.
    pub(crate) fn reader(&self) -> Reader<'_> {
        let mut events = EventReader::new(&self.packed);
        (0..self.count).for_each(|_| drop(events.read()));
        events.into_rest()
    }
}

impl Drop for SealedLog {
    fn drop(&mut self) {
        self.budget.release(self.held());
    }
}

impl ReadEvents for EventLog {
    fn first(&self) -> u64 {
        self.first
    }

    fn forgotten(&self) -> Option<Phase> {
        self.forgotten
    }

    fn segments(&self) -> impl Iterator<Item = SegmentView<'_>> {
        self.segments.iter().map(Segment::view).chain([self.open.view()])
    }
}

impl ReadEvents for SealedLog {
    fn first(&self) -> u64 {
        self.older.as_ref().map_or(0, |older| older.first)
    }

    fn forgotten(&self) -> Option<Phase> {
        self.older.as_ref().and_then(|older| older.forgotten)
    }

    fn segments(&self) -> impl Iterator<Item = SegmentView<'_>> {
        let older = self.older.iter().flat_map(|older| &older.segments);
        older.map(Segment::view).chain([self.last()])
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::Truncated;
    use stickycas_model::types::WarpId;

    use super::*;

    fn stepped(phase: u64) -> Event {
        Event::Stepped { phase: Phase::new(phase).unwrap(), warp: WarpId::FIRST, length: 0 }
    }

    fn plenty() -> Arc<Budget> {
        Arc::new(Budget::new(usize::MAX))
    }

    fn record(limit: usize, phases: u64) -> EventLog {
        let mut record = EventLog::new(limit, plenty());
        for phase in 1..=phases {
            record.extend(Time::ZERO, &[stepped(phase), Event::Finished]);
        }
        record
    }

    #[test]
    fn what_is_full_forgets_the_oldest() {
        let record = record(4, 3);
        assert_eq!(record.next_index(), 6);
        assert!(record.from(1, 10).is_none());
        let kept: Vec<Event> = record.from(2, 10).unwrap().into_iter().map(|it| it.event).collect();
        assert_eq!(kept, [stepped(2), Event::Finished, stepped(3), Event::Finished]);
    }

    #[test]
    fn above_the_budget_a_record_that_grows_keeps_its_share_and_others_keep_theirs() {
        const LIMIT: usize = 100_000;
        let budget = Arc::new(Budget::new(LIMIT));
        let [mut modest, mut greedy] = [(); 2].map(|()| EventLog::new(usize::MAX, budget.clone()));
        let grow = |record: &mut EventLog| {
            record.extend(Time::ZERO, &[const { Event::Finished }; 10]);
            record.count
        };
        for _ in 0..20 {
            grow(&mut modest);
        }
        let kept = modest.count;
        for _ in 0..60_000 {
            grow(&mut greedy);
            assert!(budget.held() <= 2 * LIMIT, "{}", budget.held());
        }
        assert!(greedy.first > 0, "it has forgotten");
        assert!(greedy.holding.bytes() >= LIMIT / 2 - 10_000, "and has its share");
        assert_eq!(grow(&mut modest), kept + 10, "who has less than its share forgets nothing");
        drop(greedy);
        assert!(budget.held() <= modest.holding.bytes());
        let past = modest.end(|out| out.slice(&[0; 100]));
        drop(modest);
        assert_eq!(budget.held(), past.held(), "of what has ended the budget knows every byte");
        assert_eq!(past.size(), past.held() + 101, "but not of what is no record");
        drop(past);
        assert_eq!((budget.held(), budget.records()), (0, 0));
    }

    #[test]
    fn a_record_that_ends_and_is_reopened_counts_once() {
        let budget = Arc::new(Budget::new(usize::MAX));
        let mut record = EventLog::new(usize::MAX, budget.clone());
        for _ in 0..3 {
            record.extend(Time::ZERO, &[const { Event::Finished }; 300]);
            let mut past = record.end(|_| ());
            record = past.reopen(usize::MAX);
            drop(past);
            assert_eq!(budget.records(), 1);
        }
        drop(record);
        assert_eq!((budget.held(), budget.records()), (0, 0));
    }

    #[test]
    fn records_that_grow_one_after_the_other_hold_a_share_each_that_becomes_less() {
        const LIMIT: usize = 1_000_000;
        const RECORDS: usize = 40;
        let budget = Arc::new(Budget::new(LIMIT));
        let mut records = Vec::new();
        for number in 1..=RECORDS {
            let mut record = EventLog::new(usize::MAX, budget.clone());
            while record.first == 0 && record.holding.bytes() <= LIMIT {
                record.extend(Time::ZERO, &[const { Event::Finished }; 1_000]);
            }
            assert!(record.holding.bytes() <= LIMIT / number + 10_000, "record {number}");
            records.push(record);
        }
        let most = LIMIT as f64 * (1.0 + (RECORDS as f64).ln()) + RECORDS as f64 * 10_000.0;
        assert!(2 * LIMIT < budget.held() && budget.held() as f64 <= most, "{}", budget.held());
    }

    /// ReadEvents of every index, so that each can be told from the others.
    fn long(events: u64) -> EventLog {
        let mut record = EventLog::new(usize::MAX, plenty());
        for index in 0..events {
            record.extend(Time::from_nanos(index), &[stepped(1 + index / 2)]);
        }
        record
    }

    #[test]
    fn a_record_reads_the_same_packed_ended_and_reopened() {
        let segment = SEGMENT as u64;
        for events in [0, 1, segment - 1, segment, segment + 1, 3 * segment + 7] {
            let mut record = long(events);
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
            check(&|index, limit| record.from(index, limit));
            let mut past = record.end(|out| out.number(77_u64));
            check(&|index, limit| past.from(index, limit));
            assert_eq!(past.next_index(), events);
            assert_eq!(past.trailer().reader().number(), Some(77));
            let reopened = past.reopen(usize::MAX);
            check(&|index, limit| reopened.from(index, limit));
            assert_eq!((reopened.next_index(), reopened.count as u64), (events, events));
        }
    }

    #[test]
    fn a_phase_is_found_in_whatever_piece_it_lies() {
        let mut record = long(5 * SEGMENT as u64 + 9);
        for phase in (2..5 * SEGMENT as u64 / 2).step_by(7) {
            assert_eq!(record.start_of(Phase::new(phase)), Ok(2 * (phase - 1) - 1));
        }
        let past = record.end(|_| ());
        assert_eq!(past.start_of(Phase::new(100)), Ok(197));
        assert_eq!(past.start_of(Phase::new(100_000)), Ok(past.next_index() - 1));
    }

    #[test]
    fn a_reader_begins_at_the_phase_before_the_one_it_wants() {
        let record = record(100, 3);
        assert_eq!(record.start_of(Phase::new(1)), Ok(0));
        assert_eq!(record.start_of(Phase::new(3)), Ok(2));
        assert_eq!(record.start_of(Phase::new(9)), Ok(4));
    }

    #[test]
    fn the_oldest_phase_that_a_refusal_names_is_not_refused_even_if_no_step_is_kept() {
        for phases in [0, 3] {
            let mut record = record(4, phases);
            record.extend(Time::ZERO, &[const { Event::Finished }; 5]);
            let Truncated { oldest } = record.start_of(Phase::new(phases + 1)).unwrap_err();
            assert_eq!(oldest, Phase::new(phases + 2).unwrap());
            assert_eq!(record.start_of(Some(oldest)), Ok(record.next_index() - 4));
        }
    }

    #[test]
    fn a_phase_that_is_not_kept_is_refused_with_the_oldest_that_is() {
        let record = record(4, 3);
        let oldest = Phase::new(3).unwrap();
        assert_eq!(record.start_of(Phase::new(1)), Err(Truncated { oldest }));
        assert_eq!(record.start_of(Phase::new(2)), Err(Truncated { oldest }));
        assert_eq!(record.start_of(Some(oldest)), Ok(2));
    }
}
