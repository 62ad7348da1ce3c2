//! The arbiter: which append of a phase wins (SPEC A4).

use crate::params::Arbiter;
use crate::scheduler::{PhaseOrder, arbiter_hash};

use super::state::Machine;
use super::step_buffers::CompetingAppend;

impl<S: PhaseOrder> Machine<S> {
    /// Puts the appends of the phase in the order in which they compete (A4). Only the first can win, so
    /// the order of the others does not matter.
    pub(super) fn arbitrate(&self, appends: &mut [CompetingAppend]) {
        let seed = self.params.spec().seed;
        let first = match self.params.spec().arbiter {
            Arbiter::FirstCome => appends.iter().enumerate().min_by_key(|(_, append)| append.accepted),
            Arbiter::Uniform => appends
                .iter()
                .enumerate()
                .min_by_key(|(_, append)| (arbiter_hash(seed, self.phase, append.process), append.process)),
            Arbiter::Priority(_) => {
                appends.iter().enumerate().min_by_key(|(_, append)| self.ranks[append.process.index()])
            }
        };
        if let Some((first, _)) = first {
            appends.swap(0, first);
        }
    }
}
