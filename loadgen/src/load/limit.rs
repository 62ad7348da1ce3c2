//! Searches for the highest rate of an open loop at which conditions hold.
//!
//! A [`Search`] raises the rate by a factor until it does not hold, or lowers it until it does, and then halves what is
//! between, by ratio, until both sides are as near as asked for. A rate that does not hold is tried once more: one bad
//! moment of the machine is no limit.
//!
//! Load is noise all the same: one search may be lucky, so it is repeated, each time from scratch around the last
//! limit, and the [`Limit`] is the median of all repeats with an interval that contains the true median with a stated confidence, whatever the distribution of the noise: that
//! all of k independent values lie on one side of their median has the probability 2^(1-k).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_model::judge::Outcome;

use super::figures::{Figures, Latency};
use super::judged::Judged;
use super::measure::Measure;
use super::profile::{Open, Pacing, Profile};
use super::result::failed;
use super::threshold::Threshold;

/// Version of the form of a limit. Raised when a field changes its meaning or goes away.
pub const LIMIT_VERSION: u32 = 1;

/// By which factor the first search raises the rate.
const FIRST_FACTOR: f64 = 2.0;
/// By which factor those after it do, which begin near.
const LATER_FACTOR: f64 = 1.2;
/// As many times is the rate raised or lowered at most before a search gives up.
const MOST_STEPS: u32 = 24;

/// How long what has begun in a probe has to end.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

/// One search. Pure: it is told what held.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The highest rate that held.
    low: Option<f64>,
    /// The lowest that did not.
    high: Option<f64>,
    start: f64,
    factor: f64,
    /// It ends when the two differ by no more than this factor.
    near: f64,
    steps: u32,
    /// A rate that did not hold once.
    doubtful: Option<f64>,
}

impl Search {
    /// From this rate on, raising or lowering it by this factor, until known as exactly as `near` says.
    #[must_use]
    pub fn new(start: f64, factor: f64, near: f64) -> Self {
        Self { low: None, high: None, start, factor, near, steps: 0, doubtful: None }
    }

    /// The next rate to be tried; `None` when it is over.
    #[must_use]
    pub fn next(&self) -> Option<f64> {
        if self.doubtful.is_some() {
            return self.doubtful;
        }
        match (self.low, self.high) {
            (Some(low), Some(high)) => (high / low > self.near).then(|| (low * high).sqrt()),
            _ if self.steps >= MOST_STEPS => None,
            (None, None) => Some(self.start),
            (Some(low), None) => Some(low * self.factor),
            (None, Some(high)) => Some(high / self.factor),
        }
    }

    /// Whether this rate held. One that did not is tried once more before it counts.
    pub fn tell(&mut self, rate: f64, held: bool) {
        if !held && self.doubtful.is_none() {
            self.doubtful = Some(rate);
            return;
        }
        self.doubtful = None;
        self.steps += 1;
        let side = if held { &mut self.low } else { &mut self.high };
        *side = Some(rate);
    }

    /// The highest rate that held; `None` if none did.
    #[must_use]
    pub const fn limit(&self) -> Option<f64> {
        self.low
    }
}

/// What a search is made with.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What must hold, in the sense of its text.
    pub conditions: Vec<Threshold>,
    /// How many searches are made.
    pub repeats: u32,
    /// How exactly each finds its limit, as a share of it.
    pub precision: f64,
}

/// One rate that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// In which search, from 1.
    pub repeat: u32,
    /// The rate that was asked for.
    pub rate: f64,
    /// The rate at which instances came to their end.
    pub done: f64,
    /// Whether all that was wanted held.
    pub held: bool,
    /// What did not.
    pub broke: Vec<String>,
    /// Instance latency.
    pub instance: Option<Latency>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// [`LIMIT_VERSION`].
    pub version: u32,
    /// What the instances of all probes show, taken together.
    pub verdict: Outcome,
    /// How many of them show what.
    pub judged: Judged,
    /// What had to hold.
    pub conditions: Vec<String>,
    /// The median of the limits found; `None` if in some search no rate held.
    pub rate: Option<f64>,
    /// The lowest and the highest of them.
    pub between: Option<[f64; 2]>,
    /// The probability that an interval so made contains the median of all limits that could be found.
    pub confidence: f64,
    /// The limits found, one for each search.
    pub limits: Vec<f64>,
    /// Every rate that was tried, in order.
    pub probes: Vec<Probe>,
    /// Whether somebody ended it before its time.
    pub interrupted: bool,
    /// The profile, whose rate is that of the first probe.
    pub profile: String,
}

