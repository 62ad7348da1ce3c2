//! The load of all instances together, once a second and the same for all viewers.
//!
//! | of | is |
//! | --- | --- |
//! | GetCounts | instances that live, refusals |
//! | `/metrics`, if its addresses are given | instances that have ended, accesses, the time of calls, offences by kind |
//! | the Watches of `view` itself | the offences at the instances that somebody looks at |

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use stickycas_client::Client;
use stickycas_page::events::event;
use stickycas_page::source::{Events, Refused};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::WatchStream;

use crate::metrics::Figures;
use crate::offences::RecentOffences;
use crate::permits::Permits;
use crate::refusal::refusal;

/// How often.
const EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Overview {
    client: Client,
    /// Host and port of each server's listener for operators; none: they are not asked.
    metrics: Vec<String>,
    permits: Arc<Permits>,
    offences: Arc<RecentOffences>,
    latest: watch::Sender<Result<Bytes, Refused>>,
}

/// The counts up to a moment.
struct Counted {
    at: Instant,
    live: u64,
    refusals: u64,
    /// `None`: no server is asked for its metrics.
    figures: Option<Figures>,
    /// Offences at the instances that somebody looks at.
    offences: u64,
}

impl Overview {
    pub(crate) fn new(
        client: Client,
        metrics: Vec<String>,
        permits: Arc<Permits>,
        offences: Arc<RecentOffences>,
    ) -> Arc<Self> {
        let latest = watch::Sender::new(Ok(Bytes::new()));
        Arc::new(Self { client, metrics, permits, offences, latest })
    }

    /// From now on.
    pub(crate) fn events(&self) -> Events {
        Box::pin(WatchStream::from_changes(self.latest.subscribe()))
    }

    /// Counts for ever, while somebody looks.
    pub(crate) async fn run(&self) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last: Option<Counted> = None;
        loop {
            ticks.tick().await;
            if self.latest.receiver_count() == 0 {
                // The difference to a count before this pause would not be that of a second.
                last = None;
                continue;
            }
            match self.count().await {
                Ok(next) => {
                    if let Some(last) = &last {
                        let event = self.event(last, &next);
                        self.latest.send_modify(|latest| *latest = Ok(event));
                    }
                    last = Some(next);
                }
                Err(refused) => {
                    self.latest.send_modify(|latest| *latest = Err(refused));
                    last = None;
                }
            }
        }
    }

    async fn count(&self) -> Result<Counted, Refused> {
        let own = [self.client.principal().to_owned()];
        let figures = async {
            match &*self.metrics {
                [] => None,
                addresses => Figures::read(addresses)
                    .await
                    .inspect_err(|error| tracing::warn!(%error, "the metrics are not told"))
                    .ok(),
            }
        };
        let (counts, figures) = tokio::join!(self.client.counts_of_servers(&own), figures);
        let counts = counts.map_err(|error| refusal(&error))?;
        let facts: Option<Vec<_>> = counts.values().map(|counts| counts.server.as_ref()).collect();
        let facts = facts.ok_or_else(|| {
            let why = "what happens at all instances is shown to observers, and to coordinators".to_owned();
            Refused { status: StatusCode::FORBIDDEN, why }
        })?;
        Ok(Counted {
            at: Instant::now(),
            live: facts.iter().map(|facts| facts.instances_under_way).sum(),
            refusals: counts.values().flat_map(|counts| counts.all.refusals.values()).sum(),
            figures,
            offences: self.offences.since(u64::MAX).0,
        })
    }

    fn event(&self, last: &Counted, next: &Counted) -> Bytes {
        let seconds = next.at.duration_since(last.at).as_secs_f64().max(0.001);
        #[expect(clippy::cast_precision_loss, reason = "counts of a second")]
        let rate = |last: u64, next: u64| (next.saturating_sub(last) as f64 / seconds).round();
        let figures = last.figures.as_ref().zip(next.figures.as_ref());
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let kinds = figures.iter().flat_map(|(last, next)| {
            let count = |(kind, count): (&String, &u64)| {
                let new = count.saturating_sub(last.offences.get(kind).copied().unwrap_or_default());
                (new > 0).then(|| json!({ "kind": kind, "count": new }))
            };
            next.offences.iter().filter_map(count).collect::<Vec<_>>()
        });
        let shown = json!({
            "at": u64::try_from(at).unwrap_or(u64::MAX),
            "live": next.live,
            "ended": next.figures.as_ref().map(|figures| figures.ended),
            "accesses": figures.map(|(last, next)| rate(last.accesses, next.accesses)),
            "refusals": rate(last.refusals, next.refusals),
            "latency_ms": figures.map_or(Value::Null, |(last, next)| latency(&last.buckets, &next.buckets)),
            "viewers": self.permits.viewers(),
            "offences": self.offences.since(last.offences).1,
            "offence_kinds": kinds.collect::<Vec<_>>(),
        });
        event("overview", None, shown.to_string().as_bytes())
    }
}

/// Percentiles of the calls in between, in milliseconds, as the upper bound of the bucket that has them; null
/// if there were none.
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
