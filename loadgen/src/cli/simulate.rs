//! `simulate`: a scenario in the simulator, once with everything written down, or many times and counted.

use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::Context;
use clap::Args;

use super::output::{show, tell};
use super::scenario::ScenarioArgs;
use super::stop::stop_when_asked;
use crate::batch::tally;
use crate::progress::ManyRuns;
use crate::record::{HARNESS_FAILED, exit_code};
use crate::report::batch::Batch;
use crate::scenario::{LARGEST_SEED, Template};
use crate::simulate::simulate;

/// The arguments of `simulate`.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Run it so many times, with the seeds seed, seed+1, seed+2, ..., and count; no run folder is written
    #[arg(
        long, value_name = "N", conflicts_with = "out",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    runs: Option<u64>,
    /// With --runs: threads [default: one for each processor]
    #[arg(long, value_name = "N", requires = "runs")]
    jobs: Option<NonZeroUsize>,
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<u8> {
    match args.runs {
        Some(runs) => many(args, runs),
        None => once(&args.scenario),
    }
}

fn once(args: &ScenarioArgs) -> anyhow::Result<u8> {
    let scenario = args.load()?;
    scenario.check_simulable()?;
    args.finish(&simulate(&scenario), None, "simulate")
}

fn many(args: &SimulateArgs, runs: u64) -> anyhow::Result<u8> {
    let ScenarioArgs { scenario: file, seed, json, expect, .. } = &args.scenario;
    let template = Template::load(file, *seed)?;
    template.scenario().check_simulable()?;
    let first = template.scenario().seed;
    tell(&format!("seed {first}"));
    let end = first.checked_add(runs).filter(|end| *end - 1 <= LARGEST_SEED);
    let end =
        end.with_context(|| format!("no seed is above {LARGEST_SEED}: give fewer runs or a smaller seed"))?;
    let all = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (stop, begin) = (stop_when_asked()?, Instant::now());
    let progress = ManyRuns::new(runs);
    let counted = tally(&template, first..end, args.jobs.unwrap_or(all), &stop, |ran| progress.ran(ran))?;
    drop(progress);

    let rate = counted.runs as f64 / begin.elapsed().as_secs_f64().max(1e-9);
    tell(&format!("{} runs, {rate:.0} a second", counted.runs));
    let batch = Batch {
        name: &template.scenario().name,
        file: &file.display().to_string(),
        first_seed: first,
        asked: runs,
        expected: expect.or(template.scenario().expect),
        tally: &counted,
    };
    show(&if *json { batch.json() } else { batch.text() })?;
    if counted.runs < runs {
        tell("interrupted: this is what was done so far");
        return Ok(HARNESS_FAILED);
    }
    let unmet = expect.filter(|expected| counted.verdicts.of(*expected).runs < runs);
    Ok(match unmet {
        Some(_) => 1,
        None if expect.is_some() => 0,
        None => exit_code(counted.worst(), None),
    })
}
