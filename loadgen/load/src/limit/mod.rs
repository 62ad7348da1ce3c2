//! Searches for the highest rate of an open loop at which conditions hold.
//!
//! | where | what |
//! | --- | --- |
//! | `search` | one search: which rate is tried next, and when it is over |
//! | here | probes, repeats, and what may be said of the result |
//!
//! Each probe is a load of its own: connections, warm-up and draws are its own too. The search is repeated,
//! each time from scratch around the last limit, and the [`Limit`] is the median of the rates that held. The
//! confidence of its interval is that of a sign test, for as long as each search encloses its limit, so not
//! for one that did not settle, which is told. `docs/notes/load-testing.md` has the reasons.

mod search;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_harness::files::values::DurationText;
use stickycas_harness::report::grid::counted;
use stickycas_model::judge::Outcome;

use super::fail_if::FailIf;
use super::figures::{Figures, Latency};
use super::measure::Measure;
use super::profile::{Open, Pacing, Profile};
use super::result::{check, conditions};
use super::verdicts::VerdictCounts;

pub use self::search::Search;

/// Version of the form of a limit. Raised when a field changes its meaning or goes away.
pub const LIMIT_VERSION: u32 = 2;

/// By which factor the first search raises the rate.
const FIRST_FACTOR: f64 = 2.0;
/// By which factor those after it do, which begin near.
const LATER_FACTOR: f64 = 1.2;

/// How long what has begun in a probe has to end.
const LONGEST_DRAIN: Duration = Duration::from_secs(5);

/// The options of a search, as flags.
#[derive(Clone, Debug, clap::Args)]
pub struct LimitRequest {
    /// Search for the highest rate of an open loop at which this holds, such as 'instance_p99<20ms'; repeat
    /// for several. The profile's rate is where it begins, and its duration that of each probe
    #[arg(long = "find-limit", value_name = "CONDITION", conflicts_with_all = ["baseline", "in-flight", "ramp", "steps"])]
    pub conditions: Vec<FailIf>,
    /// With --find-limit: how many searches are made
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// With --find-limit: how exactly each finds its limit, as a share of it
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    pub precision: f64,
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "give a number such as 0.05".to_owned())
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
    /// Whether all conditions held.
    pub held: bool,
    /// The conditions that did not.
    pub broke: Vec<String>,
    /// Instance latency.
    pub instance: Option<Latency>,
}

/// Its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// [`LIMIT_VERSION`].
    pub version: u32,
    /// The verdict on the instances of all probes, taken together.
    pub verdict: Outcome,
    /// How many of them show what.
    pub judged: VerdictCounts,
    /// The conditions that had to hold.
    pub conditions: Vec<String>,
    /// The median of the rates that held; `None` if in some search none did, or it was not finished.
    pub rate: Option<f64>,
    /// From the lowest rate that held to the highest that did not, of those at which searches ended. The
    /// second is the first as well if everything held.
    pub between: Option<[f64; 2]>,
    /// The probability that an interval so made contains the median of all limits that could be found, if
    /// searches are independent and settle, and the machine stays what it is. 0 if in some search everything
    /// held: then nothing is known of the upper end.
    pub confidence: f64,
    /// The result of each search, in order.
    pub searches: Vec<Found>,
    /// Every rate that was tried, in order.
    pub probes: Vec<Probe>,
    /// Whether an interrupt ended it before its time.
    pub interrupted: bool,
    /// The profile, whose rate is that of the first probe.
    pub profile: String,
}

/// The result of one search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The highest rate that held.
    pub held: f64,
    /// The lowest that did not; `None` if every rate held that was tried.
    pub failed: Option<f64>,
    /// Whether both said the same twice. If not, there is more noise than the precision allows for.
    pub settled: bool,
}

/// How far a search for the limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitProgress {
    /// Which of its searches is under way, from 1.
    pub search: u32,
    /// How many there are.
    pub searches: u32,
    /// How many probes are likely to follow.
    pub probes_left: u32,
}

