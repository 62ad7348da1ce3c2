//! The latest events of one instance, in memory, for its watchers.
//!
//! The log is bounded: when it is full the oldest events make room. A reader keeps no state in the log, only
//! the index of its next event, so a slow reader costs nothing and finds out by itself that it was too slow.
//!
//! Events are encoded as they come, a number of them to a segment ([`super::codec`]). When the instance has
//! ended, its [`EventLog`] becomes an [`ArchivedLog`](super::archived::ArchivedLog).

use std::collections::VecDeque;
use std::sync::Arc;

use stickycas_model::compact_codec::Encoder;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, Time};

use super::budget::{Budget, Holding};
use super::codec::EventEncoder;
use super::read::{EventsView, Segment, SegmentBytes, SegmentView, step_of};

/// The number of events in a segment, unless the log may not hold four such segments. A reader decodes a
/// segment from its beginning.
pub(super) const SEGMENT: usize = 128;
/// Bytes from which on a segment is closed: readers copy the open one, and nothing can be added meanwhile.
const SEGMENT_BYTES: usize = 64 * 1024;

/// The latest events of one instance.
#[derive(Debug)]
pub(crate) struct EventLog {
    pub(super) segments: VecDeque<Segment>,
    /// The segment behind all others, to which events are added.
    pub(super) open: OpenSegment,
    /// The index of the oldest event kept.
    pub(super) first: u64,
    /// The last phase whose step is not kept any more.
    pub(super) forgotten: Option<Phase>,
    /// The number of events that may be kept.
    pub(super) limit: usize,
    /// The number of events that are kept.
    pub(super) count: usize,
    pub(super) holding: Holding,
}

/// A segment to which events are added.
#[derive(Debug, Default)]
pub(super) struct OpenSegment {
    writer: EventEncoder,
    pub(super) encoded: Encoder,
    pub(super) count: u32,
    pub(super) last_step: Option<Phase>,
}

impl OpenSegment {
    pub(super) fn add(&mut self, at: Time, event: &Event) {
        self.writer.write(at, event, &mut self.encoded);
        self.count += 1;
        self.last_step = step_of(event).or(self.last_step);
    }

    pub(super) fn view(&self) -> SegmentView<'_> {
        let bytes = SegmentBytes::Open(self.encoded.bytes());
        SegmentView { bytes, count: self.count, last_step: self.last_step }
    }

    /// Closes the segment; the next one begins.
    fn close(&mut self) -> Segment {
        let segment = Segment {
            bytes: self.encoded.bytes().into(),
            count: self.count,
            repeated: u32::try_from(self.encoded.repeated_bytes()).unwrap_or(u32::MAX),
            last_step: self.last_step,
        };
        self.encoded.clear();
        *self = Self { encoded: std::mem::take(&mut self.encoded), ..Self::default() };
        segment
    }
}

impl EventLog {
    /// An empty log that keeps at most `limit` events, and no more bytes than its share of `budget`.
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

    /// The log again whose oldest event has this index; `forgotten`: as [`EventsView::forgotten`].
    pub(crate) fn restore(
        &mut self,
        first: u64,
        forgotten: Option<Phase>,
        events: impl Iterator<Item = Recorded>,
    ) {
        (self.first, self.forgotten) = (first, forgotten);
        events.for_each(|Recorded { at, event }| self.extend(at, std::slice::from_ref(&event)));
    }

