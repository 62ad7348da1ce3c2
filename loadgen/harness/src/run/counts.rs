//! What the server has counted of the processes of a run (SPEC B3).
//!
//! A process has the same principal in every run, so of runs at the same time on one server none can tell its
//! counts from another's.

use std::collections::BTreeMap;

use anyhow::Context;
use stickycas_client::counts;
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::types::ProcessId;

use super::server_handle::{self, ServerHandle};
use crate::scenario::Scenario;

/// What the server has counted so far of the attackers of a scenario, and of all principals. Without attackers
/// the server is not asked.
///
/// # Errors
/// The server cannot be reached, or does not tell.
pub async fn counted(handle: &ServerHandle, scenario: &Scenario) -> anyhow::Result<RunCounts> {
    let processes: BTreeMap<String, ProcessId> =
        scenario.cast.attackers().map(|(process, _)| (server_handle::principal(process), process)).collect();
    if processes.is_empty() {
        return Ok(RunCounts::default());
    }
    let principals: Vec<String> = processes.keys().cloned().collect();
    let counted = handle.client().counts(&principals).await.with_context(|| {
        format!("cannot ask {} what it has counted, and so whether attacks fire", handle.url())
    })?;
    let of = |(principal, counts)| Some((*processes.get(principal)?, named(counts)));
    Ok(RunCounts { all: named(&counted.all), processes: counted.principals.iter().filter_map(of).collect() })
}

/// All counts by name.
fn named(counts: &counts::Counts) -> Counts {
    let refusals = counts.refusals.iter().map(|(reason, count)| (*reason, *count));
    refusals.chain(counts.others()).map(|(name, count)| (name.to_owned(), count)).collect()
}
