//! Appends again and again.
//!
//! Algorithm 1 as printed leaves room for more than one append of a process (the list takes up to n entries, and
//! there are W first accesses); under `first_access` each append after the first is answered LIMIT_REACHED
//! and is an offence (A2, B2). It stops when a correct process would have all it needs, reads the list and
//! leaves by its mode, so that it costs nobody patience.

use super::read_and_leave;
use crate::process::{Act, Behaviour, View};
use crate::types::{ProcessId, Value};

/// Appends in every access in which a correct process would act: 1 + c of them.
#[derive(Clone, Debug)]
pub struct RepeatAppend {
    me: ProcessId,
    value: Option<Value>,
    proposal: Value,
}

impl RepeatAppend {
    /// Appends this value every time; without one, its proposal first and then values that nobody else has.
    #[must_use]
    pub fn new(me: ProcessId, value: Option<Value>, proposal: Value) -> Self {
        Self { me, value, proposal }
    }

    /// What the access of this number appends.
    fn value(&self, number: u64) -> Value {
        match &self.value {
            Some(value) => value.clone(),
            None if number == 1 => self.proposal.clone(),
            None => {
                let text = format!("byzantine-{}-{number}", self.me);
                Value::new(text.as_bytes()).expect("the text is not empty")
            }
        }
    }
}

impl Behaviour for RepeatAppend {
    fn act(&mut self, view: &View) -> Act {
        if view.answered <= u64::from(view.params.reads()) {
            return Act::append(&self.value(view.answered + 1));
        }
        read_and_leave(view, &self.proposal)
    }
}
