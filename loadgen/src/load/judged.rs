//! The verdict of a load: that of its instances, taken together.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stickycas_model::judge::Outcome;

use super::seen::Finding;
use crate::record::Record;

/// As many instances are kept as evidence, of those that are violations and of the others.
pub const EVIDENCE: usize = 8;
/// As many reasons are told.
const REASONS: usize = 16;

/// What was found of one instance.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) number: u64,
    pub(super) seed: u64,
    /// By what its processes saw.
    pub(super) finding: Finding,
    /// By its whole history, if that was collected.
    pub(super) record: Option<Box<Record>>,
    /// What the history shows if correct processes did exceed what they may send, for which it accuses them.
    pub(super) excused: Option<Outcome>,
    /// Whether it was to be collected and could not be, or not to its end.
    pub(super) lost: bool,
}

impl Judgement {
    /// The worse of the two.
    fn outcome(&self) -> Outcome {
        let history = self.record.as_ref().map_or(Outcome::Valid, |record| record.verdict.verdict);
        worse(self.finding.outcome, history)
    }

    /// The same if those were rightly accused who are only accused of having sent too much.
    fn if_excused(&self) -> Outcome {
        self.excused.map_or_else(|| self.outcome(), |excused| worse(self.finding.outcome, excused))
    }
}

/// How many instances were found what, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// Instances in which everything held.
    pub valid: u64,
    /// In which something broke that nobody promised.
    pub outside: u64,
    /// In which something broke that was promised.
    pub violation: u64,
    /// Which prove nothing: not every correct process came to its end, or the history is incomplete.
    pub unknown: u64,
    /// Of how many the whole history was judged too.
    pub histories: u64,
    /// Of how many it should have been, and could not be collected before the server let go of it.
    pub histories_lost: u64,
    /// What broke and what is missing, of some of them.
    pub reasons: Vec<String>,
}

impl Judged {
    /// The verdict as a whole. Instances that prove nothing make the whole prove nothing only if there are no others:
    /// how many there may be is a question of errors, not of correctness.
    #[must_use]
    pub fn verdict(&self) -> Outcome {
        match self {
            Self { violation: 1.., .. } => Outcome::Violation,
            Self { outside: 1.., .. } => Outcome::Outside,
            Self { valid: 1.., .. } => Outcome::Valid,
            _ => Outcome::Unknown,
        }
    }

    /// How many were judged.
    #[must_use]
    pub fn instances(&self) -> u64 {
        self.valid + self.outside + self.violation + self.unknown
    }

    fn count(&mut self, outcome: Outcome) -> &mut u64 {
        match outcome {
            Outcome::Valid => &mut self.valid,
            Outcome::Outside => &mut self.outside,
            Outcome::Violation => &mut self.violation,
            Outcome::Unknown => &mut self.unknown,
        }
    }

    /// Adds what was found elsewhere.
    pub fn merge(&mut self, other: &Self) {
        self.valid += other.valid;
        self.outside += other.outside;
        self.violation += other.violation;
        self.unknown += other.unknown;
        self.histories += other.histories;
        self.histories_lost += other.histories_lost;
        self.reasons.extend(other.reasons.iter().cloned());
        self.reasons.truncate(REASONS);
    }
}

/// What was found until now, and the evidence.
#[derive(Debug, Default)]
pub(super) struct Bench {
    pub(super) judged: Judged,
    /// Instances that were not valid, with their history.
    evidence: Vec<(u64, Box<Record>)>,
    /// Instances whose histories accuse correct processes of having sent too much, first as they are, then if that is
    /// true. It is known at the end: a refusal may come later than the history that tells of it.
    accusing: Vec<(Judgement, Outcome)>,
    /// How many more there are, of which nothing else is kept.
    more_accusing: HashMap<Outcome, u64>,
}

impl Bench {
    pub(super) fn take(&mut self, judgement: Judgement) {
        let (outcome, excused) = (judgement.outcome(), judgement.if_excused());
        if outcome == excused {
            return self.count(judgement, outcome);
        }
        if self.accusing.len() < EVIDENCE {
            self.accusing.push((judgement, excused));
        } else {
            *self.more_accusing.entry(excused).or_default() += 1;
        }
    }

