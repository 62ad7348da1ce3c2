//! One round of the kill test: a server, its clients, the faults, and the checks when all is over.
//!
//! | module | what |
//! | --- | --- |
//! | `instance`, `unary`, `observer` | the clients of one instance |

mod instance;
mod observer;
mod unary;

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use stickycas_client::raw::Connection;
use stickycas_model::history::Recorded;
use stickycas_model::random::SplitMix64;
use stickycas_model::types::ProcessId;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

pub use self::instance::{CONNECTIONS, Site};
use self::instance::{Ended, InstanceRun, standing};
pub(crate) use self::observer::take;
use crate::check::{Evidence, Expected, check};
use crate::draw::{FaultKind, RoundPlan};
use crate::facts::Fact;
use crate::fail_over::FailOver;
use crate::plan::{Action, Service, Step, When};
use crate::platform::{Hit, ON_ITS_WAY, Server};
use crate::result::{RoundResult, TOLD_OF_A_ROUND};
use crate::violation::ViolationKind;

/// Instances that are asked again after a restart.
const SAMPLE: usize = 10;
/// Instances that are requested from a paused server, before it goes on.
const ASKED_WHILE_PAUSED: usize = 100;
/// How long it may take until all instances are under way.
const LONGEST_BEGIN: Duration = Duration::from_secs(60);
/// How often to look whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The longest time of the last requests.
const LONGEST_ASKING: Duration = Duration::from_secs(30);
/// Histories that are fetched at a time.
const FETCHED_AT_A_TIME: usize = 32;
/// Violations of one instance that are reported.
const TOLD_OF_AN_INSTANCE: usize = 3;

/// Runs a round with a server that was not started yet, and its clients.
pub async fn play_round(plan: &RoundPlan, mut server: impl Server, site: Site) -> RoundResult {
    let began = Instant::now();
    let runs = plan.instances.iter().cloned().map(|plan| Arc::new(InstanceRun::new(plan))).collect();
    let (site, asking, mut result) = (Arc::new(site), JoinSet::new(), RoundResult::new(plan.seed));
    for instance in &plan.instances {
        result.counts.instances += 1;
        result.counts.processes += u64::from(instance.params.processes());
        result.counts.short_patience += u64::from(instance.has_short_patience());
    }
    let random = SplitMix64::new(plan.seed ^ 0x0061_736b);
    let mut round = Round { plan, began, site, runs, asking, hits: Vec::new(), random, result };
    if let Err(error) = round.run(&mut server).await {
        round.found(ViolationKind::Server, None, format!("{error:#}"));
    }
    round.result.seconds = began.elapsed().as_secs_f64();
    round.result
}

struct Round<'a> {
    plan: &'a RoundPlan,
    began: Instant,
    site: Arc<Site>,
    runs: Vec<Arc<InstanceRun>>,
    /// Clients that ask again after a restart.
    asking: JoinSet<()>,
    /// The faults of a cluster that have hit a server.
    hits: Vec<Hit>,
    /// Which clients ask again.
    random: SplitMix64,
    result: RoundResult,
}

