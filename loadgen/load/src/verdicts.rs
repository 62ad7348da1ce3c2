//! The verdict of a load: that of its instances, taken together.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use stickycas_harness::record::Record;
use stickycas_model::judge::Outcome;
use stickycas_model::types::Value;

use super::measure::Principal;
use super::observations::{Finding, ProcessObservation};

/// As many instances are kept as evidence, of those that are violations and of the others.
pub const EVIDENCE: usize = 8;
/// As many reasons are told.
const REASONS: usize = 16;

/// The verdict on one instance.
#[derive(Debug)]
pub(super) struct InstanceVerdict {
    pub(super) number: u64,
    pub(super) seed: u64,
    /// By the observations of its processes.
    pub(super) finding: Finding,
    /// By its whole history, if that was collected.
    pub(super) record: Option<Box<Record>>,
    /// If the history accuses correct processes of having sent more than they may.
    pub(super) excuse: Option<Excuse>,
    /// The observations of its correct processes, unless it is valid.
    pub(super) observations: Option<Box<InstanceObservations>>,
    /// Whether it was to be collected and could not be, or not to its end.
    pub(super) lost: bool,
}

/// An accusation that is right if all of these were refused for having sent too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excuse {
    /// The outcome of the history without it.
    pub(super) outcome: Outcome,
    pub(super) accused: Vec<Principal>,
}

/// The observations of the correct processes of an instance: the evidence if there is no history, for
/// instance because a server that answers wrongly gives none.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceObservations {
    /// Its id.
    pub instance: String,
    /// Its seed; its parameters are otherwise those of the profile.
    #[serde(with = "stickycas_model::seed_text")]
    pub seed: u64,
    /// The proposals, from process 1 on.
    pub proposals: Vec<Value>,
    /// Which correct process saw what.
    pub seen: Vec<ProcessObservation>,
}

/// An instance that was not valid.
#[derive(Debug)]
pub struct Evidence {
    /// Its number in the load.
    pub number: u64,
    /// The reasons, by the observations of its processes.
    pub reasons: Vec<String>,
    /// These observations.
    pub observations: Box<InstanceObservations>,
    /// Its whole history, if that was collected.
    pub record: Option<Box<Record>>,
    /// Whether something broke that was promised.
    violation: bool,
}

impl InstanceVerdict {
    /// The worse of the two.
    pub(super) fn outcome(&self) -> Outcome {
        let history = self.record.as_ref().map_or(Outcome::Valid, |record| record.verdict.verdict);
        worse(self.finding.outcome, history)
    }

    /// The same if those were rightly accused who are only accused of having sent too much.
    fn outcome_if_excused(&self) -> Outcome {
        match &self.excuse {
            None => self.outcome(),
            Some(excuse) => worse(self.finding.outcome, excuse.outcome),
        }
    }
}

/// How many instances were found what, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictCounts {
    /// Instances in which everything held.
    pub valid: u64,
    /// In which something broke that was not promised.
    pub outside: u64,
    /// In which something broke that was promised.
    pub violation: u64,
    /// Which prove nothing: not every correct process came to its end, or the history is incomplete.
    pub unknown: u64,
    /// Which were started and never created, so that there was nothing to judge: mostly refused.
    #[serde(default)]
    pub not_created: u64,
    /// Of how many the whole history was judged too.
    pub histories: u64,
    /// Of how many it should have been, and could not be collected before the server let go of it.
    pub histories_lost: u64,
    /// The reasons of the first instances that are not valid.
    pub reasons: Vec<String>,
}

impl VerdictCounts {
    /// The verdict as a whole. Instances that prove nothing make the whole prove nothing only if there are no
    /// others: how many there may be is a question of errors, not of correctness.
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

