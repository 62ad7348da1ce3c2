//! The latest events of an instance, as they came.
//!
//! What one step brings about is moved here in one piece, and has one moment: an event that is put together with its
//! moment and then stored is copied twice, and the second copy waits for the first.

use stickycas_model::history::Event;
use stickycas_model::types::Time;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Latest {
    events: Vec<Event>,
    /// When they happened: each moment with the number of events up to its last one, rising.
    moments: Vec<(Time, usize)>,
}

impl Latest {
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds what happened at the moment `at`, and leaves `events` empty.
    pub(super) fn append(&mut self, at: Time, events: &mut Vec<Event>) {
        self.events.append(events);
        match self.moments.last_mut() {
            Some((last, end)) if *last == at => *end = self.events.len(),
            _ => self.moments.push((at, self.events.len())),
        }
    }

    /// All of them in order, each with its moment.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Time, &Event)> {
        let mut moments = self.moments.iter().peekable();
        self.events.iter().enumerate().map(move |(index, event)| {
            while moments.next_if(|(_, end)| *end <= index).is_some() {}
            let (at, _) = moments.peek().expect("the last moment ends with the last event");
            (*at, event)
        })
    }

    /// Lets go of the oldest, so many of them.
    pub(super) fn forget(&mut self, count: usize) {
        self.events.drain(..count);
        self.moments.retain_mut(|(_, end)| {
            *end = end.saturating_sub(count);
            *end > 0
        });
    }
}
