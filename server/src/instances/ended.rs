//! An instance that has ended, in little memory.
//!
//! Most instances that a server keeps have ended: they live for their retention, and for that they only have to answer
//! (SPEC F10): Get, Read, Watch, a hello, an answer once more (F8b). So what is kept of them is packed: the record, and
//! behind it the machine, in one piece of memory. It is looked at as it lies there by those who only look. Whoever
//! makes a change, a session or an offence, has it unpacked, and it stays so until nobody has come for a while.

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::machine::{Machine, State};
use stickycas_model::types::Time;

use super::guarded::{Guarded, kept_events};
use super::outlets::Outlets;
use super::terms::Facts;
use crate::limits::Limits;
use crate::store::memory::Past;

/// How long an ended instance stays unpacked after a call: somebody who comes again at once should not have it
/// unpacked again and again.
pub(super) const STAYS_AWAKE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) past: Past,
    /// Sessions that are still open: they are told if others replace them (F8f).
    pub(super) outlets: Option<Box<Outlets>>,
    /// When it ended.
    pub(super) at: Time,
    pub(super) state: State,
}

impl Ended {
    /// What is kept of an instance that has ended at this time.
    pub(super) fn pack(awake: &mut Guarded, at: Time) -> Self {
        let Guarded { machine, record, outlets, .. } = awake;
        let past = record.end(|out| machine.pack(out));
        let outlets = std::mem::take(outlets);
        let outlets = (!outlets.is_empty()).then(|| Box::new(outlets));
        Self { past, outlets, at, state: machine.state() }
    }

    /// The machine, to look at.
    pub(super) fn machine(&self, facts: &Facts) -> Machine {
        let params = Arc::new(facts.params());
        Machine::unpack(params, &mut self.past.also()).expect("it was packed with these parameters")
    }

    /// As it was before it was packed.
    pub(super) fn unpack(&mut self, facts: &Facts, limits: &Limits) -> Guarded {
        let machine = self.machine(facts);
        let record = self.past.reopen(kept_events(facts, limits));
        let outlets = self.outlets.take().map_or_else(Outlets::default, |outlets| *outlets);
        Guarded::ended(machine, record, outlets, limits, self.at)
    }
}
