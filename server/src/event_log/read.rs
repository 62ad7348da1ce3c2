//! Reading an event log, whether it still grows or is archived.

use std::sync::Arc;

use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::Phase;

use super::codec::EventDecoder;

/// An event log as its readers see it, whether it still grows or is archived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventsView<'a> {
    /// The index of the oldest event kept.
    pub(crate) first: u64,
    /// The last phase whose step is not kept any more.
    pub(crate) forgotten: Option<Phase>,
    /// The segments before the last one, in order.
    pub(super) older: [&'a [Segment]; 2],
    pub(super) last: SegmentView<'a>,
}

impl<'a> EventsView<'a> {
    /// The events kept, in order.
    fn segments(self) -> impl Iterator<Item = SegmentView<'a>> {
        self.older.into_iter().flatten().map(Segment::view).chain([self.last])
    }

    /// The index that the next event will have.
    pub(crate) fn next_index(&self) -> u64 {
        self.first + self.segments().map(|segment| u64::from(segment.count)).sum::<u64>()
    }

    /// At most `limit` events from this index on, to be decoded when the log is not needed any more. `None`
    /// if the first of them is not kept any more.
    pub(crate) fn share(&self, index: u64, limit: usize) -> Option<SharedEvents> {
        let mut skip = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let mut shared = SharedEvents { segments: Vec::new(), skip: 0, limit };
        let mut count = 0;
        for segment in self.segments() {
            let held = segment.count as usize;
            if count >= limit {
                break;
            }
            if skip < held {
                if shared.segments.is_empty() {
                    shared.skip = skip;
                }
                count += held - skip;
                shared.segments.push((segment.share(), segment.count));
            }
            skip = skip.saturating_sub(held);
        }
        Some(shared)
    }

    /// All events kept, to be decoded when the log is not needed any more.
    pub(crate) fn share_all(&self) -> SharedEvents {
        self.share(self.first, usize::MAX).expect("the oldest event that is kept is kept")
    }

    /// At most `limit` events from this index on, decoded.
    #[cfg(test)]
    pub(super) fn from(&self, index: u64, limit: usize) -> Option<Vec<Recorded>> {
        self.share(index, limit).map(|shared| shared.read().collect())
    }

    /// The index at which a reader begins that wants every event from `phase` on: that of the step of the
    /// last phase before it. `None` for every event that is kept.
    pub(crate) fn start_of(&self, phase: Option<Phase>) -> Result<u64, Truncated> {
        let Some(phase) = phase else { return Ok(self.first) };
        match self.last_step_before(phase) {
            // The events of that phase end somewhere before the next step. The reader has them already and
            // knows them by their indices.
            Some(before) => Ok(before),
            // No event of a phase that is still to come is lost.
            None if phase >= self.oldest_phase() => Ok(self.first),
            None => Err(Truncated { oldest: self.oldest_phase() }),
        }
    }

    /// The index of the last step that is kept of a phase before this one.
    fn last_step_before(&self, phase: Phase) -> Option<u64> {
        let mut index = self.first;
        let mut last = None;
        for segment in self.segments() {
            let steps = || {
                let numbered = (index..).zip(segment.events());
                numbered.filter(|(_, recorded)| step_of(&recorded.event).is_some_and(|step| step < phase))
            };
            match segment.last_step {
                // Only the last such segment is decoded below.
                Some(step) if step < phase => last = Some((index, segment)),
                Some(_) => {
                    if let Some((step, _)) = steps().last() {
                        return Some(step);
                    }
                    break;
                }
                None => {}
            }
            index += u64::from(segment.count);
        }
        let (first, segment) = last?;
        let steps =
            (first..).zip(segment.events()).filter(|(_, recorded)| step_of(&recorded.event).is_some());
        steps.last().map(|(index, _)| index)
    }

    /// The oldest phase from which on everything is kept.
    pub(crate) fn oldest_phase(&self) -> Phase {
        if self.first == 0 {
            return Phase::FIRST;
        }
        let segment = self.segments().find(|segment| segment.last_step.is_some());
        match segment.and_then(|segment| segment.events().find_map(|recorded| step_of(&recorded.event))) {
            Some(phase) => phase.next(),
            // The next phase has not come yet, but some of the events that led to it are not kept.
            None => self.forgotten.map_or(Phase::FIRST, Phase::next).next(),
        }
    }
}

/// Events of a log, encoded as they are there.
#[derive(Debug)]
pub(crate) struct SharedEvents {
    segments: Vec<(Arc<[u8]>, u32)>,
    /// The number of events of the first segment that are not wanted.
    skip: usize,
    limit: usize,
}

impl SharedEvents {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The events, decoded as they are taken.
    pub(crate) fn read(&self) -> impl Iterator<Item = Recorded> {
        let events = self.segments.iter().flat_map(|(bytes, count)| decode(bytes, *count));
        events.skip(self.skip).take(self.limit)
    }
}

/// The events of a segment of so many.
fn decode(bytes: &[u8], count: u32) -> impl Iterator<Item = Recorded> {
    let mut reader = EventDecoder::new(bytes);
    (0..count).map(move |_| reader.read().expect("a segment holds as many events as it says"))
}

/// Consecutive events, encoded. Readers share the bytes, so that they need not decode them while the log is
/// locked.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) bytes: Arc<[u8]>,
    pub(super) count: u32,
    /// See [`Encoder::repeated_bytes`](stickycas_model::compact_codec::Encoder::repeated_bytes).
    pub(super) repeated: u32,
    /// The last phase executed in it.
    pub(super) last_step: Option<Phase>,
}

impl Segment {
    fn view(&self) -> SegmentView<'_> {
        let bytes = SegmentBytes::Closed(&self.bytes);
        SegmentView { bytes, count: self.count, last_step: self.last_step }
    }

    pub(super) fn size(&self) -> usize {
        /// The counts of references.
        const COUNTS: usize = 16;
        size_of::<Self>() + COUNTS + self.bytes.len()
    }
}

/// A segment as its readers see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentView<'a> {
    pub(super) bytes: SegmentBytes<'a>,
    pub(super) count: u32,
    /// The last phase executed in it.
    pub(super) last_step: Option<Phase>,
}

/// The bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum SegmentBytes<'a> {
    /// They never change, and readers may keep them.
    Closed(&'a Arc<[u8]>),
    /// More come.
    Open(&'a [u8]),
}

impl<'a> SegmentView<'a> {
    pub(super) fn events(self) -> impl Iterator<Item = Recorded> + use<'a> {
        let bytes = match self.bytes {
            SegmentBytes::Closed(bytes) => bytes,
            SegmentBytes::Open(bytes) => bytes,
        };
        decode(bytes, self.count)
    }

    /// Its bytes, for a reader that keeps them.
    fn share(self) -> Arc<[u8]> {
        match self.bytes {
            SegmentBytes::Closed(bytes) => bytes.clone(),
            SegmentBytes::Open(bytes) => bytes.into(),
        }
    }
}

/// The wanted events are not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Truncated {
    /// The oldest phase from which on everything is kept.
    pub(crate) oldest: Phase,
}

pub(crate) fn step_of(event: &Event) -> Option<Phase> {
    match event {
        Event::Stepped { phase, .. } => Some(*phase),
        _ => None,
    }
}
