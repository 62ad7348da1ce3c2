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

/// A run on its way: what happens at its instance, and the ends of its processes.
#[derive(Debug)]
pub(crate) struct Waiting<'a, E> {
    pub(crate) scenario: &'a Scenario,
    /// The processes of which an end is to be heard at all.
    pub(crate) awaited: BTreeSet<ProcessId>,
    /// Give up after so long without any event, beyond what the instance itself may wait.
    pub(crate) stall: Duration,
    pub(crate) ends: E,
    pub(crate) collector: Collector,
    /// The ends so far.
    pub(crate) endings: Vec<ProcessEnding>,
}

impl<E: CompletionSource> Waiting<'_, E> {
    /// Waits until every correct process has ended, as long as something happens. True if it does not any
    /// more.
    pub(crate) async fn for_correct(&mut self) -> anyhow::Result<bool> {
        let longest = self.stall.saturating_add(longest_wait(self.scenario));
        self.wait_for(self.scenario.truth.correct(), longest, true).await
    }

    /// Waits until those Byzantine processes have ended that do, so that what they do is on record: for a
    /// moment for those that leave by themselves, unless nothing happens any more, and for attacks as long as
    /// they may take.
    pub(crate) async fn for_byzantine(&mut self, stalled: bool) -> anyhow::Result<()> {
        if !stalled {
            let within = LAST_WORDS.saturating_add(longest_wait(self.scenario));
            self.until(self.scenario.truth.ending(), within).await?;
        }
        let within = stickycas_attacks::LONGEST + BEYOND_AN_ATTACK;
        self.until(attackers(self.scenario).into_iter(), within).await
    }

    /// Waits until these processes have ended; no longer than this, since they may never do.
    pub(crate) async fn until(
        &mut self,
        processes: impl Iterator<Item = ProcessId>,
        within: Duration,
    ) -> anyhow::Result<()> {
        self.wait_for(processes, within, false).await.map(drop)
    }

    /// Waits until these processes have ended, for so long at most: from now on or, `while_busy`, from the
    /// last event on. True if that was too short.
    async fn wait_for(
        &mut self,
        processes: impl Iterator<Item = ProcessId>,
        within: Duration,
        while_busy: bool,
    ) -> anyhow::Result<bool> {
        let ended = |process: &ProcessId| self.endings.iter().any(|ending| ending.process == *process);
        let mut playing: BTreeSet<ProcessId> =
            processes.filter(|process| self.awaited.contains(process) && !ended(process)).collect();
        let mut deadline = Instant::now() + within;
        while !playing.is_empty() {
            tokio::select! {
                ending = self.ends.next() => {
                    let Some(ending) = ending else { break };
                    playing.remove(&ending.process);
                    self.endings.push(ending);
                }
                () = self.collector.something_happened() => {
                    self.ends.happened(&self.collector.happened())?;
                    if while_busy {
                        deadline = Instant::now() + within;
                    }
                }
                () = sleep_until(deadline) => return Ok(true),
            }
        }
        Ok(false)
    }
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
