//! One seed: the round of the kill test in virtual time.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stickycas_faults::{RETRIES, RoundResult, Site, ViolationKind, play_round};
use stickycas_model::random::SplitMix64;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::disk::{Counted, CrashPoints, Disk, Extent, Loss, Witness};
use crate::network::Network;
use crate::os;
use crate::plan::{Disturbance, HOSTS, PROBE, Plan, WITNESS};
use crate::server::{SimulatedServer, connect, try_crash_points};
use crate::trace::{Trace, digest};

/// The result of a seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SeedResult {
    /// The result of the round of its clients.
    pub(crate) round: RoundResult,
    /// Messages that arrived.
    pub(crate) messages: u64,
    /// The disturbances of the network and of the server.
    pub(crate) disturbances: u64,
    /// What was tried of its disk.
    pub(crate) disks: Counted,
    /// A digest of the trace.
    pub(crate) trace: u64,
}

impl SeedResult {
    /// Of a seed whose process has not come to its end.
    pub(crate) fn failed(seed: u64, what: String) -> Self {
        let mut round = RoundResult::new(seed);
        round.found(ViolationKind::Server, None, what);
        Self { round, messages: 0, disturbances: 0, disks: Counted::default(), trace: 0 }
    }

    /// Of a seed with this trace.
    pub(crate) fn new(round: RoundResult, disks: Counted, trace: &Trace) -> Self {
        let (messages, disturbances) = trace.counts();
        Self { round, messages, disturbances, disks, trace: digest(trace.text().as_bytes()) }
    }
}

/// Runs this seed, and returns its result and its trace. Once in a process: clock and random numbers belong
/// to it from then on.
pub(crate) fn run(seed: u64, extent: Extent) -> anyhow::Result<(SeedResult, String)> {
    os::begin(seed);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_unpark(os::follow_runtime)
        .build()?;
    let (plan, trace) = (Plan::draw(seed), Trace::default());
    let (round, disks) = runtime.block_on(play(seed, &plan, extent, trace.clone()))?;
    Ok((SeedResult::new(round, disks, &trace), trace.text()))
}

async fn play(
    seed: u64,
    plan: &Plan,
    extent: Extent,
    trace: Trace,
) -> anyhow::Result<(RoundResult, Counted)> {
    os::follow_runtime();
    let random = &mut SplitMix64::new(seed ^ 0x6e65_7477);
    let network_random = SplitMix64::new(random.next_u64());
    let network = Network::new("server".to_owned(), HOSTS, plan.slowest, network_random, trace);
    let (disk, witness, draws) = (Disk::default(), Witness::default(), SplitMix64::new(random.next_u64()));
    let crash_points = CrashPoints::new(plan.round.clone(), witness.clone(), extent, draws);
    let crash_points = Arc::new(Mutex::new(crash_points));
    let draws = SplitMix64::new(random.next_u64());
    let server = SimulatedServer::new(plan, network.clone(), disk.clone(), crash_points.clone(), draws)?;
    let watched =
        witness.watch(connect(&network, WITNESS, RETRIES)?, disk.clone(), plan.round.instances.len());
    let _watched = AbortOnDropHandle::new(tokio::spawn(watched));
    let site = Site::new(&plan.round, |host| connect(&network, host, RETRIES))?;
    let disturbances = disturb(network.clone(), plan.disturbances.clone());
    let _disturbances = AbortOnDropHandle::new(tokio::spawn(disturbances));
    let mut round = play_round(&plan.round, server, site).await;
    try_crash_points(&crash_points, &disk, Loss::Power, random);
    let mut crash_points = crash_points.lock().unwrap_or_else(PoisonError::into_inner);
    for what in std::mem::take(&mut crash_points.found) {
        round.found(ViolationKind::Lost, None, what);
    }
    Ok((round, crash_points.counted))
}

/// Disturbs the network, each time as planned.
pub(crate) async fn disturb(network: Network, disturbances: Vec<(tokio::time::Duration, Disturbance)>) {
    let began = Instant::now();
    for (at, disturbance) in disturbances {
        sleep_until(began + at).await;
        match disturbance {
            Disturbance::Reset(host) => network.reset(host),
            Disturbance::Hold(host, direction, time) => network.hold(host, direction, time),
            Disturbance::HoldAll(direction, time) => {
                (0..PROBE).for_each(|host| network.hold(host, direction, time));
            }
        }
    }
}
