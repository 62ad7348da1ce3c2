//! One process at play: a [`Behaviour`] with what it has seen, the numbers of its accesses and what of them is
//! still to be answered. Pure, so that the simulator and the client drive the same code (SPEC D1, F8).
//!
//! Whoever drives a player calls [`Player::welcome`] when a session is open, performs what
//! [`Player::next_step`] asks for until it says [`Step::Wait`], and hands back what comes: an answer, a
//! refusal, or after a broken connection a new welcome. It may hand back an answer twice; only the first counts.
//!
//! # A new session, and a new life
//! A player sends one access at a time and counts on F8: the same number and content again is the same access.
//! So after each welcome it sends again what is not answered, and nothing is executed twice.
//!
//! A restarted client is a new player, which knows only its welcome. Accesses of its earlier life are its own:
//! it asks for the answers of those that wait, and sends nothing else before it has them. What was answered
//! before is lost to it, save that its append is done; it reads the list from the start. If the earlier life
//! decided, there is nothing left to do.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::access::{Answer, ReadAnswer, Refusal};
use crate::machine::Welcome;
use crate::params::Params;
use crate::process::{Act, Behaviour, ProcessEnd, RawOp, Report, SendTime, View};
use crate::types::{AccessNumber, Phase, ProcessId, Value};

/// After this many refusals in a row a process gives up: it would only go on asking for the same.
pub const REFUSALS_IN_A_ROW: u64 = 8;

/// What whoever drives a player is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this access.
    Access {
        /// Its number.
        number: AccessNumber,
        /// What it does.
        op: RawOp,
        /// When.
        when: SendTime,
    },
    /// Report this decision.
    Decide(Value),
    /// Wait for what was sent to be answered.
    Wait,
    /// Nothing more will be sent, but the process stays: keep its session.
    Stay,
    /// It is over: [`Player::report`] says how.
    Leave,
}

/// A [`Step`] without what is to be sent, which [`Player::sent`] and [`Player::decision`] show where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// An access.
    Access {
        /// Its number.
        number: AccessNumber,
        /// When.
        when: SendTime,
    },
    /// The report of its decision.
    Decide,
    /// See [`Step::Wait`].
    Wait,
    /// See [`Step::Stay`].
    Stay,
    /// See [`Step::Leave`].
    Leave,
}

/// A behaviour at play.
pub struct Player {
    view: View,
    behaviour: Box<dyn Behaviour>,
    /// The number of its next new access.
    next: AccessNumber,
    /// Accesses that are not answered, in order; more than one only if an earlier life left them.
    pending: VecDeque<Pending>,
    /// The decision that it is reporting.
    decision: Option<Value>,
    /// Whether the decision has been sent in this session.
    reported: bool,
    /// Whether the decision was an earlier life's.
    inherited: bool,
    welcomed: bool,
    ended: Option<ProcessEnd>,
    /// The access that it waited for when it was given up.
    unanswered: Option<AccessNumber>,
}

struct Pending {
    number: AccessNumber,
    op: RawOp,
    when: SendTime,
    /// Whether it was sent in this session.
    sent: bool,
}

impl Player {
    /// A process at the start of a life.
    #[must_use]
    pub fn new(me: ProcessId, params: Arc<Params>, behaviour: Box<dyn Behaviour>) -> Self {
        Self {
            view: View::new(me, params),
            behaviour,
            next: AccessNumber::FIRST,
            pending: VecDeque::new(),
            decision: None,
            reported: false,
            inherited: false,
            welcomed: false,
            ended: None,
            unanswered: None,
        }
    }

    /// Another process at the start of a life, in the memory of this one.
    pub fn begin_again(&mut self, me: ProcessId, params: Arc<Params>, behaviour: Box<dyn Behaviour>) {
        self.view.begin_again(me, params);
        self.behaviour = behaviour;
        self.pending.clear();
        self.next = AccessNumber::FIRST;
        self.decision = None;
        (self.reported, self.inherited, self.welcomed) = (false, false, false);
        (self.ended, self.unanswered) = (None, None);
    }

    /// What it has seen.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// A session is open. The first welcome of a life says where to go on; each later one, after the connection
    /// broke, that everything not answered is to be sent again.
    pub fn welcome(&mut self, welcome: &Welcome) {
        if self.welcomed {
            self.resume(welcome);
        } else {
            self.begin(welcome);
        }
    }

    /// Takes over what earlier lives of the process left.
    fn begin(&mut self, welcome: &Welcome) {
        self.welcomed = true;
        self.next = welcome.next;
        self.view.append = welcome.append;
        let waiting = u64::try_from(welcome.waiting.len()).unwrap_or(u64::MAX);
        self.view.answered = (welcome.next.get() - 1).saturating_sub(waiting);
        self.pending = welcome
            .waiting
            .iter()
            .map(|(number, op)| Pending {
                number: *number,
                op: op.clone().into(),
                when: SendTime::Ready,
                sent: false,
            })
            .collect();
        if let Some(decided) = &welcome.decided {
            self.decision = Some(decided.clone());
            self.inherited = true;
            self.end(ProcessEnd::Decided);
        }
    }

    /// The session is lost: what is not answered has to be sent again in the next one.
    pub fn disconnected(&mut self) {
        self.reported = false;
        for pending in &mut self.pending {
            pending.sent = false;
            pending.when = SendTime::Ready;
        }
    }

    /// Goes on in a new session.
    fn resume(&mut self, welcome: &Welcome) {
        self.disconnected();
        let oldest = self.pending.front().map_or(self.next, |pending| pending.number);
        if welcome.next < oldest {
            let next = welcome.next;
            self.fail(format!("the server expects access {next} again, though it was answered"));
        } else if welcome.next > self.next {
            let (next, mine) = (welcome.next, self.next);
            self.fail(format!("the server expects access {next}, though this process comes to {mine} next"));
        }
    }

