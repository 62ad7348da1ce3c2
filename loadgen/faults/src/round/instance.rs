//! The clients of one instance: its creator, its processes, an observer.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stickycas_client::info::InstanceView;
use stickycas_client::raw::{Connection, Told};
use stickycas_client::watch::WatchFrom;
use stickycas_client::{Client, Error, ProcessSpec, State};
use stickycas_model::ground_truth::{Assignment, Role, seed_of};
use stickycas_model::history::Recorded;
use stickycas_model::process::{RawOp, Report};
use stickycas_model::types::{Position, ProcessId};
use stickycas_proto::names::InstanceId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::observer::{follow, read};
use super::unary::{UnaryProcess, no_report};
use crate::draw::{InstancePlan, RoundPlan};
use crate::facts::{Fact, Facts, MemberStatus};

/// Connections of a round, at the least. Each carries the processes of many instances, up to as many as here,
/// since a connection bounds its streams.
pub const CONNECTIONS: usize = 8;
const PROCESSES_PER_CONNECTION: usize = 128;
/// How long Byzantine processes that leave by themselves are waited for.
const GRACE: Duration = Duration::from_millis(100);
/// How long a call or the next event may take from a server that serves.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);

/// A server as its clients see it.
#[derive(Debug)]
pub struct Site {
    pub(crate) round: u64,
    connections: Vec<Client>,
    /// How many steps were due so far; [`usize::MAX`]: the server serves after the last kill under load.
    steps: watch::Sender<usize>,
}

impl Site {
    /// The clients of a round. `connect` makes a client for [`CREATOR`](crate::CREATOR) with the number of
    /// its connection, which should try again as [`RETRIES`](crate::RETRIES) says.
    ///
    /// # Errors
    /// The errors of `connect`.
    pub fn new(plan: &RoundPlan, connect: impl FnMut(usize) -> Result<Client, Error>) -> Result<Self, Error> {
        let processes: usize = plan.instances.iter().map(|plan| plan.params.processes() as usize).sum();
        let connections = CONNECTIONS.max(processes.div_ceil(PROCESSES_PER_CONNECTION));
        Ok(Self {
            round: plan.seed,
            connections: (0..connections).map(connect).collect::<Result<_, _>>()?,
            steps: watch::channel(0).0,
        })
    }

    /// The next step is due.
    pub(super) fn note_step(&self) {
        self.steps.send_modify(|steps| *steps += 1);
    }

    /// The server serves after the last kill under load.
    pub(super) fn note_last_kill(&self) {
        self.steps.send_replace(usize::MAX);
    }

    fn creator(&self, plan: &InstancePlan) -> &Client {
        &self.connections[plan.number % self.connections.len()]
    }

    fn client(&self, plan: &InstancePlan, process: ProcessId) -> Client {
        let client = &self.connections[(plan.number + process.index()) % self.connections.len()];
        client.as_principal(&plan.principal(self.round, process)).expect("these are names")
    }
}

/// An instance in the course of a round.
#[derive(Debug)]
pub(crate) struct InstanceRun {
    pub(crate) plan: InstancePlan,
    pub(crate) facts: Arc<Facts>,
    pub(crate) id: OnceLock<InstanceId>,
    /// When its clients began.
    pub(crate) began: OnceLock<Instant>,
}

/// The end of the clients of an instance.
#[derive(Debug)]
pub(crate) struct Ended {
    /// When they began and ended.
    pub(crate) time: Range<Instant>,
    /// The reports of processes at their end.
    pub(crate) reports: Vec<Report>,
    /// Failures of the creator and the observer.
    pub(crate) trouble: Vec<String>,
}

impl Ended {
    /// No failures and no reports, of clients that began then.
    pub(crate) fn since(began: Instant) -> Self {
        Self { time: began..Instant::now(), reports: Vec::new(), trouble: Vec::new() }
    }
}

impl InstanceRun {
    pub(crate) fn new(plan: InstancePlan) -> Self {
        Self { plan, facts: Arc::default(), id: OnceLock::new(), began: OnceLock::new() }
    }

