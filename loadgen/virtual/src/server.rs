//! The real server on the simulated network and disk: started, killed, started again.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use stickycas_client::{Client, RetryPolicy};
use stickycas_crash::{CREATOR, Server, serves};
use stickycas_model::random::SplitMix64;
use stickycas_server::simulation::{CommitLatency, Disk, Loss, serve};
use stickycas_server::{Config, ServeError, Stopped};
use tokio::task::JoinHandle;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::network::Network;
use crate::plan::{PROBE, Plan};

/// How long a machine takes to start a server again.
const LONGEST_START: u64 = 1_500_000;
/// A commit that takes much longer than others, as disks have them.
const STALL: Duration = Duration::from_secs(2);

/// Turns of the runtime that pass at most before a server is gone.
const MOST_TURNS: u64 = 60;
/// How long a server may take to end whose disk fails: its drain, and some commits.
const LONGEST_FAILING: Duration = Duration::from_secs(10);

/// A server that runs, or has been killed.
pub(crate) struct SimulatedServer {
    network: Network,
    disk: Disk,
    config: Config,
    slowest_commit: Duration,
    random: SplitMix64,
    serving: Option<Serving>,
    starts: u32,
    probe: Client,
}

struct Serving {
    task: JoinHandle<Result<Stopped, ServeError>>,
    stop: CancellationToken,
}

impl SimulatedServer {
    pub(crate) fn new(plan: &Plan, network: Network, random: SplitMix64) -> anyhow::Result<Self> {
        let at_once = RetryPolicy { give_up_after: Duration::ZERO, ..RetryPolicy::default() };
        let probe = connect(&network, PROBE, at_once)?;
        let mut config = Config::insecure([CREATOR.to_owned()]);
        config.limits.rejoin = plan.rejoin;
        config.limits.log_tail_bytes = plan.log_tail_bytes;
        config.limits.uncommitted_bytes = plan.uncommitted_bytes;
        config.drain = Duration::from_secs(1);
        let slowest_commit = plan.slowest_commit;
        let disk = Disk::default();
        Ok(Self { network, disk, config, slowest_commit, random, serving: None, starts: 0, probe })
    }

    fn latency(&mut self) -> CommitLatency {
        let random = Mutex::new(SplitMix64::new(self.random.next_u64()));
        let slowest = u64::try_from(self.slowest_commit.as_micros()).unwrap_or(u64::MAX);
        Box::new(move || {
            let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
            if random.below(200) == 0 { STALL } else { Duration::from_micros(random.below(slowest)) }
        })
    }
}

impl SimulatedServer {
    /// It is gone from one moment to the next: all its tasks end where they wait.
    async fn crash(&mut self, serving: Serving, loss: Loss) -> anyhow::Result<()> {
        // Timers fire by the millisecond, and one message is followed by a row of tasks: anywhere among them.
        for _ in 0..self.random.below(MOST_TURNS) {
            yield_now().await;
        }
        self.cut_off(loss);
        serving.task.abort();
        // That it was cancelled.
        let _ = serving.task.await;
        Ok(())
    }

    /// It is told to stop, and ends in order.
    async fn stop(&mut self, serving: Serving) -> anyhow::Result<()> {
        self.network.trace().disturbance("the server is told to stop");
        serving.stop.cancel();
        serving.task.await.context("it panicked")?.context("it failed while it stopped")?;
        self.cut_off(Loss::Process);
        Ok(())
    }

    /// Its disk fails: it has to end by itself, unless it writes nothing.
    async fn fail_disk(&mut self, mut serving: Serving) -> anyhow::Result<()> {
        self.network.trace().disturbance("the disk fails");
        self.disk.fail_next_write();
        match timeout(LONGEST_FAILING, &mut serving.task).await {
            Ok(ended) => match ended.context("it panicked")? {
                Ok(Stopped::LogFailed) | Err(_) => self.cut_off(Loss::Process),
                Ok(stopped) => {
                    bail!("its disk has failed, and it ended as if nothing was wrong: {stopped:?}")
                }
            },
            Err(_) => return self.crash(serving, Loss::Process).await,
        }
        Ok(())
    }

    fn cut_off(&mut self, loss: Loss) {
        self.network.cut_off(loss);
        self.disk.stop(loss, &mut self.random);
    }
}

/// A client on the connection with this number.
pub(crate) fn connect(
    network: &Network,
    host: usize,
    retry: RetryPolicy,
) -> Result<Client, stickycas_client::Error> {
    let network = network.clone();
    Client::builder("http://server:7420")
        .principal(CREATOR)
        .retry(retry)
        .keep_alive(Duration::from_secs(1))
        .connect_lazy_over(move || {
            let network = network.clone();
            async move { network.connect(host).await }
        })
}

impl Server for SimulatedServer {
    fn set_clocks_ahead(&mut self, _: Duration) -> anyhow::Result<()> {
        bail!("it has the clock of its clients")
    }

    fn start(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        let start = Duration::from_micros(self.random.below(LONGEST_START));
        let (network, disk, config) = (self.network.clone(), self.disk.clone(), self.config.clone());
        let (latency, stop) = (self.latency(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            sleep(start).await;
            let listener = network.listen();
            network.trace().disturbance("the server starts");
            serve(listener, &disk, latency, config, stopped.cancelled_owned()).await
        });
        self.serving = Some(Serving { task, stop });
        Ok(())
    }

    async fn serves(&mut self) -> anyhow::Result<()> {
        let probe = self.probe.clone();
        serves(&probe, || self.check_alive()).await
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.check_alive()?;
        let Some(serving) = self.serving.take() else { bail!("it does not run") };
        match self.random.below(8) {
            0 => self.stop(serving).await,
            1 => self.fail_disk(serving).await,
            2..=4 => self.crash(serving, Loss::Process).await,
            _ => self.crash(serving, Loss::Power).await,
        }
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        let Some(Serving { task, .. }) = &mut self.serving else { bail!("it does not run") };
        if task.is_finished() {
            bail!("it has ended by itself");
        }
        Ok(())
    }

    fn starts(&self) -> u32 {
        self.starts
    }
}
