//! From a profile as written to a load that can be put on: every value checked, every default and draw made.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use stickycas_harness::fault_plan::FaultPlan;
use stickycas_harness::files::faults::fault_plan;
use stickycas_harness::files::instance::{params, with_arbiter};
use stickycas_harness::files::values::{duration, name, seed_or};
use stickycas_harness::files::{Fault, Spanned, draw_seed};
use stickycas_harness::proposals::{self, value_bytes};
use stickycas_model::ground_truth::Role;
use stickycas_model::params::Params;
use stickycas_proto::principal::is_principal_name;

use super::file::{self, File, Step};
use super::{Load, Open, Pacing, Profile};
use crate::arrivals::Piece;
use crate::fail_if::FailIf;

const DEFAULT_DISTINCT: u32 = 3;
const DEFAULT_VALUE_BYTES: u32 = 8;
const DEFAULT_LATE_AFTER: Duration = Duration::from_millis(10);
const DEFAULT_MAX_MISSED: f64 = 0.01;
const DEFAULT_MAX_ERRORS: f64 = 0.01;
const DEFAULT_DRAIN: Duration = Duration::from_secs(30);
const DEFAULT_STALL: Duration = Duration::from_secs(10);
const DEFAULT_HISTORY_SAMPLE: f64 = 0.01;
/// As many principals may there be: each has a stream and a task.
const MOST_PRINCIPALS: u64 = 100_000;
/// Instances under way for each roster: an Attach stream holds 4,096 open, and some of those linger.
const MOST_IN_FLIGHT: u32 = 2_048;
/// The highest rate, in instances per second.
const HIGHEST_RATE: f64 = 1e6;

/// One part in so many of the duration is the longest warm-up that is not asked for.
const SHARE_OF_WARM_UP: u32 = 10;

/// `warm_up`: the longest one if none is given.
pub(super) fn check(file: &File, warm_up: Duration) -> Result<Profile, Fault> {
    let name = name(&file.name)?;
    let seed = seed_or(file.seed.as_ref(), draw_seed)?;
    if let Some(given) = &file.instance.get_ref().seed {
        let reason = "every instance has a seed of its own: give a seed at the top of the file instead";
        return Err(Fault::new(given.span(), reason));
    }
    let params = params(&file.instance, seed)?;
    let faults = faults(file, &params, seed)?;
    let params = with_arbiter(params, &file.instance, &faults)?;
    let (distinct, value_bytes) = proposed(&file.proposals, &params, &faults, seed)?;
    let fail_if = file.fail_if.iter().map(condition).collect::<Result<Vec<_>, _>>()?;
    let mut load = load(&file.load, warm_up)?;
    if file.load.get_ref().max_errors.is_none() && fail_if.iter().any(|it| it.figure.is_of_errors()) {
        // The profile says itself how many are too many.
        load.max_errors = 1.0;
    }
    let principals = u64::from(load.rosters) * u64::from(params.processes());
    if principals > MOST_PRINCIPALS {
        let reason = format!("{principals} principals in all rosters: at most {MOST_PRINCIPALS} may be");
        return Err(Fault::new(file.load.span(), reason));
    }
    Ok(Profile {
        name,
        about: file.about.clone(),
        seed,
        params: Arc::new(params),
        distinct,
        value_bytes,
        load,
        fail_if,
        faults,
    })
}

fn condition(text: &Spanned<String>) -> Result<FailIf, Fault> {
    text.get_ref().parse().map_err(|error| Fault::new(text.span(), error))
}

