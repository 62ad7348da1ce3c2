//! Collects the history of an instance as it happens.

use std::time::Duration;

use stickycas_client::watch::{Watch, Watched};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::Phase;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::progress::Progress;

/// Follows a watch to its end.
#[derive(Debug)]
pub(super) struct Collector {
    task: JoinHandle<Collected>,
    /// The last phase that is known to have come. Sent again with each event.
    reached: watch::Receiver<Option<Phase>>,
}

/// What was collected.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) history: Vec<Recorded>,
    /// Whether the history begins with the first event, lacks none, and goes to the instance's end.
    pub(super) complete: bool,
    /// Why it could not be followed to the end, if so.
    pub(super) trouble: Option<String>,
}

impl Collector {
    /// Starts to follow a watch of an instance at which nothing has happened yet.
    pub(super) fn start(watch: Watch, progress: Progress) -> Self {
        let (reaches, reached) = watch::channel(None);
        let task = tokio::spawn(follow(watch, progress, reaches));
        Self { task, reached }
    }

    /// Returns when something has happened since the last call; never again once the watch has ended.
    pub(super) async fn something_happened(&mut self) {
        if self.reached.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The last phase that is known to have come.
    pub(super) fn reached(&self) -> Option<Phase> {
        *self.reached.borrow()
    }

    /// Follows to the end, which is to come within this time of the close.
    pub(super) async fn finish(mut self, within: Duration) -> Collected {
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
    mut progress: Progress,
    reaches: watch::Sender<Option<Phase>>,
) -> Collected {
    let mut collected = Collected::default();
    loop {
        match watch.next().await {
            Ok(Some(Watched::Event(index, recorded))) => {
                if index != collected.history.len() as u64 {
                    let wanted = collected.history.len();
                    collected.trouble = Some(format!("event {index} came where {wanted} was due"));
                    return collected;
                }
                progress.observe(&recorded.event);
                let reached = recorded.event.reached();
                collected.history.push(recorded);
                reaches.send_modify(|last| *last = reached.or(*last));
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
                return collected;
            }
        }
    }
}
