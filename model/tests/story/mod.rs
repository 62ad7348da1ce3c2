//! Small histories made step by step, as a correct instance records them, so that a test can change one thing
//! and show that it is found.

#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::byzantine::{Silent, Strategy};
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::judge::{Case, Expectations, Outcome, Verdict, judge};
use stickycas_model::params::{AppendWindow, Params, ParamsSpec};
use stickycas_model::process::{ProcessEnd, Report, mode};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value, WarpId};

pub(crate) fn id(process: u32) -> ProcessId {
    ProcessId::new(process).unwrap()
}

pub(crate) fn value(text: &str) -> Value {
    Value::parse(text).unwrap()
}

pub(crate) fn phase(number: u64) -> Phase {
    Phase::new(number).unwrap()
}

pub(crate) fn values(texts: &str) -> Vec<Value> {
    texts.split_whitespace().map(value).collect()
}

/// A run in the making.
pub(crate) struct Story {
    pub(crate) params: Arc<Params>,
    pub(crate) truth: GroundTruth,
    pub(crate) expected: Expectations,
    pub(crate) history: Vec<Recorded>,
    pub(crate) complete: bool,
    pub(crate) reports: Vec<Report>,
    pub(crate) fired: BTreeMap<String, u64>,
    pub(crate) now: u64,
    pub(crate) phase: u64,
    list: Vec<Value>,
    sealed: bool,
    /// Under `first_access` no process wins twice.
    winners: BTreeSet<u32>,
    numbers: BTreeMap<u32, u64>,
    waiting: VecDeque<(u32, u64, Op)>,
    last_answer: BTreeMap<u32, Phase>,
    pub(crate) held: Vec<Recorded>,
}

impl Story {
    /// Processes 1, 2, 3, ... with these proposals, one word each; a word that begins with `!` is that of a
    /// Byzantine process. Ascending order, first come.
    pub(crate) fn new(proposals: &str, p: u32, r: u32, change: impl FnOnce(&mut ParamsSpec)) -> Self {
        let words: Vec<&str> = proposals.split_whitespace().collect();
        let mut spec = ParamsSpec::new(u32::try_from(words.len()).unwrap(), p, r);
        change(&mut spec);
        let assignment = |word: &&str| match word.strip_prefix('!') {
            None => Assignment { role: Role::Correct, proposal: value(word) },
            Some(word) => {
                Assignment { role: Role::Byzantine(Strategy::Silent(Silent)), proposal: value(word) }
            }
        };
        Self {
            params: Arc::new(Params::try_new(spec).unwrap()),
            truth: GroundTruth::new(words.iter().map(assignment).collect()),
            expected: Expectations::default(),
            history: Vec::new(),
            complete: true,
            reports: Vec::new(),
            fired: BTreeMap::new(),
            now: 0,
            phase: 1,
            list: Vec::new(),
            sealed: false,
            winners: BTreeSet::new(),
            numbers: BTreeMap::new(),
            waiting: VecDeque::new(),
            last_answer: BTreeMap::new(),
            held: Vec::new(),
        }
    }

    /// A whole run in which everybody, Byzantine or not, appends its proposal and then does all that
    /// Algorithm 1 asks for.
    pub(crate) fn full_run(proposals: &str, p: u32, r: u32) -> Self {
        let mut story = Self::new(proposals, p, r, |_| {});
        story.all_join();
        story.round_of_appends();
        for read in 0..story.params.reads() {
            story.round_of_reads(read * r);
        }
        story.all_decide();
        story
    }

