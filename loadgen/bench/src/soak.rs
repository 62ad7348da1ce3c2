//! A durable server under load for long: whether disk and memory stay flat, and what checkpoints cost. The
//! instances are those of `scale`, with a short retention. The load is closed, so an access that the server
//! delays also delays those behind it. An access belongs to the sample in which it was answered; checkpoints
//! are taken in a sample if their count has grown in it or in the one before, for behind the last of them the
//! log is trimmed. *Flat* means: the first third warms up, and the most of the last third is at most 10 %
//! above that of the middle one. Rows: `disk` and `memory` (the most of each third, and `flat`: 1 or 0),
//! `with checkpoints` and `without`, whose `detail` has the samples, column by column.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::fixture::Fixture;
use crate::metrics::Metrics;
use crate::results::{Common, Figures, Row, quantile};
use crate::scale::{IN_FLIGHT, at_least_one, play_portions};
use crate::servers::{self, Launch, disk_usage, peak_and_resident, runtime};
use crate::workload::Shape;

/// The load, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Instances that are played to their end.
    #[arg(long, default_value = "360000", value_name = "N", value_parser = at_least_one())]
    instances: usize,
    #[command(flatten)]
    common: Common,
}

/// By how much the last third may exceed the middle one, as a share of it.
const FLAT: f64 = 0.1;
/// The time between two samples: checkpoints are written for about a second at a time.
const EVERY: Duration = Duration::from_millis(250);
/// How long the server keeps a finished instance.
const RETENTION: &str = "5s";

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let (samples, wall) = runtime(2)?.block_on(measure(options, &options.common.disk()))?;
    let beside = beside_checkpoints(&samples);
    let mut rows = Vec::new();
    let disk: Vec<u64> = samples.iter().map(|it| it.disk_bytes).collect();
    let memory: Vec<u64> = samples.iter().map(|it| it.resident_bytes).collect();
    for (name, values) in [("disk", &disk), ("memory", &memory)] {
        rows.extend(trend(values).map(|figures| Row::once(name, figures)));
    }
    for (name, wanted) in [("with checkpoints", true), ("without", false)] {
        let own = samples.iter().zip(&beside).filter(|(_, beside)| **beside == wanted).map(|(it, _)| it);
        let own: Vec<&Sample> = own.filter(|sample| !sample.accesses.is_empty()).collect();
        let times: Vec<Duration> = own.iter().flat_map(|sample| sample.accesses.iter().copied()).collect();
        let figures = Figures::default()
            .count("samples", own.len() as u64)
            .count("accesses", times.len() as u64)
            .quantile_ms("median_ms", &times, 0.5)
            .quantile_ms("p99_ms", &times, 0.99)
            .quantile_ms("longest_ms", &times, 1.0);
        rows.push(Row::once(name, figures));
    }
    if let Some(last) = rows.last_mut() {
        let p99 = |it: &Sample| quantile(&it.accesses, 0.99).map(|time| time.as_secs_f64() * 1e3);
        last.detail = Some(json!({
            "until_s": samples.iter().map(|it| it.until.as_secs_f64()).collect::<Vec<_>>(),
            "disk_bytes": disk,
            "resident_bytes": memory,
            "checkpoints": samples.iter().map(|it| it.checkpoints).collect::<Vec<_>>(),
            "accesses": samples.iter().map(|it| it.accesses.len()).collect::<Vec<_>>(),
            "p99_ms": samples.iter().map(p99).collect::<Vec<_>>(),
        }));
    }
    let conditions = json!({
        "instances": options.instances, "in_flight": IN_FLIGHT,
        "retention": RETENTION, "wall_s": wall.as_secs_f64(),
    });
    options.common.report("soak", None, conditions, rows)
}

async fn measure(options: &Options, disk: &Path) -> anyhow::Result<(Vec<Sample>, Duration)> {
    let program = servers::find(options.common.server.as_deref())?;
    let log = servers::folder(disk)?;
    let launch = Launch { retention: RETENTION, ..Launch::new(&program) }.durable(log.path());
    let server = launch.start().await?;
    let (operators, pid) = (server.operators()?.to_owned(), server.pid());
    let fixture = Fixture::groups(server, Shape::SMALL, 1).await?;
    let started = Instant::now();
    let (stop, stopped) = oneshot::channel();
    // From a thread of its own: the clients must not keep it from looking at the server.
    let sampling = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = log.path().to_owned();
    let sampler =
        std::thread::spawn(move || sampling.block_on(sample(started, folder, operators, pid, stopped)));
    let times = play_portions(&fixture, options.instances, IN_FLIGHT).await?;
    let wall = started.elapsed();
    // It ends by itself only if it has failed.
    let _failed = stop.send(());
    let samples = sampler.join().map_err(|_| anyhow!("the thread that looks at the server panicked"))?;
    let mut samples = samples?;
    add(&mut samples, started, &times);
    Ok((samples, wall))
}

