//! Many rounds.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use stickycas_client::Client;
use stickycas_harness::exit::UsageError;
use tokio::task::JoinSet;

use crate::draw::{ClusterSize, FaultKind, Load, RoundPlan};
use crate::plan::{Action, Plan, Service, Step, When};
use crate::platform::processes::{ClockOffset, ServerProcess, ServerProgram};
#[cfg(feature = "cluster")]
use crate::platform::processes::{ClusterProcesses, check_network, find_etcd};
use crate::platform::{CREATOR, RETRIES};
#[cfg(feature = "cluster")]
use crate::platform::{ClusterServers, client_of_all};
use crate::result::{CrashResult, RoundCounts, RoundResult};
use crate::round::{Site, play_round};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// How many rounds.
    pub rounds: u64,
    /// The seed of the first; each other one has the next.
    pub seed: u64,
    /// The load of each round.
    pub load: Load,
    /// Kill the server once in each round, when all instances are under way, and start it again with its
    /// clocks so far ahead.
    pub outage: Option<Duration>,
    /// Servers of a cluster over etcd, and its faults, in place of one server.
    pub cluster: Option<ClusterSize>,
    /// The steps of every round in place of those that its seed draws.
    pub steps: Option<Vec<Step>>,
    /// Whether partitions among these faults are left out where there can be none; else it is an error.
    pub partitions_may_lack: bool,
    /// How many at a time, each with a server of its own.
    pub jobs: usize,
    /// The rejoin time of the servers.
    pub rejoin: Duration,
    /// The server.
    pub program: ServerProgram,
    /// The folder in which each round has a folder of its own as long as it runs; that of a failed round
    /// stays.
    pub out: PathBuf,
}

/// The clocks of a program are found to be ahead to the minute.
const SHORTEST_OUTAGE: Duration = Duration::from_secs(600);

/// Whether rounds of a cluster were compiled in: the feature `cluster`.
pub const HAS_CLUSTER: bool = cfg!(feature = "cluster");
const NO_CLUSTER: &str = "rounds of a cluster are not compiled in: they need the feature `cluster`";

/// After so many failed rounds no further ones begin: they would say the same.
const MOST_FAILED: usize = 10;

/// Runs the rounds, or those that have begun when `stop` resolves; `progress` is told after each.
///
/// # Errors
/// A round cannot be run. Failures of a server are in the result.
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
    ensure!(HAS_CLUSTER || options.cluster.is_none(), "{NO_CLUSTER}");
    check_steps(options.steps.as_deref().unwrap_or_default(), options)?;
    let mut result = CrashResult { seed, asked: rounds, ..CrashResult::default() };
    #[cfg(feature = "cluster")]
    let options = &check_cluster(options, &mut result)?;
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
                None => break,
                Some(ran) => result.add(ran.context("a round has failed")??),
            },
            // The servers are killed with their rounds.
            () = &mut stop => return Ok(result),
        }
        progress(&result);
    }
    if let (Some(size), true) = (options.cluster, result.is_clean() && result.rounds == rounds) {
        let steps: Vec<Step> = (seed..seed + rounds).flat_map(|seed| round(options, seed).steps).collect();
        result.not_shown = has_shown_cluster(&steps, size, &result.counts).err().map(|why| why.to_string());
    }
    Ok(result)
}

/// The options with what is possible here.
#[cfg(feature = "cluster")]
fn check_cluster(options: &CrashOptions, result: &mut CrashResult) -> anyhow::Result<CrashOptions> {
    let mut options = options.clone();
    let Some(size) = &mut options.cluster else { return Ok(options) };
    drop(find_etcd(&options.out)?);
    if size.has_partitions
        && let Err(error) = check_network()
    {
        if !options.partitions_may_lack {
            return Err(error.context("there can be no partitions of the network here"));
        }
        size.has_partitions = false;
        result.partitions_left_out = Some(format!("{error:#}"));
    }
    Ok(options)
}

/// The round of this seed.
fn round(options: &CrashOptions, seed: u64) -> RoundPlan {
    let mut round = match (options.cluster, options.outage) {
        (Some(size), _) => RoundPlan::cluster(seed, options.load, size),
        (None, Some(ahead)) => RoundPlan::outage(seed, options.load, ahead),
        (None, None) => RoundPlan::draw(seed, options.load),
    };
    if let Some(steps) = &options.steps {
        round.steps.clone_from(steps);
    }
    round
}

/// Whether these steps can be those of a round.
fn check_steps(steps: &[Step], options: &CrashOptions) -> anyhow::Result<()> {
    for step in steps {
        let is_known = match options.cluster {
            Some(size) => FaultKind::of(step, size.members).is_some() && step.ahead.is_none(),
            None => step.services == [Service::Server] && step.action == Action::Kill,
        };
        let is_in_time = !matches!(step.when, When::Before | When::Observed(_)) && step.by.is_none();
        let Step { action, when, .. } = step;
        ensure!(
            is_known && is_in_time && step.lasts.is_some(),
            UsageError(format!(
                "{action} {when}: the kill test has no such step: give those that it draws, as in plan.toml of a round"
            ))
        );
    }
    let is_of_outage = |step: &&Step| step.ahead.is_some() || step.when == When::UnderWay;
    if let (None, Some(Step { action, when, .. })) = (options.outage, steps.iter().find(is_of_outage)) {
        let reason = format!("{action} {when}: ahead and under_way are of an outage: give --outage");
        return Err(UsageError(reason).into());
    }
    let mut behind = steps.iter().skip_while(|step| step.when != When::Ended);
    let reason = "a step behind the end of all instances: put it before";
    ensure!(behind.all(|step| step.when == When::Ended), UsageError(reason.to_owned()));
    Ok(())
}

