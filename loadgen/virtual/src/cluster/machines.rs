//! The servers of a simulated cluster and its etcd: started, killed, stopped, paused and cut off.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use stickycas_client::{Client, ClientBuilder, Error};
use stickycas_cluster::model::{Model, ModelStore};
use stickycas_faults::{Action, Machines, Service, Step, revoke, server_name};
use stickycas_model::random::SplitMix64;
use stickycas_server::simulation::serve_in_cluster;
use stickycas_server::{ClusterConfig, Config, Stopped};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::plan::ClusterPlan;
use super::turns::Orders;
use crate::disk::Loss;
use crate::network::{Direction, Network};
use crate::plan::{HOSTS, PROBE};

/// The name of the cluster.
pub(super) const CLUSTER: &str = "virtual";
const PORT: u16 = 7420;
/// How long a machine takes to start a server, in microseconds.
const LONGEST_START: u64 = 500_000;
/// Turns of its runtime that pass at most before a server is gone or stopped.
const MOST_TURNS: u64 = 40;
/// The longest time from the order to stop until a server has stopped.
const LONGEST_STOP: Duration = Duration::from_secs(30);
/// The pause before etcd is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// See the module.
pub(super) struct SimulatedMachines {
    orders: Orders,
    model: Model,
    networks: Arc<[Network]>,
    servers: Vec<Machine>,
    config: Config,
    shards: u32,
    lease: Duration,
    random: SplitMix64,
}

/// A server that runs, or was killed.
#[derive(Default)]
struct Machine {
    store: Option<ModelStore>,
    stop: CancellationToken,
    /// How it has ended, once it has.
    ended: Arc<OnceLock<String>>,
}

impl SimulatedMachines {
    /// Machines with no server yet.
    pub(super) fn new(
        plan: &ClusterPlan,
        orders: Orders,
        model: Model,
        networks: Arc<[Network]>,
        random: SplitMix64,
    ) -> Self {
        let config = plan.limits.config();
        let servers = (0..plan.size.servers).map(|_| Machine::default()).collect();
        Self { orders, model, networks, servers, config, shards: plan.shards, lease: plan.size.lease, random }
    }

    fn note(&self, what: &str, server: usize) {
        self.networks[server].trace().disturbance(format_args!("{}: {what}", server_name(server)));
    }

    fn store(&self, server: usize) -> anyhow::Result<&ModelStore> {
        self.servers[server].store.as_ref().context("it was not started")
    }

    async fn kill(&mut self, server: usize, loss: Loss, most_turns: u64) {
        let network = self.networks[server].clone();
        let turns = self.random.below(most_turns);
        self.orders.kill(server, turns, move || network.cut_off(loss)).await;
    }

    async fn stop(&mut self, server: usize) -> anyhow::Result<()> {
        let Machine { stop, ended, .. } = &self.servers[server];
        stop.cancel();
        let has_ended = async {
            while ended.get().is_none() {
                sleep(ASK_AGAIN).await;
            }
        };
        let in_time = timeout(LONGEST_STOP, has_ended).await;
        in_time.with_context(|| format!("{} does not stop within {LONGEST_STOP:?}", server_name(server)))?;
        let how = ended.get().cloned().unwrap_or_default();
        ensure!(
            [Stopped::Clean, Stopped::Forced].iter().any(|stopped| how == format!("{stopped:?}")),
            "{} was asked to stop, and ended with {how}",
            server_name(server)
        );
        self.kill(server, Loss::Process, 1).await;
        Ok(())
    }

    /// Cuts etcd off from all servers, or connects it again.
    fn cut_etcd_off(&self, cut_off: bool) {
        for server in 0..self.servers.len() {
            self.note(if cut_off { "etcd is away" } else { "etcd is back" }, server);
            if let Some(store) = &self.servers[server].store {
                store.cut_off(cut_off);
            }
        }
    }
}