    /// How many were started, the warm-up included.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.instances() + self.not_created
    }

    /// The verdict as people read it, with how many of those that were started it is of, and what is to be
    /// said of the others: `VALID (3 of 60; 57 not created)`.
    #[must_use]
    pub fn line(&self) -> String {
        let verdict = self.verdict();
        let unknown = if self.unknown == 1 { "proves nothing" } else { "prove nothing" };
        let counts = [
            (self.violation, Outcome::Violation.title()),
            (self.outside, Outcome::Outside.title()),
            (if verdict == Outcome::Unknown { 0 } else { self.unknown }, unknown),
            (self.not_created, "not created"),
        ];
        let others = counts.into_iter().filter(|(count, what)| *count > 0 && *what != verdict.title());
        let others: String = others.map(|(count, what)| format!("; {count} {what}")).collect();
        format!("{} ({} of {}{others})", verdict.title(), self.of(verdict), self.started())
    }

    /// How many were found so.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Valid => self.valid,
            Outcome::Outside => self.outside,
            Outcome::Violation => self.violation,
            Outcome::Unknown => self.unknown,
        }
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
        self.not_created += other.not_created;
        self.histories += other.histories;
        self.histories_lost += other.histories_lost;
        self.reasons.extend(other.reasons.iter().cloned());
        self.reasons.truncate(REASONS);
    }
}

/// The verdicts until now, and the evidence.
#[derive(Debug, Default)]
pub(super) struct VerdictTally {
    pub(super) judged: VerdictCounts,
    /// Instances that were not valid.
    evidence: Vec<Evidence>,
    /// Instances whose histories accuse correct processes of having sent too much. Whether that is true is
    /// known at the end: a refusal may come later than the history that tells of it.
    accusing: Vec<InstanceVerdict>,
    /// How many more there are, of which nothing else is kept but what they are if it is true, and whom they
    /// accuse.
    more_accusing: HashMap<(Outcome, Vec<Principal>), u64>,
}

impl VerdictTally {
    pub(super) fn take(&mut self, judgement: InstanceVerdict) {
        let (outcome, outcome_if_excused) = (judgement.outcome(), judgement.outcome_if_excused());
        match judgement.excuse {
            Some(Excuse { accused, .. })
                if outcome != outcome_if_excused && self.accusing.len() >= EVIDENCE =>
            {
                *self.more_accusing.entry((outcome_if_excused, accused)).or_default() += 1;
            }
            Some(_) if outcome != outcome_if_excused => self.accusing.push(judgement),
            _ => self.count(judgement, outcome),
        }
    }

    /// Everything and the evidence, now that it is known who was refused for having sent too much.
    pub(super) fn settle(mut self, over_quota: &HashSet<Principal>) -> (VerdictCounts, Vec<Evidence>) {
        let rightly = |accused: &[Principal]| accused.iter().all(|who| over_quota.contains(who));
        let mut right = 0;
        for mut judgement in std::mem::take(&mut self.accusing) {
            let excuse = judgement.outcome_if_excused();
            if judgement.excuse.as_ref().is_some_and(|it| rightly(&it.accused)) {
                right += 1;
                judgement.record = None;
                self.judged.histories += 1;
                self.count(judgement, excuse);
            } else {
                let outcome = judgement.outcome();
                self.count(judgement, outcome);
            }
        }
        for ((excuse, accused), count) in std::mem::take(&mut self.more_accusing) {
            let rightly = rightly(&accused);
            right += if rightly { count } else { 0 };
            *self.judged.count(if rightly { excuse } else { Outcome::Violation }) += count;
            self.judged.histories += count;
        }
        if right > 0 {
            self.judged.reasons.push(format!(
                "in {right} histories correct processes are on record for sending more than they may, which they did"
            ));
        }
        (self.judged, self.evidence)
    }

