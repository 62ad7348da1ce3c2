//! What one simulated run starts from.

use std::sync::Arc;

use crate::cast::Cast;
use crate::params::Params;

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
