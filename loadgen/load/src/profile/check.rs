//! From a profile as written to a load that can be put on: every value checked, every default and draw made.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use stickycas_harness::fault_plan::FaultPlan;
use stickycas_harness::files::faults::fault_plan;
use stickycas_harness::files::instance::{params, with_arbiter};
use stickycas_harness::files::values::{name, seed_or};
use stickycas_harness::files::{Fault, Spanned, draw_seed};
use stickycas_harness::proposals::{self, value_bytes};
use stickycas_harness::scenario::NotRunnable;
use stickycas_model::ground_truth::Role;
use stickycas_model::params::Params;

use super::file::{self, File, Load, Ramp};
use super::{Open, Pacing, Profile};
use crate::arrivals::Piece;
use crate::fail_if::FailIf;

const DEFAULT_DISTINCT: u32 = 3;
const DEFAULT_VALUE_BYTES: u32 = 8;
const DEFAULT_LATE_AFTER: Duration = Duration::from_millis(10);
const DEFAULT_MAX_MISSED: f64 = 0.01;
const DEFAULT_MAX_ERRORS: f64 = 0.01;
/// As many principals may there be: each has a stream and a task.
const MOST_PRINCIPALS: u64 = 100_000;
/// Instances under way for each roster: an Attach stream holds 4,096 open, and some of those linger.
const MOST_IN_FLIGHT: u32 = 2_048;
/// The highest rate, in instances per second.
const HIGHEST_RATE: f64 = 1e6;

/// One part in so many of the duration is the longest warm-up that is not asked for.
const SHARE_OF_WARM_UP: u32 = 10;

/// `warm_up`: the longest one if none is given.
pub(super) fn check(file: File, most_warm_up: Duration) -> Result<Profile, Fault> {
    let name = name(&file.name)?;
    let seed = seed_or(file.seed.as_ref(), draw_seed)?;
    if let Some(given) = &file.instance.seed {
        let reason = "every instance has a seed of its own: give a seed at the top of the file instead";
        return Err(Fault::new(given.span(), reason));
    }
    let params = params(&file.instance, seed)?;
    let faults = faults(&file, &params, seed)?;
    let params = with_arbiter(params, &file.instance, &faults)?;
    let (distinct, value_bytes) = proposed(&file.proposals, &params, &faults, seed)?;
    let load = &file.load;
    let principals = u64::from(load.rosters.get()) * u64::from(params.processes());
    if principals > MOST_PRINCIPALS {
        let reason = format!("{principals} principals in all rosters: at most {MOST_PRINCIPALS} may be");
        return Err(Fault::new(load.span(), reason));
    }
    let pacing = pacing(load)?;
    let duration = match (&load.steps, &pacing) {
        (Some(_), Pacing::Open(open)) => Some(open.pieces.iter().map(|piece| piece.lasts).sum()),
        _ => load.duration.as_ref().map(|text| text.0),
    };
    if duration.is_none() && load.instances.is_none() {
        return Err(Fault::new(load.span(), "give duration = \"10s\" or instances = 1000, or both"));
    }
    if let (Some(Duration::ZERO), Some(given)) = (duration, &load.duration) {
        return Err(Fault::new(given.span(), "duration = \"0s\": give more, such as \"10s\""));
    }
    let warm_up = warm_up(load, duration, most_warm_up)?;
    let condition = |text: &Spanned<String>| text.parse().map_err(|error| Fault::new(text.span(), error));
    let fail_if = file.fail_if.iter().map(condition).collect::<Result<Vec<FailIf>, _>>()?;
    let of_errors = fail_if.iter().any(|condition| condition.figure.is_of_errors());
    let max_errors = if of_errors { 1.0 } else { DEFAULT_MAX_ERRORS };
    let max_errors = load.max_errors.map_or(max_errors, |share| share.0);
    Ok(Profile {
        name,
        about: file.about,
        seed,
        params: Arc::new(params),
        distinct,
        value_bytes,
        load: file.load.into_inner(),
        pacing,
        duration,
        warm_up,
        max_errors,
        fail_if,
        faults,
    })
}

fn warm_up(load: &Load, duration: Option<Duration>, most: Duration) -> Result<Duration, Fault> {
    let Some(given) = &load.warm_up else {
        return Ok(duration.map_or(Duration::ZERO, |whole| (whole / SHARE_OF_WARM_UP).min(most)));
    };
    match duration {
        Some(whole) if given.0 >= whole => {
            let reason = format!("warm_up = {:?}: give less than the whole {whole:?}", String::from(**given));
            Err(Fault::new(given.span(), reason))
        }
        _ => Ok(given.0),
    }
}

fn faults(file: &File, params: &Params, seed: u64) -> Result<FaultPlan, Fault> {
    let faults = fault_plan(&file.faults, params, seed)?;
    let span = || file.faults.first().map_or(0..0, Spanned::span);
    if faults.roles().any(|(_, role)| matches!(role, Role::Attacker(_))) {
        return Err(Fault::new(
            span(),
            "a load carries out no wire attack: give strategy in place of attack",
        ));
    }
    if faults.roles().any(|(_, role)| *role == Role::External) {
        return Err(Fault::new(span(), NotRunnable::External));
    }
    if faults.processes().count() == params.processes() as usize {
        let reason =
            format!("all n = {} processes would be Byzantine: leave a correct one", params.processes());
        return Err(Fault::new(span(), reason));
    }
    Ok(faults)
}