    /// Whether it was created, and every process that comes before the last kill has been welcomed, and has
    /// decided if the plan waits for that.
    pub(crate) fn is_under_way(&self) -> bool {
        let InstancePlan { truth, absent_before, ends_before, .. } = &self.plan;
        let mut assignments = truth
            .assignments()
            .filter(|(process, assignment)| assignment.joins() && Some(*process) != *absent_before);
        self.facts.was_created()
            && assignments.all(|(process, _)| {
                self.facts.was_welcomed(process) && (!ends_before || self.facts.has_decided(process))
            })
    }

    /// Creates the instance, plays it, and closes it if a process stays.
    pub(crate) async fn play(&self, site: &Site, round_began: Instant) -> Ended {
        let (plan, facts) = (&self.plan, &self.facts);
        let from = if plan.after_steps > 0 {
            // Without a sender the round is over.
            let _ = site.steps.subscribe().wait_for(|steps| *steps >= plan.after_steps).await;
            Instant::now()
        } else {
            round_began
        };
        sleep_until(from + plan.begin).await;
        let mut ended = Ended::since(Instant::now());
        // It is set once, here.
        let _ = self.began.set(ended.time.start);
        let creator = site.creator(plan);
        let roster =
            ProcessId::all(plan.params.processes()).map(|process| plan.principal(site.round, process));
        let create =
            creator.create_instance().params(&plan.params).roster(roster).name(plan.name(site.round));
        let id = match create.send().await {
            Ok(created) if created.instance.parameters == *plan.params => created.instance.id,
            Ok(created) => {
                ended.trouble.push(format!("Create: other parameters: {:?}", created.instance.parameters));
                return ended;
            }
            Err(error) => {
                ended.trouble.push(format!("Create: {error}"));
                return ended;
            }
        };
        // It is set once, here.
        let _ = self.id.set(id);
        facts.note(Fact::Created);

        let ((stop, stopped), (over, is_over)) = (watch::channel(false), watch::channel(false));
        let mut followed = JoinSet::new();
        if plan.watched {
            let (client, facts) = (site.client(plan, ProcessId::FIRST), facts.clone());
            let is_over = is_over.clone();
            followed.spawn(async move { follow(&client, id, &facts, is_over).await });
        }
        let closing = plan.closed_after.map(|after| Instant::now() + after);
        self.play_all(site, id, stopped, closing, &mut ended).await;
        let _ = stop.send(true);
        if closing.is_none() && plan.truth.byzantine().next().is_some() {
            self.close(site, id, &mut ended).await;
        }
        let _ = over.send(true);
        match followed.join_next().await {
            None | Some(Ok(None)) => {}
            Some(Ok(Some(trouble))) => ended.trouble.push(trouble),
            Some(Err(error)) => ended.trouble.push(format!("the watch: {error}")),
        }
        ended
    }

