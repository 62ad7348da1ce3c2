//! A plan for containers, carried out from its first step to putting everything back.
//!
//! It is carried out beside a compose project that is up: the judge's container is made anew for the plan,
//! the judge's instance is followed as an observer, each step is done at its moment, the verdict is waited
//! for, and everything is put back. The judge reads the same plan: from it, the judge knows which processes
//! are faulty, late, or not awaited.
//!
//! | module | what |
//! | --- | --- |
//! | `schedule` | the steps that are due |
//! | `owners` | which servers of a cluster own the instance |
//! | `outcome` | the outcome, as a record and for people |

mod outcome;
mod owners;
mod schedule;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use stickycas_client::Client;
use stickycas_client::info::InstanceInfo;
use stickycas_client::watch::{Watch, WatchFrom, Watched};
use stickycas_harness::report::folder::Folder;
use stickycas_model::history::Recorded;
use stickycas_model::judge::Verdict;
use stickycas_model::types::Phase;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::v1::RefusalReason;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until, timeout};

use self::outcome::Done;
pub use self::outcome::{PlanOutcome, table};
use self::owners::OwnerObserver;
use self::schedule::{Due, Schedule, TooLate};
use crate::check::{Evidence, Expected, Observed, check};
use crate::facts::Fact;
use crate::plan::{Plan, Service, Step, When};
use crate::platform::all_serve;
use crate::platform::containers::{Docker, Project};
use crate::round::take;

/// How often to ask for an instance that is not there yet.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// The time without events after which the judge's container is checked.
const LOOK_FOR_JUDGE: Duration = Duration::from_secs(5);
/// Events that are kept for a step to be done meanwhile.
const EVENTS_KEPT: usize = 65_536;

/// Where plans are carried out.
#[derive(Clone, Debug)]
pub struct Target {
    /// The program `docker`.
    pub docker: Docker,
    /// The words by which Compose is called; none: as it is found.
    pub compose: Vec<String>,
    /// The compose project.
    pub project: String,
    /// An observer's client of the project's server.
    pub client: Client,
    /// The name of all instances of the judge.
    pub instance: InstanceName,
    /// The name of the judge's scenario, with which run folders begin.
    pub scenario: String,
    /// Where plans are in the judge's container.
    pub plans_of_judge: String,
    /// Where the judge's container has its run folders.
    pub runs_of_judge: String,
    /// Where they are copied to.
    pub runs: PathBuf,
    /// How long a plan may take.
    pub timeout: Duration,
}

/// Carries out the plan of a file, unless `stop` resolves first. In every case everything is put back as it
/// was before this returns; a judge whose plan was not carried out to its end is stopped. `tell` takes
/// messages for people on the way, line by line.
///
/// # Errors
/// The plan could not be carried out, its outcome is not known, or a container could not be put back.
pub async fn perturb(
    target: &Target,
    file: &Path,
    plan: &Plan,
    tell: &dyn Fn(&str),
    stop: impl Future<Output = ()>,
) -> anyhow::Result<PlanOutcome> {
    if let Some(step) = plan.steps.iter().find(|step| step.is_of_kill_test()) {
        bail!(
            "{} {}: this is a step of the kill test: give another one to containers",
            step.action,
            step.when
        );
    }
    let mut project = Project::open(target.docker.clone(), target.compose.clone(), &target.project).await?;
    let carried_out = {
        let runner = Runner { target, plan: &plan.clone().without_durations(), tell };
        let whole = timeout(target.timeout, runner.carry_out(file, &mut project));
        tokio::select! {
            biased;
            () = stop => Err(anyhow!("interrupted")),
            done = whole => done.unwrap_or_else(|_| {
                let time = humantime::format_duration(target.timeout);
                let what = "see docker logs of the judge, or give more --timeout";
                Err(anyhow!("it has not come to its end in {time}: {what}"))
            }),
        }
    };
    let mut restored = project.restore().await;
    if carried_out.is_err() {
        restored = restored.and(project.stop_judge().await);
    }
    match (carried_out, restored) {
        (carried_out, Ok(())) => carried_out,
        (Ok(_), Err(left)) => Err(left.into()),
        (Err(error), Err(left)) => Err(error.context(left)),
    }
}

struct Runner<'a> {
    target: &'a Target,
    plan: &'a Plan,
    tell: &'a dyn Fn(&str),
}

