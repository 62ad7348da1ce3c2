//! Whether a strategy is seen to have been at work: a run with an attack proves something only if the attack
//! happened (SPEC B3).
//!
//! Only what the server recorded counts (V5). A strategy that holds back is seen by what did not come: of one
//! that crashed, the access that was due. No strategy is seen by the offence that it commits: whether that is on
//! record is what the judge asks of those who were at work (B2), and it must be able to find that it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Strategy, mixed, own_value};
use crate::access::Op;
use crate::cast::{Cast, Role, seed_of};
use crate::counts::RunCounts;
use crate::history::{Event, Recorded};
use crate::params::{Params, Patience};
use crate::process::mode;
use crate::types::{Phase, ProcessId, Time, Value};

/// The attacks of a run that were observed: strategies in the history, wire attacks in the server's counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detection {
    /// By the name of each strategy and wire attack of the cast, the number of processes that were observed to
    /// carry it out.
    pub fired: BTreeMap<String, u64>,
    /// The processes that were observed to carry out the attack that the cast gives them.
    pub attackers: BTreeSet<ProcessId>,
}

/// Detects the attacks of a run. `run_seed` is the seed of the whole run, since a strategy may draw what it does;
/// `counted` is what the server counted, which wire attacks are detected by.
#[must_use]
pub fn detect(
    params: &Params,
    cast: &Cast,
    run_seed: u64,
    history: &[Recorded],
    counted: &RunCounts,
) -> Detection {
    let mut observations = Observations::new(params, cast);
    for Recorded { at, event } in history {
        observations.observe(*at, event);
    }
    observations.detect(cast, run_seed, counted)
}

/// What a history shows of Byzantine processes, taken in event by event: for runs that keep none.
#[derive(Clone, Debug)]
pub struct Observations {
    /// So long for a phase that waits for a process is a stall; `None`: no wait is.
    long: Option<Duration>,
    gathered: bool,
    /// The last phase that was executed.
    phase: Option<Phase>,
    /// When gathering ended or the last phase was executed: no phase opens before.
    since: Time,
    list: Vec<Value>,
    /// By Byzantine process.
    seen: BTreeMap<ProcessId, Seen>,
}

/// What it shows of one of them.
#[derive(Clone, Debug, Default)]
struct Seen {
    joined: bool,
    /// What its accesses append, in the order of their numbers; `None` for a read.
    accesses: Vec<Option<Value>>,
    /// The phases in which they were executed.
    executed: Vec<Phase>,
    /// The number of the last access that a phase waited for at length.
    stalled: u64,
    decided: Option<Value>,
}

impl Observations {
    /// Nothing has been seen yet of the Byzantine processes of this cast.
    #[must_use]
    pub fn new(params: &Params, cast: &Cast) -> Self {
        let long = match params.spec().patience {
            Patience::Finite(patience) => Some(patience / 2),
            Patience::Endless => None,
        };
        let seen = cast.byzantine().map(|process| (process, Seen::default())).collect();
        Self { long, gathered: false, phase: None, since: Time::ZERO, list: Vec::new(), seen }
    }

    /// Detects the attacks of the cast in the events observed so far. See [`detect`].
    #[must_use]
    pub fn detect(&self, cast: &Cast, run_seed: u64, counted: &RunCounts) -> Detection {
        let mut detection = Detection::default();
        for (process, part) in cast.parts() {
            let (name, detected) = match &part.role {
                Role::Correct => continue,
                Role::Byzantine(strategy) => {
                    (strategy.name(), self.show(process, strategy, seed_of(process, run_seed), 1))
                }
                Role::Attacker(attack) => (attack.name(), attack.is_shown_by(process, counted)),
            };
            *detection.fired.entry(name.to_owned()).or_default() += u64::from(detected);
            if detected {
                detection.attackers.insert(process);
            }
        }
        detection
    }

    /// Takes in the next event.
    pub fn observe(&mut self, at: Time, event: &Event) {
        match event {
            Event::GatheringEnded { .. } => {
                self.gathered = true;
                self.since = at;
            }
            Event::Stepped { phase, .. } => {
                self.phase = Some(*phase);
                self.since = at;
            }
            Event::Added { value, .. } => self.list.push(value.clone()),
            Event::Joined { process } => self.change(*process, |seen| seen.joined = true),
            Event::PatienceSpent { process } => self.change(*process, |seen| {
                if seen.joined {
                    seen.stalled = seen.next();
                }
            }),
            Event::Accepted { process, op, .. } => {
                let at_length = self.gathered && self.long.is_some_and(|long| at.since(self.since) >= long);
                self.change(*process, |seen| {
                    if at_length {
                        seen.stalled = seen.next();
                    }
                    seen.accesses.push(appended(op));
                });
            }
            Event::Answered { process, phase, .. } => {
                self.change(*process, |seen| seen.executed.push(*phase));
            }
            Event::Decided { process, value } => {
                self.change(*process, |seen| seen.decided = Some(value.clone()));
            }
            _ => {}
        }
    }

