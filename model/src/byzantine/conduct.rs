//! What a process with a strategy does, whichever strategy it is.

use super::observations::ObservedProcess;
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::Behaviour;
use crate::types::{ProcessId, Value};

/// What a process with one strategy does, and what shows it.
pub(super) trait Conduct {
    /// The offences of the closed list (B2) that the process was observed to commit by the strategy and that its accepted
    /// accesses and its report do not show by themselves ([`ObservedProcess::offences`]).
    fn offences(&self, _process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        &[]
    }

    /// Whether a process with this strategy joins at all.
    fn joins(&self) -> bool {
        true
    }

    /// Whether the strategy comes to an end by itself, as a correct process does.
    fn ends(&self) -> bool {
        true
    }

    /// The values that process `me` sends of its own accord, as long as any that it makes up may be.
    fn values(&self, _me: ProcessId, _params: &Params) -> Vec<Value> {
        Vec::new()
    }

    /// The behaviour of process `me`. Where the strategy follows Algorithm 1, it proposes `proposal`; what it draws, it
    /// draws from `seed`.
    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour>;

    /// Whether the history shows that the process carried out the strategy (B3). It must not look at offences:
    /// the judge asks whether the offences of the processes that were observed are on record (B2).
    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool;
}
