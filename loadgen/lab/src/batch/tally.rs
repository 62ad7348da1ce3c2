//! The verdicts of many runs, added up.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use stickycas_model::judge::{Finding, Observed, Outcome, Property, VerdictSummary};
use stickycas_model::types::Phase;

/// The sums over many runs. They are the same in whatever order the runs are added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// How many runs.
    pub runs: u64,
    /// By their verdict.
    #[schemars(with = "BTreeMap<String, OutcomeCount>")]
    pub verdicts: Verdicts,
    /// By property.
    #[schemars(with = "BTreeMap<String, PropertyTally>")]
    pub properties: Properties,
    /// The phase of the last decision of a correct process, over the runs in which one decided.
    pub last_decision_phase: Option<Extent>,
    /// W*(1+c+m) for the largest m of a correct process (D2).
    pub phase_bound: Option<Extent>,
    /// Length of the list.
    pub entries: Option<Extent>,
    /// Runs with late correct processes (F6).
    pub late: OutcomeCount,
    /// Processes seen to commit an offence by their part in the plan, over all runs.
    pub culprits: u64,
    /// Those of them with each of these offences on record.
    pub named: u64,
    /// Processes with an offence on record.
    pub blamed: u64,
    /// Correct ones among them; must be 0 (B3).
    pub accused_correct: u64,
}

/// In how many runs something was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutcomeCount {
    /// So many.
    pub runs: u64,
    /// The least seed of these.
    #[serde(with = "stickycas_model::seed_text::option")]
    #[schemars(with = "Option<String>")]
    pub first_seed: Option<u64>,
}

/// One of these for each verdict, in the order of [`Outcome::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts([OutcomeCount; Outcome::ALL.len()]);

/// The findings on each property, in the order of [`Property::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties([PropertyTally; Property::ALL.len()]);

/// The findings on one property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PropertyTally {
    /// Runs in which it held.
    pub held: u64,
    /// Runs in which it broke.
    pub broken: OutcomeCount,
    /// Runs that do not show whether it held. With `held` and `broken`, all runs.
    pub unknown: u64,
    /// Runs in which it was promised.
    pub promised: u64,
}

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Extent {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl Tally {
    /// Counts one more run, which had this seed.
    pub fn add(&mut self, seed: u64, summary: &VerdictSummary) {
        self.runs += 1;
        self.verdicts.0[place(&Outcome::ALL, &summary.verdict)].add(seed, true);
        for (property, tally) in Property::ALL.into_iter().zip(&mut self.properties.0) {
            tally.add(seed, summary.finding(property));
        }
        let phase = summary.last_decision_phase.map(Phase::get).map(Extent::one);
        self.last_decision_phase = Extent::union(self.last_decision_phase, phase);
        self.phase_bound = Extent::union(self.phase_bound, Some(Extent::one(summary.phase_bound.get())));
        self.entries = Extent::union(self.entries, Some(Extent::one(summary.entries)));
        self.late.add(seed, summary.late > 0);
        self.culprits += summary.culprits;
        self.named += summary.named;
        self.blamed += summary.blamed;
        self.accused_correct += summary.accused_correct;
    }

    /// These runs and others.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.runs += other.runs;
        self.verdicts.0.iter_mut().zip(&other.verdicts.0).for_each(|(count, other)| count.merge(other));
        self.properties.0.iter_mut().zip(&other.properties.0).for_each(|(tally, other)| tally.merge(other));
        self.last_decision_phase = Extent::union(self.last_decision_phase, other.last_decision_phase);
        self.phase_bound = Extent::union(self.phase_bound, other.phase_bound);
        self.entries = Extent::union(self.entries, other.entries);
        self.late.merge(&other.late);
        self.culprits += other.culprits;
        self.named += other.named;
        self.blamed += other.blamed;
        self.accused_correct += other.accused_correct;
        self
    }

    /// The worst verdict of a run: violation, unknown, outside, valid, in this order.
    #[must_use]
    pub fn worst(&self) -> Outcome {
        let order = [Outcome::Violation, Outcome::Unknown, Outcome::Outside];
        order.into_iter().find(|outcome| self.verdicts.of(*outcome).runs > 0).unwrap_or(Outcome::Valid)
    }
}

impl Verdicts {
    /// Runs with this verdict.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> &OutcomeCount {
        &self.0[place(&Outcome::ALL, &outcome)]
    }
}

impl Properties {
    /// The findings on this property.
    #[must_use]
    pub fn of(&self, property: Property) -> &PropertyTally {
        &self.0[place(&Property::ALL, &property)]
    }
}

fn place<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|other| other == one).expect("all are there")
}

impl Serialize for Verdicts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Outcome::ALL.iter().zip(&self.0))
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Property::ALL.iter().zip(&self.0))
    }
}

impl PropertyTally {
    fn add(&mut self, seed: u64, found: Finding) {
        match found.observed {
            Observed::Held => self.held += 1,
            Observed::Violated => self.broken.add(seed, true),
            Observed::Unknown => self.unknown += 1,
        }
        self.promised += u64::from(found.promised);
    }

    fn merge(&mut self, other: &Self) {
        self.held += other.held;
        self.broken.merge(&other.broken);
        self.unknown += other.unknown;
        self.promised += other.promised;
    }
}

impl OutcomeCount {
    fn add(&mut self, seed: u64, seen: bool) {
        if seen {
            self.merge(&Self { runs: 1, first_seed: Some(seed) });
        }
    }

    fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.first_seed = self.first_seed.into_iter().chain(other.first_seed).min();
    }
}

impl Extent {
    const fn one(number: u64) -> Self {
        Self { least: number, most: number }
    }

    fn union(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => {
                Some(Self { least: one.least.min(other.least), most: one.most.max(other.most) })
            }
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_held_broken_or_unknown() {
        let mut tally = PropertyTally::default();
        let all = [Observed::Held, Observed::Held, Observed::Violated, Observed::Unknown];
        for (seed, observed) in (0..).zip(all) {
            tally.add(seed, Finding { observed, promised: true });
        }
        let PropertyTally { held, broken, unknown, promised } = tally;
        assert_eq!(
            (held, broken, unknown, promised),
            (2, OutcomeCount { runs: 1, first_seed: Some(2) }, 1, 4)
        );
        tally.merge(&tally.clone());
        assert_eq!((tally.held, tally.broken.runs, tally.unknown, tally.promised), (4, 2, 2, 8));
    }
}
