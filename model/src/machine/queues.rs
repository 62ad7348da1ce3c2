//! The accesses that wait and do not fit into their member: appends, and accesses that were sent ahead (F7).
//!
//! [`AccessQueues`] is one table for the whole instance, whose places are used again, so that an access that
//! waits takes no allocation of its own. The accesses that one member sent ahead are a ring in it: the last
//! one knows the first, each the next.

use std::mem;

use crate::access::Op;
use crate::types::{Position, SessionId};

/// The most sessions that one process may open at one instance. A correct client needs one, and one more for
/// each time that its connection breaks.
pub const MAX_SESSIONS: u32 = 1_000;

/// A session, or none (0). Two bytes are enough: at most [`MAX_SESSIONS`] are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OptionalSession(u16);

impl OptionalSession {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(session: Option<SessionId>) -> Self {
        let number = session.map_or(0, SessionId::get);
        Self(u16::try_from(number).expect("a session that was opened is at most MAX_SESSIONS"))
    }

    pub(super) fn get(self) -> Option<SessionId> {
        SessionId::new(self.0.into())
    }
}

/// An access that waits for its phase.
#[derive(Clone, Debug)]
pub(super) struct WaitingAccess {
    pub(super) op: Op,
    pub(super) session: OptionalSession,
    /// Its place in the order of acceptance over the whole instance.
    pub(super) accepted: u64,
}

#[derive(Clone, Debug)]
struct RingNode {
    waiting: WaitingAccess,
    /// The next of the ring; of a free place, the next free one.
    next: u32,
}

/// The accesses. At most as many as the pipelines of all members hold.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessQueues {
    places: Vec<RingNode>,
    /// The first of the free places, if there is one.
    free: Option<u32>,
}

impl AccessQueues {
    /// Forgets all, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.free = None;
    }

    /// Puts an access somewhere, in a ring of its own, and says where.
    pub(super) fn add(&mut self, waiting: WaitingAccess) -> u32 {
        match self.free {
            Some(place) => {
                let found = &mut self.places[place as usize];
                // The last free place names itself.
                self.free = (found.next != place).then_some(found.next);
                *found = RingNode { waiting, next: place };
                place
            }
            None => {
                let place = u32::try_from(self.places.len()).expect("processes times pipeline fit");
                self.places.push(RingNode { waiting, next: place });
                place
            }
        }
    }

    /// Puts an access behind the last one of a ring; it is then the last.
    pub(super) fn add_behind(&mut self, last: Option<u32>, waiting: WaitingAccess) -> u32 {
        let place = self.add(waiting);
        if let Some(last) = last {
            let first = mem::replace(&mut self.places[last as usize].next, place);
            self.places[place as usize].next = first;
        }
        place
    }

    /// Takes the first out of the ring that ends here, and says where it is. If it was the only one, there is
    /// no ring any more.
    pub(super) fn unlink(&mut self, last: u32) -> u32 {
        let first = self.places[last as usize].next;
        self.places[last as usize].next = self.places[first as usize].next;
        first
    }

    pub(super) fn get(&self, place: u32) -> &WaitingAccess {
        &self.places[place as usize].waiting
    }

    /// Takes an access that is in no ring.
    pub(super) fn take(&mut self, place: u32) -> WaitingAccess {
        let found = &mut self.places[place as usize];
        // Nothing of it stays, least of all a value.
        let nothing = WaitingAccess {
            op: Op::Read { start: Position::new(0) },
            session: OptionalSession::default(),
            accepted: 0,
        };
        found.next = self.free.unwrap_or(place);
        self.free = Some(place);
        mem::replace(&mut found.waiting, nothing)
    }

    /// The accesses of the ring that ends here, from its first.
    pub(super) fn ring(&self, last: Option<u32>) -> impl Iterator<Item = &WaitingAccess> {
        let mut at = last.map(|last| self.places[last as usize].next);
        std::iter::from_fn(move || {
            let place = at?;
            at = (Some(place) != last).then(|| self.places[place as usize].next);
            Some(self.get(place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(accepted: u64) -> WaitingAccess {
        WaitingAccess {
            op: Op::Read { start: Position::new(1) },
            session: OptionalSession::default(),
            accepted,
        }
    }

    #[test]
    fn rings_keep_their_order_and_places_are_used_again() {
        let mut queues = AccessQueues::default();
        let other = queues.add(waiting(99));
        for _ in 0..3 {
            let mut last = None;
            for accepted in 0..5 {
                last = Some(queues.add_behind(last, waiting(accepted)));
            }
            let order: Vec<u64> = queues.ring(last).map(|waiting| waiting.accepted).collect();
            assert_eq!(order, [0, 1, 2, 3, 4]);
            for accepted in 0..5 {
                let first = queues.unlink(last.unwrap());
                assert_eq!(queues.take(first).accepted, accepted);
            }
            assert_eq!(queues.places.len(), 6);
        }
        assert_eq!(queues.ring(None).count(), 0);
        assert_eq!(queues.take(other).accepted, 99);
    }
}