    /// Everything and the evidence, now that it is known whether anybody was refused for having sent too much.
    pub(super) fn settle(mut self, over_quota: bool) -> (Judged, Vec<(u64, Box<Record>)>) {
        let more = std::mem::take(&mut self.more_accusing);
        let accused = self.accusing.len() as u64 + more.values().sum::<u64>();
        for (mut judgement, excused) in std::mem::take(&mut self.accusing) {
            let outcome = if over_quota { excused } else { judgement.outcome() };
            if over_quota {
                judgement.record = None;
                self.judged.histories += 1;
            }
            self.count(judgement, outcome);
        }
        for (excused, count) in more {
            *self.judged.count(if over_quota { excused } else { Outcome::Violation }) += count;
            self.judged.histories += count;
        }
        if over_quota && accused > 0 {
            self.judged.reasons.push(format!(
                "in {accused} histories correct processes are on record for sending more than they may, which they did"
            ));
        }
        (self.judged, self.evidence)
    }

    fn count(&mut self, judgement: Judgement, outcome: Outcome) {
        let Judgement { number, seed, finding, record, lost, .. } = judgement;
        let judged = &mut self.judged;
        *judged.count(outcome) += 1;
        judged.histories += u64::from(record.is_some());
        judged.histories_lost += u64::from(lost);
        if outcome == Outcome::Valid {
            return;
        }
        let by_history = record.iter().flat_map(|record| &record.verdict.reasons);
        for reason in finding.reasons.iter().chain(by_history) {
            if judged.reasons.len() < REASONS {
                judged.reasons.push(format!("instance {number} (seed {seed}): {outcome}: {reason}"));
            }
        }
        let alike = |record: &Record| record.verdict.verdict == Outcome::Violation;
        if let Some(record) = record {
            let kept = self.evidence.iter().filter(|(_, kept)| alike(kept) == alike(&record)).count();
            if kept < EVIDENCE {
                self.evidence.push((number, record));
            }
        }
    }
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    let order = [Outcome::Violation, Outcome::Outside, Outcome::Unknown];
    order.into_iter().find(|outcome| *outcome == one || *outcome == other).unwrap_or(Outcome::Valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(outcome: Outcome) -> Judgement {
        let reasons = vec!["why".to_owned()];
        Judgement {
            number: 3,
            seed: 7,
            finding: Finding { outcome, reasons },
            record: None,
            excused: None,
            lost: false,
        }
    }

    #[test]
    fn the_worst_instance_is_the_verdict_but_for_those_that_prove_nothing() {
        let mut bench = Bench::default();
        assert_eq!(bench.judged.verdict(), Outcome::Unknown);
        for (next, verdict) in [
            (Outcome::Unknown, Outcome::Unknown),
            (Outcome::Valid, Outcome::Valid),
            (Outcome::Outside, Outcome::Outside),
            (Outcome::Violation, Outcome::Violation),
            (Outcome::Valid, Outcome::Violation),
        ] {
            bench.take(found(next));
            assert_eq!(bench.judged.verdict(), verdict);
        }
        assert_eq!(bench.judged.instances(), 5);
        assert_eq!(bench.judged.reasons[1], "instance 3 (seed 7): outside: why");
    }

    #[test]
    fn who_is_accused_of_having_sent_too_much_is_excused_only_if_somebody_was_refused_for_it() {
        let accusing = || {
            let mut bench = Bench::default();
            for _ in 0..20 {
                bench.take(Judgement { excused: Some(Outcome::Valid), ..found(Outcome::Valid) });
                bench.accusing.push((found(Outcome::Violation), Outcome::Valid));
            }
            *bench.more_accusing.entry(Outcome::Outside).or_default() += 2;
            bench
        };
        let (judged, _) = accusing().settle(false);
        assert_eq!((judged.valid, judged.violation), (20, 22));
        let (judged, evidence) = accusing().settle(true);
        assert_eq!((judged.valid, judged.outside, judged.violation), (40, 2, 0));
        assert!(evidence.is_empty() && judged.reasons.last().unwrap().starts_with("in 22 histories"));
    }

    #[test]
    fn results_of_several_generators_add_up() {
        let mut one = Judged { valid: 5, unknown: 1, ..Judged::default() };
        one.merge(&Judged { valid: 2, violation: 1, histories: 3, ..Judged::default() });
        assert_eq!((one.valid, one.violation, one.histories), (7, 1, 3));
        assert_eq!(one.verdict(), Outcome::Violation);
    }
}
