//! Counters of offences and refusals that no log has one by one (SPEC B2).
//!
//! Above [`OFFENCES_RECORDED`](super::OFFENCES_RECORDED) and [`REFUSALS_RECORDED`](super::REFUSALS_RECORDED) an input
//! that is refused or accused leaves no event and changes nothing but a counter, so nobody need log it: a client could
//! fill the log with such inputs. A log holds the counters themselves from time to time, as [`Counts`]. At most n times
//! the number of kinds of offences, and n of refusals.

use crate::scheduler::PhaseOrder;

use super::offence_record::Counts;
use super::state::Machine;

impl<S: PhaseOrder> Machine<S> {
    /// The counters that have risen without an event since the last call, as they stand now; `None` if none has.
    ///
    /// One that rose with an input which is logged for another reason may be among them: to set it again changes
    /// nothing.
    pub fn take_counts(&mut self) -> Option<Counts> {
        self.offences.take_silent()
    }

    /// Raises counters to these numbers, as a replay does. None is lowered. Takes no time, and a counter that was never
    /// recorded stays at 0: its first offences are events of logged inputs.
    pub fn set_counts(&mut self, counts: &Counts) {
        self.offences.raise(counts);
    }
}
