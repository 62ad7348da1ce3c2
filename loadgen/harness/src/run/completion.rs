//! Waiting for processes to end, wherever they were started and whichever source reports their ends.

use std::collections::BTreeSet;
use std::time::Duration;

use stickycas_model::params::Patience;
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use tokio::time::{Instant, sleep_until};

use super::collect::{Collector, InstanceProgress};
use crate::scenario::Scenario;

/// When all correct processes have ended, Byzantine ones have so long to leave, beyond what the instance
/// itself may wait.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// So long an attacker may take for the rest of its process.
const BEYOND_AN_ATTACK: Duration = Duration::from_secs(5);

/// The end of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessEnding {
    pub(crate) process: ProcessId,
    /// Its report. `None`: it never opened a session, or could not tell.
    pub(crate) report: Option<Report>,
    /// The unexpected event, if there was one.
    pub(crate) trouble: Option<String>,
}

/// A source of the ends of processes.
pub(crate) trait CompletionSource {
    /// The next process that has ended; `None` if no other will. Dropped and called again, it loses nothing.
    async fn next(&mut self) -> Option<ProcessEnding>;

    /// Something has happened at the instance.
    ///
    /// # Errors
    /// The reaction to it fails.
    fn happened(&mut self, happened: &InstanceProgress) -> anyhow::Result<()>;
}

/// The processes that are awaited, and the ends so far.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    pub(crate) scenario: &'a Scenario,
    /// The processes of which an end is to be heard at all.
    pub(crate) awaited: BTreeSet<ProcessId>,
    /// Give up after so long without any event, beyond what the instance itself may wait.
    pub(crate) stall: Duration,
    pub(crate) endings: Vec<ProcessEnding>,
}

impl Waiting<'_> {
    /// Those of these processes that have not ended.
    pub(crate) fn still(&self, processes: impl Iterator<Item = ProcessId>) -> BTreeSet<ProcessId> {
        let mut playing: BTreeSet<ProcessId> =
            processes.filter(|process| self.awaited.contains(process)).collect();
        for ending in &self.endings {
            playing.remove(&ending.process);
        }
        playing
    }
}

/// Waits until every correct process has ended, as long as something happens. True if it does not any more.
pub(crate) async fn await_correct(
    ends: &mut impl CompletionSource,
    collector: &mut Collector,
    waiting: &mut Waiting<'_>,
) -> anyhow::Result<bool> {
    let longest = waiting.stall.saturating_add(longest_wait(waiting.scenario));
    let mut playing = waiting.still(waiting.scenario.truth.correct());
    let mut deadline = Instant::now() + longest;
    while !playing.is_empty() {
        tokio::select! {
            ending = ends.next() => {
                let Some(ending) = ending else { break };
                playing.remove(&ending.process);
                waiting.endings.push(ending);
            }
            () = collector.something_happened() => {
                ends.happened(&collector.happened())?;
                deadline = Instant::now() + longest;
            }
            () = sleep_until(deadline) => return Ok(true),
        }
    }
    Ok(false)
}

/// Waits until those Byzantine processes have ended that do, so that what they do is on record: for a moment
/// for those that leave by themselves, unless nothing happens any more, and for attacks as long as they may
/// take.
pub(crate) async fn await_byzantine(
    ends: &mut impl CompletionSource,
    collector: &mut Collector,
    waiting: &mut Waiting<'_>,
    stalled: bool,
) -> anyhow::Result<()> {
    if !stalled {
        let within = LAST_WORDS.saturating_add(longest_wait(waiting.scenario));
        await_ended(waiting.still(waiting.scenario.truth.ending()), within, ends, collector, waiting).await?;
    }
    let within = stickycas_attacks::LONGEST + BEYOND_AN_ATTACK;
    await_ended(waiting.still(attackers(waiting.scenario).into_iter()), within, ends, collector, waiting)
        .await
}

/// Waits until these processes have ended; no longer than this, since they may never do.
pub(crate) async fn await_ended(
    mut playing: BTreeSet<ProcessId>,
    within: Duration,
    ends: &mut impl CompletionSource,
    collector: &mut Collector,
    waiting: &mut Waiting<'_>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + within;
    while !playing.is_empty() {
        tokio::select! {
            ending = ends.next() => {
                let Some(ending) = ending else { break };
                playing.remove(&ending.process);
                waiting.endings.push(ending);
            }
            () = collector.something_happened() => ends.happened(&collector.happened())?,
            () = sleep_until(deadline) => break,
        }
    }
    Ok(())
}

pub(crate) fn attackers(scenario: &Scenario) -> BTreeSet<ProcessId> {
    scenario.truth.attackers().map(|(process, _)| process).collect()
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