impl Round<'_> {
    async fn run(&mut self, server: &mut impl Server) -> anyhow::Result<()> {
        server.start()?;
        let kills = |step: &Step| step.services == [Service::Server] && step.action == Action::Kill;
        if !self.plan.steps.iter().all(kills) {
            // The first fault is to hit a cluster that serves.
            server.serves().await?;
        }
        let began = Instant::now();
        let mut playing = JoinSet::new();
        for (index, run) in self.runs.iter().enumerate() {
            let (run, site) = (run.clone(), self.site.clone());
            playing.spawn(async move {
                let ended = run.play(&site, began).await;
                (index, Ended { time: ended.time.start..Instant::now(), ..ended })
            });
        }
        let at_end = self.plan.steps.partition_point(|step| step.when != When::Ended);
        let (under_load, at_end) = self.plan.steps.split_at(at_end);
        for step in under_load {
            self.perform(step, server).await?;
        }
        self.serves_again(server).await?;
        self.site.note_last_kill();
        let ended = self.await_all(&mut playing, server).await?;
        for step in at_end {
            self.perform(step, server).await?;
            self.serves_again(server).await?;
        }
        let asking = async { while self.asking.join_next().await.is_some() {} };
        let _ = timeout(LONGEST_ASKING, asking).await;
        let histories = self.histories().await;
        server.check_alive()?;
        self.fail_over();
        self.check(&ended, &histories, server);
        Ok(())
    }

    async fn perform(&mut self, step: &Step, server: &mut impl Server) -> anyhow::Result<()> {
        let is_kill = step.services == [Service::Server] && step.action == Action::Kill;
        let mut served = true;
        match step.when {
            When::Served(after) => {
                self.serves_again(server).await?;
                self.site.note_step();
                sleep(after).await;
            }
            When::After(after) if is_kill => served = self.serves_within(after, server).await?,
            When::After(after) => {
                self.site.note_step();
                sleep(after).await;
            }
            When::UnderWay => {
                self.serves_again(server).await?;
                self.under_way(server).await?;
            }
            When::Ended => {}
            When::Before | When::Observed(_) => bail!("{}: the kill test has no such moment", step.when),
        }
        if let Some(ahead) = step.ahead {
            server.set_clocks_ahead(ahead)?;
        }
        if is_kill { self.kill(server, served).await } else { self.inject(step, server).await }
    }

    /// Whether a server that was just started serves so soon.
    async fn serves_within(&mut self, after: Duration, server: &mut impl Server) -> anyhow::Result<bool> {
        let started = Instant::now();
        let serves = tokio::select! {
            () = sleep(after) => false,
            served = server.serves() => served.map(|()| true)?,
        };
        if serves {
            self.note_restart(server);
            sleep_until(started + after).await;
        }
        Ok(serves)
    }

    async fn inject(&mut self, step: &Step, server: &mut impl Server) -> anyhow::Result<()> {
        // A server that has lost its shards and does not know it yet must not give stale answers.
        let (runs, site, asking) = (&self.runs, &self.site, &mut self.asking);
        let mut ask = |hit: &Hit, server: &Connection| {
            let owned = runs.iter().filter(|run| run.id.get().is_some_and(|id| hit.owned(*id)));
            for run in owned.filter(|run| run.facts.was_created()).rev().take(ASKED_WHILE_PAUSED) {
                let (run, site, server) = (run.clone(), site.clone(), server.clone());
                asking.spawn(async move { run.ask_server(&site, &server).await });
            }
        };
        let (kind, hit) = server.inject(step, &mut ask).await?;
        *self.result.counts.faults.entry(kind).or_default() += 1;
        let Some(mut hit) = hit else { return Ok(()) };
        self.result.counts.asked_deposed += hit.stale.asked;
        for (kind, what) in std::mem::take(&mut hit.stale.told) {
            self.found(kind, None, format!("{}: {what}", hit.kind));
        }
        let was_created_before = |run: &InstanceRun| {
            run.id.get().is_some_and(|id| hit.owned(*id)) && run.facts.answered_before(hit.at)
        };
        // A server that was paused may have kept its lease.
        if hit.kind == FaultKind::ServerKilled {
            for run in self.runs.iter().filter(|run| was_created_before(run)) {
                run.facts.note(Fact::Killed);
            }
        }
        *self.result.counts.deposed.entry(kind).or_default() += u64::from(hit.is_deposed);
        self.hits.push(hit);
        Ok(())
    }

    /// How long clients waited after each fault that hit a server.
    fn fail_over(&mut self) {
        for hit in &self.hits {
            let was_under_way = |run: &&Arc<InstanceRun>| {
                run.id.get().is_some_and(|id| hit.owned(*id)) && run.facts.answered_before(hit.at)
            };
            let mut fail_over = FailOver::default();
            for run in self.runs.iter().filter(was_under_way) {
                let Some(answered) = run.facts.answered_from(hit.at + ON_ITS_WAY) else { continue };
                self.result.counts.went_on += 1;
                // An instance with Byzantine processes may have waited for them in vain.
                if run.plan.truth.byzantine().next().is_none() {
                    let took = (answered - hit.at).as_millis();
                    fail_over.instances.push(u64::try_from(took).unwrap_or(u64::MAX));
                }
            }
            let first = fail_over.instances.iter().min().copied();
            fail_over.first.extend(first);
            self.result.counts.fail_over.entry(hit.kind).or_default().add(&fail_over);
        }
    }

    /// Waits until all instances are under way, or have ended where they are to.
    async fn under_way(&self, server: &mut impl Server) -> anyhow::Result<()> {
        let deadline = Instant::now() + LONGEST_BEGIN;
        while let Some(run) = self.runs.iter().find(|run| !run.is_under_way()) {
            server.check_alive()?;
            if Instant::now() > deadline {
                let stands = standing(run, &self.site).await;
                bail!("instance {} is not under way after {LONGEST_BEGIN:?}: {stands}", run.plan.number);
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn kill(&mut self, server: &mut impl Server, seen: bool) -> anyhow::Result<()> {
        server.kill().await?;
        let served = server.had_served(seen);
        self.result.counts.kills += 1;
        self.result.counts.kills_before_serving += u64::from(!served);
        self.runs.iter().for_each(|run| run.facts.note(Fact::Killed));
        server.start()
    }

    async fn serves_again(&mut self, server: &mut impl Server) -> anyhow::Result<()> {
        server.serves().await?;
        self.note_restart(server);
        Ok(())
    }

    /// The server serves. After a restart some clients ask again for what they know.
    fn note_restart(&mut self, server: &impl Server) {
        if server.starts() == 1 {
            return;
        }
        for run in &self.runs {
            run.facts.note(Fact::ServesAgain);
        }
        let created: Vec<_> = self.runs.iter().filter(|run| run.facts.was_created()).collect();
        for _ in 0..SAMPLE.min(created.len()) {
            let run = created[self.random.index(created.len())].clone();
            let site = self.site.clone();
            let process = self.random.index(run.plan.params.processes() as usize);
            let Some(process) = ProcessId::from_index(process) else { continue };
            self.asking.spawn(async move { run.ask(&site, process).await });
        }
    }

    /// Waits until all instances have ended.
    async fn await_all(
        &mut self,
        playing: &mut JoinSet<(usize, Ended)>,
        server: &mut impl Server,
    ) -> anyhow::Result<Vec<Ended>> {
        let deadline = Instant::now() + self.plan.longest_end;
        let mut ended: Vec<Option<Ended>> = self.runs.iter().map(|_| None).collect();
        while !playing.is_empty() {
            match timeout_at(deadline.min(Instant::now() + Duration::from_millis(500)), playing.join_next())
                .await
            {
                Ok(Some(Ok((index, one)))) => ended[index] = Some(one),
                Ok(Some(Err(error))) => {
                    self.found(ViolationKind::Undecided, None, format!("a client has failed: {error}"));
                }
                Ok(None) => break,
                Err(_) => {
                    server.check_alive()?;
                    if Instant::now() >= deadline {
                        break;
                    }
                }
            }
        }
        playing.abort_all();
        for index in (0..ended.len()).filter(|&index| ended[index].is_none()).take(TOLD_OF_A_ROUND) {
            let run = self.runs[index].clone();
            let stands = standing(&run, &self.site).await;
            let longest = self.plan.longest_end;
            let what = format!("it has not come to its end {longest:?} after the last kill: {stands}");
            self.found(ViolationKind::Undecided, Some(&run), what);
        }
        // Those that have not ended are judged up to now.
        let ended = ended.into_iter().zip(&self.runs).map(|(ended, run)| {
            ended.unwrap_or_else(|| Ended::since(run.began.get().copied().unwrap_or_else(Instant::now)))
        });
        Ok(ended.collect())
    }

    async fn histories(&mut self) -> Vec<Vec<Recorded>> {
        let permits = Arc::new(Semaphore::new(FETCHED_AT_A_TIME));
        let mut fetching = JoinSet::new();
        for (index, run) in self.runs.iter().enumerate() {
            let (run, site, permits) = (run.clone(), self.site.clone(), permits.clone());
            fetching.spawn(async move {
                let _permit = permits.acquire().await;
                let history = timeout(LONGEST_ASKING, run.history(&site)).await;
                (index, history)
            });
        }
        let mut histories: Vec<Vec<Recorded>> = self.runs.iter().map(|_| Vec::new()).collect();
        while let Some(fetched) = fetching.join_next().await {
            let Ok((index, fetched)) = fetched else { continue };
            let run = self.runs[index].clone();
            match fetched {
                Ok(Ok(history)) => histories[index] = history,
                Ok(Err(error)) => {
                    run.facts.note_error(&error);
                    self.found(ViolationKind::History, Some(&run), format!("it cannot be fetched: {error}"));
                }
                Err(_) => {
                    self.found(ViolationKind::History, Some(&run), "it does not come to an end".to_owned());
                }
            }
        }
        histories
    }

    fn check(&mut self, ended: &[Ended], histories: &[Vec<Recorded>], server: &impl Server) {
        let (runs, restarts) = (self.runs.clone(), server.most_restarts());
        for ((run, ended), history) in runs.iter().zip(ended).zip(histories) {
            for trouble in &ended.trouble {
                self.found(ViolationKind::Refused, Some(run), trouble.clone());
            }
            let facts = run.facts.take();
            let (plan, reports) = (&run.plan, &ended.reports);
            let elapsed = self.began.elapsed();
            let lateness = server.lateness(&(ended.time.start.into_std()..ended.time.end.into_std()));
            let (params, expected) = (&plan.params, Expected::Decisions { plan, reports, lateness });
            let checked = check(&Evidence { params, facts: &facts, history, restarts, elapsed, expected });
            self.result.counts.add(&checked.counts);
            let failed = !checked.violations.is_empty();
            for (kind, what) in checked.violations.into_iter().take(TOLD_OF_AN_INSTANCE) {
                self.found(kind, Some(run), what);
            }
            if failed && self.result.evidence.len() < TOLD_OF_A_ROUND {
                let mut text = format!("{:#?}\n\nfacts, in order:\n", run.plan);
                facts.iter().for_each(|fact| text += &format!("{fact:?}\n"));
                text += "\nreports:\n";
                ended.reports.iter().for_each(|report| text += &format!("{report:?}\n"));
                text += "\nhistory:\n";
                (0..)
                    .zip(history)
                    .for_each(|(index, recorded): (usize, _)| text += &format!("{index} {recorded:?}\n"));
                self.result.evidence.push((run.plan.number, text));
            }
        }
    }

    fn found(&mut self, kind: ViolationKind, run: Option<&InstanceRun>, what: String) {
        let id = |run: &InstanceRun| run.id.get().map_or_else(|| "no id".to_owned(), ToString::to_string);
        self.result.found(kind, run.map(|run| (run.plan.number, id(run))), what);
    }
}
