//! What the server has counted of the processes of a run (SPEC B3).
//!
//! A process has the same principal in every run, so of runs at the same time on one server none can tell its
//! counts from another's.
//!
//! Counts begin anew when the server is started again. So it is asked again and again in the course of a run, and the
//! latest counts of each of its lives are added up. What a life counted after it was last asked is missing: the sum is
//! never above the truth. So it is with each server of a cluster, which counts for itself: one that started since the run began
//! had counted nothing before it, and what another one had counted that nobody could ask at the beginning is not known.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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

/// What a server has counted since it started.
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

/// What each server has counted, by its address: one, or those of a cluster.
type CountsByServer = BTreeMap<String, LifeCounts>;

/// What servers had counted at some moment, from which on counts are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsBefore {
    /// By the server's address.
    servers: CountsByServer,
    /// When they were asked. `None`: in an earlier life of this process.
    #[serde(skip)]
    at: Option<Instant>,
}

/// What the servers have counted so far of the attackers of a scenario, and of all principals. Without attackers
/// they are not asked.
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
        let attackers = scenario.cast.attackers().map(|(process, _)| named(process)).collect();
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
    /// Begins to ask. `before`: what the servers had counted before anybody acted.
    #[must_use]
    pub fn start(handle: &ServerHandle, scenario: &Scenario, before: CountsBefore) -> Self {
        let query = CountsQuery::new(handle, scenario);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(observe(query.clone(), CountsOfAll::new(before), stopped));
        Self { query, stop, task }
    }

    /// What the servers have counted since then, in all their lives.
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

/// What servers have counted since some moment, each in all its lives since then.
#[derive(Clone, Debug)]
struct CountsOfAll {
    servers: BTreeMap<String, CountsSince>,
    /// That moment; see [`CountsBefore`].
    at: Option<Instant>,
}

impl CountsOfAll {
    fn new(before: CountsBefore) -> Self {
        let servers = before.servers.into_iter().map(|(server, before)| (server, CountsSince::new(before)));
        Self { servers: servers.collect(), at: before.at }
    }

    /// What the servers tell, which were asked at this moment or later.
    fn observe(&mut self, asked: Instant, now: CountsByServer) {
        let elapsed = self.at.map(|at| asked.saturating_duration_since(at));
        for (server, life) in now {
            match self.servers.entry(server) {
                Entry::Occupied(entry) => entry.into_mut().observe(&life, elapsed),
                // What it had counted before is not known: then too little is counted, and not too much.
                Entry::Vacant(entry) => entry.insert(CountsSince::new(life.clone())).observe(&life, elapsed),
            }
        }
    }

    fn total(self) -> RunCounts {
        let mut total = RunCounts::default();
        for since in self.servers.into_values() {
            total.add(&since.total());
        }
        total
    }
}

/// What one server has counted since some moment, in all its lives since then.
#[derive(Clone, Debug)]
struct CountsSince {
    /// Counts of the lives that have ended.
    ended: RunCounts,
    /// What the life that goes on had counted at that moment: nothing, if it began later.
    before: RunCounts,
    latest: LifeCounts,
}

impl CountsSince {
    fn new(before: LifeCounts) -> Self {
        Self { ended: RunCounts::default(), before: before.counts.clone(), latest: before }
    }

    /// `elapsed`: since that moment, or less.
    fn observe(&mut self, now: &LifeCounts, elapsed: Option<Duration>) {
        // Where a start is not known, it is taken for the same life: then too little is counted, and not too much.
        if let (Some(before), Some(started)) = (self.latest.started, now.started)
            && before != started
        {
            self.ended.add(&self.latest.counts.since(&self.before));
            self.before = RunCounts::default();
            self.latest.counts = RunCounts::default();
        }
        // It did not run at that moment.
        if let (Some(elapsed), Some(uptime)) = (elapsed, now.uptime)
            && uptime < elapsed
        {
            self.before = RunCounts::default();
        }
        self.latest.started = now.started.or(self.latest.started);
        // A server of a cluster that has handed the instance over shows the counts of its processes no more.
        self.latest.counts.raise(&now.counts);
    }

    fn total(mut self) -> RunCounts {
        self.ended.add(&self.latest.counts.since(&self.before));
        self.ended
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

    fn total(before: LifeCounts, observed: &[LifeCounts]) -> u64 {
        let mut since = CountsSince::new(before);
        observed.iter().for_each(|now| since.observe(now, None));
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
        let mut since = CountsSince::new(life(Some(10), 7));
        since.observe(&life(Some(10), 9), None);
        let shown_no_more = LifeCounts { counts: RunCounts::default(), ..life(Some(10), 0) };
        since.observe(&shown_no_more, None);
        assert_eq!(since.total().of(ProcessId::FIRST).get("TOO_MANY_WAITING"), 2);
    }

    #[test]
    fn a_life_without_a_start_is_no_new_one() {
        assert_eq!(total(life(None, 7), &[life(Some(10), 9)]), 2);
        assert_eq!(total(life(Some(10), 7), &[life(None, 8), life(Some(10), 9)]), 2);
    }

    fn of(servers: &[(&str, LifeCounts)]) -> CountsByServer {
        servers.iter().map(|(name, life)| ((*name).to_owned(), life.clone())).collect()
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
