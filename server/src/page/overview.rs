//! What happens at all instances together, once a second and the same for all who look.
//!
//! It is made of counters that are there anyway: no instance is looked at.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};
use stickycas_page::events::event;
use stickycas_page::source::Events;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;

use super::permits::Permits;
use crate::instances::Instances;
use crate::quota::Principals;

/// How often.
const EVERY: Duration = Duration::from_secs(1);
/// The unary calls whose time is shown.
const TIMED: [&str; 2] = ["Append", "Read"];

/// See the module.
#[derive(Debug)]
pub(super) struct Overview {
    instances: Arc<Instances>,
    principals: Principals,
    permits: Arc<Permits>,
    latest: watch::Sender<Bytes>,
}

/// What was counted up to a moment.
struct Counted {
    at: Instant,
    accesses: u64,
    refusals: u64,
    offences: u64,
    /// By upper bound of a duration in seconds, how many calls took no longer.
    buckets: Vec<(f64, u64)>,
}

impl Overview {
    pub(super) fn new(instances: Arc<Instances>, principals: Principals, permits: Arc<Permits>) -> Arc<Self> {
        Arc::new(Self { instances, principals, permits, latest: watch::Sender::new(Bytes::new()) })
    }

    /// From now on.
    pub(super) fn events(&self) -> Events {
        Box::pin(WatchStream::from_changes(self.latest.subscribe()).map(Ok))
    }

    /// Counts for ever, while somebody looks.
    pub(super) async fn run(&self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = self.count();
        loop {
            ticks.tick().await;
            // What was counted while nobody looked says nothing of this second.
            let (is_new, looked) = (last.at.elapsed() < 2 * EVERY, self.latest.receiver_count() > 0);
            if !looked {
                continue;
            }
            let next = self.count();
            if is_new {
                self.latest.send_replace(self.event(&last, &next));
            }
            last = next;
        }
    }

    fn count(&self) -> Counted {
        let all = self.principals.all();
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        let usage = self.principals.usage();
        for (_, histogram) in usage.ended_calls.seconds().filter(|(name, _)| TIMED.contains(name)) {
            for (place, (bound, count)) in histogram.buckets().enumerate() {
                match buckets.get_mut(place) {
                    Some(bucket) => bucket.1 += count,
                    None => buckets.push((bound, count)),
                }
            }
        }
        Counted {
            at: Instant::now(),
            accesses: self.instances.steps().accepted(),
            refusals: RefusalReason::all().map(|reason| all.refusals(reason)).sum(),
            offences: self.instances.recent_offences().since(u64::MAX).0,
            buckets,
        }
    }

    fn event(&self, last: &Counted, next: &Counted) -> Bytes {
        let seconds = next.at.duration_since(last.at).as_secs_f64().max(0.001);
        #[expect(clippy::cast_precision_loss, reason = "counts of a second")]
        let rate = |last: u64, next: u64| (next.saturating_sub(last) as f64 / seconds).round();
        let live = self.instances.load().live();
        let offences = self.instances.recent_offences().since(last.offences).1.into_iter().map(|offence| {
            json!({
                "instance": offence.instance.to_string(),
                "name": offence.name,
                "process": offence.process,
                "says": offence.says,
            })
        });
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let shown = json!({
            "at": u64::try_from(at).unwrap_or(u64::MAX),
            "live": live,
            "ended": self.instances.held().saturating_sub(live),
            "accesses": rate(last.accesses, next.accesses),
            "refusals": rate(last.refusals, next.refusals),
            "latency_ms": latency(&last.buckets, &next.buckets),
            "viewers": self.permits.viewers(),
            "offences": offences.collect::<Vec<_>>(),
        });
        event("overview", None, shown.to_string().as_bytes())
    }
}

/// Percentiles of the calls in between, in milliseconds, as the upper bound of the bucket that has them; null if there were
/// none.
fn latency(last: &[(f64, u64)], next: &[(f64, u64)]) -> Value {
    let counts: Vec<(f64, u64)> =
        last.iter().zip(next).map(|(last, next)| (next.0, next.1.saturating_sub(last.1))).collect();
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return Value::Null;
    }
    let longest =
        counts.iter().rev().map(|(bound, _)| *bound).find(|bound| bound.is_finite()).unwrap_or_default();
    let percentile = |percent: u64| {
        let mut rest = (all * percent).div_ceil(100);
        let bucket = counts.iter().find(|(_, count)| {
            let found = rest <= *count;
            rest = rest.saturating_sub(*count);
            found
        });
        bucket.map_or(longest, |(bound, _)| bound.min(longest)) * 1e3
    };
    json!({ "p50": percentile(50), "p99": percentile(99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_calls_in_between() {
        let last = [(0.001, 100), (0.01, 0), (f64::INFINITY, 7)];
        assert_eq!(latency(&last, &last), Value::Null);
        let next = [(0.001, 150), (0.01, 49), (f64::INFINITY, 8)];
        assert_eq!(latency(&last, &next), json!({ "p50": 1.0, "p99": 10.0 }));
    }
}
