//! A machine whose phases are scheduled one by one, for the exhaustive search of [`crate::explore`].

use std::sync::Arc;

use super::state::Machine;
use crate::params::Params;
use crate::scheduler::ScriptedSchedule;
use crate::types::WarpId;

impl Machine<ScriptedSchedule> {
    /// A new instance in which [`Machine::schedule_next`] says which warp comes next.
    pub(crate) fn scripted(params: Arc<Params>) -> Self {
        let schedule = ScriptedSchedule::new(params.warps());
        Self::with_order(params, schedule)
    }

    /// Schedules this warp for the first phase that has none. Every phase must be scheduled before it can open, which
    /// is before anything waits.
    pub(crate) fn schedule_next(&mut self, warp: WarpId) {
        self.schedule.push(warp);
        self.go_to(self.phase);
    }
}
