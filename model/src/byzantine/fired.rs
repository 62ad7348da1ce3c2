//! Whether a strategy is seen to have been at work: a run with an attack proves something only if the attack
//! happened (SPEC B3). Whoever is seen at work has committed the offences of its strategy, and must be named (B2).

use std::collections::{BTreeMap, BTreeSet};

use super::Strategy;
use crate::access::Op;
use crate::cast::{Cast, Part, Role};
use crate::history::{Event, OffenceKind, Recorded};
use crate::params::Params;
use crate::types::{AccessNumber, ProcessId};

/// How many processes were seen to carry out each strategy of the cast, by its name; 0 for one that nobody
/// was.
#[must_use]
pub fn fired(cast: &Cast, history: &[Recorded]) -> BTreeMap<String, u64> {
    let at_work = at_work(cast, history);
    let mut fired = BTreeMap::new();
    for (process, part) in cast.parts() {
        if let Role::Byzantine(strategy) = &part.role {
            *fired.entry(strategy.name().to_owned()).or_default() += u64::from(at_work.contains(&process));
        }
    }
    fired
}

/// The Byzantine processes that were seen to carry out their strategy.
#[must_use]
pub fn at_work(cast: &Cast, history: &[Recorded]) -> BTreeSet<ProcessId> {
    let seen = Seen::of(cast, history);
    let carried_out = |process: ProcessId, part: &Part| match &part.role {
        Role::Correct => false,
        Role::Byzantine(strategy) => seen.carried_out(process, strategy),
    };
    cast.parts().filter(|(process, part)| carried_out(*process, part)).map(|(process, _)| process).collect()
}

/// The offences that the processes seen at work have thereby committed, and for which the record must name them
/// (B2). `run_seed` as for [`Part::behaviour`].
#[must_use]
pub fn offences(
    cast: &Cast,
    params: &Params,
    run_seed: u64,
    at_work: &BTreeSet<ProcessId>,
) -> BTreeMap<ProcessId, BTreeSet<OffenceKind>> {
    let committed = at_work.iter().filter_map(|&process| {
        let kinds = cast.part(process)?.offences(process, run_seed, params);
        (!kinds.is_empty()).then(|| (process, kinds.iter().copied().collect()))
    });
    committed.collect()
}

/// What a history shows of each Byzantine process.
struct Seen {
    gathered: bool,
    joined: BTreeSet<ProcessId>,
    accessed: BTreeSet<ProcessId>,
    /// The first append of each, as it was accepted.
    appends: BTreeMap<ProcessId, AccessNumber>,
}

impl Seen {
    fn of(cast: &Cast, history: &[Recorded]) -> Self {
        let byzantine: BTreeSet<ProcessId> = cast.byzantine().collect();
        let mut seen = Self {
            gathered: false,
            joined: BTreeSet::new(),
            accessed: BTreeSet::new(),
            appends: BTreeMap::new(),
        };
        for Recorded { event, .. } in history {
            match event {
                Event::GatheringEnded { .. } => seen.gathered = true,
                Event::Joined { process } if byzantine.contains(process) => {
                    seen.joined.insert(*process);
                }
                Event::Accepted { process, number, op, .. } if byzantine.contains(process) => {
                    seen.accessed.insert(*process);
                    if matches!(op, Op::Append(_)) {
                        seen.appends.entry(*process).or_insert(*number);
                    }
                }
                _ => {}
            }
        }
        seen
    }

    fn carried_out(&self, process: ProcessId, strategy: &Strategy) -> bool {
        let joined = self.joined.contains(&process);
        match strategy {
            Strategy::Absent => self.gathered && !joined,
            Strategy::Silent => joined && !self.accessed.contains(&process),
            Strategy::Collude { .. } | Strategy::Distinct { .. } => self.appends.contains_key(&process),
            Strategy::LateAppend { access, .. } => self.appends.get(&process) == Some(access),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Time, Value};

    fn fired_of(strategy: &str, events: Vec<Event>) -> u64 {
        let proposal = Value::parse("a").unwrap();
        let strategy: Strategy = strategy.parse().unwrap();
        let name = strategy.name();
        let cast = Cast::new(vec![Part { role: Role::Byzantine(strategy), proposal }]);
        let history: Vec<Recorded> =
            events.into_iter().map(|event| Recorded { at: Time::ZERO, event }).collect();
        fired(&cast, &history)[name]
    }

    fn joined() -> Event {
        Event::Joined { process: ProcessId::FIRST }
    }

    fn append(number: u64) -> Event {
        let op = Op::Append(Value::parse("b").unwrap());
        Event::Accepted {
            process: ProcessId::FIRST,
            number: AccessNumber::new(number).unwrap(),
            session: None,
            op,
        }
    }

    #[test]
    fn each_strategy_counts_only_when_it_is_seen() {
        let gathered = || Event::GatheringEnded { joined: 1 };
        assert_eq!(fired_of("absent", vec![gathered()]), 1);
        assert_eq!(fired_of("absent", vec![joined(), gathered()]), 0);
        assert_eq!(fired_of("silent", vec![joined()]), 1);
        assert_eq!(fired_of("silent", vec![]), 0);
        assert_eq!(fired_of("silent", vec![joined(), append(1)]), 0);
        assert_eq!(fired_of("collude(value=b)", vec![joined(), append(1)]), 1);
        assert_eq!(fired_of("collude(value=b)", vec![joined()]), 0);
        assert_eq!(fired_of("late-append(access=2, value=b)", vec![joined(), append(2)]), 1);
        assert_eq!(fired_of("late-append(access=3, value=b)", vec![joined(), append(2)]), 0);
    }
}
