//! The real server on the simulated network and disk: started, killed, started again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use stickycas_client::{Client, RetryPolicy};
use stickycas_faults::{CREATOR, Server};
use stickycas_model::random::SplitMix64;
use stickycas_server::simulation::serve;
use stickycas_server::{Config, RecoveryError, ServeError, Stopped, StorageError};
use tokio::task::JoinHandle;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::disk::{CommitLatency, CrashPoints, Disk, Fault, Loss};
use crate::network::Network;
use crate::plan::{PROBE, Plan};

/// How long a machine takes to start a server again.
const LONGEST_START: u64 = 1_500_000;
/// A commit that takes much longer than others, as disks have them.
const STALL: Duration = Duration::from_secs(2);

/// Turns of the runtime that pass at most before a server is gone.
const MOST_TURNS: u64 = 60;
/// The longest wait for a write that fails, and then for the end of the server: its drain, and some commits.
const LONGEST_FAILING: Duration = Duration::from_secs(10);
/// Operations of a start among which one fails: those of opening the log, of the record of the start, and one
/// more.
const FIRST_OPERATIONS: u64 = 12;

/// The way in which a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Stops,
    DiskFails,
    Crashes(Loss),
}

/// All in turn, over the ends of a server and the seeds.
const WAYS: [Way; 9] = {
    let (process, power) = (Way::Crashes(Loss::Process), Way::Crashes(Loss::Power));
    [process, Way::DiskFails, power, process, Way::Stops, power, Way::DiskFails, process, power]
};

/// A server that runs, or has been killed.
pub(crate) struct SimulatedServer {
    network: Network,
    disk: Disk,
    /// Tried at each end of a server.
    crash_points: Arc<Mutex<CrashPoints>>,
    config: Config,
    /// In microseconds.
    slowest_commit: u64,
    random: SplitMix64,
    serving: Option<Serving>,
    /// Whether the one that was killed last had served.
    had_served: bool,
    starts: u32,
    /// Count the ends of servers, and those of them by a fault of the disk, from the seed on.
    ends: usize,
    disk_faults: usize,
    probe: Client,
}

struct Serving {
    task: JoinHandle<Result<Stopped, ServeError>>,
    /// Its machine has started it.
    begun: CancellationToken,
    stop: CancellationToken,
}

impl SimulatedServer {
    pub(crate) fn new(
        plan: &Plan,
        network: Network,
        disk: Disk,
        crash_points: Arc<Mutex<CrashPoints>>,
        random: SplitMix64,
    ) -> anyhow::Result<Self> {
        let at_once = RetryPolicy { give_up_after: Duration::ZERO, ..RetryPolicy::default() };
        let probe = connect(&network, PROBE, at_once)?;
        let config = plan.limits.config();
        let slowest_commit = u64::try_from(plan.slowest_commit.as_micros())?;
        let first = usize::try_from(plan.round.seed % 1_000)?;
        Ok(Self {
            network,
            disk,
            crash_points,
            config,
            slowest_commit,
            random,
            serving: None,
            had_served: false,
            starts: 0,
            ends: first,
            disk_faults: first,
            probe,
        })
    }

