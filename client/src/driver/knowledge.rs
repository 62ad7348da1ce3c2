//! The facts that a server has told one process, and the check that it has not lost them.
//!
//! A server that was killed comes back with all that it has told. One whose log was put back to an earlier
//! state does not, and a process that goes on with it could append twice or decide from a second history
//! (SPEC A3, R2, F8b). So the process compares each welcome and each answer with what it knows, and stops
//! with [`Error::Lost`] when it is told less or something else.

use std::collections::VecDeque;

use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::params::Params;
use stickycas_model::process::{RawOp, View};
use stickycas_model::types::{AccessNumber, Phase, Position, Value};
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::convert::member_state::MemberState;

use crate::error::Error;

/// The facts that only grow, as far as the server has told them.
#[derive(Debug)]
pub(super) struct Knowledge {
    /// Accesses below this number were accepted (F8a).
    next: AccessNumber,
    /// The append that won, or else the last within the append rounds, once executed (A1, K2).
    append: Option<(Phase, AppendAnswer)>,
    /// An entry of the process's own.
    entry: Option<(Position, Value)>,
    /// Least length of the list.
    length: u32,
    /// Whether the list has exactly this length for ever.
    sealed: bool,
    /// The decision that the server has taken (F10).
    decided: Option<Value>,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self { next: AccessNumber::FIRST, append: None, entry: None, length: 0, sealed: false, decided: None }
    }
}

impl Knowledge {
    /// A session is open with this state of the process.
    ///
    /// # Errors
    /// [`Error::Lost`] if that is less than was told before.
    pub(super) fn welcomed(&mut self, own: &MemberState, params: &Params) -> Result<(), Error> {
        if own.next < self.next {
            let (accepted, next) = (self.next.get() - 1, own.next);
            return lost(format!(
                "access {accepted} was accepted, and access {next} is expected as a new one"
            ));
        }
        match (self.append, own.append) {
            (Some((phase, _)), None) => {
                return lost(format!("the append of phase {phase} was answered and is unknown now"));
            }
            // One that did not win may have been followed by another (K2).
            (Some((phase, AppendAnswer::Failed | AppendAnswer::LimitReached)), Some((now_phase, _)))
                if now_phase > phase && params.append_rounds() > 1 => {}
            // An append that another program has made for the process may be an earlier one.
            (Some((phase, before)), Some((now_phase, now)))
                if now_phase > phase || (now_phase == phase && now != before) =>
            {
                return lost(format!(
                    "the append of phase {phase} was answered by {before:?}, and now by {now:?} in phase {now_phase}"
                ));
            }
            _ => {}
        }
        if let Some(decided) = self.decided.as_ref().filter(|decided| own.decided.as_ref() != Some(decided)) {
            let now = own.decided.as_ref().map_or("none".to_owned(), Value::to_string);
            return lost(format!("the decision {decided} was taken, and now it is {now}"));
        }
        (self.next, self.append) = (own.next, own.append);
        self.decided.clone_from(&own.decided);
        Ok(())
    }

    /// An access was answered. `view`: the state of the process before. An access that does not wait for its
    /// first answer (`unanswered`) changes nothing: its answer may be older than what is known by now.
    ///
    /// # Errors
    /// [`Error::Lost`] if the answer contradicts what was told before.
    pub(super) fn answered(
        &mut self,
        number: AccessNumber,
        received: &AnswerData,
        unanswered: &VecDeque<(AccessNumber, RawOp)>,
        view: &View,
    ) -> Result<(), Error> {
        let Some((_, op)) = unanswered.iter().find(|(waiting, _)| *waiting == number) else { return Ok(()) };
        self.next = self.next.max(number.next());
        match received.answer {
            Answer::Append(answer) => {
                let won = matches!(self.append, Some((_, AppendAnswer::Success(_))));
                if self.append.is_none() || (!won && number.get() <= view.params.append_rounds().into()) {
                    self.append = received.phase.map(|phase| (phase, answer));
                }
                if let (AppendAnswer::Success(position), RawOp::Append(bytes)) = (answer, op) {
                    self.entry = bytes.clone().into_value().map(|value| (position, value));
                    self.grows(position.get().saturating_add(1), self.sealed)?;
                }
                Ok(())
            }
            Answer::Read(ReadAnswer { start, length, sealed, .. }) => {
                self.grows(length, sealed)?;
                self.compare(start, &received.entries, view)
            }
        }
    }