/// What came of one probe.
#[derive(Debug)]
pub struct Probed {
    /// What was measured.
    pub figures: Figures,
    /// What was found of the instances.
    pub judged: Judged,
}

/// Searches with this profile, whose rate is where it begins. `probe` puts the load of a profile on the server;
/// `look` is told of each probe. Ends early when `probe` gives nothing: then with what there is.
///
/// # Errors
/// Those of `probe`.
pub async fn find<P>(
    profile: &Profile,
    wanted: &Wanted,
    mut probe: impl FnMut(Profile) -> P,
    mut look: impl FnMut(&Probe),
) -> anyhow::Result<Limit>
where
    P: Future<Output = anyhow::Result<Option<Probed>>>,
{
    let mut judged = Judged::default();
    let (mut limits, mut probes) = (Vec::new(), Vec::new());
    let mut start = rate_of(profile);
    let (mut factor, mut interrupted) = (FIRST_FACTOR, false);
    'searches: for repeat in 1..=wanted.repeats {
        let mut search = Search::new(start, factor, 1.0 + wanted.precision);
        while let Some(rate) = search.next() {
            // Every probe draws anew.
            let seed = profile.seed.wrapping_add(probes.len() as u64) & (u64::MAX >> 1);
            let Some(probed) = probe(at_rate(profile, rate, seed)).await? else {
                interrupted = true;
                break 'searches;
            };
            let tried = judge(profile, wanted, repeat, rate, &probed);
            judged.merge(&probed.judged);
            look(&tried);
            search.tell(rate, tried.held);
            probes.push(tried);
        }
        let Some(limit) = search.limit() else { break };
        limits.push(limit);
        (start, factor) = (limit, LATER_FACTOR);
    }
    let whole = limits.len() == wanted.repeats as usize;
    Ok(Limit {
        version: LIMIT_VERSION,
        verdict: judged.verdict(),
        judged,
        conditions: wanted.conditions.iter().map(ToString::to_string).collect(),
        rate: median(&limits).filter(|_| whole),
        between: ends(&limits).filter(|_| whole),
        confidence: confidence(limits.len()),
        limits,
        probes,
        interrupted,
        profile: profile.to_toml(),
    })
}

/// Whether everything held that was wanted, and nothing else went wrong.
fn judge(profile: &Profile, wanted: &Wanted, repeat: u32, rate: f64, probed: &Probed) -> Probe {
    let Probed { figures, judged } = probed;
    let unmet = wanted.conditions.iter().filter(|condition| {
        // It must hold; what could not be measured does not.
        !figures.value(condition.figure).is_some_and(|value| condition.holds(value))
    });
    let mut broke: Vec<String> = unmet.map(|condition| format!("not {condition}")).collect();
    let failed = failed(&super::result::conditions(profile), figures);
    broke.extend(failed.into_iter().map(|failed| failed.condition));
    if figures.counts.errors() > 0 {
        broke.push(format!("{} errors", figures.counts.errors()));
    }
    if judged.violation > 0 {
        broke.push(format!("{} violations", judged.violation));
    }
    let instance = figures.latency(Measure::Instance).copied();
    Probe { repeat, rate, done: figures.rate, held: broke.is_empty(), broke, instance }
}

/// The rate that a profile begins with; of a closed loop, as many as it has in flight.
fn rate_of(profile: &Profile) -> f64 {
    match &profile.load.pacing {
        Pacing::Closed { in_flight } => f64::from(*in_flight),
        Pacing::Open(open) => open.pieces.first().map_or(1.0, |piece| piece.to.max(1.0)),
    }
}

/// The same profile as an open loop with this rate.
fn at_rate(profile: &Profile, rate: f64, seed: u64) -> Profile {
    let mut profile = profile.clone();
    profile.seed = seed;
    // Of what is not done by then, no more is to be learned.
    profile.load.drain = profile.load.drain.min(LONGEST_DRAIN);
    if let Pacing::Open(Open { pieces, .. }) = &mut profile.load.pacing {
        let lasts = pieces.iter().map(|piece| piece.lasts).sum::<Duration>();
        *pieces = vec![super::arrivals::Piece { from: rate, to: rate, lasts }];
    }
    profile
}