    fn count(&mut self, judgement: InstanceVerdict, outcome: Outcome) {
        let InstanceVerdict { number, seed, finding, record, lost, observations, .. } = judgement;
        let judged = &mut self.judged;
        *judged.count(outcome) += 1;
        judged.histories += u64::from(record.is_some());
        judged.histories_lost += u64::from(lost);
        if outcome == Outcome::Valid {
            return;
        }
        let title = outcome.title();
        let by_history = record.iter().flat_map(|record| &record.verdict.reasons);
        for reason in finding.reasons.iter().chain(by_history) {
            if judged.reasons.len() < REASONS {
                judged.reasons.push(format!("instance {number} (seed {seed}): {title}: {reason}"));
            }
        }
        let violation = outcome == Outcome::Violation;
        let kept = self.evidence.iter().filter(|kept| kept.violation == violation).count();
        // An instance that only failed to end is counted; it is evidence only if its history says more.
        let Some(observations) = observations.filter(|_| outcome != Outcome::Unknown || record.is_some())
        else {
            return;
        };
        if kept < EVIDENCE {
            let reasons = finding.reasons;
            self.evidence.push(Evidence { number, reasons, observations, record, violation });
        }
    }
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    let order = [Outcome::Violation, Outcome::Outside, Outcome::Unknown];
    order.into_iter().find(|outcome| *outcome == one || *outcome == other).unwrap_or(Outcome::Valid)
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::ProcessId;

    use super::*;

    fn found(outcome: Outcome) -> InstanceVerdict {
        let reasons = vec!["why".to_owned()];
        InstanceVerdict {
            number: 3,
            seed: 7,
            finding: Finding { outcome, reasons },
            record: None,
            excuse: None,
            observations: None,
            lost: false,
        }
    }

    #[test]
    fn the_worst_instance_that_proves_something_is_the_verdict() {
        let mut tally = VerdictTally::default();
        assert_eq!(tally.judged.verdict(), Outcome::Unknown);
        for (next, verdict) in [
            (Outcome::Unknown, Outcome::Unknown),
            (Outcome::Valid, Outcome::Valid),
            (Outcome::Outside, Outcome::Outside),
            (Outcome::Violation, Outcome::Violation),
            (Outcome::Valid, Outcome::Violation),
        ] {
            tally.take(found(next));
            assert_eq!(tally.judged.verdict(), verdict);
        }
        assert_eq!(tally.judged.instances(), 5);
        assert_eq!(tally.judged.reasons[1], "instance 3 (seed 7): BROKEN: why");
    }

    #[test]
    fn an_accusation_of_excess_is_excused_only_by_a_refusal() {
        let who = |process| Principal { group: 0, process: ProcessId::new(process).unwrap() };
        let accusing = || {
            let mut tally = VerdictTally::default();
            tally.take(found(Outcome::Valid));
            for (excuse, accused) in
                [(Outcome::Valid, vec![who(1)]), (Outcome::Outside, vec![who(1), who(2)])]
            {
                *tally.more_accusing.entry((excuse, accused)).or_default() += 20;
            }
            tally
        };
        let counts = |refused: &[Principal]| {
            let (judged, _) = accusing().settle(&refused.iter().copied().collect());
            (judged.valid, judged.outside, judged.violation, judged.reasons.len())
        };
        assert_eq!(counts(&[who(1), who(2)]), (21, 20, 0, 1));
        // The second was not refused: a history that accuses it too is wrong.
        assert_eq!(counts(&[who(1)]), (21, 0, 20, 1));
        // A refusal of another process excuses none.
        assert_eq!(counts(&[who(3)]), (1, 0, 40, 0));
    }

    #[test]
    fn results_of_several_generators_add_up() {
        let mut one = VerdictCounts { valid: 5, unknown: 1, not_created: 2, ..VerdictCounts::default() };
        one.merge(&VerdictCounts {
            valid: 2,
            violation: 1,
            histories: 3,
            not_created: 4,
            ..VerdictCounts::default()
        });
        assert_eq!((one.valid, one.violation, one.histories), (7, 1, 3));
        assert_eq!(one.line(), "VIOLATION (1 of 15; 1 proves nothing; 6 not created)");
        assert_eq!(one.verdict(), Outcome::Violation);
    }
}
