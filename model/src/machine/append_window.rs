//! The append window (SPEC A2): which phases may append, and when the list is sealed.

use crate::history::Event;
use crate::params::AppendWindow;
use crate::scheduler::PhaseOrder;
use crate::types::Phase;

use super::state::Machine;

impl<S: PhaseOrder> Machine<S> {
    /// Whether this phase, which has come, may append (A2).
    pub(super) fn window_is_open(&self, phase: Phase) -> bool {
        match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.schedule.is_first(phase),
            AppendWindow::Open => true,
        }
    }

    /// Seals the list when it is due (A2): once every warp has had its first phase, or with the last of n
    /// entries.
    pub(super) fn seal_if_due(&mut self, events: &mut Vec<Event>) {
        let due = match self.params.spec().append_window {
            AppendWindow::FirstAccess => self.schedule.all_began_before(self.phase),
            AppendWindow::Open => self.list.len() == self.list.limit(),
        };
        if !due || self.sealed.is_some() {
            return;
        }
        self.sealed = Some(self.phase);
        events.push(Event::Sealed { phase: self.phase, length: self.list.len() });
        for process in std::mem::take(&mut self.early_reports) {
            self.compare_report(process, events);
        }
    }
}
