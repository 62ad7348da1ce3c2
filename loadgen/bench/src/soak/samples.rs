//! Samples of the server, several a second.

use std::iter;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::disk;
use crate::operators::Metrics;
use crate::scale::process::AccessTimes;
use crate::scale::server::peak_and_resident;

/// The time since the sample before: about [`EVERY`], longer on a busy machine, and shorter at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// Its end, since the start.
    pub(super) until: Duration,
    pub(super) disk_bytes: u64,
    pub(super) rss_bytes: u64,
    /// Checkpoints that were written in it.
    pub(super) checkpoints: f64,
    /// How long the accesses took that were answered in it.
    pub(super) accesses: Vec<Duration>,
}

/// The samples of a run.
pub(super) struct Observations {
    pub(super) wall: Duration,
    pub(super) samples: Vec<Sample>,
}

impl Observations {
    /// Each sample, and whether checkpoints were written in it or in the one before: behind the last of them
    /// the log is trimmed.
    pub(super) fn beside_checkpoints(&self) -> impl Iterator<Item = (&Sample, bool)> {
        let before = iter::once(0.0).chain(self.samples.iter().map(|sample| sample.checkpoints));
        self.samples
            .iter()
            .zip(before)
            .map(|(sample, before)| (sample, sample.checkpoints > 0.0 || before > 0.0))
    }
}

/// Looks at the server from a thread of its own: the clients must not keep it from that.
pub(super) struct Sampler {
    started: Instant,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<anyhow::Result<Vec<Sample>>>,
}

impl Sampler {
    /// Begins. `operators`: the address of the server's listener for operators.
    pub(super) fn start(
        started: Instant,
        folder: PathBuf,
        operators: String,
        pid: u32,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread =
            thread::spawn(move || runtime.block_on(sample(started, &folder, &operators, pid, stopped)));
        Ok(Self { started, stop, thread })
    }

    /// Ends, and adds these accesses to the samples in which they were answered.
    pub(super) fn stop(self, accesses: Vec<AccessTimes>) -> anyhow::Result<Observations> {
        let wall = self.started.elapsed();
        // It ends by itself only if it has failed.
        let _failed = self.stop.send(());
        let samples =
            self.thread.join().map_err(|_| anyhow!("the thread that looks at the server panicked"))?;
        let mut samples = samples?;
        add(&mut samples, self.started, accesses);
        Ok(Observations { wall, samples })
    }
}

fn add(samples: &mut [Sample], started: Instant, accesses: Vec<AccessTimes>) {
    for AccessTimes { sent, answered } in accesses {
        for answered in answered {
            let sample = samples.partition_point(|sample| started + sample.until < answered);
            if let Some(sample) = samples.get_mut(sample) {
                sample.accesses.push(answered - sent);
            }
        }
    }
}

async fn sample(
    started: Instant,
    folder: &Path,
    operators: &str,
    pid: u32,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Vec<Sample>> {
    let (mut samples, mut before) = (Vec::new(), checkpoints(operators).await?);
    let mut every = tokio::time::interval_at((started + EVERY).into(), EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_last = false;
    while !is_last {
        is_last = tokio::select! {
            _ = every.tick() => false,
            _ = &mut stopped => true,
        };
        let now = checkpoints(operators).await?;
        samples.push(Sample { until: started.elapsed(), ..look(folder, pid, now - before)? });
        before = now;
    }
    Ok(samples)
}

/// The time between two samples: checkpoints are written for about a second at a time.
const EVERY: Duration = Duration::from_millis(250);

async fn checkpoints(operators: &str) -> anyhow::Result<f64> {
    Metrics::read(operators).await?.value("stickycas_log_checkpoints_total")
}

fn look(folder: &Path, pid: u32, checkpoints: f64) -> anyhow::Result<Sample> {
    let (_, rss_bytes) = peak_and_resident(pid)?;
    Ok(Sample { disk_bytes: disk::usage(folder)?, rss_bytes, checkpoints, ..Sample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_belongs_to_the_sample_of_its_answer() {
        let started = Instant::now();
        let at = |millis| started + Duration::from_millis(millis);
        let until = |millis| Sample { until: Duration::from_millis(millis), ..Sample::default() };
        let mut samples = vec![until(1_000), until(2_000)];
        let times = AccessTimes { sent: at(900), answered: [at(990), at(1_100)] };
        let late = AccessTimes { sent: at(1_900), answered: [at(1_950), at(2_050)] };
        add(&mut samples, started, vec![times, late]);
        let millis = |sample: &Sample| sample.accesses.iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(samples.iter().map(millis).collect::<Vec<_>>(), [vec![90], vec![200, 50]]);
    }

    #[test]
    fn the_sample_behind_checkpoints_is_still_beside_them() {
        let samples = [0.0, 0.0, 7.0, 9.0, 0.0, 0.0, 1.0];
        let samples = samples.map(|checkpoints| Sample { checkpoints, ..Sample::default() }).to_vec();
        let observed = Observations { wall: Duration::ZERO, samples };
        let beside: Vec<bool> = observed.beside_checkpoints().map(|(_, beside)| beside).collect();
        assert_eq!(beside, [false, false, true, true, true, false, true]);
    }
}