    pub(crate) fn record(&mut self, event: Event) {
        self.history.push(Recorded { at: Time::from_nanos(self.now), event });
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + use<> {
        1..=self.params.processes()
    }

    pub(crate) fn join(&mut self, process: u32) {
        self.record(Event::Joined { process: id(process) });
    }

    pub(crate) fn all_join(&mut self) {
        self.all().for_each(|process| self.join(process));
        self.record(Event::GatheringEnded { joined: self.params.processes() });
    }

    /// All join except these, whose patience ends with the join timeout.
    pub(crate) fn all_join_but(&mut self, absent: &[u32]) {
        for process in self.all().filter(|process| !absent.contains(process)) {
            self.join(process);
        }
        self.now += 30_000_000_000;
        self.record(Event::GatheringEnded { joined: self.params.processes() - absent.len() as u32 });
        absent.iter().for_each(|&process| self.record(Event::PatienceSpent { process: id(process) }));
    }

    pub(crate) fn session(&mut self, process: u32, session: u32, incarnation: u64) {
        let session = SessionId::new(session).unwrap();
        self.record(Event::Session { process: id(process), session, incarnation });
    }

    pub(crate) fn accept(&mut self, process: u32, op: Op) {
        let number = self.numbers.entry(process).or_default();
        *number += 1;
        let number = *number;
        self.waiting.push_back((process, number, op.clone()));
        let number = AccessNumber::new(number).unwrap();
        self.record(Event::Accepted { process: id(process), number, session: None, op });
    }

    pub(crate) fn append(&mut self, process: u32, text: &str) {
        self.accept(process, Op::Append(value(text)));
    }

    pub(crate) fn read(&mut self, process: u32, start: u32) {
        self.accept(process, Op::Read { start: Position::new(start) });
    }

    /// Executes the next phase over what waits from its warp; the first append that was accepted wins.
    pub(crate) fn step(&mut self) {
        let (now, warps) = (phase(self.phase), self.params.warps());
        let open = self.params.spec().append_window == AppendWindow::Open;
        let in_window = open || self.phase <= self.last_append_phase();
        let warp = WarpId::from_index(((self.phase - 1) % u64::from(warps)) as usize).unwrap();
        let length = self.list.len() as u32;
        let sealed = self.sealed;
        self.record(Event::Stepped { phase: now, warp, length });
        let mut won = false;
        for process in self.params.members(warp).map(ProcessId::get).collect::<Vec<_>>() {
            self.executing(process);
        }
        for (process, number, op) in self.take_fronts(warp) {
            let answer = match op {
                Op::Append(value)
                    if in_window
                        && !won
                        && length < self.params.list_limit()
                        && (open || self.winners.insert(process)) =>
                {
                    won = true;
                    let position = Position::new(length);
                    self.list.push(value.clone());
                    self.record(Event::Added { position, process: id(process), phase: now, value });
                    Answer::Append(AppendAnswer::Success(position))
                }
                Op::Append(_) if won || (in_window && !open) => Answer::Append(AppendAnswer::Failed),
                Op::Append(_) => Answer::Append(AppendAnswer::LimitReached),
                Op::Read { start } => {
                    let count = length.saturating_sub(start.get()).min(self.params.read_size());
                    Answer::Read(ReadAnswer { start, count, length, sealed })
                }
            };
            let number = AccessNumber::new(number).unwrap();
            self.record(Event::Answered { process: id(process), number, phase: now, answer });
        }
        self.pass();
    }

    fn executing(&mut self, process: u32) {
        if self.waiting.iter().any(|waiting| waiting.0 == process) {
            self.last_answer.insert(process, phase(self.phase));
        }
    }

    /// The first access of each member of a warp, in the order of acceptance.
    fn take_fronts(&mut self, warp: WarpId) -> Vec<(u32, u64, Op)> {
        let (mut fronts, mut rest) = (Vec::<(u32, u64, Op)>::new(), VecDeque::new());
        for waiting in std::mem::take(&mut self.waiting) {
            let member = self.params.warp_of(id(waiting.0)) == warp;
            if member && fronts.iter().all(|front| front.0 != waiting.0) {
                fronts.push(waiting);
            } else {
                rest.push_back(waiting);
            }
        }
        self.waiting = rest;
        fronts
    }

    /// The phase passes, and the list may be sealed with it.
    pub(crate) fn pass(&mut self) {
        self.phase += 1;
        let due = match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.phase > self.last_append_phase(),
            AppendWindow::Open => self.list.len() as u32 == self.params.list_limit(),
        };
        if due && !self.sealed {
            self.sealed = true;
            self.record(Event::Sealed { phase: phase(self.phase), length: self.list.len() as u32 });
        }
    }

    /// The last of the first q rounds.
    fn last_append_phase(&self) -> u64 {
        u64::from(self.params.warps()) * u64::from(self.params.append_rounds())
    }

    fn warp(&self) -> Vec<u32> {
        let warp = ((self.phase - 1) % u64::from(self.params.warps())) as usize;
        self.params.members(WarpId::from_index(warp).unwrap()).map(ProcessId::get).collect()
    }

    pub(crate) fn proposal(&self, process: u32) -> Value {
        self.truth.assignment(id(process)).unwrap().proposal.clone()
    }