    fn latency(&mut self) -> CommitLatency {
        let random = Mutex::new(SplitMix64::new(self.random.next_u64()));
        let slowest = self.slowest_commit;
        Arc::new(move || {
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
        if serving.task.is_finished() {
            bail!("it has ended by itself: {:?}", serving.task.await);
        }
        self.abort(serving, loss).await;
        Ok(())
    }

    async fn abort(&mut self, serving: Serving, loss: Loss) {
        self.cut_off(loss);
        serving.task.abort();
        // That it was cancelled.
        let _ = serving.task.await;
    }

    /// Stops the server, which ends in order.
    async fn stop(&mut self, serving: Serving) -> anyhow::Result<()> {
        self.network.trace().disturbance("the server is told to stop");
        serving.stop.cancel();
        serving.task.await.context("it panicked")?.context("it failed while it stopped")?;
        self.cut_off(Loss::Process);
        Ok(())
    }

    /// Its disk fails, unless it does nothing of that kind: it has to end by itself.
    async fn fail_disk(&mut self, mut serving: Serving) -> anyhow::Result<()> {
        let mut ended = timeout(LONGEST_FAILING, &mut serving.task).await;
        if ended.is_err() && self.disk.failed().is_none() {
            self.network.trace().note("the disk has not failed in time");
            self.abort(serving, Loss::Process).await;
            return Ok(());
        }
        if ended.is_err() {
            ended = timeout(LONGEST_FAILING, &mut serving.task).await;
        }
        let Ok(ended) = ended else {
            bail!("its disk has failed, and it has not ended within {LONGEST_FAILING:?}")
        };
        let fault = match (ended.context("it panicked")?, self.disk.failed()) {
            (
                Ok(Stopped::LogFailed)
                | Err(ServeError::Storage(StorageError::Recovery(RecoveryError::Engine(_)))),
                Some(fault),
            ) => fault,
            (ended, _) => bail!("it has ended in another way than a server whose disk fails: {ended:?}"),
        };
        if self.disk.after_failure() > 0 {
            bail!("it has tried to write to a disk that has failed");
        }
        self.network.trace().note(format_args!("the server has ended: its log has failed: {fault:?}"));
        self.cut_off(Loss::Process);
        Ok(())
    }

    fn cut_off(&mut self, loss: Loss) {
        self.had_served = self.disk.has_committed();
        if !self.had_served {
            self.network.trace().note("the server has begun and does not serve yet");
        }
        self.network.cut_off(loss);
        try_crash_points(&self.crash_points, &self.disk, loss, &mut self.random);
    }
}

/// Stops the disk, and tries what may be left of it.
pub(crate) fn try_crash_points(
    crash_points: &Mutex<CrashPoints>,
    disk: &Disk,
    loss: Loss,
    random: &mut SplitMix64,
) {
    if let Some((use_number, tape)) = disk.stop(loss, random) {
        crash_points.lock().unwrap_or_else(PoisonError::into_inner).try_all(use_number, &tape);
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
        .connect_lazy_over(move |_| {
            let network = network.clone();
            async move { network.connect(host).await }
        })
}

impl Server for SimulatedServer {
    fn start(&mut self) -> anyhow::Result<()> {
        self.starts += 1;
        let start = Duration::from_micros(self.random.below(LONGEST_START));
        let (network, disk, config) = (self.network.clone(), self.disk.clone(), self.config.clone());
        let (latency, begun, stop) = (self.latency(), CancellationToken::new(), CancellationToken::new());
        let (begins, stopped) = (begun.clone(), stop.clone());
        let task = tokio::spawn(async move {
            sleep(start).await;
            let listener = network.listen();
            network.trace().disturbance("the server starts");
            begins.cancel();
            serve(listener, None, Some(disk.begin_use(latency)), config, stopped.cancelled_owned()).await
        });
        self.serving = Some(Serving { task, begun, stop });
        Ok(())
    }

    fn probe(&self) -> Client {
        self.probe.clone()
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.check_alive()?;
        let Some(serving) = self.serving.take() else { bail!("it does not run") };
        let way = WAYS[self.ends % WAYS.len()];
        self.ends += 1;
        let is_starting = !serving.begun.is_cancelled();
        if way == Way::DiskFails {
            let fault = Fault::draw(self.disk_faults, is_starting, &mut self.random);
            self.disk_faults += 1;
            self.network.trace().disturbance(format_args!("the disk is to fail: {fault:?}"));
            match is_starting {
                true => self.disk.fail_in_next_use(fault, self.random.below(FIRST_OPERATIONS)),
                false => self.disk.fail(fault),
            }
        }
        if is_starting {
            serving.begun.cancelled().await;
            // At once, or while it recovers, or shortly after.
            if way != Way::DiskFails && self.random.below(4) == 0 {
                sleep(Duration::from_micros(self.random.below(2 * self.slowest_commit))).await;
            }
        }
        match way {
            Way::Stops => self.stop(serving).await,
            Way::DiskFails => self.fail_disk(serving).await,
            Way::Crashes(loss) => self.crash(serving, loss).await,
        }
    }

    fn had_served(&self, _: bool) -> bool {
        self.had_served
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