    /// Plays all processes until the correct ones have ended.
    async fn play_all(
        &self,
        site: &Site,
        id: InstanceId,
        stopped: watch::Receiver<bool>,
        closing: Option<Instant>,
        ended: &mut Ended,
    ) {
        let mut playing = JoinSet::new();
        let mut correct = 0;
        for (process, assignment) in self.plan.truth.assignments() {
            correct += usize::from(assignment.role == Role::Correct);
            let is_correct = assignment.role == Role::Correct;
            let mut steps = site.steps.subscribe();
            let is_absent = self.plan.absent_before == Some(process);
            let player = PlayerTask {
                client: site.client(&self.plan, process),
                instance: id,
                process,
                assignment: assignment.clone(),
                unary: self.plan.unary.contains(&process),
                run_seed: self.plan.seed,
                facts: self.facts.clone(),
                killed_after: self.plan.killed_clients.get(&process).copied(),
                stopped: stopped.clone(),
            };
            playing.spawn(async move {
                if is_absent {
                    // Without a sender the round is over.
                    let _ = steps.wait_for(|steps| *steps == usize::MAX).await;
                }
                (is_correct, player.lives().await)
            });
        }
        let mut close = closing;
        while correct > 0 {
            let closing_time = async {
                match close {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(played) = playing.join_next() => {
                    let (is_correct, report) = played.unwrap_or((true, None));
                    correct -= usize::from(is_correct);
                    ended.reports.extend(report);
                }
                () = closing_time => {
                    close = None;
                    self.close(site, id, ended).await;
                }
            }
        }
        if close.is_some() {
            self.close(site, id, ended).await;
        }
        let all = async { while playing.join_next().await.is_some() {} };
        let _ = timeout(GRACE, all).await;
    }

    async fn close(&self, site: &Site, id: InstanceId, ended: &mut Ended) {
        match site.creator(&self.plan).close(id).await {
            Ok(()) => self.facts.note(Fact::Closed),
            Err(error) => {
                self.facts.note_error(&error);
                ended.trouble.push(format!("Close: {error}"));
            }
        }
    }

    /// Asks again: the creator and a process how the instance stands, and a process for an answer that it has
    /// had.
    pub(crate) async fn ask(&self, site: &Site, process: ProcessId) {
        let Some(&id) = self.id.get() else { return };
        // An instance that is unknown is noted; any other error tells nothing about it.
        drop(self.status(site.creator(&self.plan), id).await);
        drop(self.status(&site.client(&self.plan, process), id).await);
        let last = self.facts.last_answered(process);
        if let Some(Told::Answered { number, op: Some(op), .. }) = last {
            let client = site.client(&self.plan, process);
            let caller = UnaryProcess { client: &client, instance: id, process, facts: &self.facts };
            // Refused: the process has left, or its later accesses have taken the place of this answer.
            if let Ok(Ok((phase, answer, entries))) =
                timeout(LONGEST_ANSWER, caller.perform(&self.plan.params, number, &op)).await
            {
                let told = Told::Answered { number, op: Some(op), phase, answer, entries };
                self.facts.note_again(Fact::Told(process, told));
            }
        }
    }

    /// Sends Get to this server, as the instance's creator and as a correct process; the answers must show
    /// all earlier facts.
    pub(crate) async fn ask_server(&self, site: &Site, server: &Connection) {
        let Some(&id) = self.id.get() else { return };
        // Any error but an unknown instance, which is noted, tells nothing about it.
        drop(self.note_status(server.get(id)).await);
        let process = self.plan.truth.correct().next();
        let principal = process.map(|process| self.plan.principal(site.round, process));
        if let Some(Ok(server)) = principal.map(|principal| server.as_principal(&principal)) {
            drop(self.note_status(server.get(id)).await);
        }
    }

    /// Get, by the principal of this client.
    async fn status(&self, client: &Client, id: InstanceId) -> Result<MemberStatus, Error> {
        self.note_status(client.get(id)).await
    }

    async fn note_status(
        &self,
        get: impl Future<Output = Result<InstanceView, Error>>,
    ) -> Result<MemberStatus, Error> {
        let asked_after = self.facts.count();
        let view = get.await.inspect_err(|error| self.facts.note_error(error))?;
        let status = MemberStatus::new(asked_after, view);
        self.facts.note(Fact::Status(status.clone()));
        Ok(status)
    }

    /// The server's final history, after a member has read the list of an instance that is over.
    pub(crate) async fn history(&self, site: &Site) -> Result<Vec<Recorded>, Error> {
        let Some(&id) = self.id.get() else { return Ok(Vec::new()) };
        let (process, params) = (ProcessId::FIRST, &self.plan.params);
        let client = site.client(&self.plan, process);
        let status = self.status(&client, id).await?;
        let is_open = !is_over(&status);
        if let Some(own) = status.own.filter(|_| !is_open) {
            let caller = UnaryProcess { client: &client, instance: id, process, facts: &self.facts };
            let op = RawOp::Read(Position::new(0));
            let (phase, answer, entries) = caller.perform(params, own.next, &op).await?;
            let told = Told::Answered { number: own.next, op: Some(op), phase, answer, entries };
            self.facts.note_again(Fact::Told(process, told));
        }
        let (mut history, mut watch) = (Vec::new(), site.creator(&self.plan).watch(id, WatchFrom::Start));
        let whole = read(&mut watch, &mut history);
        if is_open {
            // The watch of an instance that is open again has no end: the events so far prove that.
            timeout(LONGEST_ANSWER, whole).await.unwrap_or(Ok(()))?;
        } else {
            // Not read to its end, the rest of its history would look lost.
            whole.await?;
        }
        Ok(history)
    }
}

fn is_over(status: &MemberStatus) -> bool {
    matches!(status.state, State::Finished | State::Closed)
}

#[derive(Clone)]
struct PlayerTask {
    client: Client,
    instance: InstanceId,
    process: ProcessId,
    assignment: Assignment,
    unary: bool,
    run_seed: u64,
    facts: Arc<Facts>,
    /// When its client is killed, and started again without its memory.
    killed_after: Option<Duration>,
    stopped: watch::Receiver<bool>,
}

impl PlayerTask {
    /// The report of the process at the end of its last life.
    async fn lives(mut self) -> Option<Report> {
        if let Some(after) = self.killed_after.take() {
            if let Ok(report) = timeout(after, self.clone().play()).await {
                return report;
            }
            self.facts.note(Fact::ClientKilled(self.process));
        }
        self.play().await
    }

