//! The order of a log, without IO: which slot a value goes to, when a slot is delivered, and what is dropped
//! there. The [member](crate::Member) drives it over the network, the simulation over the machine of the
//! model.
//!
//! A member acts in slots in the order of their numbers, once in each, and at most once with a value. It acts
//! in a slot if it has a value, or if another member has begun there: then it appends a marker, so that
//! nobody waits for it. If the sealed list of a slot lacks its value, since it was late there, the value goes
//! to a later slot, and only then: so no value is delivered twice by one append.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use stickycas_model::machine::Entry;
use stickycas_model::types::{Position, ProcessId, Value};

/// The entry of a member that has nothing to append.
const MARKER: u8 = 0;
/// The first byte of an entry with a value; 8 bytes that name its append follow, and then the value.
const VALUE: u8 = 1;
/// The bytes before the value.
pub const HEADER: usize = 9;

/// A place in the log. Places are ordered by slot, then by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The number of the slot, from 1.
    pub slot: u64,
    /// The position in its list, from 0. A position without a value is no gap: a marker or bytes that no
    /// member of this crate appends stand there.
    pub position: Position,
}

/// A value of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Where it stands.
    pub place: Place,
    /// The member that appended it, as the server has identified it.
    pub member: ProcessId,
    /// The value; it may be empty.
    pub value: Vec<u8>,
}

/// An append of this life of a member: drawn at random, so that no two appends have the same.
pub type AppendId = u64;

/// How a slot stands before the member acts there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nobody has begun.
    Idle,
    /// Another member has begun.
    Begun,
    /// An earlier life of this member has acted there, or the slot is over: a value of this life has no place
    /// in it.
    Used,
}

/// The part of one member. See the module.
#[derive(Clone, Debug)]
pub struct Order {
    /// The most slots in flight.
    window: u64,
    /// The slot in which it acts next.
    acts_in: u64,
    /// The slot that is delivered next.
    delivers: u64,
    /// Values without a slot.
    queue: VecDeque<(AppendId, Value)>,
    /// Values by slot, until it is delivered.
    in_flight: BTreeMap<u64, (AppendId, Value)>,
    /// The places of the member's entries in sealed lists that wait for those of earlier slots.
    sealed: BTreeMap<u64, Option<Position>>,
}

impl Order {
    /// A member that acts and delivers from this slot on, in at most `window` slots at a time.
    #[must_use]
    pub fn new(from: u64, window: u64) -> Self {
        Self {
            window,
            acts_in: from,
            delivers: from,
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            sealed: BTreeMap::new(),
        }
    }

    /// Takes a value to append.
    pub fn append(&mut self, id: AppendId, value: &[u8]) {
        let entry = [&[VALUE], id.to_be_bytes().as_slice(), value].concat();
        self.queue.push_back((id, Value::new(&entry).expect("it has a header")));
    }

    /// Whether as many values wait for a slot as slots may be in flight.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() as u64 >= self.window
    }

    /// Whether a value waits for a slot, or for the seal of one.
    #[must_use]
    pub fn has_values(&self) -> bool {
        !self.queue.is_empty() || !self.in_flight.is_empty()
    }

    /// Whether it has acted in slots that are not delivered.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.delivers < self.acts_in
    }

    /// The slot in which it acts next; `None`: it has to deliver one first.
    #[must_use]
    pub fn next_slot(&self) -> Option<u64> {
        (self.acts_in < self.delivers + self.window).then_some(self.acts_in)
    }

    /// The entry that it appends in that slot, which stands so; `None`: it waits for a value of its own, or
    /// for another member.
    pub fn act(&mut self, state: SlotState) -> Option<Value> {
        let slot = self.next_slot()?;
        let value = match state {
            SlotState::Used => None,
            SlotState::Begun | SlotState::Idle => self.queue.pop_front(),
        };
        if value.is_none() && state == SlotState::Idle {
            return None;
        }
        self.acts_in += 1;
        Some(match value {
            Some(value) => self.in_flight.entry(slot).or_insert(value).1.clone(),
            None => Value::new(&[MARKER]).expect("a byte"),
        })
    }

    /// The list of a slot is sealed, and this is the place of the member's entry in it, if it has one.
    pub fn sealed(&mut self, slot: u64, entry: Option<Position>) {
        if entry.is_none()
            && let Some(again) = self.in_flight.remove(&slot)
        {
            self.queue.push_front(again);
        }
        self.sealed.insert(slot, entry);
    }

    /// Delivers the next slots, as far as their lists are sealed: the member's own appends in them, in order.
    pub fn deliver(&mut self) -> Vec<(AppendId, Place)> {
        let mut own = Vec::new();
        while let Some(entry) = self.sealed.remove(&self.delivers) {
            let slot = self.delivers;
            let append = self.in_flight.remove(&slot).zip(entry);
            own.extend(append.map(|((id, _), position)| (id, Place { slot, position })));
            self.delivers += 1;
        }
        own
    }
}

/// The values of a slot with this sealed list, in order. Markers, and what is no entry of a member of this
/// crate, are dropped: the same by every reader.
#[must_use]
pub fn delivered(slot: u64, list: &[Entry]) -> Vec<Delivered> {
    let value = |(position, entry): (usize, &Entry)| {
        let (header, value) = entry.value.as_bytes().split_at_checked(HEADER)?;
        let place = Place { slot, position: position_of(position) };
        (header[0] == VALUE).then(|| Delivered { place, member: entry.process, value: value.to_vec() })
    };
    list.iter().enumerate().filter_map(value).collect()
}

/// The position with this index in a list.
pub(crate) fn position_of(index: usize) -> Position {
    Position::new(u32::try_from(index).expect("a list has at most 65,536 entries"))
}
