//! Compares the answers and events that clients received with the final history of the server, and what else
//! the instance had to show. Pure; one function for every platform.
//!
//! The server reveals committed state and nothing else, so each fact must stand in the final history, word
//! for word, and a later answer must not show less than was known when its request was sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stickycas_client::raw::Told;
use stickycas_client::{MemberState, State};
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::counts::RunCounts;
use stickycas_model::detection::detect;
use stickycas_model::ground_truth::Role;
use stickycas_model::history::Recorded;
use stickycas_model::judge::{Case, Expectations, Outcome, Verdict, judge};
use stickycas_model::params::{Params, Patience};
use stickycas_model::process::{ProcessEnd, RawOp, Report};
use stickycas_model::sim::replay;
use stickycas_model::types::{AccessNumber, ProcessId, Value};

use crate::draw::InstancePlan;
use crate::facts::{Fact, MemberStatus};
use crate::result::RoundCounts;
use crate::violation::ViolationKind;

mod expectations;
mod known;

pub use self::expectations::Observed;
use self::known::{KnownMember, Shown, may_follow};

/// All that is known of an instance when a round or a plan is over.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The parameters of the instance.
    pub params: &'a Arc<Params>,
    /// The answers and events that its clients received, in order.
    pub facts: &'a [Fact],
    /// The history from the first event on, fetched when all was over.
    pub history: &'a [Recorded],
    /// The most restarts that the instance may have gone through.
    pub restarts: u32,
    /// How long the whole round or plan has taken.
    pub elapsed: Duration,
    /// What it had to show besides.
    pub expected: Expected<'a>,
}

/// What an instance has to show besides its facts.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// An instance of a round: the end of every correct process, and a run that the judge accepts.
    Decisions {
        /// The plan of the instance.
        plan: &'a InstancePlan,
        /// The reports of its processes at their end.
        reports: &'a [Report],
        /// How long threads of the machine were stalled while its clients were there, in all.
        lateness: Duration,
    },
    /// A run on containers, which has a judge of its own: its verdict, and the evidence that the plan hit.
    Plan(Observed<'a>),
}

/// The results of checking an instance.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The violations that were found.
    pub violations: Vec<(ViolationKind, String)>,
    /// The differences from the plan, in words.
    pub mismatches: Vec<String>,
    /// What was compared, and the verdict.
    pub counts: RoundCounts,
}

impl Checked {
    fn found(&mut self, kind: ViolationKind, what: String) {
        self.violations.push((kind, what));
    }
}

/// Checks an instance.
#[must_use]
pub fn check(evidence: &Evidence<'_>) -> Checked {
    let mut checker =
        Checker { evidence: *evidence, shown: Shown::of(evidence.history), checked: Checked::default() };
    if evidence.facts.contains(&Fact::Unknown) {
        checker
            .checked
            .found(ViolationKind::Lost, "a client was told that there is no such instance".to_owned());
    }
    let is_of_round = matches!(evidence.expected, Expected::Decisions { .. });
    if evidence.history.is_empty() && is_of_round {
        if evidence.facts.contains(&Fact::Created) && checker.checked.violations.is_empty() {
            checker.checked.found(ViolationKind::History, "nothing of it is there".to_owned());
        }
        return checker.checked;
    }
    checker.checked.counts.waited = checker.shown.waited;
    // A judge that lost a server without a log has a part of the history alone: nothing is compared with it.
    if checker.shown.over || is_of_round {
        checker.history();
        checker.facts();
        checker.restarts();
        checker.time();
    }
    match evidence.expected {
        Expected::Decisions { plan, reports, lateness } => {
            checker.patience(plan, lateness);
            checker.judged(plan, reports);
        }
        Expected::Plan(observed) => checker.plan(&observed),
    }
    checker.checked
}

struct Checker<'a> {
    evidence: Evidence<'a>,
    shown: Shown<'a>,
    checked: Checked,
}

