//! What one simulated run starts from.

use std::sync::Arc;

use crate::cast::Cast;
use crate::params::Params;

/// What to run.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// The parameters of the instance.
    pub params: Arc<Params>,
    /// Who plays what. A process that it does not name never joins.
    pub cast: Cast,
    /// From which the order of arrival is drawn, and what strategies draw.
    pub seed: u64,
}
