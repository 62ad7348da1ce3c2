//! The judge of every instance: it checks whether all observations of its processes can be true.
//!
//! It knows nothing but the answers to correct processes and their decisions. From that alone it checks
//! - of each process: its phases are its warp's and come one after the other (W1, F7), it has no more
//!   accesses than D2 allows, it decided the mode of the entries that Algorithm 1 has it read (D1);
//! - of all of them together: one value at each position (R2), at most one winner in a phase and each
//!   position won once (A1), a read shows exactly the entries added before its phase (F2, R1), the list grows
//!   until it is sealed (A2, A3);
//! - that it is refused nothing that a process which keeps to the protocol cannot be refused (B3);
//! - the five properties, each where it is promised (V1 to V3, D2).
//!
//! The rules are those of [`stickycas_model::predicates`], as for a whole history; this module finds in the
//! answers the arguments for them.
//!
//! It cannot see the acts of the server that no process was told: that an access was passed over, that one
//! was accused wrongly. For that a share of the instances is judged from their whole history.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::bounds;
use stickycas_model::ground_truth::GroundTruth;
use stickycas_model::judge::{Outcome, Property};
use stickycas_model::params::Params;
use stickycas_model::predicates::{self, Decisions, EntriesGiven};
use stickycas_model::process::mode;
use stickycas_model::scheduler::Schedule;
use stickycas_model::types::{Phase, Position, ProcessId, Value};
use stickycas_proto::v1::RefusalReason;

/// The observations of one correct process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessObservation {
    /// The process.
    pub process: ProcessId,
    /// Its accesses that were answered, in order.
    pub accesses: Vec<AnsweredAccess>,
    /// Its decision, if it came to one.
    pub decision: Option<Value>,
    /// The first refusal that it met, if it met one.
    pub refused: Option<ObservedRefusal>,
}

/// A refusal, of an access or of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedRefusal {
    /// Its reason.
    #[serde(serialize_with = "name")]
    pub reason: RefusalReason,
    /// In the server's words.
    pub why: String,
}

// The signature that serde asks of a `serialize_with` function.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn name<S: serde::Serializer>(reason: &RefusalReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

/// Whether a process that keeps to the protocol can never be refused for this reason: its messages are well
/// formed, numbered in order, its own, and end with one decision (SPEC section 11). Limits, losses and closed
/// instances can meet any process.
const fn accuses(reason: RefusalReason) -> bool {
    matches!(
        reason,
        RefusalReason::ValueEmpty
            | RefusalReason::ValueTooLarge
            | RefusalReason::Malformed
            | RefusalReason::AccessNumberOutOfOrder
            | RefusalReason::AccessContentDiffers
            | RefusalReason::NotAMember
            | RefusalReason::NotYourPhase
            | RefusalReason::ProcessLeft
            | RefusalReason::DecisionDiffers
    )
}

/// An access that was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum AnsweredAccess {
    /// An append.
    Append {
        /// Its phase.
        phase: Phase,
        /// How it ended.
        answer: AppendAnswer,
    },
    /// A read.
    Read {
        /// Its phase; `None` outside phases, once the instance was over (F10).
        phase: Option<Phase>,
        /// The answer on the list.
        answer: ReadAnswer,
        /// The entries.
        entries: Vec<Value>,
    },
}

impl AnsweredAccess {
    fn phase(&self) -> Option<Phase> {
        match self {
            Self::Append { phase, .. } => Some(*phase),
            Self::Read { phase, .. } => *phase,
        }
    }
}

/// The findings on an instance: `valid` if there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// As for a whole run (V4).
    pub outcome: Outcome,
    /// The broken rules and promises, and the missing parts, in this order.
    pub reasons: Vec<String>,
}

/// Judges an instance by the observations of its correct processes. A process without observations failed,
/// and the instance proves no more than the others did.
#[must_use]
pub fn judge(params: &Params, truth: &GroundTruth, seen: &[ProcessObservation]) -> Finding {
    let mut check = Check::new(params, truth);
    for process in seen {
        check.process(process);
    }
    check.list(seen);
    check.properties(seen);
    let Check { violations, outside, unknown, .. } = check;
    let outcome = match (violations.is_empty(), outside.is_empty(), unknown.is_empty()) {
        (false, _, _) => Outcome::Violation,
        (true, false, _) => Outcome::Outside,
        (true, true, false) => Outcome::Unknown,
        (true, true, true) => Outcome::Valid,
    };
    Finding { outcome, reasons: [violations, outside, unknown].concat() }
}