impl Machines for SimulatedMachines {
    async fn act(&mut self, action: Action, service: Service, step: &Step) -> anyhow::Result<()> {
        let target = service.index().with_context(|| format!("{service} is not simulated"))?;
        if matches!(service, Service::Etcd(_)) {
            self.cut_etcd_off(action.undone_by().is_some());
            return Ok(());
        }
        match action {
            Action::Kill => {
                let loss = [Loss::Process, Loss::Power][self.random.index(2)];
                self.kill(target, loss, MOST_TURNS).await;
            }
            Action::Stop => {
                self.note("it is told to stop", target);
                self.stop(target).await?;
            }
            Action::Start => self.start(target)?,
            Action::Pause => {
                let turns = self.random.below(MOST_TURNS);
                self.orders.pause(target, turns).await;
                self.note("it is paused", target);
            }
            Action::Unpause => {
                self.note("it goes on", target);
                self.orders.go_on(target).await;
            }
            Action::Disconnect if step.network.is_some() => {
                self.note("it is cut off from etcd", target);
                self.store(target)?.cut_off(true);
            }
            Action::Disconnect => {
                self.note("it is cut off from all", target);
                self.store(target)?.cut_off(true);
                let lasts = step.lasts.unwrap_or_default();
                (0..HOSTS).for_each(|host| self.networks[target].hold(host, Direction::Both, lasts));
            }
            Action::Depose => {
                self.note("it is cut off from etcd, and its lease ends", target);
                self.store(target)?.cut_off(true);
                revoke(&self.model.connect(), CLUSTER, target).await?;
            }
            Action::DropIncoming => {
                self.note("it receives nothing from etcd", target);
                self.store(target)?.drop_answers(true);
            }
            Action::Reconnect if step.action == Action::DropIncoming => {
                self.note("it receives from etcd again", target);
                self.store(target)?.drop_answers(false);
            }
            Action::Reconnect => {
                self.note("it reaches etcd again", target);
                self.store(target)?.cut_off(false);
            }
            Action::Restart => bail!("{service} is not restarted"),
        }
        Ok(())
    }

    fn url(&self, server: usize) -> String {
        format!("http://{}:{PORT}", server_name(server))
    }

    fn connect(&self, builder: ClientBuilder) -> Result<Client, Error> {
        connect(&self.networks, PROBE, builder)
    }

    fn start(&mut self, server: usize) -> anyhow::Result<()> {
        let start = Duration::from_micros(self.random.below(LONGEST_START));
        let (store, network, stop) =
            (self.model.connect(), self.networks[server].clone(), CancellationToken::new());
        let mut config = self.config.clone();
        config.cluster = Some(ClusterConfig {
            etcd: Vec::new(),
            etcd_credentials: None,
            etcd_quota: 1 << 30,
            name: CLUSTER.to_owned(),
            server: server_name(server),
            advertise: format!("{}:{PORT}", server_name(server)),
            lease: self.lease,
            shards: self.shards,
        });
        let ended = Arc::<OnceLock<String>>::default();
        self.servers[server] =
            Machine { store: Some(store.clone()), stop: stop.clone(), ended: ended.clone() };
        let name = server_name(server);
        self.orders.start(server, async move {
            sleep(start).await;
            let listener = network.listen();
            network.trace().disturbance(format_args!("{name}: it starts"));
            let serving = serve_in_cluster(listener, store, config, stop.cancelled_owned());
            let how = match tokio::spawn(serving).await {
                Ok(Ok(stopped)) => format!("{stopped:?}"),
                Ok(Err(error)) => format!("{error:?}"),
                Err(panic) => panic.to_string(),
            };
            // It is set once, here.
            let _ = ended.set(how);
        });
        Ok(())
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        for (server, machine) in self.servers.iter().enumerate() {
            if let Some(how) = machine.ended.get() {
                bail!("{} has ended by itself: {how}", server_name(server));
            }
        }
        Ok(())
    }
}

/// A client on the connections of this host to each server.
pub(super) fn connect(
    networks: &Arc<[Network]>,
    host: usize,
    builder: ClientBuilder,
) -> Result<Client, Error> {
    let networks = networks.clone();
    builder.connect_lazy_over(move |address| {
        let named = |server: &usize| address == format!("{}:{PORT}", server_name(*server));
        let network = (0..networks.len()).find(named).map(|server| networks[server].clone());
        async move {
            match network {
                Some(network) => network.connect(host).await,
                None => Err(std::io::ErrorKind::NotFound.into()),
            }
        }
    })
}