async fn one(options: &CrashOptions, seed: u64) -> anyhow::Result<RoundResult> {
    let folder = options.out.join(format!("round-{seed}"));
    fs::create_dir_all(&folder)?;
    let plan = round(options, seed);
    let drawn = Plan::drawn(seed, plan.steps.clone());
    fs::write(folder.join("plan.toml"), drawn.text()).context("cannot write the plan of a round")?;
    let mut result = match options.cluster {
        #[cfg(feature = "cluster")]
        Some(size) => {
            let machines =
                ClusterProcesses::new(&options.program, &folder, options.rejoin, size, seed).await?;
            let site =
                Site::new(&plan, |connection| client_of_all(size, &machines, connection).connect_lazy())?;
            play_round(&plan, ClusterServers::new(machines, size)?, site).await
        }
        #[cfg(not(feature = "cluster"))]
        Some(_) => bail!("{NO_CLUSTER}"),
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

/// Checks that rounds of a cluster without a violation have shown something, given all faults that they had
/// planned.
fn has_shown_cluster(planned: &[Step], size: ClusterSize, counts: &RoundCounts) -> anyhow::Result<()> {
    let mut missing = BTreeMap::<FaultKind, u64>::new();
    let planned: Vec<(FaultKind, Duration)> =
        planned.iter().filter_map(|step| Some((FaultKind::of(step, size.members)?, step.lasts?))).collect();
    for (kind, _) in &planned {
        *missing.entry(*kind).or_default() += 1;
    }
    for (kind, count) in &mut missing {
        *count = count.saturating_sub(counts.faults.get(kind).copied().unwrap_or(0));
    }
    if let Some((kind, count)) = missing.iter().find(|(_, count)| **count > 0) {
        bail!("{count} planned faults were not injected: {kind}");
    }
    let RoundCounts { instances, accesses, asked_deposed, .. } = *counts;
    ensure!(accesses >= instances, "only {accesses} accesses of {instances} instances were acknowledged");
    let outlasts =
        |(kind, lasts): &&(FaultKind, Duration)| size.servers > 1 && kind.outlasts(*lasts, size.lease);
    let outlasting = || planned.iter().filter(outlasts);
    if outlasting().next().is_none() {
        return Ok(());
    }
    let taken_over: u64 = counts.deposed.values().sum();
    ensure!(
        taken_over > 0,
        "no server had the shards of another one that was away for longer than its lease"
    );
    ensure!(counts.went_on > 0, "no access was acknowledged after a fault of the owner of its instance");
    let to_ask = outlasting().any(|(kind, _)| kind.asks_deposed());
    ensure!(!to_ask || asked_deposed > 0, "no server was asked for what others had taken over from it");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::Waiting;

    const SIZE: ClusterSize = ClusterSize {
        servers: 3,
        members: 3,
        lease: Duration::from_secs(2),
        faults: 10,
        has_partitions: true,
    };

    fn planned(size: ClusterSize) -> Vec<Step> {
        let load = Load { instances: 10, processes: 4, waiting: Waiting::CLUSTER };
        RoundPlan::cluster(1, load, size).steps
    }

    /// The counts of a run that has shown everything planned.
    fn counted(planned: &[Step]) -> RoundCounts {
        let mut counts = RoundCounts {
            instances: 10,
            accesses: 90,
            went_on: 1,
            asked_deposed: 20,
            ..RoundCounts::default()
        };
        for kind in planned.iter().filter_map(|step| FaultKind::of(step, SIZE.members)) {
            *counts.faults.entry(kind).or_default() += 1;
        }
        counts.deposed = BTreeMap::from([(FaultKind::ServerKilled, 0), (FaultKind::ServerPaused, 1)]);
        counts
    }

    #[test]
    fn a_cluster_that_loses_no_shard_has_shown_nothing() {
        let planned = planned(SIZE);
        let all = counted(&planned);
        let said = |counts: &RoundCounts| has_shown_cluster(&planned, SIZE, counts).unwrap_err().to_string();
        has_shown_cluster(&planned, SIZE, &all).unwrap();
        let nobody = BTreeMap::from([(FaultKind::ServerPaused, 0)]);
        assert!(
            said(&RoundCounts { deposed: nobody, ..all.clone() }).starts_with("no server had the shards")
        );
        assert!(said(&RoundCounts { went_on: 0, ..all.clone() }).starts_with("no access was ack"));
        assert!(said(&RoundCounts { asked_deposed: 0, ..all.clone() }).starts_with("no server was asked"));
        assert!(said(&RoundCounts { accesses: 9, ..all.clone() }).starts_with("only 9 accesses of 10"));
        let mut fewer = all;
        *fewer.faults.get_mut(&FaultKind::MemberCutOff).unwrap() -= 1;
        assert_eq!(said(&fewer), "1 planned faults were not injected: member of etcd cut off from all");
    }

    #[test]
    fn nobody_takes_over_from_a_server_that_is_alone_or_back_soon() {
        let counts = |planned: &[Step]| RoundCounts {
            asked_deposed: 0,
            deposed: BTreeMap::new(),
            went_on: 0,
            ..counted(planned)
        };
        let alone = ClusterSize { servers: 1, ..SIZE };
        has_shown_cluster(&planned(alone), alone, &counts(&planned(alone))).unwrap();
        let mut short = planned(SIZE);
        let kind = |step: &Step| FaultKind::of(step, SIZE.members).unwrap();
        short.retain(|step| !kind(step).outlasts(step.lasts.unwrap(), SIZE.lease));
        assert!(short.len() > 2 && short.iter().any(|step| kind(step) == FaultKind::ServerStopped));
        has_shown_cluster(&short, SIZE, &counts(&short)).unwrap();
    }

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
