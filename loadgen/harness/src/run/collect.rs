//! Collects the history of an instance as it happens.

use std::collections::BTreeMap;
use std::time::Duration;

use stickycas_client::watch::{Watch, WatchFrom, Watched};
use stickycas_client::{Client, Error};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, ProcessId, Value};
use stickycas_proto::names::InstanceId;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

use crate::progress::RunProgress;

/// Follows an instance to its end.
#[derive(Debug)]
pub(crate) struct Collector {
    client: Client,
    instance: InstanceId,
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
    /// Starts to follow an instance from its first event on.
    pub(crate) fn start(client: &Client, instance: InstanceId, progress: RunProgress) -> Self {
        let (tell, happened) = watch::channel(InstanceProgress::default());
        let task = tokio::spawn(follow(client.watch(instance, WatchFrom::Start), progress, tell));
        Self { client: client.clone(), instance, task, happened }
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
        let to_the_end = async {
            let collected = (&mut self.task).await?;
            let from = self.happened.borrow().reached.map_or(WatchFrom::Start, WatchFrom::Phase);
            Ok::<_, JoinError>(collected.with_rest(self.client.watch(self.instance, from)).await)
        };
        match timeout(within, to_the_end).await {
            Ok(Ok(collected)) => collected,
            Ok(Err(error)) => lost(format!("the history is lost: {error}")),
            Err(_) => {
                self.task.abort();
                lost("the watch of a closed instance did not end".to_owned())
            }
        }
    }
}

impl Collected {
    /// With what has happened since the instance was finished, where a watch ends: an attack may go on when its process has
    /// left, and its offences are on record to the close.
    async fn with_rest(mut self, mut again: Watch) -> Self {
        let is_closed = |recorded: &Recorded| matches!(recorded.event, Event::Closed);
        if !self.complete || self.history.iter().rev().any(is_closed) {
            return self;
        }
        loop {
            match again.try_next().await {
                Ok(Some(Watched::Event(index, _))) if index < self.history.len() as u64 => {}
                Ok(Some(Watched::Event(index, recorded))) => {
                    if let Err(trouble) = self.is_due(index) {
                        return Self { complete: false, trouble: Some(trouble), ..self };
                    }
                    self.history.push(recorded);
                }
                // It was not asked for.
                Ok(Some(Watched::Snapshot(_))) => {}
                Ok(None) => return self,
                Err(error) => {
                    let trouble = format!("what happened after the end is not known: {error}");
                    return Self { complete: false, trouble: Some(trouble), ..self };
                }
            }
        }
    }

    fn is_due(&self, index: u64) -> Result<(), String> {
        let due = self.history.len() as u64;
        if index == due { Ok(()) } else { Err(format!("event {index} came where {due} was due")) }
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
                if let Err(trouble) = collected.is_due(index) {
                    collected.trouble = Some(trouble);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stickycas_model::history::OffenceKind;
    use stickycas_proto::v1::RefusalReason;

    use super::*;
    use crate::run::{OwnServer, create};
    use crate::scenario::Scenario;

    #[tokio::test]
    async fn an_offence_after_the_instance_has_finished_is_collected() {
        let text = "name = \"one\"
            [instance]
            processes = 1
            warp_size = 1
            read_size = 1
            [proposals]
            values = [\"tea\"]";
        let scenario = Scenario::parse("one.toml", text, Some(1)).unwrap();
        let server = OwnServer::start().await.unwrap();
        let handle = server.connect().await.unwrap();
        let instance = create(&handle, None, &scenario).await.unwrap();
        let progress = RunProgress::new(BTreeSet::new(), true);
        let mut collector = Collector::start(handle.client(), instance, progress);
        let process = handle.client_of(ProcessId::FIRST).unwrap();
        process.propose(instance, "tea").await.unwrap();
        // The watch has ended with the instance.
        let collected = (&mut collector.task).await.unwrap();
        assert!(collected.complete, "{:?}", collected.trouble);
        collector.task = tokio::spawn(async { collected });
        let refused = process.close(instance).await.unwrap_err();
        assert_eq!(refused.reason(), Some(RefusalReason::NotCreator));
        handle.client().close(instance).await.unwrap();

        let collected = collector.finish(Duration::from_secs(60)).await;
        assert!(collected.complete, "{:?}", collected.trouble);
        let events: Vec<&Event> = collected.history.iter().map(|recorded| &recorded.event).collect();
        assert!(matches!(
            events.as_slice(),
            [.., Event::Finished, Event::Offence(offence), Event::Closed] if offence.kind == OffenceKind::ForeignIdentity
        ));
    }
}
