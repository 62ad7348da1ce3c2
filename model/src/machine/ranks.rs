//! The order of a `priority` arbiter (SPEC A4).

use crate::params::{Arbiter, Params};

/// Rank of each process under a `priority` arbiter: the named processes in their order, the others behind (A4).
pub(super) fn ranks(params: &Params) -> Box<[u32]> {
    let Arbiter::Priority(order) = &params.spec().arbiter else { return Box::default() };
    let named = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let mut ranks: Box<[u32]> = (0..params.processes()).map(|index| named.saturating_add(index)).collect();
    for (rank, process) in (0..).zip(order) {
        ranks[process.index()] = rank;
    }
    ranks
}
