//! Collects the history of an instance as it happens.

use std::collections::BTreeMap;
use std::time::Duration;

use stickycas_client::Error;
use stickycas_client::watch::{Watch, Watched};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, ProcessId, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::progress::RunProgress;

/// Follows a watch to its end.
#[derive(Debug)]
pub(crate) struct Collector {
    task: JoinHandle<Collected>,
    /// Sent again with each event.
    happened: watch::Receiver<InstanceProgress>,
}

/// The progress of the instance so far, as far as it is acted on.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstanceProgress {
    /// The last phase that is known to have come.
    pub(crate) reached: Option<Phase>,
    /// How many processes have joined.
    pub(crate) joined: u32,
    /// The processes that have left, each with its decision.
    pub(crate) decided: BTreeMap<ProcessId, Value>,
    /// Why no more will be heard, if the watch broke off.
    pub(crate) lost: Option<Error>,
}

impl InstanceProgress {
    fn take_in(&mut self, event: &Event) {
        self.reached = event.reached().or(self.reached);
        match event {
            Event::Joined { .. } => self.joined += 1,
            Event::Decided { process, value } => drop(self.decided.insert(*process, value.clone())),
            _ => {}
        }
    }
}

/// What was collected.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) history: Vec<Recorded>,
    /// Whether the history begins with the first event, lacks none, and goes to the instance's end.
    pub(crate) complete: bool,
    /// Why it could not be followed to the end, if so.
    pub(crate) trouble: Option<String>,
}

impl Collector {
    /// Starts to follow a watch from the first event of an instance on.
    pub(crate) fn start(watch: Watch, progress: RunProgress) -> Self {
        let (tell, happened) = watch::channel(InstanceProgress::default());
        let task = tokio::spawn(follow(watch, progress, tell));
        Self { task, happened }
    }

    /// Returns when something has happened since the last call; never again once the watch has ended.
    pub(crate) async fn something_happened(&mut self) {
        if self.happened.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// What has happened so far.
    pub(crate) fn happened(&self) -> watch::Ref<'_, InstanceProgress> {
        self.happened.borrow()
    }

    /// Follows to the end, which is to come within this time of the close.
    pub(crate) async fn finish(mut self, within: Duration) -> Collected {
        let lost = |trouble| Collected { trouble: Some(trouble), ..Collected::default() };
        match timeout(within, &mut self.task).await {
            Ok(Ok(collected)) => collected,
            Ok(Err(error)) => lost(format!("the history is lost: {error}")),
            Err(_) => {
                self.task.abort();
                lost("the watch of a closed instance did not end".to_owned())
            }
        }
    }
}

async fn follow(
    mut watch: Watch,
    mut progress: RunProgress,
    tell: watch::Sender<InstanceProgress>,
) -> Collected {
    let mut collected = Collected::default();
    loop {
        match watch.try_next().await {
            Ok(Some(Watched::Event(index, recorded))) => {
                if index != collected.history.len() as u64 {
                    let wanted = collected.history.len();
                    collected.trouble = Some(format!("event {index} came where {wanted} was due"));
                    return collected;
                }
                progress.observe(&recorded.event);
                tell.send_modify(|happened| happened.take_in(&recorded.event));
                collected.history.push(recorded);
            }
            // It was not asked for.
            Ok(Some(Watched::Snapshot(_))) => {}
            Ok(None) => {
                let ended = |recorded: &Recorded| matches!(recorded.event, Event::Closed | Event::Finished);
                collected.complete = collected.history.iter().rev().any(ended);
                return collected;
            }
            Err(error) => {
                collected.trouble = Some(format!("the history is incomplete: {error}"));
                tell.send_modify(|happened| happened.lost = Some(error));
                return collected;
            }
        }
    }
}