    /// The server has taken this decision.
    pub(super) fn decided(&mut self, value: Value) {
        self.decided = Some(value);
    }

    /// The list has this length at least; `sealed`: no more either.
    fn grows(&mut self, length: u32, sealed: bool) -> Result<(), Error> {
        let before = self.length;
        if length < before || (self.sealed && (!sealed || length != before)) {
            let end = if self.sealed { " and was sealed" } else { "" };
            return lost(format!("the list had {before} entries{end}, and now it has {length}"));
        }
        (self.length, self.sealed) = (length, sealed);
        Ok(())
    }

    /// Entries never change (R2).
    fn compare(&self, start: Position, entries: &[Value], view: &View) -> Result<(), Error> {
        let end = start.index() + entries.len();
        let own = self.entry.iter().map(|(position, value)| (*position, value));
        let held = view.held().skip(start.index()).take_while(|(position, _)| position.index() < end);
        for (position, known) in held.chain(own) {
            let told = position.index().checked_sub(start.index()).and_then(|index| entries.get(index));
            if let Some(told) = told.filter(|told| *told != known) {
                return lost(format!("entry {position} was {known}, and now it is {told}"));
            }
        }
        Ok(())
    }
}

fn lost(what: String) -> Result<(), Error> {
    Err(Error::Lost(what))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stickycas_model::params::{Params, ParamsSpec};
    use stickycas_model::types::{ProcessId, RawValue};

    use super::*;

    fn number(number: u64) -> AccessNumber {
        AccessNumber::new(number).unwrap()
    }

    fn value(text: &str) -> Value {
        Value::parse(text).unwrap()
    }

    fn own(next: u64) -> MemberState {
        MemberState {
            process: ProcessId::FIRST,
            next: number(next),
            waiting: Vec::new(),
            append: None,
            decided: None,
        }
    }

    fn appended(phase: u64, position: u32) -> (Phase, AppendAnswer) {
        (Phase::new(phase).unwrap(), AppendAnswer::Success(Position::new(position)))
    }

    /// A process that is told this and that, one after the other.
    struct Process(Knowledge, View);

    impl Process {
        fn new() -> Self {
            Self::of(ParamsSpec::new(2, 1, 2))
        }

        fn of(spec: ParamsSpec) -> Self {
            let params = Params::try_new(spec).unwrap();
            Self(Knowledge::default(), View::new(ProcessId::FIRST, Arc::new(params)))
        }

        fn welcomed(&mut self, own: &MemberState) -> Result<(), Error> {
            self.0.welcomed(own, &self.1.params)
        }

        fn answered(
            &mut self,
            access: u64,
            op: RawOp,
            answer: Answer,
            entries: &[&str],
        ) -> Result<(), Error> {
            let entries: Vec<_> = entries.iter().map(|text| value(text)).collect();
            let received = AnswerData { phase: Phase::new(access), answer, entries: entries.clone() };
            let unanswered = VecDeque::from([(number(access), op)]);
            self.0.answered(number(access), &received, &unanswered, &self.1)?;
            self.1.learn(received.phase, answer, entries);
            Ok(())
        }

        fn append(&mut self, access: u64, text: &str, position: u32) -> Result<(), Error> {
            let answer = Answer::Append(AppendAnswer::Success(Position::new(position)));
            self.answered(access, RawOp::Append(RawValue::new(text.as_bytes())), answer, &[])
        }

        fn read(&mut self, access: u64, entries: &[&str], sealed: bool) -> Result<(), Error> {
            let length = u32::try_from(entries.len()).unwrap();
            let answer = ReadAnswer { start: Position::new(0), count: length, length, sealed };
            self.answered(access, RawOp::Read(Position::new(0)), Answer::Read(answer), entries)
        }
    }

    fn is_lost(told: Result<(), Error>, what: &str) {
        let error = told.unwrap_err();
        assert!(matches!(&error, Error::Lost(_)), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }

    #[test]
    fn what_grows_is_no_loss() {
        let mut process = Process::new();
        process.welcomed(&own(1)).unwrap();
        process.append(1, "a", 1).unwrap();
        process.welcomed(&MemberState { append: Some(appended(1, 1)), ..own(2) }).unwrap();
        process.read(2, &["b", "a"], false).unwrap();
        process.read(3, &["b", "a"], true).unwrap();
        process.0.decided(value("a"));
        let end = MemberState { append: Some(appended(1, 1)), decided: Some(value("a")), ..own(4) };
        process.welcomed(&end).unwrap();
    }

    #[test]
    fn an_accepted_access_that_is_gone_is_lost() {
        let mut process = Process::new();
        process.welcomed(&own(3)).unwrap();
        is_lost(process.welcomed(&own(2)), "access 2 was accepted");
        process.read(3, &[], false).unwrap();
        is_lost(process.welcomed(&own(3)), "access 3 was accepted");
    }

    #[test]
    fn an_append_that_is_gone_or_another_one_is_lost() {
        let mut process = Process::new();
        process.append(1, "a", 0).unwrap();
        is_lost(process.welcomed(&own(2)), "the append of phase 1 was answered and is unknown");
        let later = MemberState { append: Some(appended(2, 0)), ..own(2) };
        is_lost(process.welcomed(&later), "and now by");
        is_lost(process.read(2, &["b"], false), "entry 0 was a, and now it is b");
    }

    #[test]
    fn an_append_that_failed_may_be_followed_by_another() {
        let mut process = Process::of(ParamsSpec { append_rounds: 2, ..ParamsSpec::new(4, 2, 2) });
        let failed = |phase| Some((Phase::new(phase).unwrap(), AppendAnswer::Failed));
        let append = RawOp::Append(RawValue::new(b"a"));
        process.answered(1, append, Answer::Append(AppendAnswer::Failed), &[]).unwrap();
        process.welcomed(&MemberState { append: failed(3), ..own(3) }).unwrap();
        process.append(2, "a", 1).unwrap();
        is_lost(process.welcomed(&MemberState { append: failed(3), ..own(3) }), "and now by");
    }

    #[test]
    fn a_decision_that_is_gone_is_lost() {
        let mut process = Process::new();
        process.0.decided(value("a"));
        is_lost(process.welcomed(&own(1)), "the decision a was taken, and now it is none");
    }

    #[test]
    fn a_list_that_shrank_or_changed_is_lost() {
        let mut process = Process::new();
        process.read(1, &["a", "b"], false).unwrap();
        is_lost(process.read(2, &["a"], false), "the list had 2 entries, and now it has 1");
        is_lost(process.read(2, &["a", "c"], false), "entry 1 was b, and now it is c");
        process.read(2, &["a", "b"], true).unwrap();
        is_lost(process.read(3, &["a", "b", "c"], true), "and was sealed");
        is_lost(process.read(3, &["a", "b"], false), "and was sealed");
    }

    #[test]
    fn an_answer_that_comes_again_is_no_loss() {
        let mut process = Process::new();
        process.read(1, &["a", "b"], false).unwrap();
        let old = ReadAnswer { start: Position::new(0), count: 0, length: 0, sealed: false };
        let again = AnswerData { phase: None, answer: Answer::Read(old), entries: Vec::new() };
        process.0.answered(number(1), &again, &VecDeque::new(), &process.1).unwrap();
    }
}
