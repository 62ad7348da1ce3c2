//! A scenario over the network.
//!
//! A [`Site`] is a server and the connections to it. On it, a run goes
//!
//! 1. create the instance, and watch it from its first event on, before anybody joins;
//! 2. start all processes, those that come late once their first phase has passed, and wait until every correct one
//!    has ended, as long as something happens at the instance, and for a moment for those Byzantine ones that leave
//!    by themselves;
//! 3. if there are wire attacks, let them come to their end, and ask the server what it has counted since
//!    before the run;
//! 4. close the instance and follow the watch to its end, so that the history lacks nothing;
//! 5. stop who is still there (a Byzantine process that stays silent is no failure), and judge.
//!
//! What ends otherwise than its part has it, a child that crashes for instance, makes the run prove nothing, and the
//! verdict says so.

mod collect;
mod counts;
mod processes;
mod server;
mod site;
mod starter;
mod supervisor;
mod task;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use stickycas_client::watch::WatchFrom;
use stickycas_client::wire_attack;
use stickycas_model::counts::Counted;
use stickycas_model::params::Patience;
use stickycas_model::process::{Ended, Report};
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::collect::{Collected, Collector};
pub use self::counts::counted;
use self::processes::{Ending, Processes};
pub use self::server::OwnServer;
pub(crate) use self::site::principal;
pub use self::site::{COORDINATOR, Site};
use self::starter::Starter;
use crate::progress::Progress;
use crate::record::{How, Record};
use crate::scenario::Scenario;

/// Default for [`Options::stall`].
pub const DEFAULT_STALL: Duration = Duration::from_secs(60);
/// When all correct processes have ended, Byzantine ones have so long to leave, beyond what the instance itself
/// may wait.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// So long an attacker may take for the rest of its process.
const BEYOND_AN_ATTACK: Duration = Duration::from_secs(5);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that plays a process when called with `client propose`, one child process for each. `None`:
    /// processes are tasks of this process.
    pub program: Option<PathBuf>,
    /// Give up waiting after so long without any event, beyond what the instance itself may wait.
    pub stall: Duration,
    /// Show no progress.
    pub quiet: bool,
}

impl Options {
    /// Processes as tasks, and no progress shown.
    #[must_use]
    pub fn in_process() -> Self {
        Self { program: None, stall: DEFAULT_STALL, quiet: true }
    }
}

/// Runs a scenario on a site and judges it.
///
/// # Errors
/// If it cannot be set up, or the server is lost. Whatever processes do or fail to do is in the record.
pub async fn run(site: &Site, scenario: &Scenario, options: &Options) -> anyhow::Result<Record> {
    let before = counted(site, scenario).await?;
    let instance = create(site, scenario).await?;
    let progress = Progress::new(scenario.cast.correct().collect(), options.quiet);
    let mut collector = Collector::start(site.client().watch(instance, WatchFrom::Start), progress);
    let mut starter = Starter::new(site, scenario, instance, options);
    let mut processes = starter.start_all()?;

    let mut endings = Vec::new();
    let stalled = await_correct(&mut starter, &mut processes, &mut collector, &mut endings).await?;
    if !stalled {
        let leaving = scenario.cast.ending().collect();
        let within = LAST_WORDS.saturating_add(longest_wait(scenario));
        await_ended(leaving, within, &mut processes, &mut endings).await;
    }
    let within = wire_attack::LONGEST + BEYOND_AN_ATTACK;
    await_ended(attackers(scenario), within, &mut processes, &mut endings).await;
    let counted = counted(site, scenario).await?.since(&before);
    site.client().close(instance).await.context("cannot close the instance")?;
    let collected = collector.finish(options.stall).await;
    endings.extend(processes.stop().await);

    let how = if options.program.is_some() { How::ChildProcesses } else { How::Tasks };
    Ok(record(scenario, how, collected, counted, endings, stalled))
}

/// Creates the instance of a scenario, with exactly its parameters.
async fn create(site: &Site, scenario: &Scenario) -> anyhow::Result<InstanceId> {
    let roster = ProcessId::all(scenario.params.processes()).map(principal).collect();
    let parameters = v1::Parameters::from(&*scenario.params);
    let (created, _) = site
        .client()
        .create(None, parameters, roster)
        .await
        .with_context(|| format!("cannot create the instance at {}", site.url()))?;
    if created.parameters != *scenario.params {
        bail!("the server changed the parameters to {:?}", created.parameters.spec());
    }
    Ok(created.id)
}

/// Waits until every correct process has ended, as long as something happens. True if it does not any more.
async fn await_correct(
    starter: &mut Starter<'_>,
    processes: &mut Processes,
    collector: &mut Collector,
    endings: &mut Vec<Ending>,
) -> anyhow::Result<bool> {
    let Starter { scenario, options, .. } = *starter;
    let longest = options.stall.saturating_add(longest_wait(scenario));
    let mut playing: BTreeSet<ProcessId> = scenario.cast.correct().collect();
    let mut deadline = Instant::now() + longest;
    while !playing.is_empty() {
        if processes.is_empty() && starter.has_started_all() {
            break;
        }
        tokio::select! {
            Some(ending) = processes.next() => {
                playing.remove(&ending.process);
                endings.push(ending);
            }
            () = collector.something_happened() => {
                starter.start_late(collector.reached(), processes)?;
                deadline = Instant::now() + longest;
            }
            () = sleep_until(deadline) => return Ok(true),
        }
    }
    Ok(false)
}

