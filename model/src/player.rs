//! One process of an instance: a [`Behaviour`] with its view, the numbers of its accesses and those that are
//! not answered yet. Pure, so that the simulator and the client drive the same code (SPEC D1, F8).
//!
//! The driver of a player calls [`Player::welcome`] when a session is open, performs each
//! [`Player::next_step`] until that is [`Step::Wait`], and passes on what it receives: an answer, a refusal,
//! or after a lost connection a new welcome. It may pass on an answer twice; only the first counts.
//!
//! # A new session, and a new life
//! A player sends one access at a time, or its first ones ([`Player::sending_ahead`]), and relies on F8: the
//! same number and content again is the same access. So after each welcome it sends again what is not
//! answered, and nothing is executed twice. It sends one after the other then: an access that was answered in
//! an earlier session is answered when it comes again, and one behind it that waited perhaps before that.
//!
//! A restarted client is a new player, which knows only its welcome. The accesses of its earlier life are its
//! own: it sends those that wait again, and nothing else before it has their answers. Earlier answers are
//! lost to it, except what became of its last append; it reads the list from the start. If the earlier life
//! decided, nothing is left to do. With append rounds left it appends again (K2), and is accused if its
//! proposal is another one than that of its earlier life (B2): a process has one proposal.

use std::collections::VecDeque;
use std::iter;
use std::sync::Arc;

use crate::access::{Answer, ReadAnswer, Refusal};
use crate::entries::Entries;
use crate::machine::Welcome;
use crate::params::Params;
use crate::process::{Act, Behaviour, ProcessEnd, RawOp, Report, SendTime, View};
use crate::types::{AccessNumber, Phase, Position, ProcessId, Value};

/// After this many refusals in a row a process gives up: it would only go on asking for the same.
pub const REFUSALS_IN_A_ROW: u64 = 8;

/// The next step of the driver of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this access.
    Access {
        /// Its number.
        number: AccessNumber,
        /// The operation.
        op: RawOp,
        /// When it is sent.
        when: SendTime,
    },
    /// Report this decision.
    Decide(Value),
    /// Wait for what was sent to be answered.
    Wait,
    /// Nothing more will be sent, but the process stays: keep its session.
    Stay,
    /// The process has ended: [`Player::report`] says how.
    Leave,
}

/// A behaviour with its state. See the module.
pub struct Player {
    view: View,
    behaviour: Box<dyn Behaviour>,
    /// The number of its next new access.
    next: AccessNumber,
    /// Accesses that are not answered, in order.
    pending: VecDeque<Pending>,
    /// Whether further accesses follow its first one at once.
    sends_ahead: bool,
    /// The decision, from when it is reached.
    decision: Option<Value>,
    /// Whether the decision has been sent in this session.
    reported: bool,
    /// Whether an earlier life reached the decision.
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
    /// Whether it was to be sent in an earlier session.
    again: bool,
}

impl Player {
    /// A process at the start of its life.
    #[must_use]
    pub fn new(me: ProcessId, params: Arc<Params>, behaviour: Box<dyn Behaviour>) -> Self {
        Self {
            view: View::new(me, params),
            behaviour,
            next: AccessNumber::FIRST,
            pending: VecDeque::new(),
            sends_ahead: false,
            decision: None,
            reported: false,
            inherited: false,
            welcomed: false,
            ended: None,
            unanswered: None,
        }
    }

    /// Another process at the start of its life, in the memory of this one.
    pub fn begin_again(&mut self, me: ProcessId, params: Arc<Params>, behaviour: Box<dyn Behaviour>) {
        self.view.begin_again(me, params);
        self.behaviour = behaviour;
        self.pending.clear();
        self.next = AccessNumber::FIRST;
        self.decision = None;
        (self.sends_ahead, self.reported, self.inherited, self.welcomed) = (false, false, false, false);
        (self.ended, self.unanswered) = (None, None);
    }

    /// The same correct process, which sends its appends in all q rounds and its first read at once, or as
    /// many of them as may wait (F7, K2): what it appends stays the same, and behind q appends a read starts
    /// at 0, whatever they are answered. For a driver that performs several steps before it waits.
    #[must_use]
    pub fn sending_ahead(self) -> Self {
        Self { sends_ahead: true, ..self }
    }

    /// Its view.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// A session is open. The first welcome of a life says where to go on; after each later one, all that is
    /// not answered is sent again.
    pub fn welcome(&mut self, welcome: &Welcome) {
        if self.welcomed {
            self.resume(welcome);
        } else {
            self.begin(welcome);
        }
    }

