//! `simulate`: a scenario in the simulator, once with everything written down, or many times and counted.

use std::num::NonZeroUsize;
use std::time::Instant;

use clap::Args;
use stickycas_harness::exit::{Exit, NOT_PROMISED, UsageError};
use stickycas_harness::progress::WorkProgress;
use stickycas_harness::report::grid::{counted as numbered, grouped};
use stickycas_harness::report::json;
use stickycas_harness::scenario::{LARGEST_SEED, Template};
use stickycas_harness::simulate;
use stickycas_lab::batch::report::Batch;
use stickycas_lab::batch::{IN_FULL, tally};
use stickycas_lab::resource_estimate::ResourceEstimate;
use stickycas_model::judge::Outcome;

use super::output::{RunLog, show, tell};
use super::scenario::ScenarioArgs;
use super::{processors, stop_when_asked};

/// The arguments of `simulate`.
#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Run it so many times, with the seeds seed, seed+1, seed+2, ..., and count; no run folder is written
    #[arg(
        long, value_name = "N", conflicts_with = "out",
        value_parser = many_times
    )]
    runs: Option<u64>,
    /// With --runs: threads [default: one for each processor]
    #[arg(long, value_name = "N", requires = "runs")]
    jobs: Option<NonZeroUsize>,
}

pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    match args.runs {
        Some(runs) => many(args, runs),
        None => once(&args.scenario),
    }
}

/// A number of runs, from 1: also as 1e6 or 1_000_000.
fn many_times(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let (digits, zeros) = digits.split_once(['e', 'E']).unwrap_or((&digits, "0"));
    let number = digits.parse::<u64>().ok().zip(zeros.parse().ok());
    let number = number.and_then(|(number, zeros)| number.checked_mul(10_u64.checked_pow(zeros)?));
    number
        .filter(|runs| *runs > 0)
        .ok_or_else(|| "give a number from 1, such as 1000, 1_000 or 1e3".to_owned())
}

fn once(args: &ScenarioArgs) -> anyhow::Result<Exit> {
    let scenario = args.load()?;
    scenario.check_simulable().map_err(|error| UsageError(error.to_string()))?;
    let lengths =
        scenario.truth.assignments().map(|(_, assignment)| assignment.proposal.as_bytes().len() as u64);
    let value_bytes = lengths.max().unwrap_or(1);
    tell_estimate(ResourceEstimate::of_one(&scenario.params, value_bytes))?;
    args.finish(&simulate(&scenario), None, &RunLog::default())
}

/// Tells what the run needs, before it takes it.
fn tell_estimate(estimate: ResourceEstimate) -> anyhow::Result<()> {
    estimate.check().map(|told| told.iter().for_each(|told| tell(told)))
}

fn many(args: &SimulateArgs, runs: u64) -> anyhow::Result<Exit> {
    let ScenarioArgs { scenario: file, seed, settings, json, expect, .. } = &args.scenario;
    let template = Template::load(file, *seed, &settings.settings()?)?;
    template.scenario().check_simulable().map_err(|error| UsageError(error.to_string()))?;
    let first = template.scenario().seed;
    tell(&format!("seed {first}"));
    let end = first.checked_add(runs).filter(|end| *end - 1 <= LARGEST_SEED);
    let end = end.ok_or_else(|| {
        UsageError(format!("no seed is above {LARGEST_SEED}: give fewer runs or a smaller seed"))
    })?;
    let jobs = args.jobs.unwrap_or_else(processors);
    let in_full = end.div_ceil(IN_FULL) - first.div_ceil(IN_FULL);
    tell_estimate(ResourceEstimate::of_many(
        &template.scenario().params,
        (jobs.get() as u64).min(runs),
        in_full,
    ))?;
    let (stop, begin) = (stop_when_asked()?, Instant::now());
    let (progress, mut done) = (WorkProgress::even(runs, false), 0);
    let counted = tally(&template, first..end, jobs, &stop, |ran| {
        done += ran;
        let text = || {
            format!(
                "{}/{} runs  {} a second",
                grouped(done),
                grouped(runs),
                grouped(progress.rate(done) as u64)
            )
        };
        progress.show(done, text);
    })?;
    drop(progress);

    let rate = counted.runs as f64 / begin.elapsed().as_secs_f64().max(1e-9);
    tell(&format!("{}, {} a second", numbered(counted.runs, "run"), grouped(rate as u64)));
    let batch = Batch {
        name: &template.scenario().name,
        file: &file.display().to_string(),
        first_seed: first,
        asked: runs,
        expected: expect.or(template.scenario().expect),
        tally: &counted,
    };
    show(&if *json { json::text(&batch) } else { batch.to_string() })?;
    if counted.runs < runs {
        tell("interrupted: this is what was done so far");
        return Ok(Exit::NotDone);
    }
    if expect.is_none() && counted.worst() == Outcome::Outside {
        tell(NOT_PROMISED);
    }
    let unmet = expect.filter(|expected| counted.verdicts.of(*expected).runs < runs);
    Ok(match unmet {
        Some(_) => Exit::Failed,
        None if expect.is_some() => Exit::Done,
        None => Exit::of(counted.worst(), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_runs_may_have_a_power_of_ten() {
        let read = ["7", "1e6", "25E2", "1_000_000"].map(|text| many_times(text).unwrap());
        assert_eq!(read, [7, 1_000_000, 2_500, 1_000_000]);
        for wrong in ["", "0", "e3", "1e", "-1", "1.5e3", "1e20", "99999999999999999999"] {
            assert!(many_times(wrong).is_err(), "{wrong}");
        }
    }
}