/// The time since the sample before: about [`EVERY`], longer on a busy machine, and shorter at the end.
#[derive(Clone, Debug, Default)]
struct Sample {
    /// Its end, since the start.
    until: Duration,
    disk_bytes: u64,
    resident_bytes: u64,
    /// Checkpoints that were written in it.
    checkpoints: f64,
    /// How long the accesses took that were answered in it.
    accesses: Vec<Duration>,
}

async fn sample(
    started: Instant,
    folder: PathBuf,
    operators: String,
    pid: u32,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<Vec<Sample>> {
    let checkpoints = async || Metrics::read(&operators).await?.value("stickycas_log_checkpoints_total");
    let (mut samples, mut before) = (Vec::new(), checkpoints().await?);
    let mut every = interval_at((started + EVERY).into(), EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_last = false;
    while !is_last {
        is_last = tokio::select! {
            _ = every.tick() => false,
            _ = &mut stopped => true,
        };
        let now = checkpoints().await?;
        let (_, resident_bytes) = peak_and_resident(pid)?;
        let (disk_bytes, until) = (disk_usage(&folder)?, started.elapsed());
        let checkpoints = now - before;
        samples.push(Sample { until, disk_bytes, resident_bytes, checkpoints, accesses: Vec::new() });
        before = now;
    }
    Ok(samples)
}

/// Adds accesses to the samples in which they were answered.
fn add(samples: &mut [Sample], started: Instant, accesses: &[(Instant, Duration)]) {
    for (answered, took) in accesses {
        let sample = samples.partition_point(|sample| started + sample.until < *answered);
        if let Some(sample) = samples.get_mut(sample) {
            sample.accesses.push(*took);
        }
    }
}

/// Of each sample, whether checkpoints were written in it or in the one before: behind the last of them the
/// log is trimmed.
fn beside_checkpoints(samples: &[Sample]) -> Vec<bool> {
    let before = std::iter::once(0.0).chain(samples.iter().map(|sample| sample.checkpoints));
    samples.iter().zip(before).map(|(sample, before)| sample.checkpoints > 0.0 || before > 0.0).collect()
}

/// Whether these values, one after the other, are flat; `None` if there are fewer than three.
#[allow(clippy::cast_precision_loss)]
fn trend(values: &[u64]) -> Option<Figures> {
    let third = values.len() / 3;
    let most = |values: &[u64]| values.iter().max().map(|most| *most as f64);
    let (first, rest) = values.split_at(third);
    let (middle, last) = rest.split_at(third.min(rest.len()));
    let (first, middle, last) = (most(first)?, most(middle)?, most(last)?);
    let figures = Figures::default().with("first_most_bytes", first).with("middle_most_bytes", middle);
    let flat = last <= (1.0 + FLAT) * middle;
    Some(figures.with("last_most_bytes", last).count("flat", flat.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_flat_if_what_comes_after_its_first_third_does_not_grow() {
        let figure = |values: &[u64], name: &str| trend(values).unwrap().get(name).unwrap();
        let flat = [1, 2, 100, 110, 100, 110];
        assert_eq!((figure(&flat, "first_most_bytes"), figure(&flat, "last_most_bytes")), (2.0, 110.0));
        assert!(figure(&flat, "flat") > 0.0);
        assert!(figure(&[1, 2, 100, 110, 50, 60], "flat") > 0.0, "it may shrink");
        let peak = [1, 2, 3, 100, 100, 100, 100, 112, 80];
        assert!(figure(&peak, "flat") < 1.0);
        assert!(trend(&[1, 2]).is_none());
    }

    #[test]
    fn an_access_belongs_to_the_sample_of_its_answer() {
        let started = Instant::now();
        let until = |millis| Sample { until: Duration::from_millis(millis), ..Sample::default() };
        let mut samples = vec![until(1_000), until(2_000)];
        let access =
            |answered, took| (started + Duration::from_millis(answered), Duration::from_millis(took));
        add(
            &mut samples,
            started,
            &[access(990, 90), access(1_100, 200), access(1_950, 50), access(2_050, 9)],
        );
        let millis = |sample: &Sample| sample.accesses.iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(samples.iter().map(millis).collect::<Vec<_>>(), [vec![90], vec![200, 50]]);
    }

    #[test]
    fn the_sample_behind_checkpoints_is_still_beside_them() {
        let samples = [0.0, 0.0, 7.0, 9.0, 0.0, 0.0, 1.0];
        let samples = samples.map(|checkpoints| Sample { checkpoints, ..Sample::default() });
        assert_eq!(beside_checkpoints(&samples), [false, false, true, true, true, false, true]);
    }
}