impl Checker<'_> {
    /// The history by itself.
    fn history(&mut self) {
        let Evidence { params, history, restarts, .. } = self.evidence;
        let Self { shown, checked, .. } = self;
        for ((process, number), answers) in shown.answered.iter().filter(|(_, answers)| answers.len() > 1) {
            let what = format!("access {number} of process {process} was executed {} times", answers.len());
            checked.found(ViolationKind::Twice, what);
        }
        for (key @ (process, number), times) in &shown.accepted {
            let access = format!("access {number} of process {process} was accepted");
            if *times > 1 {
                checked.found(ViolationKind::Twice, format!("{access} {times} times"));
            }
            if !shown.answered.contains_key(key) && !shown.withdrawn.contains(key) {
                checked.found(ViolationKind::Vanished, format!("{access}, and never answered or withdrawn"));
            }
        }
        if !shown.over {
            let what = "it was finished or closed, and its history does not say so";
            checked.found(ViolationKind::Reopened, what.to_owned());
        }
        if shown.restarted > restarts as usize {
            let what = format!("it shows {} restarts, and there were {restarts}", shown.restarted);
            checked.found(ViolationKind::History, what);
        }
        if let Err(difference) = replay(params, history) {
            checked
                .found(ViolationKind::History, format!("it does not follow from its inputs: {difference}"));
        }
    }

    /// Each fact, and the later facts against it.
    fn facts(&mut self) {
        let facts = self.evidence.facts;
        let mut known: BTreeMap<ProcessId, KnownMember> = BTreeMap::new();
        for fact in facts {
            match fact {
                Fact::Told(process, told) => {
                    self.told(*process, told);
                    let member = known.entry(*process).or_default();
                    if let Told::Welcome(own) = told {
                        self.member("welcome", own, member);
                    }
                    member.learn(told, self.evidence.params.append_rounds());
                }
                Fact::Status(status) => self.status(status),
                Fact::Watched(events) => self.watched(events),
                Fact::Closed if !self.shown.over => {
                    self.checked
                        .found(ViolationKind::Reopened, "its creator was told that it is closed".to_owned());
                }
                Fact::ClientKilled(_) => self.checked.counts.clients_killed += 1,
                Fact::Created | Fact::Closed | Fact::Unknown | Fact::Killed | Fact::ServesAgain => {}
            }
        }
    }

    /// An answer to a process must stand in the history.
    fn told(&mut self, process: ProcessId, told: &Told) {
        match told {
            Told::Answered { number, op, phase, answer, entries } => {
                if let Answer::Read(answer) = answer {
                    self.checked.counts.reads += 1;
                    self.read(process, *number, answer, entries);
                }
                let Some(phase) = phase else { return };
                self.checked.counts.accesses += 1;
                let found = self.shown.answered.get(&(process, *number)).and_then(|answers| answers.first());
                match found {
                    None => {
                        let what = format!(
                            "access {number} of process {process} was answered in phase {phase}: {answer:?}; the \
                             history does not have it"
                        );
                        self.checked.found(ViolationKind::Lost, what);
                    }
                    Some((shown_phase, shown)) if (shown_phase, shown) != (phase, answer) => {
                        let what = format!(
                            "access {number} of process {process} was answered in phase {phase}: {answer:?}; the \
                             history has {shown:?} in phase {shown_phase}"
                        );
                        self.checked.found(ViolationKind::Changed, what);
                    }
                    Some(_) => {}
                }
                if let (Answer::Append(AppendAnswer::Success(position)), Some(RawOp::Append(value))) =
                    (answer, op)
                {
                    let standing = self.shown.list.get(position.index());
                    let value = Value::new(value.as_bytes());
                    if standing.map(|(_, _, value)| *value) != value.as_ref() {
                        let what = format!(
                            "process {process} was told that its value {value:?} stands at position {position}; there \
                             stands {standing:?}"
                        );
                        let kind = standing.map_or(ViolationKind::Lost, |_| ViolationKind::Changed);
                        self.checked.found(kind, what);
                    }
                }
            }
            Told::Decided(value) => {
                self.checked.counts.decisions += 1;
                let shown = self.shown.decided.get(&process).copied();
                if shown != Some(value) {
                    let what = format!(
                        "process {process} decided {value}, which was acknowledged; there is {shown:?}"
                    );
                    self.checked.found(shown.map_or(ViolationKind::Lost, |_| ViolationKind::Changed), what);
                }
            }
            Told::Welcome(_) => {}
        }
    }

    /// A read must be a slice of the list.
    fn read(&mut self, process: ProcessId, number: AccessNumber, answer: &ReadAnswer, entries: &[Value]) {
        let list = &self.shown.list;
        let standing =
            list.get(answer.start.index()..).unwrap_or_default().iter().map(|(_, _, value)| *value);
        let same = entries.iter().eq(standing.take(entries.len()));
        let from = format!("read {number} of process {process}, from position {},", answer.start);
        let checked = &mut self.checked;
        if !same && answer.start.index() + entries.len() > list.len() {
            let what = format!("{from} returned {entries:?}, and the list is shorter now");
            checked.found(ViolationKind::Lost, what);
        } else if !same {
            let what = format!("{from} returned {entries:?}, and the list is another one now");
            checked.found(ViolationKind::Changed, what);
        }
        if entries.len() != answer.count as usize {
            let what = format!("{from} returned {} of {} entries", entries.len(), answer.count);
            checked.found(ViolationKind::Changed, what);
        }
        if answer.length as usize > list.len() {
            let what = format!("{from} saw {} entries, and there are {}", answer.length, list.len());
            checked.found(ViolationKind::Lost, what);
        }
        if answer.sealed && self.shown.sealed != Some(answer.length) {
            let (length, sealed) = (answer.length, self.shown.sealed);
            let what = format!("{from} saw the list sealed at {length}, and it is {sealed:?}");
            checked.found(ViolationKind::Changed, what);
        }
    }

    /// Get must show at least the facts from before its request.
    fn status(&mut self, status: &MemberStatus) {
        let known = &self.evidence.facts[..status.asked_after.min(self.evidence.facts.len())];
        let mut length = 0;
        let mut sealed = false;
        for fact in known {
            match fact {
                Fact::Told(_, Told::Answered { answer, .. }) => match answer {
                    Answer::Append(AppendAnswer::Success(position)) => {
                        length = length.max(position.get() + 1);
                    }
                    Answer::Append(_) => {}
                    Answer::Read(read) => (length, sealed) = (length.max(read.length), sealed || read.sealed),
                },
                Fact::Status(before) => {
                    (length, sealed) = (length.max(before.length), sealed || before.sealed);
                }
                _ => {}
            }
        }
        if status.length < length {
            let what = format!("Get told a list of {} entries, where {length} were known", status.length);
            self.checked.found(ViolationKind::Lost, what);
        }
        if sealed && !status.sealed {
            self.checked
                .found(ViolationKind::Lost, "Get told an open list that was known to be sealed".to_owned());
        }
        if status.length as usize > self.shown.list.len() {
            let what = format!("Get told {} entries, and there are {}", status.length, self.shown.list.len());
            self.checked.found(ViolationKind::Lost, what);
        }
        if status.sealed && self.shown.sealed != Some(status.length) {
            let what =
                format!("Get told a list sealed at {}, and it is {:?}", status.length, self.shown.sealed);
            self.checked.found(ViolationKind::Changed, what);
        }
        let was_over = |fact: &Fact| match fact {
            Fact::Closed => true,
            Fact::Status(before) => matches!(before.state, State::Finished | State::Closed),
            _ => false,
        };
        if known.iter().any(was_over) && !matches!(status.state, State::Finished | State::Closed) {
            let what = format!("it was finished or closed, and Get told {:?}", status.state);
            self.checked.found(ViolationKind::Reopened, what);
        }
        if let Some(own) = &status.own {
            let (mut member, rounds) = (KnownMember::default(), self.evidence.params.append_rounds());
            for fact in known {
                match fact {
                    Fact::Told(process, told) if *process == own.process => member.learn(told, rounds),
                    Fact::Status(MemberStatus { own: Some(before), .. }) if before.process == own.process => {
                        member.take(before, rounds);
                    }
                    _ => {}
                }
            }
            self.member("Get", own, &member);
        }
    }

    /// The state of a process, in an answer to it, must not be less than earlier answers have shown.
    fn member(&mut self, by: &str, own: &MemberState, known: &KnownMember) {
        let process = own.process;
        let Self { shown, checked, .. } = self;
        let mut found = |what: String| {
            checked.found(ViolationKind::Lost, format!("{by} told process {process} that {what}"));
        };
        let next = own.next.get();
        if next <= known.answered {
            let answered = known.answered;
            found(format!("its next access is {next}, though access {answered} was answered"));
        } else if next < known.next {
            found(format!("its next access is {next}, though it was {} before", known.next));
        }
        for number in &known.waiting {
            let key = (process, *number);
            let waits = own.waiting.iter().any(|(waiting, _)| waiting == number);
            if !waits && !shown.answered.contains_key(&key) && !shown.withdrawn.contains(&key) {
                found(format!("access {number}, which waited, does not wait any more"));
            }
        }
        let rounds = self.evidence.params.append_rounds();
        let stands = |before| own.append.is_some_and(|now| now == before || may_follow(before, now, rounds));
        if !known.append.is_none_or(stands) {
            found(format!("its append is {:?}, though it was {:?}", own.append, known.append));
        }
        if known.decided.is_some() && own.decided != known.decided {
            found(format!("its decision is {:?}, though it was {:?}", own.decided, known.decided));
        }
    }

    /// The events of an observer must be the beginning of the history.
    fn watched(&mut self, events: &[Recorded]) {
        let history = self.evidence.history;
        if let Some(index) = (0..events.len()).find(|&index| history.get(index) != Some(&events[index])) {
            let what = format!(
                "an observer was told event {index}: {:?}; the history has {:?}",
                events[index],
                history.get(index)
            );
            let kind = history.get(index).map_or(ViolationKind::Lost, |_| ViolationKind::Changed);
            self.checked.found(kind, what);
        }
    }

    /// A restart in the middle of an instance must stand in its history.
    fn restarts(&mut self) {
        let facts = self.evidence.facts;
        // After a welcome with its next access, a process had that access executed in a phase: the instance
        // lived on.
        let went_on = |after: &[Fact]| {
            let mut next: BTreeMap<ProcessId, AccessNumber> = BTreeMap::new();
            after.iter().any(|fact| match fact {
                Fact::Told(process, Told::Welcome(own)) => {
                    next.insert(*process, own.next);
                    false
                }
                Fact::Told(process, Told::Answered { number, phase: Some(_), .. }) => {
                    next.get(process).is_some_and(|next| number >= next)
                }
                _ => false,
            })
        };
        let (mut is_created, mut is_killed, mut seen) = (false, false, 0);
        for (index, fact) in facts.iter().enumerate() {
            match fact {
                Fact::Created => is_created = true,
                Fact::Killed => is_killed = is_created,
                Fact::ServesAgain if std::mem::take(&mut is_killed) => {
                    seen += usize::from(went_on(&facts[index..]));
                }
                _ => {}
            }
        }
        if self.shown.restarted < seen {
            let shown = self.shown.restarted;
            self.checked.found(
                ViolationKind::History,
                format!("the server was restarted {seen} times while it was played, and it shows {shown}"),
            );
        }
    }

    /// The time of an instance stands still while no server serves it (F3), independently of the clocks of
    /// the server.
    fn time(&mut self) {
        let Evidence { history, elapsed, .. } = self.evidence;
        let passed = history.last().map_or(Duration::ZERO, |last| Duration::from_nanos(last.at.as_nanos()));
        if passed > elapsed {
            let what = format!("{passed:?} of its time have passed in {elapsed:?}");
            self.checked.found(ViolationKind::Time, what);
        }
    }

    fn patience(&mut self, plan: &InstancePlan, lateness: Duration) {
        let impatient: Vec<_> =
            plan.truth.correct().filter(|process| self.shown.impatient.contains(process)).collect();
        let Patience::Finite(patience) = plan.params.spec().patience else { return };
        if !impatient.is_empty() && lateness >= patience / 2 {
            self.checked.counts.starved = 1;
            return;
        }
        for process in impatient {
            let what = format!("the patience of process {process}, which is correct, was spent");
            self.checked.found(ViolationKind::Impatient, what);
        }
    }

    /// Whether the correct processes have decided, and the judge accepts the run.
    fn judged(&mut self, plan: &InstancePlan, reports: &[Report]) {
        let closed_early = plan.closed_after.is_some();
        let said: BTreeMap<ProcessId, &Report> =
            reports.iter().map(|report| (report.process, report)).collect();
        if !closed_early {
            for process in plan.truth.assignments().filter(|(_, it)| it.role == Role::Correct).map(|it| it.0)
            {
                let what = match said.get(&process).map(|report| &report.ended) {
                    Some(ProcessEnd::Decided | ProcessEnd::NothingToDecide) => continue,
                    Some(ProcessEnd::Failed(why)) => format!("process {process}: {why}"),
                    None => format!("process {process} never said anything"),
                };
                self.checked.found(ViolationKind::Undecided, what);
            }
        }
        let verdict = self.verdict(plan, reports, closed_early);
        self.checked.counts.verdicts = [(verdict.verdict.to_string(), 1)].into();
        let accepted = match verdict.verdict {
            Outcome::Valid | Outcome::Outside => true,
            // A process that the creator cut off has nothing to show.
            Outcome::Unknown => closed_early || self.checked.counts.starved > 0,
            Outcome::Violation => false,
        };
        if !accepted {
            self.checked.found(
                ViolationKind::Verdict,
                format!("{}: {}", verdict.verdict.title(), verdict.reasons.join("; ")),
            );
        }
    }

    fn verdict(&self, plan: &InstancePlan, reports: &[Report], closed_early: bool) -> Verdict {
        let history = self.evidence.history;
        let detection = detect(&plan.params, &plan.truth, plan.seed, history, &RunCounts::default());
        let mut expected = Expectations::new(&plan.truth, &detection);
        // It is not their attacks that are tried here: an instance may end before they come to it.
        expected.attacks.clear();
        let ended = |report: &&Report| !closed_early || report.ended == ProcessEnd::Decided;
        let reports: Vec<Report> = reports.iter().filter(ended).cloned().collect();
        judge(&Case {
            params: plan.params.clone(),
            truth: &plan.truth,
            expected: &expected,
            history,
            complete: self.shown.over,
            reports: &reports,
            fired: detection.fired,
        })
    }
}

#[cfg(test)]
mod tests;
