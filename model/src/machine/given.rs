//! A machine whose schedule is given phase by phase, for the exhaustive search of [`crate::explore`].

use std::sync::Arc;

use super::Machine;
use crate::params::Params;
use crate::types::WarpId;

impl Machine {
    /// A new instance in which [`Machine::give_phase`] says which warp comes next, in place of the schedule.
    pub(crate) fn with_given_schedule(params: Arc<Params>) -> Self {
        let machine = Self::new(params);
        Self { calendar: machine.calendar.into_given(), ..machine }
    }

    /// Gives the first phase that is not given yet to this warp. Every phase must be given before it can open,
    /// which is before anything waits.
    pub(crate) fn give_phase(&mut self, warp: WarpId) {
        self.calendar.give(warp);
        self.go_to(self.phase);
    }
}
