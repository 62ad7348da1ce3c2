//! The server's counts of the processes of a run (SPEC B3).
//!
//! A process has the same principal in every run, so of runs at the same time on one server none can tell its
//! counts from another's.
//!
//! Counts begin anew when the server is started again. So it is asked again and again in the course of a run,
//! and the latest counts of each of its lives are added up. The counts of a life after its last answer are
//! missing: the sum is never above the truth. So it is with each server of a cluster, which counts for
//! itself. A life that began since the baseline had counted nothing then. Of a server that ran then and did
//! not answer, only the counts after its first answer are taken.
//!
//! A coordinator that is no observer is shown the counts of a process only by servers that hold an instance
//! of it. Where the process was not shown in the baseline, it is given all counts since then, but no more
//! than the server has counted of that name in all: so acts of others in the course of the run may be taken
//! for its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use stickycas_client::{Client, counts};
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::types::ProcessId;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::server_handle::{self, ServerHandle};
use crate::scenario::Scenario;

/// How often the server is asked while a run lasts.
const INTERVAL: Duration = Duration::from_millis(250);

/// The clocks of two machines go alike up to one part in this many.
const CLOCK_RATES_DIFFER: u32 = 1_000;

/// The counts of a server since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LifeCounts {
    /// When it started, by its own clock. `None`: that is not known.
    started: Option<SystemTime>,
    /// The counts since then.
    counts: RunCounts,
    /// For how long it had run when it answered. `None`: that is not known.
    #[serde(skip)]
    uptime: Option<Duration>,
}

/// The counts of each server, by its address: one, or those of a cluster.
type CountsByServer = BTreeMap<String, LifeCounts>;

/// A baseline: the counts of the servers at the beginning of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CountsBefore {
    servers: CountsByServer,
    /// When they were asked. `None`: in an earlier life of this process.
    #[serde(skip)]
    at: Option<Instant>,
}

/// The counts of the servers so far, of the attackers of a scenario and of all principals. Without attackers
/// the servers are not asked.
///
/// # Errors
/// A server cannot be reached, or does not tell.
pub async fn counted(handle: &ServerHandle, scenario: &Scenario) -> anyhow::Result<CountsBefore> {
    let at = Some(Instant::now());
    let servers = CountsQuery::new(handle, scenario).ask().await?;
    Ok(CountsBefore { servers, at })
}

/// Whose counts are asked for.
#[derive(Clone, Debug)]
struct CountsQuery {
    client: Client,
    attackers: BTreeMap<String, ProcessId>,
}

impl CountsQuery {
    fn new(handle: &ServerHandle, scenario: &Scenario) -> Self {
        let named = |process| (server_handle::principal(process), process);
        let attackers = scenario.truth.attackers().map(|(process, _)| named(process)).collect();
        Self { client: handle.client().clone(), attackers }
    }

    async fn ask(&self) -> anyhow::Result<CountsByServer> {
        let Self { client, attackers } = self;
        if attackers.is_empty() {
            return Ok(CountsByServer::new());
        }
        let principals: Vec<String> = attackers.keys().cloned().collect();
        let counted = client.counts_of_servers(&principals).await.with_context(|| {
            format!("cannot ask {} what it has counted, and so whether attacks fire", client.server())
        })?;
        Ok(counted.into_iter().map(|(server, counted)| (server, self.of_attackers(&counted))).collect())
    }

    fn of_attackers(&self, counted: &counts::ServerCounts) -> LifeCounts {
        let of = |(principal, counts)| Some((*self.attackers.get(principal)?, named(counts)));
        let processes = counted.principals.iter().filter_map(of).collect();
        let counts = RunCounts { all: named(&counted.all), processes };
        LifeCounts { started: counted.started, counts, uptime: counted.uptime }
    }
}

