//! From a campaign file as written to a campaign that can be run.

use std::collections::BTreeSet;

use stickycas_model::byzantine::Strategy;
use stickycas_model::params::MAX_PROCESSES;
use toml::Spanned;

use super::axis::{Numbers, Texts};
use super::cell::NO_STRATEGY;
use super::file::{Axes, File, Sweep};
use super::plan::{Campaign, CellPlan, SweepPlan, Wishes};
use super::points::Grid;
use crate::scenario::check::{duration, name, params, seed_or};
use crate::scenario::{Fault, LARGEST_SEED, draw_seed};

/// The most points of one sweep. Their results are kept in memory until the end.
const MOST_POINTS: u64 = 100_000;
/// The most runs of one cell.
const MOST_RUNS: u64 = 1_000_000_000;

pub(super) fn check(file: File, seed: Option<u64>) -> Result<(Campaign, Wishes), Fault> {
    let name = name(&file.name)?;
    let budget = file.budget.as_ref().map(|text| duration("budget", text)).transpose()?;
    let wishes = Wishes { budget, network: file.network };
    let seed = match seed {
        Some(given) => given,
        None => seed_or(file.seed.as_ref(), draw_seed)?,
    };
    let instance = params(&file.instance.of_one(), 0)?.spec().clone();
    if file.sweeps.is_empty() {
        return Err(Fault::new(0..0, "a campaign without a sweep runs nothing: give a [[sweep]]"));
    }
    let mut next = Next { number: 1, seed };
    let mut names = BTreeSet::new();
    let mut sweeps = Vec::new();
    for written in file.sweeps {
        let place = written.get_ref().name.span();
        let sweep = sweep(written, &file.axes, &mut next)?;
        if !names.insert(sweep.name.clone()) {
            let reason = format!("there are two sweeps called {:?}: give each a name of its own", sweep.name);
            return Err(Fault::new(place, reason));
        }
        sweeps.push(sweep);
    }
    Ok((Campaign { name, about: file.about, seed, sweeps, instance }, wishes))
}

/// What the next cell gets.
struct Next {
    number: u64,
    seed: u64,
}

fn sweep(written: Spanned<Sweep>, axes: &Axes, next: &mut Next) -> Result<SweepPlan, Fault> {
    let span = written.span();
    let Sweep { name: given, about, figure, runs, axes: own } = written.into_inner();
    let name = name(&given)?;
    let count = *runs.get_ref();
    if !(1..=MOST_RUNS).contains(&count) {
        return Err(Fault::new(runs.span(), format!("runs = {count}: give 1 to {MOST_RUNS}")));
    }
    let grid = grid(own.or(axes), &name)
        .map_err(|(place, reason)| Fault::new(place.unwrap_or(span.clone()), reason))?;
    if grid.size() > MOST_POINTS {
        let reason = format!("sweep {name}: its axes have {} points: {MOST_POINTS} at most", grid.size());
        return Err(Fault::new(span, reason));
    }
    let points = grid.points();
    if points.points.is_empty() {
        let reason =
            format!("sweep {name}: no point of its axes can be: p and r are at most n, f + distinct too");
        return Err(Fault::new(span, reason));
    }
    let mut cells = Vec::new();
    for point in points.points {
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

/// Where something is wrong, if that is known, and what.
type Wrong = (Option<std::ops::Range<usize>>, String);

fn grid(axes: Axes, sweep: &str) -> Result<Grid, Wrong> {
    let f = numbers("f", axes.f, 0, Some(0))?;
    let strategy = strategies(axes.strategy)?;
    if strategy.is_none() && f.iter().any(|&f| f > 0) {
        return Err((
            None,
            format!("sweep {sweep}: f > 0 Byzantine processes need a strategy: give strategy = \"...\""),
        ));
    }
    Ok(Grid {
        n: numbers("n", axes.n, 1, None)?,
        p: numbers("p", axes.p, 1, None)?,
        r: numbers("r", axes.r, 1, None)?,
        f,
        distinct: numbers("distinct", axes.distinct, 1, Some(1))?,
        strategy: strategy.unwrap_or_else(|| vec![NO_STRATEGY.to_owned()]),
        placement: texts(axes.placement),
        arbiter: texts(axes.arbiter),
        order: texts(axes.order),
        window: texts(axes.window),
    })
}

/// The numbers of an axis, none below `least`. `default`: what it is if it is not given; `None`: it must be.
fn numbers(
    name: &str,
    given: Option<Spanned<Numbers>>,
    least: u32,
    default: Option<u32>,
) -> Result<Vec<u32>, Wrong> {
    let Some(given) = given else {
        let missing =
            || (None, format!("the axis {name} is missing: give {name} = ..., here or under [axes]"));
        return default.map(|default| vec![default]).ok_or_else(missing);
    };
    let (span, Numbers(numbers)) = (given.span(), given.into_inner());
    match numbers.iter().find(|number| !(least..=MAX_PROCESSES).contains(number)) {
        None => Ok(numbers),
        Some(wrong) => Err((Some(span), format!("{name} = {wrong}: give {least} to {MAX_PROCESSES}"))),
    }
}

/// The strategies, each as it would write itself.
fn strategies(given: Option<Spanned<Texts<String>>>) -> Result<Option<Vec<String>>, Wrong> {
    let Some(given) = given else { return Ok(None) };
    let (span, Texts(texts)) = (given.span(), given.into_inner());
    let canonical = |text: &String| text.parse().map(|strategy: Strategy| strategy.to_string());
    let strategies: Result<_, _> = texts.iter().map(canonical).collect();
    strategies.map(Some).map_err(|error| (Some(span), error.to_string()))
}

fn texts<T: Default>(given: Option<Spanned<Texts<T>>>) -> Vec<T> {
    given.map_or_else(|| vec![T::default()], |given| given.into_inner().0)
}
