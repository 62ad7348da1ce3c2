//! What is seen of the server once a second.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::disk;
use crate::operators::Metrics;
use crate::scale::process::AccessTimes;
use crate::scale::server::peak_and_resident;

/// About a second: a machine that is busy looks late.
#[derive(Clone, Debug, Default)]
pub(super) struct Second {
    /// Its end, since the start.
    pub(super) until: Duration,
    pub(super) disk_bytes: u64,
    pub(super) rss_bytes: u64,
    /// Checkpoints that were written in it.
    pub(super) checkpoints: f64,
    /// How long the accesses took that were answered in it.
    pub(super) accesses: Vec<Duration>,
}

/// What was seen.
pub(super) struct Observations {
    pub(super) wall: Duration,
    pub(super) seconds: Vec<Second>,
}

/// Looks once a second.
pub(super) struct Sampler {
    started: Instant,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<Vec<Second>>>,
}

impl Sampler {
    /// Begins. `operators`: the address of the server's listener for operators.
    pub(super) fn start(started: Instant, folder: PathBuf, operators: String, pid: u32) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { started, stop, task: tokio::spawn(sample(started, folder, operators, pid, stopped)) }
    }

    /// Ends, and adds these accesses to the seconds in which they were answered.
    pub(super) async fn stop(self, accesses: Vec<AccessTimes>) -> anyhow::Result<Observations> {
        let wall = self.started.elapsed();
        // It ends by itself only if it has failed.
        let _failed = self.stop.send(());
        let mut seconds = self.task.await??;
        add(&mut seconds, self.started, accesses);
        Ok(Observations { wall, seconds })
    }
}

fn add(seconds: &mut [Second], started: Instant, accesses: Vec<AccessTimes>) {
    for AccessTimes { sent, answered } in accesses {
        for answered in answered {
            let second = seconds.partition_point(|second| started + second.until < answered);
            if let Some(second) = seconds.get_mut(second) {
                second.accesses.push(answered - sent);
            }
        }
    }
}

async fn sample(
    started: Instant,
    folder: PathBuf,
    operators: String,
    pid: u32,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Vec<Second>> {
    let (mut seconds, mut before) = (Vec::new(), checkpoints(&operators).await?);
    let mut every = tokio::time::interval_at((started + SECOND).into(), SECOND);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = &mut stopped => return Ok(seconds),
        }
        let now = checkpoints(&operators).await?;
        seconds.push(Second { until: started.elapsed(), ..look(&folder, pid, now - before)? });
        before = now;
    }
}

const SECOND: Duration = Duration::from_secs(1);

async fn checkpoints(operators: &str) -> anyhow::Result<f64> {
    Metrics::read(operators).await?.value("stickycas_log_checkpoints_total")
}

fn look(folder: &Path, pid: u32, checkpoints: f64) -> anyhow::Result<Second> {
    let (_, rss_bytes) = peak_and_resident(pid)?;
    Ok(Second { disk_bytes: disk::usage(folder)?, rss_bytes, checkpoints, ..Second::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_belongs_to_the_second_of_its_answer() {
        let started = Instant::now();
        let at = |millis| started + Duration::from_millis(millis);
        let until = |millis| Second { until: Duration::from_millis(millis), ..Second::default() };
        let mut seconds = vec![until(1_000), until(2_000)];
        let times = AccessTimes { sent: at(900), answered: [at(990), at(1_100)] };
        let late = AccessTimes { sent: at(1_900), answered: [at(1_950), at(2_050)] };
        add(&mut seconds, started, vec![times, late]);
        let millis = |second: &Second| second.accesses.iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(seconds.iter().map(millis).collect::<Vec<_>>(), [vec![90], vec![200, 50]]);
    }
}