fn attackers(scenario: &Scenario) -> BTreeSet<ProcessId> {
    scenario.cast.attackers().map(|(process, _)| process).collect()
}

/// Waits until these Byzantine processes have ended, so that what they do is on record; no longer than this, since
/// nobody can be sure that they ever do.
async fn await_ended(
    mut playing: BTreeSet<ProcessId>,
    within: Duration,
    processes: &mut Processes,
    endings: &mut Vec<Ending>,
) {
    let deadline = Instant::now() + within;
    for ending in &*endings {
        playing.remove(&ending.process);
    }
    while !playing.is_empty() {
        let Ok(Some(ending)) = timeout_at(deadline, processes.next()).await else { return };
        playing.remove(&ending.process);
        endings.push(ending);
    }
}

/// For how long nothing may happen at an instance with all well.
fn longest_wait(scenario: &Scenario) -> Duration {
    let spec = scenario.params.spec();
    let patience = match spec.patience {
        Patience::Finite(patience) => patience,
        Patience::Endless => Duration::ZERO,
    };
    spec.pace.saturating_add(patience.max(spec.join_timeout))
}

fn record(
    scenario: &Scenario,
    how: How,
    collected: Collected,
    counted: Counted,
    endings: Vec<Ending>,
    stalled: bool,
) -> Record {
    let Collected { history, complete, trouble } = collected;
    let mut unplanned: Vec<String> = trouble.into_iter().collect();
    if stalled {
        unplanned.push("nothing happened any more, and correct processes had not ended".to_owned());
    }
    let attackers = attackers(scenario);
    let mut reports = Vec::new();
    for Ending { process, report, trouble } in endings {
        let correct = scenario.cast.correct().any(|correct| correct == process);
        match (report, trouble) {
            (Some(report), _) if report.process != process => {
                unplanned.push(format!("process {process} says that it is process {}", report.process));
            }
            (Some(report), _) => reports.push(report),
            // What a correct process cannot say itself is said for it, and the judge draws its conclusions.
            (None, trouble) if correct => {
                let why = trouble.unwrap_or_else(|| "it never opened a session".to_owned());
                reports.push(Report {
                    process,
                    decision: None,
                    phase: None,
                    from: Vec::new(),
                    ended: Ended::Failed(why),
                });
            }
            // A server that defends itself may well spoil it; what counts is whether the attack has fired.
            (None, Some(_)) if attackers.contains(&process) => {}
            (None, Some(trouble)) => {
                unplanned.push(format!("process {process} did not play its part to the end: {trouble}"));
            }
            // It never joined, as its strategy has it.
            (None, None) => {}
        }
    }
    Record::judged(scenario.clone(), how, history, complete, counted, reports).with_unplanned(unplanned)
}

#[cfg(test)]
mod tests {
    use stickycas_model::judge::Outcome;
    use stickycas_model::sim;

    use super::*;

    const SCENARIO: &str = r#"
        name = "six"
        [instance]
        processes = 6
        warp_size = 1
        read_size = 3
        [proposals]
        distinct = 1
        [[faults]]
        processes = [2]
        strategy = "collude(value=0)"
    "#;

    /// What the harness would make of a simulated run in which this process ended otherwise.
    fn judged(number: u32, ended: impl Fn(Report) -> (Option<Report>, Option<String>)) -> Record {
        let scenario = Scenario::parse("six.toml", SCENARIO, Some(1)).expect("the scenario is right");
        let outcome = sim::run(&scenario.plan());
        let ending = |report: Report| {
            let process = report.process;
            let (report, trouble) =
                if process.get() == number { ended(report) } else { (Some(report), None) };
            Ending { process, report, trouble }
        };
        let endings = outcome.reports.into_iter().map(ending).collect();
        let collected = Collected { history: outcome.history, complete: true, trouble: None };
        record(&scenario, How::Tasks, collected, Counted::default(), endings, false)
    }

    fn says(record: &Record, what: &str) -> bool {
        record.verdict.reasons.iter().any(|reason| reason.contains(what))
    }

    #[test]
    fn when_everybody_ends_as_planned_the_judge_alone_has_the_say() {
        let record = judged(0, |_| unreachable!("there is no process 0"));
        assert_eq!(record.verdict.verdict, Outcome::Valid, "{:?}", record.verdict.reasons);
    }

    #[test]
    fn an_attacker_that_dies_makes_the_run_prove_nothing() {
        let record = judged(2, |_| (None, Some("it fell over".to_owned())));
        assert_eq!(record.verdict.verdict, Outcome::Unknown);
        assert!(says(&record, "process 2 did not play its part to the end: it fell over"));
    }

    #[test]
    fn a_correct_process_that_dies_makes_the_run_prove_nothing() {
        let record = judged(4, |_| (None, Some("it fell over".to_owned())));
        assert_eq!(record.verdict.verdict, Outcome::Unknown);
        assert!(says(&record, "it fell over"), "{:?}", record.verdict.reasons);
    }

    #[test]
    fn nobody_reports_for_another() {
        let another = ProcessId::new(5).expect("it is not 0");
        let record = judged(4, |report| (Some(Report { process: another, ..report }), None));
        assert_eq!(record.verdict.verdict, Outcome::Unknown);
        assert!(says(&record, "process 4 says that it is process 5"));
    }
}