impl LimitProgress {
    /// Before the first probe.
    #[must_use]
    pub fn before(profile: &Profile, wanted: &LimitRequest) -> Self {
        Self::of(&Search::new(rate_of(profile), FIRST_FACTOR, 1.0 + wanted.precision), 1, wanted)
    }

    fn of(search: &Search, number: u32, wanted: &LimitRequest) -> Self {
        let later = Search::new(1.0, LATER_FACTOR, 1.0 + wanted.precision).tries_left();
        let LimitRequest { repeats: searches, .. } = *wanted;
        Self { search: number, searches, probes_left: search.tries_left() + (searches - number) * later }
    }
}

impl Limit {
    /// Whether every search that was asked for found a limit and settled on it.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.rate.is_some() && self.unsettled() == 0
    }

    /// How many searches ended without having settled.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.searches.iter().filter(|found| !found.settled).count()
    }
}

/// The result of one probe.
#[derive(Debug)]
pub struct ProbeResult {
    /// The measurements.
    pub figures: Figures,
    /// The verdicts on the instances.
    pub judged: VerdictCounts,
}

/// Searches with this profile, whose rate is where it begins. `probe` puts the load of a profile on the
/// server; `look` is told of each probe, and what is left. Ends early when `probe` gives nothing: then with
/// what there is.
///
/// # Errors
/// Those of `probe`.
pub async fn find<P>(
    profile: &Profile,
    wanted: &LimitRequest,
    mut probe: impl FnMut(Profile) -> P,
    mut look: impl FnMut(&Probe, LimitProgress),
) -> anyhow::Result<Limit>
where
    P: Future<Output = anyhow::Result<Option<ProbeResult>>>,
{
    let mut judged = VerdictCounts::default();
    let (mut searches, mut probes) = (Vec::new(), Vec::new());
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
            search.tell(rate, tried.held);
            look(&tried, LimitProgress::of(&search, repeat, wanted));
            probes.push(tried);
        }
        let Some(held) = search.held() else { break };
        searches.push(Found { held, failed: search.failed(), settled: search.is_settled() });
        (start, factor) = (held, LATER_FACTOR);
    }
    let whole = searches.len() == wanted.repeats as usize;
    Ok(Limit {
        version: LIMIT_VERSION,
        verdict: judged.verdict(),
        judged,
        conditions: wanted.conditions.iter().map(ToString::to_string).collect(),
        rate: median(&searches).filter(|_| whole),
        between: ends(&searches).filter(|_| whole),
        confidence: confidence(&searches),
        searches,
        probes,
        interrupted,
        profile: profile.to_toml(),
    })
}

/// Whether everything held that was wanted, and nothing else went wrong.
fn judge(profile: &Profile, wanted: &LimitRequest, repeat: u32, rate: f64, probed: &ProbeResult) -> Probe {
    let ProbeResult { figures, judged } = probed;
    let unmet = wanted.conditions.iter().filter(|condition| {
        // A condition must hold; one on a figure that was not measured does not.
        !figures.value(condition.figure).is_some_and(|value| condition.is_met(value))
    });
    let mut broke: Vec<String> = unmet.map(|condition| format!("not {condition}")).collect();
    // None may fail, unless the search has a condition of its own for that.
    let may_err = wanted.conditions.iter().any(|condition| condition.figure.is_of_errors());
    let mut profile = profile.clone();
    profile.max_errors = 1.0;
    broke.extend(check(&conditions(&profile), figures).0.into_iter().map(|failed| failed.condition));
    if figures.counts.errors() > 0 && !may_err {
        broke.push(counted(figures.counts.errors(), "error"));
    }
    if judged.violation > 0 {
        broke.push(counted(judged.violation, "violation"));
    }
    let instance = figures.latency(Measure::Instance).copied();
    Probe { repeat, rate, done: figures.rate, held: broke.is_empty(), broke, instance }
}

/// The rate that a profile begins with; of a closed loop, as many as it has in flight.
fn rate_of(profile: &Profile) -> f64 {
    match &profile.pacing {
        Pacing::Closed { in_flight } => f64::from(*in_flight),
        Pacing::Open(open) => open.pieces.first().map_or(1.0, |piece| piece.to.max(1.0)),
    }
}