fn proposed(
    given: &file::Proposals,
    params: &Params,
    faults: &FaultPlan,
    seed: u64,
) -> Result<(u32, u32), Fault> {
    let correct = params.processes() - u32::try_from(faults.processes().count()).unwrap_or(u32::MAX);
    let distinct = given.distinct.as_ref().map_or(DEFAULT_DISTINCT.min(correct), |given| *given.get_ref());
    let span = |key: Option<&Spanned<u32>>| key.map_or(0..0, Spanned::span);
    proposals::draw(distinct, params, faults, seed)
        .map_err(|error| Fault::new(span(given.distinct.as_ref()), error))?;
    let (least, most) = (value_bytes(distinct), params.spec().max_value_bytes);
    let bytes = given.value_bytes.as_ref();
    let value_bytes =
        bytes.map_or(DEFAULT_VALUE_BYTES.clamp(least, most.max(least)), |given| *given.get_ref());
    if !(least..=most).contains(&value_bytes) {
        let reason = format!("value_bytes = {value_bytes}: give {least} to max_value_bytes = {most}");
        return Err(Fault::new(span(bytes), reason));
    }
    Ok((distinct, value_bytes))
}

/// When instances begin.
fn pacing(written: &Spanned<Load>) -> Result<Pacing, Fault> {
    let given = written.get_ref();
    let lasts = given.duration.as_ref().map(|text| text.0);
    let most = MOST_IN_FLIGHT.saturating_mul(given.rosters.get());
    let pieces = match (&given.in_flight, &given.rate, &given.ramp, &given.steps) {
        (Some(in_flight), None, None, None) => {
            if let Some(span) = of_open_loops(given) {
                return Err(Fault::new(span, "goes with an open loop, not with in_flight: leave it out"));
            }
            return Ok(Pacing::Closed { in_flight: within("in_flight", in_flight, most)? });
        }
        (None, Some(fixed), None, None) => {
            let rate = rate(**fixed, false, fixed.span())?;
            vec![Piece { from: rate, to: rate, lasts: lasts.unwrap_or(Duration::from_secs(1 << 32)) }]
        }
        (None, None, Some(ramp), None) => {
            let Ramp { from, to } = **ramp;
            let lasts = lasts.ok_or_else(|| {
                Fault::new(ramp.span(), "a ramp needs duration = \"60s\" to know its length")
            })?;
            vec![Piece { from: rate(from, true, ramp.span())?, to: rate(to, false, ramp.span())?, lasts }]
        }
        (None, None, None, Some(steps)) => {
            if let Some(duration) = &given.duration {
                return Err(Fault::new(duration.span(), "steps say how long they take: leave duration out"));
            }
            let piece = |step: &file::Step| {
                let rate = rate(*step.rate, true, step.rate.span())?;
                Ok(Piece { from: rate, to: rate, lasts: step.lasts.0 })
            };
            steps.iter().map(piece).collect::<Result<Vec<_>, _>>()?
        }
        (None, None, None, None) => {
            return Err(Fault::new(written.span(), "give in_flight, rate, ramp or steps"));
        }
        _ => return Err(Fault::new(written.span(), "in_flight, rate, ramp, steps: give one of them")),
    };
    let max_in_flight = given.max_in_flight.as_ref();
    Ok(Pacing::Open(Open {
        pieces,
        spacing: given.arrivals.as_deref().copied().unwrap_or_default(),
        max_in_flight: max_in_flight.map_or(Ok(most), |given| within("max_in_flight", given, most))?,
        late_after: given.late_after.as_ref().map_or(DEFAULT_LATE_AFTER, |text| text.0),
        max_missed: given.max_missed.as_ref().map_or(DEFAULT_MAX_MISSED, |share| share.0),
    }))
}

/// A key that has no meaning in a closed loop.
fn of_open_loops(given: &Load) -> Option<Range<usize>> {
    let arrivals = given.arrivals.as_ref().map(Spanned::span);
    let max_in_flight = given.max_in_flight.as_ref().map(Spanned::span);
    let late_after = given.late_after.as_ref().map(Spanned::span);
    arrivals.or(max_in_flight).or(late_after).or(given.max_missed.as_ref().map(Spanned::span))
}

/// A rate above 0 or, with `zero`, from 0 on.
fn rate(rate: f64, zero: bool, span: Range<usize>) -> Result<f64, Fault> {
    if (0.0..=HIGHEST_RATE).contains(&rate) && (zero || rate > 0.0) {
        return Ok(rate);
    }
    let reason = format!("rate = {rate}: give instances per second, above 0 and up to {HIGHEST_RATE}");
    Err(Fault::new(span, reason))
}

fn within(name: &str, given: &Spanned<u32>, most: u32) -> Result<u32, Fault> {
    let number = *given.get_ref();
    if (1..=most).contains(&number) {
        return Ok(number);
    }
    let reason =
        format!("{name} = {number}: give 1 to {most}, or more rosters: {MOST_IN_FLIGHT} fit in each");
    Err(Fault::new(given.span(), reason))
}
