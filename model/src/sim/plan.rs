//! What one simulated run starts from.

use std::sync::Arc;
use std::time::Duration;

use crate::cast::Cast;
use crate::params::Params;
use crate::types::Phase;

/// A restart of the server in a run. All connections break and what was on its way is lost; processes that have not ended
/// come back with a new hello, in an order that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimRestart {
    /// It happens once this phase is reached.
    pub reached: Phase,
    /// How long patience waits for processes to reconnect (F3).
    pub rejoin: Duration,
}

/// A run.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// What each process is. A process that the cast does not name never joins.
    pub cast: Cast,
    /// The seed from which the order of arrival is drawn, and all draws of strategies.
    pub seed: u64,
}