/// The same profile as an open loop with this rate.
fn at_rate(profile: &Profile, rate: f64, seed: u64) -> Profile {
    let mut profile = profile.clone();
    profile.seed = seed;
    // Of what is not done by then, no more is to be learned.
    profile.load.drain = profile.load.drain.min(DurationText(LONGEST_DRAIN));
    if let Pacing::Open(Open { pieces, .. }) = &mut profile.pacing {
        let lasts = pieces.iter().map(|piece| piece.lasts).sum::<Duration>();
        *pieces = vec![super::arrivals::Piece { from: rate, to: rate, lasts }];
    }
    profile
}

fn median(searches: &[Found]) -> Option<f64> {
    let mut sorted: Vec<f64> = searches.iter().map(|found| found.held).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn ends(searches: &[Found]) -> Option<[f64; 2]> {
    let low = searches.iter().map(|found| found.held).reduce(f64::min)?;
    let ends = searches.iter().map(|found| found.failed.unwrap_or(found.held));
    Some([low, ends.reduce(f64::max)?])
}

/// That not all of so many values lie on one side of the median.
fn confidence(searches: &[Found]) -> f64 {
    if searches.is_empty() || searches.iter().any(|found| found.failed.is_none()) {
        return 0.0;
    }
    1.0 - 0.5_f64.powi(i32::try_from(searches.len()).unwrap_or(i32::MAX) - 1)
}

#[cfg(test)]
mod tests {
    use stickycas_model::random::SplitMix64;

    use super::super::figures::Counts;
    use super::super::profile::Flags;
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_median_by_signs() {
        let found = |held| Found { held, failed: Some(held + 0.1), settled: true };
        let searches = [3.0, 1.0, 2.0].map(found);
        assert_eq!((median(&searches), ends(&searches)), (Some(2.0), Some([1.0, 3.1])));
        assert_eq!(ends(&[Found { failed: None, ..found(5.0) }]), Some([5.0, 5.0]));
        assert_eq!(median(&[]), None);
        // As in tables of the sign test: 5 values give 93.75 %, 6 give 96.9 %.
        let of = |values: usize| confidence(&vec![found(1.0); values]);
        assert!((of(5) - 0.9375).abs() < 1e-12 && (of(6) - 0.96875).abs() < 1e-12);
        assert!(of(1).abs() < 1e-12 && of(0).abs() < 1e-12);
        let open = [found(1.0), found(1.0), Found { failed: None, ..found(1.0) }];
        assert!(confidence(&open).abs() < 1e-12, "nothing is known of the upper end");
    }

    #[tokio::test]
    async fn repeats_begin_at_the_last_limit_and_what_was_tried_is_kept() {
        let flags = Flags::of(&[("rate", "50"), ("seed", "4")]);
        let profile = Profile::load(None, &flags).unwrap();
        let wanted =
            LimitRequest { conditions: vec!["rate > 10".parse().unwrap()], repeats: 3, precision: 0.05 };
        let mut probes = 0;
        let probe = |profile: Profile| {
            probes += 1;
            let rate = rate_of(&profile);
            let errors = u64::from(rate > 200.0);
            let counts = Counts { begun: 10, done: 10 - errors, failed: errors, ..Counts::default() };
            let figures = Figures { rate, counts, ..Figures::default() };
            std::future::ready(Ok(Some(ProbeResult {
                figures,
                judged: VerdictCounts { valid: 10, ..VerdictCounts::default() },
            })))
        };
        let mut left = vec![LimitProgress::before(&profile, &wanted).probes_left];
        let look = |_: &Probe, at: LimitProgress| left.push(at.probes_left);
        let limit = find(&profile, &wanted, probe, look).await.unwrap();
        // It is no promise, but its size is right, and it ends with nothing left.
        let estimate = f64::from(left[0]) / limit.probes.len() as f64;
        assert!((0.7..1.4).contains(&estimate) && left.last() == Some(&0), "{left:?}");
        assert_eq!((limit.searches.len(), limit.probes.len()), (3, probes), "{limit:?}");
        assert_eq!(limit.unsettled(), 0, "{limit:?}");
        let [low, high] = limit.between.unwrap();
        assert!(
            low <= limit.rate.unwrap()
                && limit.rate.unwrap() <= high
                && low <= 200.0
                && high > 200.0
                && high < 200.0 * 1.1
        );
        assert_eq!(limit.verdict, Outcome::Valid);
        assert!(limit.probes.iter().any(|probe| probe.broke == ["1 error"]));
    }

    #[tokio::test]
    async fn the_interval_holds_the_limit_as_often_as_its_confidence() {
        let wanted =
            LimitRequest { conditions: vec!["rate > 10".parse().unwrap()], repeats: 5, precision: 0.05 };
        let (mut held, loads) = (0, 200);
        for seed in 0..loads {
            let flags = Flags::of(&[("rate", "100"), ("seed", &seed.to_string())]);
            let profile = Profile::load(None, &flags).unwrap();
            let mut random = SplitMix64::new(seed);
            // From 9 in 10 at 880 down to 1 in 10 at 1,140.
            let probe = |profile: Profile| {
                let chance = 1.0 / (1.0 + (rate_of(&profile) / 1_000.0).powf(1.0 / 0.06));
                let holds = (random.index(1_000_000) as f64) < 1e6 * chance;
                let counts = Counts { begun: 1, done: 1, ..Counts::default() };
                let figures = Figures { rate: if holds { 20.0 } else { 1.0 }, counts, ..Figures::default() };
                std::future::ready(Ok(Some(ProbeResult { figures, judged: VerdictCounts::default() })))
            };
            let limit = find(&profile, &wanted, probe, |_, _| {}).await.unwrap();
            let [low, high] = limit.between.unwrap();
            held += u32::from((low..=high).contains(&1_000.0));
        }
        // 93.75 % are claimed; three standard deviations are 5 %.
        assert!(f64::from(held) >= 0.885 * loads as f64, "{held} of {loads}");
    }

    #[test]
    fn a_search_allows_no_errors_unless_it_says_itself_how_many() {
        let broke = |condition: &str| {
            let flags = Flags::of(&[("rate", "50"), ("fail-if", "missed > 0")]);
            let profile = Profile::load(None, &flags).unwrap();
            let wanted =
                LimitRequest { conditions: vec![condition.parse().unwrap()], repeats: 1, precision: 0.05 };
            let counts =
                Counts { planned: 50, late: 1, begun: 100, done: 97, refused: 3, ..Counts::default() };
            let figures = Figures { rate: 40.0, counts, ..Figures::default() };
            judge(&profile, &wanted, 1, 50.0, &ProbeResult { figures, judged: VerdictCounts::default() })
                .broke
        };
        assert_eq!(broke("rate > 10"), ["missed > 0", "missed_rate > 0.01", "3 errors"]);
        assert_eq!(broke("error_rate < 5%"), ["missed > 0", "missed_rate > 0.01"]);
        assert_eq!(broke("error_rate < 3%"), ["not error_rate < 3%", "missed > 0", "missed_rate > 0.01"]);
    }

    #[tokio::test]
    async fn a_condition_that_never_holds_has_no_limit() {
        let flags = Flags::of(&[("rate", "50")]);
        let profile = Profile::load(None, &flags).unwrap();
        let wanted = LimitRequest {
            conditions: vec!["instance_p99 < 5ms".parse().unwrap()],
            repeats: 2,
            precision: 0.05,
        };
        let nothing = || ProbeResult { figures: Figures::default(), judged: VerdictCounts::default() };
        let limit =
            find(&profile, &wanted, |_| std::future::ready(Ok(Some(nothing()))), |_, _| {}).await.unwrap();
        assert_eq!((limit.rate, limit.searches.len()), (None, 0));
        assert_eq!(limit.probes[0].broke, ["not instance_p99 < 5ms", "instances < 1"]);
    }
}