    pub(crate) fn round_of_appends(&mut self) {
        for _ in 0..self.params.warps() {
            for process in self.warp() {
                self.accept(process, Op::Append(self.proposal(process)));
            }
            self.step();
        }
    }

    pub(crate) fn round_of_reads(&mut self, start: u32) {
        for _ in 0..self.params.warps() {
            for process in self.warp() {
                self.read(process, start);
            }
            self.step();
        }
    }

    pub(crate) fn list(&self) -> &[Value] {
        &self.list
    }

    /// A process decides the mode of these entries, reports it, and leaves.
    pub(crate) fn decides_from(&mut self, process: u32, from: &[Value]) {
        let decision = mode(from).unwrap().clone();
        self.record(Event::Decided { process: id(process), value: decision.clone() });
        let mut withdrawn = Vec::new();
        self.waiting.retain(|waiting| {
            let stays = waiting.0 != process;
            withdrawn.extend((!stays).then_some(waiting.1));
            stays
        });
        for number in withdrawn {
            let number = AccessNumber::new(number).unwrap();
            self.record(Event::Withdrawn { process: id(process), number });
        }
        self.reports.push(Report {
            process: id(process),
            decision: Some(decision),
            phase: self.last_answer.get(&process).copied(),
            from: from.to_vec().into(),
            ended: ProcessEnd::Decided,
            unanswered: None,
        });
    }

    pub(crate) fn decides(&mut self, process: u32) {
        let list = self.list.clone();
        self.decides_from(process, &list);
    }

    pub(crate) fn all_decide(&mut self) {
        self.all().for_each(|process| self.decides(process));
        self.record(Event::Finished);
    }

    pub(crate) fn close(&mut self) {
        for (process, number, _) in std::mem::take(&mut self.waiting) {
            let number = AccessNumber::new(number).unwrap();
            self.record(Event::Withdrawn { process: id(process), number });
        }
        self.record(Event::Closed);
    }

    pub(crate) fn report(&mut self, process: u32) -> &mut Report {
        self.reports.iter_mut().find(|report| report.process == id(process)).unwrap()
    }

    /// The place of the `nth` event (from 0) that is so.
    pub(crate) fn place(&self, nth: usize, is: impl Fn(&Event) -> bool) -> usize {
        let places = self.history.iter().enumerate().filter(|(_, recorded)| is(&recorded.event));
        places.map(|(place, _)| place).nth(nth).expect("the story has such an event")
    }

    pub(crate) fn event(&mut self, nth: usize, is: impl Fn(&Event) -> bool) -> &mut Event {
        let place = self.place(nth, is);
        &mut self.history[place].event
    }

    pub(crate) fn remove(&mut self, nth: usize, is: impl Fn(&Event) -> bool) -> Recorded {
        let place = self.place(nth, is);
        self.history.remove(place)
    }

    pub(crate) fn insert(&mut self, place: usize, event: Event) {
        let at = self.history[place].at;
        self.history.insert(place, Recorded { at, event });
    }

    pub(crate) fn verdict(&self) -> Verdict {
        judge(&Case {
            params: Arc::clone(&self.params),
            truth: &self.truth,
            expected: &self.expected,
            history: &self.history,
            complete: self.complete,
            reports: &self.reports,
            fired: self.fired.clone(),
        })
    }

    /// The verdict is a violation, and the history breaks this rule.
    #[track_caller]
    pub(crate) fn breaks(&self, rule: &str) {
        let verdict = self.verdict();
        assert_eq!(verdict.verdict, Outcome::Violation, "{:?}", verdict.reasons);
        let found =
            verdict.reasons.iter().any(|reason| reason.starts_with(&format!("{rule} broken by event")));
        assert!(found, "{rule} is not among {:#?}", verdict.reasons);
    }

    /// The verdict is this, and one of its reasons begins so.
    #[track_caller]
    pub(crate) fn is(&self, outcome: Outcome, reason: &str) -> Verdict {
        let verdict = self.verdict();
        assert_eq!(verdict.verdict, outcome, "{:#?}", verdict.reasons);
        let found = verdict.reasons.iter().any(|given| given.starts_with(reason));
        assert!(found, "no reason begins with {reason:?}: {:#?}", verdict.reasons);
        verdict
    }

    #[track_caller]
    pub(crate) fn is_valid(&self) -> Verdict {
        let verdict = self.verdict();
        assert_eq!((verdict.verdict, &verdict.reasons), (Outcome::Valid, &Vec::new()));
        verdict
    }
}
