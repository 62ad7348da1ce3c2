//! Several whole servers over a model of etcd, in virtual time: the round of the kill test for a cluster,
//! repeated exactly by a seed.
//!
//! The servers, their clients, the faults and the checks are those of real processes (`stickycas-faults`).
//! Between clients and each server is a simulated network, between servers and the model its delays and
//! losses; servers are stopped with their clocks (`turns`).
//!
//! | module | what |
//! | --- | --- |
//! | `turns` | the runtimes of clients and servers, driven in turn |
//! | `machines` | the servers and etcd, and their faults |
//! | `plan` | the plan of a seed |
//! | `names` | names that several creators want |
//! | `writes` | the writers of the store's keys, and the instances that had each name |

mod machines;
mod names;
mod plan;
mod turns;
mod writes;

use std::sync::Arc;

use stickycas_client::{Client, State};
use stickycas_cluster::keys::{Keys, Name};
use stickycas_cluster::model::Model;
use stickycas_cluster::shard::ShardCount;
use stickycas_faults::{
    ClusterServers, RoundResult, Site, ViolationKind, client_of_all, play_round, server_name,
};
use stickycas_model::random::SplitMix64;
use stickycas_proto::names::InstanceId;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use self::machines::{CLUSTER, SimulatedMachines, connect};
use self::names::ContestOutcome;
pub(crate) use self::plan::ClusterPlan;
use self::turns::Orders;
use self::writes::Names;
use crate::disk::Counted;
use crate::network::Network;
use crate::os;
use crate::plan::{HOSTS, PROBE};
use crate::round::{SeedResult, disturb};
use crate::trace::Trace;

/// Runs this seed with so many servers. Once in a process.
pub(crate) fn run(seed: u64, servers: usize) -> anyhow::Result<(SeedResult, String)> {
    os::begin(seed);
    let (plan, trace, orders) = (ClusterPlan::draw(seed, servers), Trace::default(), Orders::default());
    let round = turns::run(servers, &orders, play(seed, &plan, &orders, &trace))??;
    Ok((SeedResult::new(round, Counted::default(), &trace), trace.text()))
}

async fn play(seed: u64, plan: &ClusterPlan, orders: &Orders, trace: &Trace) -> anyhow::Result<RoundResult> {
    let size = plan.size;
    let random = &mut SplitMix64::new(seed ^ 0x636c_6e77);
    let networks: Arc<[Network]> = (0..size.servers)
        .map(|server| {
            let draws = SplitMix64::new(random.next_u64());
            Network::new(server_name(server), HOSTS, plan.slowest, draws, trace.clone())
        })
        .collect();
    let model = Model::on(Handle::current(), random.next_u64(), plan.etcd.clone());
    let draws = SplitMix64::new(random.next_u64());
    let machines = SimulatedMachines::new(plan, orders.clone(), model.clone(), networks.clone(), draws);
    let client = |host| connect(&networks, host, client_of_all(size, &machines, host));
    let site = Site::new(&plan.round, client)?;
    let _disturbances: Vec<_> = networks
        .iter()
        .zip(&plan.disturbances)
        .map(|(network, disturbances)| {
            AbortOnDropHandle::new(tokio::spawn(disturb(network.clone(), disturbances.clone())))
        })
        .collect();
    let mut filled = JoinSet::new();
    for (begins, lasts) in plan.full.clone() {
        let (model, trace) = (model.clone(), networks[0].trace().clone());
        filled.spawn(async move {
            sleep(begins).await;
            trace.disturbance("etcd is full");
            // The next put crosses the quota; those behind it are refused until there is room again.
            let before = model.refused_for_space();
            model.set_quota(Some(model.used()));
            sleep(lasts).await;
            model.set_quota(None);
            let refused = model.refused_for_space() - before;
            trace.note(format_args!("etcd has room again; writes that it has refused: {refused}"));
        });
    }
    let mut contests = JoinSet::new();
    for (number, contest) in plan.contests.iter().enumerate() {
        let clients = (0..size.servers).map(|server| client(number + server)).collect::<Result<_, _>>()?;
        contests.spawn(contest.clone().play(clients));
    }
    let last = (0..size.servers)
        .map(|server| connect(&networks, PROBE, client_of_all(size, &machines, server)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut round = play_round(&plan.round, ClusterServers::new(machines, size)?, site).await;
    if round.violations.iter().any(|violation| violation.kind == ViolationKind::Server) {
        return Ok(round);
    }
    for outcome in contests.join_all().await {
        check_name(&outcome, &last, &mut round).await;
    }
    let (keys, history) = (Keys::new(&Name::new(CLUSTER)?), model.history());
    for (kind, what) in writes::check(&keys, ShardCount::new(plan.shards)?, &history) {
        round.found(kind, None, what);
    }
    let names = Names::of(&keys, &history);
    for (name, id) in &names.held {
        if let Err(error) = last[0].get(instance(id)).await {
            round.found(ViolationKind::Lost, None, format!("name {name} is kept for {id}: {error}"));
        }
    }
    for (name, id) in &names.taken_over {
        // Only a closed instance gives its name up.
        let state = last[0].get(instance(id)).await.map(|view| view.status.state);
        if !matches!(state, Ok(State::Closed)) {
            round.found(ViolationKind::Changed, None, format!("name {name} was taken from {id}: {state:?}"));
        }
    }
    Ok(round)
}

/// The instance with this id in the store.
fn instance(id: &str) -> InstanceId {
    InstanceId::from_hex(id.as_bytes()).unwrap_or(InstanceId::new(0))
}

async fn check_name(outcome: &ContestOutcome, clients: &[Client], round: &mut RoundResult) {
    for client in clients {
        for (kind, what) in outcome.check(client).await {
            round.found(kind, None, what);
        }
    }
}