/// The Byzantine processes of each instance.
fn faults(file: &File, params: &Params, seed: u64) -> Result<FaultPlan, Fault> {
    let faults = fault_plan(&file.faults, params, seed)?;
    let span = || file.faults.first().map_or(0..0, Spanned::span);
    if faults.roles().any(|(_, role)| matches!(role, Role::Attacker(_))) {
        return Err(Fault::new(
            span(),
            "a load carries out no wire attack: give strategy in place of attack",
        ));
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

fn load(written: &Spanned<file::Load>, most_warm_up: Duration) -> Result<Load, Fault> {
    let given = written.get_ref();
    let rosters = at_least_one("rosters", given.rosters.as_ref(), 1)?;
    let (pacing, duration) = pacing(written, rosters)?;
    let warm_up = optional_duration("warm_up", given.warm_up.as_ref())?.unwrap_or_else(|| {
        duration.map_or(Duration::ZERO, |whole| (whole / SHARE_OF_WARM_UP).min(most_warm_up))
    });
    if let (Some(duration), Some(text)) = (duration, &given.warm_up)
        && warm_up >= duration
    {
        let reason = format!("warm_up = {:?}: give less than the whole {duration:?}", text.get_ref());
        return Err(Fault::new(text.span(), reason));
    }
    let instances = given.instances.as_ref().map(Spanned::get_ref).copied();
    if duration.is_none() && instances.is_none() {
        return Err(Fault::new(written.span(), "give duration = \"10s\" or instances = 1000, or both"));
    }
    let stall = optional_duration("stall", given.stall.as_ref())?.unwrap_or(DEFAULT_STALL);
    Ok(Load {
        transport: given.transport,
        rosters,
        principals_per_connection: at_least_one(
            "principals_per_connection",
            given.principals_per_connection.as_ref(),
            1,
        )?,
        principal_prefix: principal_prefix(given.principal_prefix.as_ref())?,
        pacing,
        warm_up,
        duration,
        instances,
        drain: optional_duration("drain", given.drain.as_ref())?.unwrap_or(DEFAULT_DRAIN),
        hard_stop: optional_duration("hard_stop", given.hard_stop.as_ref())?,
        stall,
        history_sample: share("history_sample", given.history_sample.as_ref(), DEFAULT_HISTORY_SAMPLE)?,
        max_errors: share("max_errors", given.max_errors.as_ref(), DEFAULT_MAX_ERRORS)?,
    })
}

/// When instances begin, and for how long.
fn pacing(written: &Spanned<file::Load>, rosters: u32) -> Result<(Pacing, Option<Duration>), Fault> {
    let given = written.get_ref();
    let duration = optional_duration("duration", given.duration.as_ref())?;
    let most = MOST_IN_FLIGHT.saturating_mul(rosters);
    let pieces = match (&given.in_flight, &given.rate, &given.ramp, &given.steps) {
        (Some(in_flight), None, None, None) => {
            if let Some(span) = of_open_loops(given) {
                return Err(Fault::new(span, "goes with an open loop, not with in_flight: leave it out"));
            }
            let in_flight = within("in_flight", in_flight, most)?;
            return Ok((Pacing::Closed { in_flight }, duration));
        }
        (None, Some(fixed), None, None) => {
            let rate = rate(*fixed.get_ref(), fixed.span())?;
            // Without a duration the number of instances ends it.
            vec![Piece { from: rate, to: rate, lasts: duration.unwrap_or(Duration::from_secs(1 << 32)) }]
        }
        (None, None, Some(ramp), None) => {
            let file::Ramp { from, to } = *ramp.get_ref();
            let lasts = duration.ok_or_else(|| {
                Fault::new(ramp.span(), "a ramp needs duration = \"60s\" to know its length")
            })?;
            vec![Piece { from: rate_or_zero(from, ramp.span())?, to: rate(to, ramp.span())?, lasts }]
        }
        (None, None, None, Some(steps)) => {
            if let Some(duration) = &given.duration {
                return Err(Fault::new(duration.span(), "steps say how long they take: leave duration out"));
            }
            steps.get_ref().iter().map(step).collect::<Result<Vec<_>, _>>()?
        }
        (None, None, None, None) => {
            return Err(Fault::new(written.span(), "give in_flight, rate, ramp or steps"));
        }
        _ => return Err(Fault::new(written.span(), "in_flight, rate, ramp, steps: give one of them")),
    };
    let duration =
        if given.steps.is_some() { Some(pieces.iter().map(|piece| piece.lasts).sum()) } else { duration };
    let open = Open {
        pieces,
        spacing: given.arrivals.as_ref().map(Spanned::get_ref).copied().unwrap_or_default(),
        max_in_flight: match &given.max_in_flight {
            Some(given) => within("max_in_flight", given, most)?,
            None => most,
        },
        late_after: optional_duration("late_after", given.late_after.as_ref())?.unwrap_or(DEFAULT_LATE_AFTER),
        max_missed: share("max_missed", given.max_missed.as_ref(), DEFAULT_MAX_MISSED)?,
    };
    Ok((Pacing::Open(open), duration))
}

/// A key that has no meaning in a closed loop.
fn of_open_loops(given: &file::Load) -> Option<Range<usize>> {
    let arrivals = given.arrivals.as_ref().map(Spanned::span);
    let max_in_flight = given.max_in_flight.as_ref().map(Spanned::span);
    let late_after = given.late_after.as_ref().map(Spanned::span);
    arrivals.or(max_in_flight).or(late_after).or(given.max_missed.as_ref().map(Spanned::span))
}

fn step(step: &Step) -> Result<Piece, Fault> {
    let rate = rate_or_zero(*step.rate.get_ref(), step.rate.span())?;
    Ok(Piece { from: rate, to: rate, lasts: duration("for", &step.lasts)? })
}

fn rate(rate: f64, span: Range<usize>) -> Result<f64, Fault> {
    if rate > 0.0 { rate_or_zero(rate, span) } else { Err(no_rate(rate, span)) }
}

fn rate_or_zero(rate: f64, span: Range<usize>) -> Result<f64, Fault> {
    if (0.0..=HIGHEST_RATE).contains(&rate) { Ok(rate) } else { Err(no_rate(rate, span)) }
}

fn no_rate(rate: f64, span: Range<usize>) -> Fault {
    Fault::new(span, format!("rate = {rate}: give instances per second, above 0 and up to {HIGHEST_RATE}"))
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

fn at_least_one(name: &str, given: Option<&Spanned<u32>>, default: u32) -> Result<u32, Fault> {
    match given {
        None => Ok(default),
        Some(number) if *number.get_ref() >= 1 => Ok(*number.get_ref()),
        Some(number) => Err(Fault::new(number.span(), format!("{name} = 0: give 1 or more"))),
    }
}

fn share(name: &str, given: Option<&Spanned<f64>>, default: f64) -> Result<f64, Fault> {
    let Some(share) = given else { return Ok(default) };
    if (0.0..=1.0).contains(share.get_ref()) {
        return Ok(*share.get_ref());
    }
    Err(Fault::new(share.span(), format!("{name} = {}: give 0 to 1", share.get_ref())))
}

fn optional_duration(name: &str, text: Option<&Spanned<String>>) -> Result<Option<Duration>, Fault> {
    text.map(|text| duration(name, text)).transpose()
}

fn principal_prefix(given: Option<&Spanned<String>>) -> Result<String, Fault> {
    let Some(text) = given else { return Ok("load".to_owned()) };
    if text.get_ref().len() <= 64 && is_principal_name(text.get_ref().as_bytes()) {
        return Ok(text.get_ref().clone());
    }
    let reason =
        format!("principal_prefix = {:?}: give 1 to 64 letters, digits, '.', '_' or '-'", text.get_ref());
    Err(Fault::new(text.span(), reason))
}
