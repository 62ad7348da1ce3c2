//! Many rounds.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use stickycas_client::{Client, ClientBuilder, RetryPolicy};
use tokio::task::JoinSet;

use crate::clocks::ClockOffset;
use crate::cluster::{ClusterProcesses, find_etcd};
use crate::fault::ClusterSize;
use crate::instance::{RETRIES, Site};
use crate::plan::{Load, RoundPlan};
use crate::result::{CrashResult, RoundCounts};
use crate::round::play_round;
use crate::server::{CREATOR, ServerProcess, ServerProgram};

/// The clocks of a program are found to be ahead to the minute.
const SHORTEST_OUTAGE: Duration = Duration::from_secs(600);

/// Faults of a cluster follow each other, so clients try for longer.
const CLUSTER_RETRIES: RetryPolicy = RetryPolicy { give_up_after: Duration::from_secs(120), ..RETRIES };
/// How soon clients of a cluster ask whether a silent server lives. With the default of 20 s a server that is paused
/// would mostly wake before they leave it.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What is run.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// How many rounds.
    pub rounds: u64,
    /// The seed of the first; each other one has the next.
    pub seed: u64,
    /// What there is to do in each.
    pub load: Load,
    /// Kill the server once in each round, when all instances are under way, and start it again with its clocks so far
    /// ahead.
    pub outage: Option<Duration>,
    /// Servers of a cluster over etcd, and its faults, in place of one server.
    pub cluster: Option<ClusterSize>,
    /// How many at a time, each with a server of its own.
    pub jobs: usize,
    /// The rejoin time of the servers.
    pub rejoin: Duration,
    /// The server.
    pub program: ServerProgram,
    /// The folder in which each round has a folder of its own as long as it runs; that of a failed round stays.
    pub out: PathBuf,
}

/// After so many failed rounds no further ones begin: they would say the same.
const MOST_FAILED: usize = 10;

/// Runs the rounds, or those that have begun when `stop` resolves; `progress` is told after each.
///
/// # Errors
/// What keeps a round from being run. What goes wrong with a server is in the result.
pub async fn run(
    options: &CrashOptions,
    stop: impl Future<Output = ()>,
    mut progress: impl FnMut(&CrashResult),
) -> anyhow::Result<CrashResult> {
    let CrashOptions { rounds, seed, .. } = *options;
    if let Some(ahead) = options.outage {
        ensure!(
            ahead >= SHORTEST_OUTAGE,
            "an outage of {ahead:?} is too short to tell its clocks apart: give 10min or more"
        );
        ClockOffset::new(ahead).check().await?;
    }
    if options.cluster.is_some() {
        drop(find_etcd(&options.out)?);
    }
    let mut result = CrashResult { seed, asked: rounds, ..CrashResult::default() };
    let mut running = JoinSet::new();
    let mut next = 0;
    tokio::pin!(stop);
    loop {
        while next < rounds && running.len() < options.jobs && result.failed.len() < MOST_FAILED {
            let (options, seed) = (options.clone(), seed + next);
            running.spawn(async move { one(&options, seed).await });
            next += 1;
        }
        tokio::select! {
            ran = running.join_next() => match ran {
                None => return Ok(result),
                Some(ran) => result.add(ran.context("a round has failed")??),
            },
            // The servers are killed with their rounds.
            () = &mut stop => return Ok(result),
        }
        progress(&result);
    }
}

async fn one(options: &CrashOptions, seed: u64) -> anyhow::Result<crate::result::RoundResult> {
    let folder = options.out.join(format!("round-{seed}"));
    fs::create_dir_all(&folder)?;
    let plan = match (options.cluster, options.outage) {
        (Some(size), _) => RoundPlan::cluster(seed, options.load, size),
        (None, Some(ahead)) => RoundPlan::outage(seed, options.load, ahead),
        (None, None) => RoundPlan::draw(seed, options.load),
    };
    let mut result = match options.cluster {
        Some(size) => {
            let servers =
                ClusterProcesses::new(&options.program, &folder, options.rejoin, size, seed).await?;
            let urls = servers.urls();
            let connect = |connection| {
                let (first, others) = (&urls[connection % urls.len()], urls.iter());
                let builder =
                    others.filter(|url| *url != first).fold(Client::builder(first), ClientBuilder::server);
                builder.principal(CREATOR).retry(CLUSTER_RETRIES).keep_alive(KEEP_ALIVE).connect_lazy()
            };
            let site = Site::new(&plan, connect)?;
            play_round(&plan, servers, site).await
        }
        None => {
            let server = ServerProcess::new(&options.program, &folder, options.rejoin, seed)?;
            let url = server.url();
            let connect = |_| Client::builder(&url).principal(CREATOR).retry(RETRIES).connect_lazy();
            let site = Site::new(&plan, connect)?;
            play_round(&plan, server, site).await
        }
    };
    if plan.is_outage() {
        has_shown_outage(&result.counts)?;
    }
    result.write_evidence(&folder)?;
    if result.counts.violations_found == 0 {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    } else {
        result.folder = Some(folder);
    }
    Ok(result)
}

/// Checks that the round of an outage without a violation has shown something.
///
/// # Errors
/// The machine was too slow for that.
fn has_shown_outage(counts: &RoundCounts) -> anyhow::Result<()> {
    let RoundCounts { violations_found, instances, waited, starved, .. } = *counts;
    if violations_found > 0 {
        return Ok(());
    }
    let advice = "take a faster machine, or fewer instances";
    ensure!(waited >= instances, "only {waited} accesses waited when the server was killed: {advice}");
    ensure!(starved == 0, "the machine was too slow to judge the patience of {starved} instances: {advice}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_on_a_slow_machine_has_shown_nothing() {
        let counts = RoundCounts { instances: 10, waited: 10, ..RoundCounts::default() };
        has_shown_outage(&counts).unwrap();
        let said = |counts: RoundCounts| has_shown_outage(&counts).unwrap_err().to_string();
        assert!(said(RoundCounts { waited: 9, ..counts.clone() }).starts_with("only 9 accesses waited"));
        let starved = RoundCounts { starved: 1, ..counts };
        assert!(
            said(starved.clone()).starts_with("the machine was too slow to judge the patience of 1 inst")
        );
        has_shown_outage(&RoundCounts { violations_found: 1, ..starved }).unwrap();
    }
}