fn median(limits: &[f64]) -> Option<f64> {
    let mut sorted = limits.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn ends(limits: &[f64]) -> Option<[f64; 2]> {
    let low = limits.iter().copied().reduce(f64::min)?;
    Some([low, limits.iter().copied().reduce(f64::max)?])
}

/// That not all of so many values lie on one side of the median.
fn confidence(values: usize) -> f64 {
    if values == 0 { 0.0 } else { 1.0 - 0.5_f64.powi(i32::try_from(values).unwrap_or(i32::MAX) - 1) }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Counts;
    use super::super::profile::Flags;
    use super::*;

    /// The limit that a search finds of a system that holds below `true_limit`.
    fn found(start: f64, true_limit: f64) -> (Option<f64>, u32) {
        let mut search = Search::new(start, FIRST_FACTOR, 1.05);
        while let Some(rate) = search.next() {
            search.tell(rate, rate < true_limit);
        }
        (search.limit(), search.steps)
    }

    #[test]
    fn a_search_finds_the_limit_from_below_and_from_above() {
        for (start, limit) in [(10.0, 777.0), (100_000.0, 777.0), (777.0, 777.0), (1.0, 12_345.6)] {
            let (found, steps) = found(start, limit);
            let found = found.unwrap();
            assert!(found < limit && found * 1.05 >= limit, "{start} {limit}: {found}");
            assert!(steps < 24, "{steps}");
        }
    }

    #[test]
    fn one_bad_moment_is_no_limit() {
        let mut search = Search::new(100.0, FIRST_FACTOR, 1.05);
        let mut moments = 0;
        while let Some(rate) = search.next() {
            moments += 1;
            // Every third probe goes wrong, whatever its rate.
            search.tell(rate, rate < 777.0 && moments % 3 != 0);
        }
        assert!(search.limit().is_some_and(|rate| rate < 777.0 && rate * 1.05 >= 777.0), "{search:?}");
    }

    #[test]
    fn a_search_ends_where_everything_or_nothing_holds() {
        assert!(found(10.0, f64::INFINITY).0.is_some_and(|rate| rate > 1e6));
        assert_eq!(found(10.0, 0.0).0, None);
    }

    #[test]
    fn the_interval_is_that_of_the_median_by_signs() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), ends(&[3.0, 1.0, 2.0])), (Some(2.0), Some([1.0, 3.0])));
        assert_eq!(median(&[]), None);
        // As in tables of the sign test: 5 values give 93.75 %, 6 give 96.9 %.
        assert!((confidence(5) - 0.9375).abs() < 1e-12 && (confidence(6) - 0.96875).abs() < 1e-12);
        assert!(confidence(1).abs() < 1e-12);
    }

    #[tokio::test]
    async fn repeats_begin_at_the_last_limit_and_what_was_tried_is_kept() {
        let flags = Flags { rate: Some(50.0), seed: Some(4), ..Flags::default() };
        let profile = Profile::load(None, &flags).unwrap();
        let wanted = Wanted { conditions: vec!["rate > 10".parse().unwrap()], repeats: 3, precision: 0.05 };
        // The second search has bad luck: it finds less.
        let mut probes = 0;
        let probe = |profile: Profile| {
            probes += 1;
            let rate = rate_of(&profile);
            let true_limit = if (13..20).contains(&probes) { 150.0 } else { 200.0 };
            let errors = u64::from(rate > true_limit);
            let counts = Counts { begun: 10, done: 10 - errors, failed: errors, ..Counts::default() };
            let figures = Figures { rate, counts, ..Figures::default() };
            std::future::ready(Ok(Some(Probed {
                figures,
                judged: Judged { valid: 10, ..Judged::default() },
            })))
        };
        let limit = find(&profile, &wanted, probe, |_| {}).await.unwrap();
        assert_eq!((limit.limits.len(), limit.probes.len()), (3, probes));
        let [low, high] = limit.between.unwrap();
        assert!(
            low <= limit.rate.unwrap()
                && limit.rate.unwrap() <= high
                && high <= 200.0
                && high * 1.05 >= 200.0
        );
        assert_eq!(limit.verdict, Outcome::Valid);
        assert!(limit.probes.iter().any(|probe| probe.broke == ["1 errors"]));
    }

    #[tokio::test]
    async fn a_condition_that_never_holds_has_no_limit() {
        let flags = Flags { rate: Some(50.0), ..Flags::default() };
        let profile = Profile::load(None, &flags).unwrap();
        let wanted =
            Wanted { conditions: vec!["instance_p99 < 5ms".parse().unwrap()], repeats: 2, precision: 0.05 };
        let nothing = || Probed { figures: Figures::default(), judged: Judged::default() };
        let limit =
            find(&profile, &wanted, |_| std::future::ready(Ok(Some(nothing()))), |_| {}).await.unwrap();
        assert_eq!((limit.rate, limit.limits.len()), (None, 0));
        assert_eq!(limit.probes[0].broke, ["not instance_p99 < 5ms"]);
    }
}