    fn change(&mut self, process: ProcessId, change: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.seen.get_mut(&process) {
            change(seen);
        }
    }

    /// Whether a process that draws from `seed` is seen to carry out a strategy from its access `from` on.
    fn show(&self, me: ProcessId, strategy: &Strategy, seed: u64, from: u64) -> bool {
        let Some(seen) = self.seen.get(&me) else { return false };
        // Before gathering ends no phase comes, and nothing is due from anybody.
        let stays = self.gathered && seen.joined && seen.decided.is_none();
        match strategy {
            Strategy::Absent => self.gathered && !seen.joined,
            Strategy::Silent => stays && seen.next() <= from,
            Strategy::Crash { access } => stays && seen.next() == access.get().max(from),
            // Its append was turned away, so the first access that was taken is what came next. A process whose
            // append is taken, or is due still, shows none before it.
            Strategy::Empty => from == 1 && seen.next() > 1 && seen.append(1).is_none(),
            Strategy::Collude { value }
            | Strategy::Mimic { value }
            | Strategy::Distinct { value: Some(value) } => from == 1 && seen.append(1) == Some(value),
            Strategy::Distinct { value: None } => from == 1 && seen.append(1) == Some(&own_value(me)),
            Strategy::Mixed { collude, mimic } => {
                self.show(me, &mixed::drawn(collude, mimic, seed), seed, from)
            }
            Strategy::LateAppend { access, value } => {
                access.get() >= from && seen.append(access.get()) == Some(value)
            }
            Strategy::RepeatAppend { .. } => {
                (from.max(2)..seen.next()).any(|number| seen.append(number).is_some())
            }
            Strategy::Reader => {
                from < seen.next() && seen.append(from).is_none() && seen.append(from + 1).is_some()
            }
            Strategy::Stall { conduct } => {
                let conduct = conduct.as_ref();
                seen.stalled >= from && conduct.is_none_or(|conduct| self.show(me, conduct, seed, from))
            }
            Strategy::Adaptive { phase, then } => {
                let correct = seen.executed.iter().filter(|executed| *executed < phase).count() as u64;
                self.phase >= Some(*phase) && self.show(me, then, seed, from.max(correct + 1))
            }
            Strategy::Liar { .. } => seen.decided.is_some() && seen.decided.as_ref() != mode(&self.list),
        }
    }
}

impl Seen {
    /// The number of its next access.
    fn next(&self) -> u64 {
        self.accesses.len() as u64 + 1
    }

    /// What its access of this number appended.
    fn append(&self, number: u64) -> Option<&Value> {
        let index = usize::try_from(number.checked_sub(1)?).ok()?;
        self.accesses.get(index)?.as_ref()
    }
}

