//! From a campaign file as written to a campaign that can be run.

use std::collections::BTreeSet;

use stickycas_harness::files::instance::{Arbiter, Instance, params};
use stickycas_harness::files::values::{duration, name, seed_or};
use stickycas_harness::files::{Fault, LARGEST_SEED, Spanned, draw_seed};
use stickycas_model::byzantine::Strategy;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::types::ProcessId;

use super::cell::Point;
use super::file::{Axes, File, Sweep};
use super::plan::{Campaign, CellPlan, Limits, SweepPlan};
use super::points::Points;

/// The most runs of one cell.
const MOST_RUNS: u64 = 1_000_000_000;

pub(super) fn check(file: File, seed: Option<u64>) -> Result<(Campaign, Limits), Fault> {
    let name = name(&file.name)?;
    let budget = file.budget.as_ref().map(|text| duration("budget", text)).transpose()?;
    let limits = Limits { budget, network: file.network };
    let seed = match seed {
        Some(given) => given,
        None => seed_or(file.seed.as_ref(), draw_seed)?,
    };
    let given = file.instance.unwrap_or_else(|| Spanned::new(0..0, Instance::default()));
    if let Some(arbiter) = given.get_ref().arbiter.as_ref()
        && matches!(arbiter.get_ref(), Arbiter::Priority(_))
    {
        let reason = "a campaign names no processes: give first_come, uniform or byzantine_first";
        return Err(Fault::new(arbiter.span(), reason));
    }
    if let Some(seed) = &given.get_ref().seed {
        return Err(Fault::new(
            seed.span(),
            "every run has a seed of its own: give a seed at the top of the file instead",
        ));
    }
    let instance = params(&of_one(&given), 0)?.spec().clone();
    let axes = file.axes.or(&Axes::of_instance(given.get_ref()));
    if file.sweeps.is_empty() {
        return Err(Fault::new(0..0, "a campaign without a sweep runs nothing: give a [[sweep]]"));
    }
    let mut next = Next { number: 1, seed };
    let mut names = BTreeSet::new();
    let mut sweeps = Vec::new();
    for written in file.sweeps {
        let place = written.get_ref().name.span();
        let sweep = sweep(written, &axes, &instance, &mut next)?;
        if !names.insert(sweep.name.clone()) {
            let reason = format!("there are two sweeps called {:?}: give each a name of its own", sweep.name);
            return Err(Fault::new(place, reason));
        }
        sweeps.push(sweep);
    }
    Ok((Campaign { name, about: file.about, seed, sweeps, instance }, limits))
}

/// The parameters that are no axis, in an instance of one process, to be checked as such.
fn of_one(given: &Spanned<Instance>) -> Spanned<Instance> {
    let one = || Some(Spanned::new(0..0, 1));
    let instance = Instance {
        processes: one(),
        warp_size: one(),
        read_size: one(),
        arbiter: None,
        append_rounds: None,
        ..given.get_ref().clone()
    };
    Spanned::new(given.span(), instance)
}

/// The number and the seed of the next cell.
struct Next {
    number: u64,
    seed: u64,
}

fn sweep(
    written: Spanned<Sweep>,
    axes: &Axes,
    instance: &ParamsSpec,
    next: &mut Next,
) -> Result<SweepPlan, Fault> {
    let span = written.span();
    let Sweep { name: given, about, figure, runs, axes: own } = written.into_inner();
    let name = name(&given)?;
    let count = *runs.get_ref();
    if !(1..=MOST_RUNS).contains(&count) {
        return Err(Fault::new(runs.span(), format!("runs = {count}: give 1 to {MOST_RUNS}")));
    }
    let axes = own.or(axes);
    let strategies = axes.strategy.as_ref().map_or(span.clone(), Spanned::span);
    let points = Points::of(axes, &name)
        .map_err(|(place, reason)| Fault::new(place.unwrap_or(span.clone()), reason))?;
    if points.points.is_empty() {
        let reason = format!(
            "sweep {name}: no point of its axes can be: warp_size and read_size are at most processes, byzantine + distinct too"
        );
        return Err(Fault::new(span, reason));
    }
    let mut cells = Vec::new();
    for point in points.points {
        check_values(&point, instance).map_err(|error| Fault::new(strategies.clone(), error))?;
        let end = next.seed.checked_add(count).filter(|end| *end <= LARGEST_SEED);
        let end = end.ok_or_else(|| {
            Fault::new(span.clone(), "the seeds of its runs go beyond the largest: give a smaller seed")
        })?;
        cells.push(CellPlan { number: next.number, point, seeds: next.seed..end });
        *next = Next { number: next.number + 1, seed: end };
    }
    let (impossible, repeated) = (points.impossible, points.repeated);
    Ok(SweepPlan { name, about, figure, runs: count, impossible, repeated, cells })
}

/// That the values of a point's strategy are not too long; those that it makes up are longest for the last
/// process.
fn check_values(point: &Point, instance: &ParamsSpec) -> Result<(), String> {
    let (Ok(strategy), Some(last)) = (point.strategy.parse::<Strategy>(), ProcessId::new(point.n)) else {
        return Ok(());
    };
    let params = Params::try_new(point.spec(instance.clone())).map_err(|error| error.to_string())?;
    strategy.check_values(last, &params).map_err(|error| error.to_string())
}