    /// Takes over the accesses and the decision of earlier lives of the process.
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
                again: false,
            })
            .collect();
        if let Some(decided) = &welcome.decided {
            self.decision = Some(decided.clone());
            self.inherited = true;
            self.end(ProcessEnd::Decided);
        }
    }

    /// The session is lost: the accesses that are not answered have to be sent again in the next one.
    pub fn disconnected(&mut self) {
        self.reported = false;
        for pending in &mut self.pending {
            (pending.sent, pending.again) = (false, true);
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

    /// The next step. Each access and each report is given once per session.
    pub fn next_step(&mut self) -> Step {
        if self.ended.is_none() && self.pending.is_empty() && self.decision.is_none() {
            self.act();
        }
        match &self.ended {
            Some(ProcessEnd::NothingToDecide) => return Step::Stay,
            Some(ProcessEnd::Decided | ProcessEnd::Failed(_)) => return Step::Leave,
            None => {}
        }
        let unsent = self.pending.iter_mut().enumerate().find(|(_, pending)| !pending.sent);
        if let Some((place, pending)) = unsent
            && (place == 0 || !pending.again)
        {
            pending.sent = true;
            return Step::Access { number: pending.number, op: pending.op.clone(), when: pending.when };
        }
        match &self.decision {
            Some(decision) if self.pending.is_empty() && !self.reported => {
                self.reported = true;
                Step::Decide(decision.clone())
            }
            _ => Step::Wait,
        }
    }

    /// The access with this number, as long as it is not answered.
    #[must_use]
    pub fn sent(&self, number: AccessNumber) -> Option<&RawOp> {
        self.pending.iter().find(|pending| pending.number == number).map(|pending| &pending.op)
    }

    /// Its decision, reported or not.
    #[must_use]
    pub fn decision(&self) -> Option<&Value> {
        self.decision.as_ref()
    }

    fn act(&mut self) {
        match self.behaviour.act(&self.view) {
            Act::Access { op, when } => {
                let is_first = self.next == AccessNumber::FIRST;
                if self.sends_ahead && is_first && matches!(op, RawOp::Append(_)) {
                    self.push_appends_ahead(&op, when);
                } else {
                    self.push(op, when);
                }
            }
            Act::Decide(value) => self.decision = Some(value),
            Act::Silent => self.end(ProcessEnd::NothingToDecide),
            Act::Crash => self.fail("crashed"),
        }
    }

    /// The first append, and what follows it without its answer.
    fn push_appends_ahead(&mut self, append: &RawOp, when: SendTime) {
        let params = &self.view.params;
        let (room, appends) = (params.spec().pipeline as usize, params.append_rounds() as usize);
        let ahead = iter::repeat_n(append, appends).cloned().chain([RawOp::Read(Position::new(0))]);
        ahead.take(room).for_each(|op| self.push(op, when));
    }

    fn push(&mut self, op: RawOp, when: SendTime) {
        self.pending.push_back(Pending { number: self.next, op, when, sent: false, again: false });
        self.next = self.next.next();
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
        if self.was_pending(number) {
            self.view.learn(phase, answer, entries);
            self.check_sealed(phase, answer);
        }
    }

    /// The same with the list from which a read was answered, which the process then shares.
    pub(crate) fn answered_sharing(
        &mut self,
        number: AccessNumber,
        phase: Option<Phase>,
        answer: Answer,
        list: &Arc<Vec<Value>>,
    ) {
        if self.was_pending(number) {
            self.view.learn_sharing(phase, answer, list);
            self.check_sealed(phase, answer);
        }
    }

    /// Takes the access off those that are not answered. False if it was none of them.
    fn was_pending(&mut self, number: AccessNumber) -> bool {
        // Phases execute the accesses of a process in order (F7), so only the first can be answered.
        if self.ended.is_some() || self.pending.front().is_none_or(|pending| pending.number != number) {
            return false;
        }
        self.pending.pop_front();
        true
    }

    fn check_sealed(&mut self, phase: Option<Phase>, answer: Answer) {
        if let (None, Answer::Read(ReadAnswer { sealed: false, .. })) = (phase, answer) {
            self.fail("the instance is over and its list was never sealed");
        }
    }

    /// The server has accepted the decision: the process has left.
    pub fn decided(&mut self) {
        if self.decision.is_some() {
            self.end(ProcessEnd::Decided);
        }
    }

    /// The server refused the content of this access, which was the last one sent. The access did not happen:
    /// its number is free, and the behaviour gives its next act.
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

    /// The machine refused an access or the decision. It never refuses what keeps to the protocol, and its
    /// refusals are final; so the process stops.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.fail(refusal.to_string());
    }

    /// The process cannot go on, for this reason.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.end(ProcessEnd::Failed(why.into()));
    }

    /// The run is given up, for this reason, while the session of the process stands. Its report names the
    /// access that it waits for.
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

    /// Its report at its end; before that, the report that it has not decided.
    #[must_use]
    pub fn report(&self) -> Report {
        let ended = self.ended.clone();
        let ended = ended.unwrap_or_else(|| ProcessEnd::Failed("stopped before it decided".to_owned()));
        let decided = ended == ProcessEnd::Decided;
        let from = if decided && !self.inherited { self.view.counted() } else { Entries::default() };
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