    /// The log as its readers see it.
    pub(crate) fn view(&self) -> EventsView<'_> {
        let (one, other) = self.segments.as_slices();
        EventsView {
            first: self.first,
            forgotten: self.forgotten,
            older: [one, other],
            last: self.open.view(),
        }
    }

    /// Adds the events of the moment `at`.
    pub(crate) fn extend(&mut self, at: Time, events: &[Event]) {
        let segment = SEGMENT.min(self.limit / 4).max(1);
        for event in events {
            let before = self.open.encoded.bytes().len();
            self.open.add(at, event);
            self.holding.add(self.open.encoded.bytes().len() - before);
            self.count += 1;
            if self.open.count as usize >= segment || self.open.encoded.bytes().len() >= SEGMENT_BYTES {
                self.close_segment();
            }
            while self.count > self.limit {
                self.forget_oldest();
            }
        }
        if self.holding.resolve() {
            while self.holding.is_too_much() && self.count > 0 {
                self.forget_oldest();
            }
            self.holding.resolve();
        }
    }

    fn close_segment(&mut self) {
        self.segments.push_back(self.open.close());
        let segment = self.segments.back().expect("it was added above");
        self.holding.add(segment.size() - segment.bytes.len());
    }

    fn forget_oldest(&mut self) {
        if self.segments.is_empty() {
            self.close_segment();
        }
        let Some(segment) = self.segments.pop_front() else { return };
        self.holding.remove(segment.size());
        self.forgotten = segment.last_step.or(self.forgotten);
        self.first += u64::from(segment.count);
        self.count -= segment.count as usize;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::read::Truncated;
    use stickycas_model::types::WarpId;

    use super::*;

    pub(crate) fn stepped(phase: u64) -> Event {
        Event::Stepped { phase: Phase::new(phase).unwrap(), warp: WarpId::FIRST, length: 0 }
    }

    fn plenty() -> Arc<Budget> {
        Arc::new(Budget::new(usize::MAX))
    }

    fn log_of(limit: usize, phases: u64) -> EventLog {
        let mut log = EventLog::new(limit, plenty());
        for phase in 1..=phases {
            log.extend(Time::ZERO, &[stepped(phase), Event::Finished]);
        }
        log
    }

    #[test]
    fn a_full_log_drops_its_oldest_events() {
        let log = log_of(4, 3);
        assert_eq!(log.view().next_index(), 6);
        assert!(log.view().from(1, 10).is_none());
        let kept: Vec<Event> = log.view().from(2, 10).unwrap().into_iter().map(|it| it.event).collect();
        assert_eq!(kept, [stepped(2), Event::Finished, stepped(3), Event::Finished]);
    }

    #[test]
    fn shared_events_are_decoded_when_the_log_has_dropped_them() {
        let mut log = log_of(8, 4);
        let shared = log.view().share(1, 4).unwrap();
        let before = log.view().from(1, 4).unwrap();
        for phase in 5..=20 {
            log.extend(Time::ZERO, &[stepped(phase), Event::Finished]);
        }
        assert!(log.view().share(1, 4).is_none() && !shared.is_empty());
        assert_eq!((shared.read().collect::<Vec<_>>(), before.len()), (before, 4));
        assert!(log.view().share(log.view().next_index(), 4).unwrap().is_empty());
    }

    #[test]
    fn above_the_budget_only_logs_that_grow_are_cut_to_their_share() {
        const LIMIT: usize = 100_000;
        let budget = Arc::new(Budget::new(LIMIT));
        let [mut modest, mut greedy] = [(); 2].map(|()| EventLog::new(usize::MAX, budget.clone()));
        let grow = |log: &mut EventLog| {
            log.extend(Time::ZERO, &[const { Event::Finished }; 10]);
            log.count
        };
        for _ in 0..20 {
            grow(&mut modest);
        }
        let kept = modest.count;
        for _ in 0..60_000 {
            grow(&mut greedy);
            assert!(budget.held() <= 2 * LIMIT, "{}", budget.held());
        }
        assert!(greedy.first > 0, "it has dropped events");
        assert!(greedy.holding.bytes() >= LIMIT / 2 - 10_000, "it holds its share");
        assert_eq!(grow(&mut modest), kept + 10, "a log below its share drops nothing");
        drop(greedy);
        assert!(budget.held() <= modest.holding.bytes());
        let archived = modest.archive(|out| out.slice(&[0; 100]));
        drop(modest);
        assert_eq!(budget.held(), archived.held(), "the budget counts every byte of an archived log");
        assert_eq!(archived.size(), archived.held() + 101, "the trailer is not counted");
        drop(archived);
        assert_eq!((budget.held(), budget.logs()), (0, 0));
    }

    #[test]
    fn logs_that_grow_in_turn_hold_ever_smaller_shares() {
        const LIMIT: usize = 1_000_000;
        const LOGS: usize = 40;
        let budget = Arc::new(Budget::new(LIMIT));
        let mut logs = Vec::new();
        for number in 1..=LOGS {
            let mut log = EventLog::new(usize::MAX, budget.clone());
            while log.first == 0 && log.holding.bytes() <= LIMIT {
                log.extend(Time::ZERO, &[const { Event::Finished }; 1_000]);
            }
            assert!(log.holding.bytes() <= LIMIT / number + 10_000, "log {number}");
            logs.push(log);
        }
        let most = LIMIT as f64 * (1.0 + (LOGS as f64).ln()) + LOGS as f64 * 10_000.0;
        assert!(2 * LIMIT < budget.held() && budget.held() as f64 <= most, "{}", budget.held());
    }

    /// A log in which no two events are equal.
    pub(crate) fn long(events: u64) -> EventLog {
        let mut log = EventLog::new(usize::MAX, plenty());
        for index in 0..events {
            log.extend(Time::from_nanos(index), &[stepped(1 + index / 2)]);
        }
        log
    }

    #[test]
    fn a_phase_is_found_in_every_segment() {
        let mut log = long(5 * SEGMENT as u64 + 9);
        for phase in (2..5 * SEGMENT as u64 / 2).step_by(7) {
            assert_eq!(log.view().start_of(Phase::new(phase)), Ok(2 * (phase - 1) - 1));
        }
        let archived = log.archive(|_| ());
        assert_eq!(archived.view().start_of(Phase::new(100)), Ok(197));
        assert_eq!(archived.view().start_of(Phase::new(100_000)), Ok(archived.view().next_index() - 1));
    }

    #[test]
    fn a_reader_begins_at_the_phase_before_the_wanted_one() {
        let log = log_of(100, 3);
        assert_eq!(log.view().start_of(Phase::new(1)), Ok(0));
        assert_eq!(log.view().start_of(Phase::new(3)), Ok(2));
        assert_eq!(log.view().start_of(Phase::new(9)), Ok(4));
    }

    #[test]
    fn the_oldest_phase_that_a_refusal_names_is_not_refused() {
        for phases in [0, 3] {
            let mut log = log_of(4, phases);
            log.extend(Time::ZERO, &[const { Event::Finished }; 5]);
            let Truncated { oldest } = log.view().start_of(Phase::new(phases + 1)).unwrap_err();
            assert_eq!(oldest, Phase::new(phases + 2).unwrap());
            assert_eq!(log.view().start_of(Some(oldest)), Ok(log.view().next_index() - 4));
        }
    }

    #[test]
    fn a_phase_that_is_not_kept_is_refused_with_the_oldest_kept() {
        let log = log_of(4, 3);
        let oldest = Phase::new(3).unwrap();
        assert_eq!(log.view().start_of(Phase::new(1)), Err(Truncated { oldest }));
        assert_eq!(log.view().start_of(Phase::new(2)), Err(Truncated { oldest }));
        assert_eq!(log.view().start_of(Some(oldest)), Ok(2));
    }
}
