//! The store that forgets: the latest events of one instance, in memory, for its watchers.
//!
//! Bounded: when it is full the oldest events make room. Readers hold no place in it, only the index of the
//! event that they want next, so a slow one costs nothing and notices by itself that it was too slow.

use std::collections::VecDeque;
use std::sync::Arc;

use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, Time};

use super::budget::{Budget, Holding};

/// The latest events of one instance.
#[derive(Debug)]
pub(crate) struct Record {
    events: VecDeque<Recorded>,
    /// The index of the oldest event kept.
    first: u64,
    /// The phases executed in what is kept, each with the index of its step.
    steps: VecDeque<(Phase, u64)>,
    /// The last phase whose step is not kept any more.
    forgotten: Option<Phase>,
    limit: usize,
    holding: Holding,
}

/// The wanted events are not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotKept {
    /// The oldest phase from which on everything is kept.
    pub(crate) oldest: Phase,
}

impl Record {
    /// An empty record that keeps at most `limit` events, and what it may of `budget`.
    pub(crate) fn new(limit: usize, budget: Arc<Budget>) -> Self {
        let holding = Holding::new(budget);
        Self { events: VecDeque::new(), first: 0, steps: VecDeque::new(), forgotten: None, limit, holding }
    }

    /// Adds what happened at the moment `at`.
    pub(crate) fn extend(&mut self, at: Time, events: impl IntoIterator<Item = Event>) {
        for event in events {
            if self.events.len() == self.limit {
                self.forget_oldest();
            }
            if let Event::Stepped { phase, .. } = event {
                self.steps.push_back((phase, self.next_index()));
            }
            let recorded = Recorded { at, event };
            self.holding.add(&recorded);
            self.events.push_back(recorded);
        }
        if self.holding.settle() {
            while self.holding.is_too_much() && !self.events.is_empty() {
                self.forget_oldest();
            }
            self.events.shrink_to(2 * self.events.len());
            self.holding.settle();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.events.pop_front() else { return };
        self.holding.remove(&oldest);
        if let Event::Stepped { phase, .. } = oldest.event {
            self.steps.pop_front();
            self.forgotten = Some(phase);
        }
        self.first += 1;
    }

    /// The index that the next event will have.
    pub(crate) fn next_index(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Where a reader begins that wants everything from `phase` on: behind the record of the last phase
    /// before it. `None` for everything that is kept.
    pub(crate) fn start_of(&self, phase: Option<Phase>) -> Result<u64, NotKept> {
        let Some(phase) = phase else { return Ok(self.first) };
        let next = self.steps.partition_point(|&(step, _)| step < phase);
        match next.checked_sub(1) {
            // The record of that phase ends somewhere before the next step; its reader has it already and
            // tells by the indices.
            Some(before) => Ok(self.steps[before].1),
            // Of a phase that is still to come nothing is lost.
            None if phase >= self.oldest_phase() => Ok(self.first),
            None => Err(NotKept { oldest: self.oldest_phase() }),
        }
    }

    /// The oldest phase from which on everything is kept.
    pub(crate) fn oldest_phase(&self) -> Phase {
        match self.steps.front() {
            _ if self.first == 0 => Phase::FIRST,
            Some((phase, _)) => phase.next(),
            // The phase behind it has not come yet, but some of what led to it is forgotten.
            None => self.forgotten.map_or(Phase::FIRST, Phase::next).next(),
        }
    }

    /// At most `limit` events from this index on. `None` if the first of them is not kept any more.
    pub(crate) fn from(&self, index: u64, limit: usize) -> Option<impl Iterator<Item = &Recorded>> {
        let skipped = usize::try_from(index.checked_sub(self.first)?).ok()?;
        Some(self.events.iter().skip(skipped).take(limit))
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::WarpId;

    use super::*;

    fn stepped(phase: u64) -> Event {
        Event::Stepped { phase: Phase::new(phase).unwrap(), warp: WarpId::FIRST, length: 0 }
    }

    fn plenty() -> Arc<Budget> {
        Arc::new(Budget::new(usize::MAX))
    }

    fn record(limit: usize, phases: u64) -> Record {
        let mut record = Record::new(limit, plenty());
        for phase in 1..=phases {
            record.extend(Time::ZERO, [stepped(phase), Event::Finished]);
        }
        record
    }

    #[test]
    fn what_is_full_forgets_the_oldest() {
        let record = record(4, 3);
        assert_eq!(record.next_index(), 6);
        assert!(record.from(1, 10).is_none());
        let kept: Vec<Event> = record.from(2, 10).unwrap().map(|recorded| recorded.event.clone()).collect();
        assert_eq!(kept, [stepped(2), Event::Finished, stepped(3), Event::Finished]);
    }

    #[test]
    fn above_the_budget_a_record_that_grows_keeps_its_share_and_others_keep_theirs() {
        const LIMIT: usize = 100_000;
        let budget = Arc::new(Budget::new(LIMIT));
        let [mut modest, mut greedy] = [(); 2].map(|()| Record::new(usize::MAX, budget.clone()));
        let grow = |record: &mut Record| {
            record.extend(Time::ZERO, vec![Event::Finished; 10]);
            record.events.len()
        };
        for _ in 0..20 {
            grow(&mut modest);
        }
        let kept = modest.events.len();
        for _ in 0..10_000 {
            grow(&mut greedy);
            assert!(budget.held() <= 2 * LIMIT, "{}", budget.held());
        }
        assert!(greedy.first > 0, "it has forgotten");
        assert!(greedy.events.len() * size_of::<Recorded>() >= LIMIT / 2 - 1_000, "and has its share");
        assert_eq!(grow(&mut modest), kept + 10, "who has less than its share forgets nothing");
        drop(greedy);
        assert!(budget.held() <= (kept + 10) * size_of::<Recorded>());
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
            record.extend(Time::ZERO, vec![Event::Finished; 5]);
            let NotKept { oldest } = record.start_of(Phase::new(phases + 1)).unwrap_err();
            assert_eq!(oldest, Phase::new(phases + 2).unwrap());
            assert_eq!(record.start_of(Some(oldest)), Ok(record.next_index() - 4));
        }
    }

    #[test]
    fn a_phase_that_is_not_kept_is_refused_with_the_oldest_that_is() {
        let record = record(4, 3);
        let oldest = Phase::new(3).unwrap();
        assert_eq!(record.start_of(Phase::new(1)), Err(NotKept { oldest }));
        assert_eq!(record.start_of(Phase::new(2)), Err(NotKept { oldest }));
        assert_eq!(record.start_of(Some(oldest)), Ok(2));
    }
}