impl Runner<'_> {
    async fn carry_out(&self, file: &Path, project: &mut Project) -> anyhow::Result<PlanOutcome> {
        if project.judge_runs().await? {
            (self.tell)("the judge is still at work: waiting for its end");
            project.judge_ended().await?;
        }
        if self.plan.in_memory {
            (self.tell)("the server keeps its log in memory for this plan");
            project.recreate_server_in_memory().await?;
        }
        self.settle(project).await?;
        let old = self.find().await?.map(|instance| instance.id);
        let all: BTreeSet<Service> = self.plan.steps.iter().flat_map(|step| step.services.clone()).collect();
        let (judge, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|service| *service == Service::Judge);
        // The owner is known only after the instance exists.
        let others = others.into_iter().filter(|service| service.owner().is_none());
        project.expect_running(others).await?;
        let (before, later) =
            self.plan.steps.split_at(self.plan.steps.partition_point(|step| step.when == When::Before));
        let mut done = Vec::new();
        for step in before {
            done.push(self.perform(step, None, None, project).await?);
        }

        let began = Instant::now();
        project.recreate_judge(&self.plan_of_judge(file)?).await?;
        project.expect_running(judge).await?;
        let instance = self.instance_after(old, project).await?;
        let mut events = events(self.target.client.watch(instance.id, WatchFrom::Start));
        let owners = OwnerObserver::start(self.target.client.clone(), instance.id);
        let mut schedule = Schedule::new(later);
        let watched = self.play(&mut schedule, &mut events, &owners, project, &mut done).await?;
        let judge_exit = project.judge_ended().await?;
        let elapsed = began.elapsed();
        let owners = owners.names();

        let folder = self.fetch(&instance, project).await?;
        let read = Folder::read(&folder)?;
        let verdict: Verdict = serde_json::from_value(read.verdict.clone().into())
            .with_context(|| format!("{}: verdict.json is no verdict", folder.display()))?;
        let mut mismatches = unperformed(&schedule);
        if verdict.verdict == self.plan.expect && judge_exit != 0 {
            mismatches
                .push(format!("the judge ended with exit code {judge_exit}: see docker logs of the judge"));
        }
        let checked = check(&Evidence {
            params: &read.scenario.params,
            facts: &[Fact::Watched(watched)],
            history: &read.history,
            // The steps restart the server, and it may end by itself: the plan says how often.
            restarts: u32::MAX,
            elapsed,
            expected: Expected::Plan(Observed {
                plan: self.plan,
                verdict: &verdict,
                told_unknown: read.harness.told_unknown,
                owners: &owners,
                quiet: schedule.quiet(),
            }),
        });
        mismatches.extend(checked.mismatches);
        mismatches.extend(checked.violations.iter().map(|(kind, what)| format!("{kind}: {what}")));
        Ok(PlanOutcome {
            plan: self.plan.name.clone(),
            about: self.plan.about.clone(),
            expect: self.plan.expect,
            verdict: verdict.verdict,
            headline: verdict.headline(),
            as_expected: mismatches.is_empty(),
            mismatches,
            missing: outcome::missing(&verdict),
            reasons: verdict.reasons,
            f: verdict.f,
            late: verdict.late,
            steps: done,
            owners,
            instance: instance.id.to_string(),
            judge_exit,
            folder,
        })
    }

    /// Waits until every server of a cluster belongs to it, and every shard has an owner: servers that an
    /// earlier plan has stopped take their shards again, and that is no effect of this plan.
    async fn settle(&self, project: &Project) -> anyhow::Result<()> {
        let servers = project.running_servers_of_cluster().await?;
        if servers == 0 {
            return Ok(());
        }
        let mut told = false;
        loop {
            let cluster = self.target.client.cluster().await.context("cannot ask who owns which shards")?;
            if all_serve(&cluster, servers) {
                return Ok(());
            }
            if !std::mem::replace(&mut told, true) {
                (self.tell)("waiting until every server of the cluster owns shards");
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Does the steps as their moments come, and follows the instance to its end. Returns its events.
    async fn play(
        &self,
        schedule: &mut Schedule<'_>,
        events: &mut mpsc::Receiver<(Instant, Watched)>,
        owners: &OwnerObserver,
        project: &mut Project,
        done: &mut Vec<Done>,
    ) -> anyhow::Result<Vec<Recorded>> {
        let (begun, mut history) = (Instant::now(), Vec::new());
        let mut over = false;
        loop {
            let at = match schedule.due(begun, Instant::now()) {
                Due::Now(step) => {
                    done.push(self.perform(step, schedule.reached(), Some(owners), project).await?);
                    schedule.done(Instant::now());
                    continue;
                }
                Due::At(at) => Some(at),
                Due::WhenObserved(_) | Due::Nothing if over => return Ok(history),
                Due::WhenObserved(_) | Due::Nothing => None,
            };
            let timer = async {
                match at {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.recv(), if !over => match event {
                    Some((at, watched)) => {
                        if let Watched::Event(_, recorded) = &watched {
                            schedule.observe(at, &recorded.event);
                        }
                        take(&mut history, watched)?;
                    }
                    None => over = true,
                },
                () = timer => {}
                () = sleep(LOOK_FOR_JUDGE), if !over => {
                    let comes_back = schedule.left().iter().any(|step| step.services.contains(&Service::Judge));
                    over = !comes_back && !project.judge_runs().await?;
                }
            }
        }
    }

    async fn perform(
        &self,
        step: &Step,
        phase: Option<Phase>,
        owners: Option<&OwnerObserver>,
        project: &mut Project,
    ) -> anyhow::Result<Done> {
        let mut services = Vec::new();
        for named in &step.services {
            let meant = match (named.owner(), owners) {
                (Some(number), Some(owners)) => owners.service(number).await?,
                _ => *named,
            };
            if meant != *named && !project.is_expected_running(meant) {
                project.expect_running([meant]).await?;
            }
            project.act(step.action, meant, step.network.as_deref()).await?;
            services.push((*named, meant));
        }
        let done = Done::new(step, &services, phase);
        (self.tell)(&done.line());
        Ok(done)
    }

    /// Where this plan is in the judge's container.
    fn plan_of_judge(&self, file: &Path) -> anyhow::Result<String> {
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{}: the judge cannot be told this name", file.display()))?;
        Ok(format!("{}/{name}", self.target.plans_of_judge))
    }

    /// The instance of that name, if there is one.
    async fn find(&self) -> anyhow::Result<Option<InstanceInfo>> {
        match self.target.client.get(&InstanceRef::Name(self.target.instance.clone())).await {
            Ok(looked) => Ok(Some(looked.instance)),
            Err(error) if error.reason() == Some(RefusalReason::InstanceUnknown) => Ok(None),
            Err(error) => {
                Err(error).with_context(|| format!("cannot look for the instance {}", self.target.instance))
            }
        }
    }

    /// Waits until the judge has created its instance.
    async fn instance_after(
        &self,
        old: Option<InstanceId>,
        project: &Project,
    ) -> anyhow::Result<InstanceInfo> {
        loop {
            if let Some(instance) = self.find().await?
                && Some(instance.id) != old
            {
                return Ok(instance);
            }
            if !project.judge_runs().await? {
                let name = &self.target.instance;
                bail!(
                    "the judge has ended, and there is no new instance {name}: see docker logs of the judge"
                );
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Copies the run folder of this instance out of the judge's container, in the place of an older copy.
    async fn fetch(&self, instance: &InstanceInfo, project: &Project) -> anyhow::Result<PathBuf> {
        let (id, seed) = (instance.id.to_string(), instance.parameters.spec().seed);
        let name = format!("{}-{seed}-{}", self.target.scenario, &id[..8]);
        let (from, to) = (format!("{}/{name}", self.target.runs_of_judge), self.target.runs.join(&name));
        std::fs::create_dir_all(&self.target.runs)
            .with_context(|| format!("cannot make {}", self.target.runs.display()))?;
        project.copy_from_judge(&from, &to).await.context("the judge has left no run folder")?;
        Ok(to)
    }
}

/// The events of a watch, each with the time at which it was received. They end with the instance, or when
/// the watch fails: events after that are missing here, and the judge's record has the rest.
fn events(mut watch: Watch) -> mpsc::Receiver<(Instant, Watched)> {
    let (seen, events) = mpsc::channel(EVENTS_KEPT);
    tokio::spawn(async move {
        while let Ok(Some(watched)) = watch.try_next().await {
            if seen.send((Instant::now(), watched)).await.is_err() {
                return;
            }
        }
    });
    events
}

/// The steps that did not go as planned.
fn unperformed(schedule: &Schedule<'_>) -> Vec<String> {
    let left = schedule.left().iter().map(|step| {
        let services: Vec<String> = step.services.iter().map(ToString::to_string).collect();
        format!("{} {} was never due: {} was not seen", step.action, services.join(", "), step.when)
    });
    let late = schedule.too_late().map(|TooLate { step, by, before }| {
        let services: Vec<String> = step.services.iter().map(ToString::to_string).collect();
        format!("{} {} came {before:.1?} too late: {by} by then", step.action, services.join(", "))
    });
    left.chain(late).collect()
}