struct Check<'a> {
    params: &'a Params,
    truth: &'a GroundTruth,
    schedule: Schedule,
    /// The value at each position, and who read it there first.
    entries: Vec<Option<(&'a Value, ProcessId)>>,
    violations: Vec<String>,
    outside: Vec<String>,
    unknown: Vec<String>,
}

impl<'a> Check<'a> {
    fn new(params: &'a Params, truth: &'a GroundTruth) -> Self {
        Self {
            params,
            truth,
            schedule: Schedule::new(params),
            entries: vec![None; params.list_limit() as usize],
            violations: Vec::new(),
            outside: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn violated(&mut self, why: String) {
        self.violations.push(why);
    }

    /// Checks one process alone.
    fn process(&mut self, seen: &'a ProcessObservation) {
        let me = seen.process;
        let warp = self.params.warp_of(me);
        let phases: Vec<Phase> = seen.accesses.iter().filter_map(AnsweredAccess::phase).collect();
        for phase in &phases {
            let of = self.schedule.warp_of(*phase);
            if !predicates::is_phase_of(of, warp) {
                self.violated(format!(
                    "W1: process {me} of warp {warp} was answered in phase {phase} of warp {of}"
                ));
            }
        }
        if let Some(pair) = phases.windows(2).find(|pair| !predicates::comes_after(pair[1], pair[0])) {
            let (first, second) = (pair[0], pair[1]);
            self.violated(format!("F7: process {me} was answered in phase {first} and then in {second}"));
        }
        if !matches!(seen.accesses.first(), Some(AnsweredAccess::Append { .. }) | None) {
            self.violated(format!("D1: the first answer to process {me} is none to an append"));
        }
        for pair in seen.accesses.windows(2) {
            let is_due = matches!(pair[0], AnsweredAccess::Append { phase, answer: AppendAnswer::Failed }
                if predicates::appends_again(self.params, phase));
            match pair[1] {
                AnsweredAccess::Append { .. } if !is_due => {
                    self.violated(format!("D1: process {me} was answered an append after its last one"));
                }
                AnsweredAccess::Read { .. } if is_due => {
                    self.violated(format!("K2: process {me} was answered a read before its last append"));
                }
                _ => {}
            }
        }
        if let Some(ObservedRefusal { reason, why }) = seen.refused.as_ref().filter(|it| accuses(it.reason)) {
            self.violated(format!(
                "B3: process {me}, which is correct, was refused {}: {why}",
                reason.name()
            ));
        }
        self.reads(seen);
        if let Some(decision) = &seen.decision {
            self.decision(seen, decision);
        }
    }

    /// The answers to its reads, each by itself.
    fn reads(&mut self, seen: &'a ProcessObservation) {
        let (me, r) = (seen.process, self.params.read_size());
        for (answer, entries) in seen.accesses.iter().filter_map(read) {
            let ReadAnswer { start, count, length, .. } = *answer;
            if count != predicates::entries_read(self.params, start, length)
                || entries.len() != count as usize
            {
                self.violated(format!(
                    "R1: a read of process {me} from {start} returned {} of {length} entries; r = {r}",
                    entries.len()
                ));
            }
            if !predicates::has_room(self.params, length) {
                self.violated(format!("A2: process {me} was told of {length} entries"));
            }
            for (value, number) in entries.iter().zip(start.get()..) {
                self.entry(Position::new(number), value, me);
            }
        }
    }

    fn entry(&mut self, position: Position, value: &'a Value, me: ProcessId) {
        // Behind the longest that the list may be there is nothing to compare: its length is wrong already.
        let Some(entry) = self.entries.get_mut(position.index()) else { return };
        let (stands, by) = *entry.get_or_insert((value, me));
        if stands != value {
            self.violated(format!(
                "R2: at position {position}, process {by} read {stands} and process {me} read {value}"
            ));
        }
    }

    /// That it decided what Algorithm 1 decides, and in time.
    fn decision(&mut self, seen: &ProcessObservation, decision: &Value) {
        let me = seen.process;
        let mut held: BTreeMap<u32, &Value> = BTreeMap::new();
        let mut given = EntriesGiven::default();
        for (answer, entries) in seen.accesses.iter().filter_map(read) {
            held.extend((answer.start.get()..).zip(entries));
            let (start, due) = (answer.start, given.next_start(self.params));
            if due != Some(start) {
                let due = due.map_or_else(|| "no read was due".to_owned(), |due| format!("{due} was due"));
                self.violated(format!("D1: process {me} read from {start}, where {due}"));
            }
            given.take_in(self.params, answer);
        }
        let counted: Vec<&Value> =
            held.range(..self.params.counted_entries()).map(|(_, value)| *value).collect();
        if mode(counted.iter().copied()) != Some(decision) {
            let number = counted.len();
            self.violated(format!(
                "D1: process {me} decided {decision}, which is not the mode of the {number} entries that it read"
            ));
        }
        if let Some(start) = given.next_start(self.params) {
            let number = counted.len();
            self.violated(format!(
                "D1: process {me} decided from {number} entries, and did not read from {start}"
            ));
        }
        let Some(last) = seen.accesses.iter().filter_map(AnsweredAccess::phase).max() else { return };
        let rounds = self.schedule.round_of(last).get();
        let missed = predicates::missed_phases(rounds, seen.accesses.len() as u64);
        let bound = bounds::phase_bound(self.params, missed);
        if !predicates::is_in_time(last, bound) {
            self.violated(format!(
                "D2: process {me} decided in phase {last}; having missed {missed} phases, it had to by phase {bound}"
            ));
        }
    }

    /// Checks all answers together, against the one list.
    fn list(&mut self, seen: &'a [ProcessObservation]) {
        let mut by_phase: BTreeMap<Phase, (Position, ProcessId)> = BTreeMap::new();
        let mut positions: BTreeMap<Position, Phase> = BTreeMap::new();
        for ProcessObservation { process: me, accesses, .. } in seen {
            let Some((phase, position)) = accesses.iter().find_map(won) else { continue };
            if let Some((_, other)) = by_phase.insert(*phase, (*position, *me)) {
                self.violated(format!("A1: processes {other} and {me} both won phase {phase}"));
            }
            if let Some(before) = positions.insert(*position, *phase) {
                let (first, second) = (before.min(*phase), before.max(*phase));
                self.violated(format!(
                    "A1: position {position} was won in phase {first} and in phase {second}"
                ));
            }
            let proposal = self.truth.assignment(*me).map(|assignment| &assignment.proposal);
            if let (Some((stands, by)), Some(proposal)) =
                (self.entries.get(position.index()).copied().flatten(), proposal)
                && stands != proposal
            {
                self.violated(format!(
                    "A3: process {me} won position {position} with {proposal}, where process {by} read {stands}"
                ));
            }
        }
        // A later phase adds behind an earlier one: with phases in order, positions are in order.
        let order: Vec<(&Phase, &(Position, ProcessId))> = by_phase.iter().collect();
        if let Some(pair) = order.windows(2).find(|pair| pair[0].1.0 >= pair[1].1.0) {
            let (first, second) = (pair[0].0, pair[1].0);
            self.violated(format!("A1: phase {second} added before what the earlier phase {first} added"));
        }
        self.lengths(seen, &by_phase);
    }

    /// How long the list was in which phase, by all reads: it grows, and stops when it is sealed.
    fn lengths(&mut self, seen: &[ProcessObservation], won: &BTreeMap<Phase, (Position, ProcessId)>) {
        let mut known: BTreeMap<Phase, (ReadAnswer, ProcessId)> = BTreeMap::new();
        for ProcessObservation { process: me, accesses, .. } in seen {
            for access in accesses {
                let AnsweredAccess::Read { phase: Some(phase), answer, .. } = access else { continue };
                let (stands, by) = *known.entry(*phase).or_insert((*answer, *me));
                if !predicates::is_same_list(&stands, answer) {
                    self.violated(format!(
                        "F2: processes {by} and {me} saw different lists in phase {phase}"
                    ));
                }
            }
        }
        let order: Vec<(&Phase, &(ReadAnswer, ProcessId))> = known.iter().collect();
        for pair in order.windows(2) {
            let ((first, (before, _)), (second, (after, _))) = (pair[0], pair[1]);
            if !predicates::may_become(before, after) {
                self.violated(format!(
                    "A3: the list had {} entries in phase {first} and {} in phase {second}",
                    before.length, after.length
                ));
            }
        }
        for (phase, (position, winner)) in won {
            // A read in this phase or before does not show this entry; a later read does.
            let early = known.range(..=*phase).next_back();
            let late = known.range(*phase..).find(|(read, _)| *read > phase);
            if early
                .is_some_and(|(_, (read, _))| predicates::has_entry(read.length, *position) || read.sealed)
                || late.is_some_and(|(_, (read, _))| !predicates::has_entry(read.length, *position))
            {
                self.violated(format!(
                    "F2: process {winner} won position {position} in phase {phase}, which reads before or after deny"
                ));
            }
        }
    }

    /// The five properties, each with what promises it.
    fn properties(&mut self, seen: &[ProcessObservation]) {
        let params = self.params;
        let correct: BTreeSet<ProcessId> = self.truth.correct().collect();
        let missing = correct.len() - seen.iter().filter(|seen| seen.decision.is_some()).count();
        if missing > 0 {
            self.unknown.push(format!("{missing} correct processes have not decided"));
        }
        let punctual = |seen: &&ProcessObservation| {
            let phases = seen.accesses.iter().filter_map(AnsweredAccess::phase);
            let used = phases.filter(|phase| predicates::is_append_phase(params, *phase)).count();
            let has_won = seen.accesses.iter().any(|access| won(access).is_some());
            !predicates::is_late(params, has_won, u64::MAX, used as u64)
        };
        // A process without observations may have been late.
        let f = u64::from(params.processes()) - seen.iter().filter(punctual).count() as u64;
        let proposals = self.truth.correct_proposals();
        let mut decided: BTreeMap<&Value, ProcessId> = BTreeMap::new();
        for ProcessObservation { process, decision, .. } in seen {
            decided.extend(decision.as_ref().map(|decision| (decision, *process)));
        }
        let everything = self.truth.assignments().map(|(_, assignment)| &assignment.proposal);
        let proposed: BTreeSet<&Value> =
            everything.chain(self.entries.iter().flatten().map(|(value, _)| *value)).collect();
        let known = Decisions {
            f,
            values: proposals.len() as u64,
            decided: decided.len(),
            of_correct: decided.keys().all(|value| proposals.contains(*value)),
            of_some: decided.keys().all(|value| proposed.contains(*value)),
        };
        for (property, held, promise) in known.properties(params) {
            if held {
                continue;
            }
            let (broke, nobody) = match property {
                Property::Agreement | Property::Termination => (decided.iter().collect(), ""),
                Property::WeakValidity => {
                    (strays(&decided, |value| proposed.contains(value)), ", which nobody proposed")
                }
                Property::CommonValidity | Property::StrongValidity => {
                    (strays(&decided, |value| proposals.contains(value)), ", which no correct one proposed")
                }
            };
            let said: Vec<String> =
                broke.iter().map(|(value, process)| format!("process {process} decided {value}")).collect();
            self.broke(promise.is_ok(), format!("{property}: {}{nobody}", said.join(", ")));
        }
    }

    fn broke(&mut self, promised: bool, why: String) {
        if promised { &mut self.violations } else { &mut self.outside }.push(why);
    }
}

/// The decisions that are not allowed, each with a process that decided so.
fn strays<'a, 'b>(
    decided: &'b BTreeMap<&'a Value, ProcessId>,
    allowed: impl Fn(&Value) -> bool,
) -> Vec<(&'b &'a Value, &'b ProcessId)> {
    decided.iter().filter(|(value, _)| !allowed(value)).collect()
}

/// The phase and the position of an append that won.
fn won(access: &AnsweredAccess) -> Option<(&Phase, &Position)> {
    match access {
        AnsweredAccess::Append { phase, answer: AppendAnswer::Success(position) } => Some((phase, position)),
        _ => None,
    }
}

fn read(access: &AnsweredAccess) -> Option<(&ReadAnswer, &Vec<Value>)> {
    match access {
        AnsweredAccess::Read { answer, entries, .. } => Some((answer, entries)),
        AnsweredAccess::Append { .. } => None,
    }
}

#[cfg(test)]
mod tests;
