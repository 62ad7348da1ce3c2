//! The latest frames of one instance, within a number of bytes, and what their events tell.

use std::collections::VecDeque;

use bytes::Bytes;
use stickycas_model::types::ProcessId;
use stickycas_page::source::Refused;

use crate::known::Known;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) kept: VecDeque<Frame>,
    pub(crate) bytes: usize,
    /// How many frames are not kept any more.
    pub(crate) dropped: u64,
    /// The index of the first event of the frames that are kept, and of the one behind them.
    pub(crate) first: u64,
    pub(crate) next: u64,
    /// Whether everything that had happened when the feed began is encoded.
    pub(crate) ready: bool,
    /// The processes that were seen to be late.
    pub(crate) late: Vec<ProcessId>,
    /// The knowledge from the events that are in the frames; `None` before the first one.
    pub(crate) known: Option<Known>,
    pub(crate) end: Option<FeedEnd>,
}

/// Some events, encoded.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The index of its first event, and the one behind its last.
    pub(crate) first: u64,
    pub(crate) next: u64,
    /// As it is sent.
    pub(crate) event: Bytes,
}

/// Why there will be no more frames.
#[derive(Clone, Debug)]
pub(crate) enum FeedEnd {
    /// Nothing more can happen at the instance.
    Over,
    /// They cannot be made.
    Refused(Refused),
}

impl Frames {
    pub(crate) fn add(&mut self, frame: Frame, limit: usize) {
        self.next = frame.next;
        self.bytes += frame.event.len();
        self.kept.push_back(frame);
        while self.bytes > limit
            && self.kept.len() > 1
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.event.len();
            self.dropped += 1;
            self.first = oldest.next;
        }
    }

    /// Whether what happened before this event is still to come.
    pub(crate) fn is_behind(&self, event: u64) -> bool {
        self.next < event && self.end.is_none()
    }

    /// The number of the first frame for a viewer that needs this event and all behind it; `None` if that
    /// frame may be dropped before it is read.
    pub(crate) fn start(&self, event: u64, limit: usize) -> Option<u64> {
        if event < self.first {
            return None;
        }
        let mut place = self.kept.partition_point(|frame| frame.next <= event);
        // A last frame without events tells the state.
        if place == self.kept.len()
            && self.kept.back().is_some_and(|last| (last.first, last.next) == (event, event))
        {
            place -= 1;
        }
        let bytes: usize = self.kept.range(place..).map(|frame| frame.event.len()).sum();
        // While frames come, the older half is about to make room.
        let fits = self.end.is_some() || bytes <= limit / 2;
        fits.then_some(self.dropped + place as u64)
    }
}
