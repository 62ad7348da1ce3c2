//! How events are written.

use crate::history::Event;

/// Pushes an event. The closure builds it where it will lie: `Vec::push` builds it elsewhere first, field by field,
/// and its copy to the vector waits for the last field.
#[inline(always)]
pub(super) fn push_event(events: &mut Vec<Event>, event: impl FnOnce() -> Event) {
    events.extend(std::iter::once_with(event));
}