/// All counts by name.
fn named(counts: &counts::Counts) -> Counts {
    let refusals = counts.refusals.iter().map(|(reason, count)| (*reason, *count));
    refusals.chain(counts.others()).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Asks the server for its counts as long as a run lasts.
#[derive(Debug)]
pub struct CountsObserver {
    query: CountsQuery,
    stop: oneshot::Sender<()>,
    task: JoinHandle<CountsOfAll>,
}

impl CountsObserver {
    /// Begins to ask. `before`: the counts of the servers before any process acted.
    #[must_use]
    pub fn start(handle: &ServerHandle, scenario: &Scenario, before: CountsBefore) -> Self {
        let query = CountsQuery::new(handle, scenario);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(observe(query.clone(), CountsOfAll::new(before), stopped));
        Self { query, stop, task }
    }

    /// The counts of the servers since then, in all their lives.
    ///
    /// # Errors
    /// As for [`counted`].
    pub async fn finish(self) -> anyhow::Result<RunCounts> {
        drop(self.stop);
        let mut since = self.task.await.context("the counts cannot be observed")?;
        let asked = Instant::now();
        since.observe(asked, self.query.ask().await?);
        Ok(since.total())
    }
}

async fn observe(query: CountsQuery, mut since: CountsOfAll, stopped: oneshot::Receiver<()>) -> CountsOfAll {
    if query.attackers.is_empty() {
        return since;
    }
    let asking = async {
        loop {
            sleep(INTERVAL).await;
            let asked = Instant::now();
            // A server that is away is asked again; whether it comes back is asked in the end.
            if let Ok(now) = query.ask().await {
                since.observe(asked, now);
            }
        }
    };
    tokio::select! {
        _ = stopped => {}
        () = asking => {}
    }
    since
}

/// The counts of servers since a baseline, in all their lives.
#[derive(Clone, Debug, Default)]
struct CountsOfAll {
    lives: Vec<LifeSince>,
    /// By address, the life that has answered there last.
    latest: BTreeMap<String, usize>,
    /// When the baseline was taken.
    at: Option<Instant>,
}

/// The counts of one life of a server since the baseline.
#[derive(Clone, Debug)]
struct LifeSince {
    /// When it began, by the server's clock, which tells it from all others. `None`: that is not known.
    started: Option<SystemTime>,
    /// Its counts at the baseline.
    before: RunCounts,
    latest: RunCounts,
}

impl CountsOfAll {
    fn new(before: CountsBefore) -> Self {
        let mut all = Self { at: before.at, ..Self::default() };
        for (server, life) in before.servers {
            all.latest.insert(server, all.lives.len());
            all.lives.push(LifeSince {
                started: life.started,
                before: life.counts.clone(),
                latest: life.counts,
            });
        }
        all
    }

    /// Takes the answers of the servers, which were asked at this moment or later.
    fn observe(&mut self, asked: Instant, now: CountsByServer) {
        let elapsed = self.at.map(|at| asked.saturating_duration_since(at));
        for (server, life) in now {
            let known = self.latest.get(&server).copied();
            let index = self.find(known, life.started).unwrap_or_else(|| {
                let began_since = match (elapsed, life.uptime) {
                    (Some(elapsed), Some(uptime)) => uptime + elapsed / CLOCK_RATES_DIFFER < elapsed,
                    _ => known.is_some(),
                };
                let before = if began_since { RunCounts::default() } else { life.counts.clone() };
                self.lives.push(LifeSince { started: life.started, before, latest: RunCounts::default() });
                self.lives.len() - 1
            });
            let since = &mut self.lives[index];
            since.started = life.started.or(since.started);
            // A server that has handed an instance over shows the counts of its processes no more.
            since.latest.raise(&life.counts);
            self.latest.insert(server, index);
        }
    }

    /// The life that began at this moment, whatever its address; where that is not known, the one at the same
    /// address.
    fn find(&self, at_this_address: Option<usize>, started: Option<SystemTime>) -> Option<usize> {
        if started.is_none() {
            return at_this_address;
        }
        let same = self.lives.iter().position(|life| life.started == started);
        same.or_else(|| at_this_address.filter(|&index| self.lives[index].started.is_none()))
    }

    fn total(self) -> RunCounts {
        let mut total = RunCounts::default();
        for life in self.lives {
            total.add(&life.latest.since(&life.before));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(started: Option<u64>, count: u64) -> LifeCounts {
        let counts = || Counts::from_iter([("TOO_MANY_WAITING".to_owned(), count)]);
        let processes = BTreeMap::from([(ProcessId::FIRST, counts())]);
        let started = started.map(|second| SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        LifeCounts { started, counts: RunCounts { all: counts(), processes }, uptime: None }
    }

    fn of(servers: &[(&str, LifeCounts)]) -> CountsByServer {
        servers.iter().map(|(name, life)| ((*name).to_owned(), life.clone())).collect()
    }

    fn total(before: LifeCounts, observed: &[LifeCounts]) -> u64 {
        let mut since = CountsOfAll::new(CountsBefore { servers: of(&[("a:1", before)]), at: None });
        for now in observed {
            since.observe(Instant::now(), of(&[("a:1", now.clone())]));
        }
        let total = since.total();
        let of_process = total.of(ProcessId::FIRST).get("TOO_MANY_WAITING");
        assert_eq!(total.all.get("TOO_MANY_WAITING"), of_process);
        of_process
    }

    #[test]
    fn counts_of_all_lives_of_a_server_are_added() {
        let before = life(Some(10), 7);
        assert_eq!(total(before.clone(), &[life(Some(10), 9), life(Some(10), 12)]), 5);
        assert_eq!(total(before.clone(), &[life(Some(10), 12), life(Some(20), 2), life(Some(20), 3)]), 8);
        assert_eq!(total(before, &[life(Some(10), 12), life(Some(20), 3), life(Some(30), 1)]), 9);
    }

    #[test]
    fn what_a_life_counted_unobserved_is_missing() {
        assert_eq!(total(life(Some(10), 7), &[life(Some(20), 2)]), 2);
    }

    #[test]
    fn what_a_server_shows_no_more_stays_counted() {
        let shown_no_more = LifeCounts { counts: RunCounts::default(), ..life(Some(10), 0) };
        assert_eq!(total(life(Some(10), 7), &[life(Some(10), 9), shown_no_more]), 2);
    }

    #[test]
    fn a_life_without_a_start_is_no_new_one() {
        assert_eq!(total(life(None, 7), &[life(Some(10), 9)]), 2);
        assert_eq!(total(life(Some(10), 7), &[life(None, 8), life(Some(10), 9)]), 2);
    }

    #[test]
    fn each_server_counts_for_itself() {
        let at = Instant::now();
        let servers = of(&[("a:1", life(Some(10), 7)), ("b:1", life(Some(11), 1))]);
        let mut all = CountsOfAll::new(CountsBefore { servers, at: Some(at) });
        all.observe(at, of(&[("a:1", life(Some(10), 12)), ("b:1", life(Some(11), 2))]));
        // One is killed and missing for a while, and another one comes.
        all.observe(at, of(&[("b:1", life(Some(11), 4)), ("c:1", life(Some(12), 100))]));
        let later =
            of(&[("a:1", life(Some(20), 2)), ("b:1", life(Some(11), 4)), ("c:1", life(Some(12), 101))]);
        all.observe(at, later);
        assert_eq!(all.total().of(ProcessId::FIRST).get("TOO_MANY_WAITING"), 5 + 2 + 3 + 1);
    }

    #[test]
    fn a_life_counts_once_whatever_its_addresses_are() {
        let at = Instant::now();
        let new =
            |uptime, count| LifeCounts { uptime: Some(Duration::from_secs(uptime)), ..life(Some(20), count) };
        let servers = of(&[("a:1", life(Some(10), 7))]);
        let mut all = CountsOfAll::new(CountsBefore { servers, at: Some(at) });
        all.observe(at + Duration::from_secs(5), of(&[("a:1", life(Some(10), 8)), ("b:1", new(1, 3))]));
        // It is named by another address, and both lives answer at one.
        all.observe(at + Duration::from_secs(6), of(&[("a:1", new(2, 4)), ("c:1", new(2, 4))]));
        all.observe(at + Duration::from_secs(7), of(&[("a:1", life(Some(10), 9))]));
        assert_eq!(all.total().of(ProcessId::FIRST).get("TOO_MANY_WAITING"), 4 + 2);
    }

    #[test]
    fn what_the_baseline_has_is_believed_whatever_the_clocks_say() {
        let at = Instant::now();
        let slow = LifeCounts { uptime: Some(Duration::from_secs(1)), ..life(Some(10), 9) };
        let servers = of(&[("a:1", life(Some(10), 7))]);
        let mut all = CountsOfAll::new(CountsBefore { servers, at: Some(at) });
        all.observe(at + Duration::from_secs(60), of(&[("a:1", slow)]));
        assert_eq!(all.total().of(ProcessId::FIRST).get("TOO_MANY_WAITING"), 2);
    }

    #[test]
    fn what_a_server_counts_that_started_later_is_all_of_it_counted_since() {
        let at = Instant::now();
        let seconds = Duration::from_secs;
        let running = |uptime, count| LifeCounts { uptime: Some(seconds(uptime)), ..life(Some(10), count) };
        let counted = |before: &CountsBefore, uptime| {
            let mut all = CountsOfAll::new(before.clone());
            all.observe(at + seconds(5), of(&[("b:1", running(uptime, 7))]));
            all.observe(at + seconds(6), of(&[("b:1", running(uptime + 1, 9))]));
            all.total().of(ProcessId::FIRST).get("TOO_MANY_WAITING")
        };
        let before = CountsBefore { servers: CountsByServer::new(), at: Some(at) };
        assert_eq!(counted(&before, 4), 9);
        // It was there, and was not known; and where that moment is not known, it may have been.
        assert_eq!(counted(&before, 5), 2);
        assert_eq!(counted(&CountsBefore::default(), 4), 2);
    }
}