    /// The report of the process at its end; a correct process always has one.
    async fn play(self) -> Option<Report> {
        let Self {
            client,
            instance,
            process,
            assignment,
            unary,
            run_seed,
            facts,
            killed_after: _,
            mut stopped,
        } = self;
        // An error means that the sender is gone.
        let stop = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        if unary {
            let caller = UnaryProcess { client: &client, instance, process, facts: &facts };
            if !assignment.joins() {
                stop.await;
                return None;
            }
            return tokio::select! {
                report = caller.play(&assignment, run_seed) => Some(report),
                () = stop => None,
            };
        }
        let spec = match assignment.role {
            Role::Byzantine(strategy) => {
                let seed = seed_of(process, run_seed);
                ProcessSpec::byzantine(strategy, Some(assignment.proposal), seed)
            }
            Role::Correct | Role::Attacker(_) | Role::External => ProcessSpec::correct(assignment.proposal),
        };
        let notes = facts.clone();
        let spec = spec.observed(move |told| notes.note(Fact::Told(process, told)));
        let played = client.play(instance, spec, stop).await;
        if let Some(error) = &played.error {
            facts.note_error(error);
        }
        let why = played.error.map_or_else(|| "it was never welcomed".to_owned(), |error| error.to_string());
        Some(played.report.unwrap_or_else(|| no_report(process, why)))
    }
}

/// The state of an instance that does not come to its end.
pub(crate) async fn standing(run: &InstanceRun, site: &Site) -> String {
    let Some(&id) = run.id.get() else { return "it was not created".to_owned() };
    match timeout(Duration::from_secs(2), site.creator(&run.plan).get(id)).await {
        Ok(Ok(view)) => format!("{:?}", view.status),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use stickycas_harness::run::{COORDINATOR, OwnServer};

    use super::*;
    use crate::draw::{Load, Waiting};

    #[tokio::test]
    async fn a_history_is_not_awaited_for_ever_if_get_fails() {
        let server = OwnServer::start().await.unwrap();
        let plan = RoundPlan::draw(1, Load { instances: 1, processes: 3, waiting: Waiting::REAL_TIME });
        let connect = |_| Client::builder(server.url()).principal(COORDINATOR).connect_lazy();
        let site = Site::new(&plan, connect).unwrap();
        let run = InstanceRun::new(plan.instances[0].clone());
        // Its processes are others, so Get is refused to those of the plan. Its creator may watch it, and it
        // has no end.
        let params = &run.plan.params;
        let roster = ProcessId::all(params.processes()).map(|process| format!("other-{process}"));
        let create = site.creator(&run.plan).create_instance().params(params).roster(roster);
        run.id.set(create.send().await.unwrap().instance.id).unwrap();
        let history = timeout(LONGEST_ANSWER, run.history(&site)).await;
        let error = history.expect("it is waited for an event that does not come").unwrap_err();
        assert!(error.reason().is_some(), "{error}");
        server.stop().await.unwrap();
    }
}
