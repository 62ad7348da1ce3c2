//! What is read of a record, whether it still grows or not.

use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::Phase;

use super::packed::EventReader;

/// What can be read of a record, ended or not.
pub(crate) trait Events {
    /// The index of the oldest event kept.
    fn first(&self) -> u64;
    /// The last phase whose step is not kept any more.
    fn forgotten(&self) -> Option<Phase>;
    /// The events kept, in order.
    fn pieces(&self) -> impl Iterator<Item = View<'_>>;

    /// The index that the next event will have.
    fn next_index(&self) -> u64 {
        self.first() + self.pieces().map(|piece| u64::from(piece.count)).sum::<u64>()
    }

    /// At most `limit` events from this index on. `None` if the first of them is not kept any more.
    fn from(&self, index: u64, limit: usize) -> Option<Vec<Recorded>> {
        let mut skip = usize::try_from(index.checked_sub(self.first())?).ok()?;
        let mut found = Vec::new();
        for piece in self.pieces() {
            let count = piece.count as usize;
            if found.len() == limit {
                break;
            }
            if skip < count {
                found.extend(piece.events().skip(skip).take(limit - found.len()));
            }
            skip = skip.saturating_sub(count);
        }
        Some(found)
    }

    /// Where a reader begins that wants everything from `phase` on: behind the record of the last phase
    /// before it. `None` for everything that is kept.
    fn start_of(&self, phase: Option<Phase>) -> Result<u64, NotKept> {
        let Some(phase) = phase else { return Ok(self.first()) };
        match self.last_step_before(phase) {
            // The record of that phase ends somewhere before the next step; its reader has it already and
            // tells by the indices.
            Some(before) => Ok(before),
            // Of a phase that is still to come nothing is lost.
            None if phase >= self.oldest_phase() => Ok(self.first()),
            None => Err(NotKept { oldest: self.oldest_phase() }),
        }
    }

    /// The index of the last step that is kept of a phase before this one.
    fn last_step_before(&self, phase: Phase) -> Option<u64> {
        let mut index = self.first();
        let mut last = None;
        for piece in self.pieces() {
            let steps = || {
                let numbered = (index..).zip(piece.events());
                numbered.filter(|(_, recorded)| step_of(&recorded.event).is_some_and(|step| step < phase))
            };
            match piece.last_step {
                // Only of the last such piece it matters which one it is.
                Some(step) if step < phase => last = Some((index, piece)),
                Some(_) => {
                    if let Some((step, _)) = steps().last() {
                        return Some(step);
                    }
                    break;
                }
                None => {}
            }
            index += u64::from(piece.count);
        }
        let (first, piece) = last?;
        let steps = (first..).zip(piece.events()).filter(|(_, recorded)| step_of(&recorded.event).is_some());
        steps.last().map(|(index, _)| index)
    }

    /// The oldest phase from which on everything is kept.
    fn oldest_phase(&self) -> Phase {
        if self.first() == 0 {
            return Phase::FIRST;
        }
        let piece = self.pieces().find(|piece| piece.last_step.is_some());
        match piece.and_then(|piece| piece.events().find_map(|recorded| step_of(&recorded.event))) {
            Some(phase) => phase.next(),
            // The phase behind it has not come yet, but some of what led to it is forgotten.
            None => self.forgotten().map_or(Phase::FIRST, Phase::next).next(),
        }
    }
}

/// A piece as its readers see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) count: u32,
    /// The last phase executed in it.
    pub(super) last_step: Option<Phase>,
}

impl View<'_> {
    pub(super) fn events(self) -> impl Iterator<Item = Recorded> {
        let mut reader = EventReader::new(self.bytes);
        (0..self.count).map(move |_| reader.read().expect("a piece holds as many events as it says"))
    }
}

/// The wanted events are not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotKept {
    /// The oldest phase from which on everything is kept.
    pub(crate) oldest: Phase,
}

pub(super) fn step_of(event: &Event) -> Option<Phase> {
    match event {
        Event::Stepped { phase, .. } => Some(*phase),
        _ => None,
    }
}