fn appended(op: &Op) -> Option<Value> {
    match op {
        Op::Append(value) => Some(value.clone()),
        Op::Read { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Answer, AppendAnswer};
    use crate::cast::Part;
    use crate::history::{Offence, OffenceKind};
    use crate::params::ParamsSpec;
    use crate::types::{AccessNumber, Position, WarpId};

    /// How often it fired at process 1 of two, in these events, a second apart; patience is a second.
    fn fired_of(strategy: &str, events: Vec<Event>) -> u64 {
        fired_with(strategy, 0, events)
    }

    /// The same, in a run with this seed.
    fn fired_with(strategy: &str, run_seed: u64, events: Vec<Event>) -> u64 {
        let params = Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap();
        let proposal = Value::parse("a").unwrap();
        let strategy: Strategy = strategy.parse().unwrap();
        let name = strategy.name();
        let correct = Part { role: Role::Correct, proposal: proposal.clone() };
        let cast = Cast::new(vec![Part { role: Role::Byzantine(strategy), proposal }, correct]);
        let at = (0..).map(|second| Time::from_nanos(second * 1_000_000_000));
        let history: Vec<Recorded> = at.zip(events).map(|(at, event)| Recorded { at, event }).collect();
        detect(&params, &cast, run_seed, &history, &RunCounts::default()).fired[name]
    }

    fn joined() -> Event {
        Event::Joined { process: ProcessId::FIRST }
    }

    fn gathered() -> Event {
        Event::GatheringEnded { joined: 1 }
    }

    fn accepted(number: u64, op: Op) -> Event {
        let number = AccessNumber::new(number).unwrap();
        Event::Accepted { process: ProcessId::FIRST, number, session: None, op }
    }

    fn append(number: u64, value: &str) -> Event {
        accepted(number, Op::Append(Value::parse(value).unwrap()))
    }

    fn read(number: u64) -> Event {
        accepted(number, Op::Read { start: Position::new(0) })
    }

    fn stepped(phase: u64) -> Event {
        let phase = Phase::new(phase).unwrap();
        Event::Stepped { phase, warp: WarpId::FIRST, length: 0 }
    }

    fn answered(number: u64, phase: u64) -> Event {
        Event::Answered {
            process: ProcessId::FIRST,
            number: AccessNumber::new(number).unwrap(),
            phase: Phase::new(phase).unwrap(),
            answer: Answer::Append(AppendAnswer::Failed),
        }
    }

    fn decided(value: &str) -> Event {
        Event::Decided { process: ProcessId::FIRST, value: Value::parse(value).unwrap() }
    }

    fn added(value: &str) -> Event {
        Event::Added {
            position: Position::new(0),
            process: ProcessId::FIRST,
            phase: Phase::FIRST,
            value: Value::parse(value).unwrap(),
        }
    }

    /// Bytes that are no value, on record.
    fn malformed() -> Event {
        let detail = "the value is empty".to_owned();
        let (process, kind) = (ProcessId::FIRST, OffenceKind::Malformed);
        Event::Offence(Offence { process, kind, number: None, phase: None, detail })
    }

    #[test]
    fn who_holds_back_is_seen_by_what_does_not_come() {
        assert_eq!(fired_of("absent", vec![gathered()]), 1);
        assert_eq!(fired_of("absent", vec![joined(), gathered()]), 0);
        let fired_in_phases =
            |strategy, events| fired_of(strategy, [vec![joined(), gathered()], events].concat());
        assert_eq!(fired_in_phases("silent", vec![]), 1);
        assert_eq!(fired_in_phases("silent", vec![append(1, "b")]), 0);
        assert_eq!(fired_of("silent", vec![gathered()]), 0);
        assert_eq!(fired_in_phases("crash(access=1)", vec![]), 1);
        assert_eq!(fired_in_phases("crash(access=2)", vec![append(1, "a")]), 1);
        assert_eq!(fired_in_phases("crash(access=2)", vec![append(1, "a"), read(2)]), 0);
        assert_eq!(fired_in_phases("crash(access=2)", vec![append(1, "a"), decided("a")]), 0);
    }

    #[test]
    fn nobody_holds_back_before_anything_is_due() {
        assert_eq!(fired_of("absent", vec![]), 0);
        assert_eq!(fired_of("silent", vec![joined()]), 0);
        assert_eq!(fired_of("crash(access=1)", vec![joined()]), 0);
        assert_eq!(fired_of("crash(access=2)", vec![joined(), append(1, "a")]), 0);
    }

    #[test]
    fn who_appends_is_seen_by_the_value_and_the_number_of_the_access() {
        assert_eq!(fired_of("collude(value=b)", vec![joined(), append(1, "b")]), 1);
        assert_eq!(fired_of("collude(value=b)", vec![joined(), append(1, "a")]), 0);
        assert_eq!(fired_of("mimic(value=b)", vec![joined(), append(1, "b")]), 1);
        assert_eq!(fired_of("mimic(value=b)", vec![joined(), read(1), append(2, "b")]), 0);
        assert_eq!(fired_of("distinct", vec![joined(), append(1, "byzantine-1")]), 1);
        assert_eq!(fired_of("distinct", vec![joined(), append(1, "a")]), 0);
        assert_eq!(fired_of("late-append(access=2, value=b)", vec![joined(), read(1), append(2, "b")]), 1);
        assert_eq!(fired_of("late-append(access=3, value=b)", vec![joined(), read(1), append(2, "b")]), 0);
        assert_eq!(fired_of("repeat-append", vec![joined(), append(1, "a"), append(2, "a")]), 1);
        assert_eq!(fired_of("repeat-append", vec![joined(), append(1, "a"), read(2)]), 0);
        assert_eq!(fired_of("reader", vec![joined(), read(1), append(2, "b")]), 1);
        assert_eq!(fired_of("reader", vec![joined(), append(1, "a"), append(2, "b")]), 0);
        assert_eq!(fired_of("reader", vec![joined(), append(1, "a")]), 0);
    }

    #[test]
    fn whose_append_was_turned_away_is_seen_by_what_came_first_and_not_by_the_offence() {
        assert_eq!(fired_of("empty", vec![joined(), malformed(), read(1)]), 1);
        assert_eq!(fired_of("empty", vec![joined(), read(1)]), 1);
        assert_eq!(fired_of("empty", vec![joined(), malformed()]), 0);
        assert_eq!(fired_of("empty", vec![joined(), malformed(), append(1, "a"), read(2)]), 0);
    }

    #[test]
    fn a_mix_is_seen_by_the_case_that_was_drawn_and_no_other() {
        let (collude, mimic) = (Value::parse("0").unwrap(), Value::parse("b").unwrap());
        let cases = mixed::cases(&collude, &mimic);
        let shows = [read(1), append(1, "byzantine-1"), append(1, "0"), append(1, "b")];
        let mut drawn_cases = BTreeSet::new();
        for run_seed in 0..40 {
            let drawn = mixed::drawn(&collude, &mimic, seed_of(ProcessId::FIRST, run_seed));
            let fires = |event: &Event| {
                fired_with("mixed(collude=0, mimic=b)", run_seed, vec![joined(), event.clone()]) == 1
            };
            assert_eq!(shows.each_ref().map(fires), cases.each_ref().map(|case| *case == drawn));
            assert!(!fires(&append(1, "a")));
            drawn_cases.insert(drawn.name());
        }
        assert_eq!(drawn_cases.len(), cases.len(), "{drawn_cases:?}");
    }

    #[test]
    fn who_stalls_is_seen_by_how_long_a_phase_waits_for_it() {
        assert_eq!(fired_of("stall", vec![joined(), gathered(), append(1, "a")]), 1);
        let spent = || Event::PatienceSpent { process: ProcessId::FIRST };
        assert_eq!(fired_of("stall", vec![joined(), append(1, "a"), gathered(), spent()]), 1);
        assert_eq!(fired_of("stall", vec![spent(), joined(), append(1, "a"), gathered()]), 0);
        assert_eq!(fired_of("stall", vec![joined(), append(1, "a"), gathered()]), 0, "it was there in time");
        let colludes = "stall(conduct=collude(value=b))";
        assert_eq!(fired_of(colludes, vec![joined(), gathered(), append(1, "b")]), 1);
        assert_eq!(fired_of(colludes, vec![joined(), gathered(), append(1, "a")]), 0);
    }

    #[test]
    fn who_is_corrupted_is_seen_by_what_it_does_from_then_on() {
        let corrupted = |then: &str, more: Vec<Event>| {
            let before = vec![joined(), gathered(), append(1, "a"), stepped(1), answered(1, 1)];
            fired_of(&format!("adaptive(phase=2, then={then})"), [before, more].concat())
        };
        assert_eq!(corrupted("silent", vec![stepped(2)]), 1);
        assert_eq!(corrupted("silent", vec![]), 0, "phase 2 has not come");
        assert_eq!(corrupted("silent", vec![read(2), stepped(2)]), 0);
        assert_eq!(corrupted("crash(access=3)", vec![read(2), stepped(2)]), 1);
        assert_eq!(corrupted("reader", vec![read(2), stepped(2), append(3, "b")]), 1);
        assert_eq!(corrupted("repeat-append", vec![append(2, "b"), stepped(2)]), 1);
        assert_eq!(
            corrupted("collude(value=a)", vec![stepped(2)]),
            0,
            "it had appended as a correct process"
        );
        let at_once = "adaptive(phase=1, then=collude(value=a))";
        assert_eq!(fired_of(at_once, vec![joined(), append(1, "a"), stepped(1)]), 1);
    }

    #[test]
    fn a_lie_is_what_is_not_the_mode_of_the_list() {
        assert_eq!(fired_of("liar", vec![joined(), added("a"), decided("b")]), 1);
        assert_eq!(fired_of("liar", vec![joined(), added("a"), decided("a")]), 0);
        assert_eq!(fired_of("liar", vec![joined(), added("a")]), 0);
    }
}