    /// What to do now. Each access and each report is given once per session.
    pub fn next_step(&mut self) -> Step {
        match self.next_step_kind() {
            StepKind::Access { number, when } => {
                let op = self.sent(number).expect("what is due stands in the player").clone();
                Step::Access { number, op, when }
            }
            StepKind::Decide => {
                Step::Decide(self.decision().expect("a report is due once there is a decision").clone())
            }
            StepKind::Wait => Step::Wait,
            StepKind::Stay => Step::Stay,
            StepKind::Leave => Step::Leave,
        }
    }

    /// The same, for one who sends what it says from where it stands.
    pub fn next_step_kind(&mut self) -> StepKind {
        if self.ended.is_none() && self.pending.is_empty() && self.decision.is_none() {
            self.act();
        }
        match &self.ended {
            Some(ProcessEnd::NothingToDecide) => return StepKind::Stay,
            Some(ProcessEnd::Decided | ProcessEnd::Failed(_)) => return StepKind::Leave,
            None => {}
        }
        if let Some(pending) = self.pending.iter_mut().find(|pending| !pending.sent) {
            pending.sent = true;
            return StepKind::Access { number: pending.number, when: pending.when };
        }
        if self.decision.is_some() && self.pending.is_empty() && !self.reported {
            self.reported = true;
            return StepKind::Decide;
        }
        StepKind::Wait
    }

    /// The access with this number, as long as it is not answered.
    #[must_use]
    pub fn sent(&self, number: AccessNumber) -> Option<&RawOp> {
        self.pending.iter().find(|pending| pending.number == number).map(|pending| &pending.op)
    }

    /// What it has decided, reported or not.
    #[must_use]
    pub fn decision(&self) -> Option<&Value> {
        self.decision.as_ref()
    }

    fn act(&mut self) {
        match self.behaviour.act(&self.view) {
            Act::Access { op, when } => {
                self.pending.push_back(Pending { number: self.next, op, when, sent: false });
                self.next = self.next.next();
            }
            Act::Decide(value) => self.decision = Some(value),
            Act::Silent => self.end(ProcessEnd::NothingToDecide),
            Act::Crash => self.fail("stopped without a word"),
        }
    }

    /// An access was answered; `entries` are those that a read returned. No phase: it was read outside phases
    /// (F10). An answer that was taken in before changes nothing.
    pub fn answered(
        &mut self,
        number: AccessNumber,
        phase: Option<Phase>,
        answer: Answer,
        entries: impl IntoIterator<Item = Value>,
    ) {
        // Phases execute the accesses of a process in order (F7), so only the first can be answered.
        if self.ended.is_some() || self.pending.front().is_none_or(|pending| pending.number != number) {
            return;
        }
        self.pending.pop_front();
        self.view.learn(phase, answer, entries);
        if let (None, Answer::Read(ReadAnswer { sealed: false, .. })) = (phase, answer) {
            self.fail("the instance is over and its list was never sealed");
        }
    }

    /// The server has taken the report of the decision: the process has left.
    pub fn decided(&mut self) {
        if self.decision.is_some() {
            self.end(ProcessEnd::Decided);
        }
    }

    /// The server's border did not take this access, which was the last one sent. It did not happen: its number
    /// is free, and the process thinks again.
    pub fn rejected(&mut self, number: AccessNumber, why: &str) {
        if self.pending.pop_back_if(|pending| pending.number == number).is_none() {
            return;
        }
        self.next = number;
        self.view.learn_refusal();
        if self.view.refused >= REFUSALS_IN_A_ROW {
            let times = self.view.refused;
            self.fail(format!("refused {times} times in a row, at last: {why}"));
        }
    }

    /// The machine refused what was sent. None of its refusals is for one who keeps to the protocol, or goes
    /// away by itself; so the process stops.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.fail(refusal.to_string());
    }

    /// The process cannot go on, for this reason.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.end(ProcessEnd::Failed(why.into()));
    }

    /// The run is given up, for this reason, while the session of the process stands. Its report names the access that
    /// it waits for.
    pub fn give_up(&mut self, why: impl Into<String>) {
        if self.ended.is_none() {
            self.unanswered = self.unanswered();
        }
        self.fail(why);
    }

    /// The first access that was sent in this session and is not answered.
    fn unanswered(&self) -> Option<AccessNumber> {
        self.pending.front().filter(|pending| pending.sent).map(|pending| pending.number)
    }

    fn end(&mut self, how: ProcessEnd) {
        self.ended.get_or_insert(how);
        self.pending.clear();
    }

    /// Whether it has come to its end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// What it says at its end; before that, that it has not decided.
    #[must_use]
    pub fn report(&self) -> Report {
        self.report_within(Vec::new())
    }

    /// The same, with the entries that it decided from in this memory.
    #[must_use]
    pub fn report_within(&self, mut from: Vec<Value>) -> Report {
        let ended = self.ended.clone();
        let ended =
            ended.unwrap_or_else(|| ProcessEnd::Failed("had not decided when the run ended".to_owned()));
        let decided = ended == ProcessEnd::Decided;
        from.clear();
        if decided && !self.inherited {
            from.extend_from_slice(self.view.counted());
        }
        Report {
            process: self.view.me,
            decision: self.decision.clone().filter(|_| decided),
            phase: self.view.phase,
            from,
            ended,
            unanswered: self.unanswered.or_else(|| self.unanswered()),
        }
    }
}
