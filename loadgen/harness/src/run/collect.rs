//! Collects the history of an instance as it happens.

use std::collections::BTreeMap;
use std::time::Duration;

use stickycas_client::watch::{Watch, WatchFrom, Watched};
use stickycas_client::{Client, Error};
use stickycas_model::history::{Event, Recorded};
use stickycas_model::types::{Phase, ProcessId, Value};
use stickycas_proto::names::InstanceId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

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

/// The history that was collected.
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

    /// The progress so far.
    pub(crate) fn happened(&self) -> watch::Ref<'_, InstanceProgress> {
        self.happened.borrow()
    }

    /// Follows to the end, which is to come within this time. `closed`: the instance was closed; then what
    /// came after it had finished is collected, too.
    pub(crate) async fn finish(mut self, closed: bool, within: Duration) -> Collected {
        let lost = |trouble| Collected { trouble: Some(trouble), ..Collected::default() };
        let deadline = Instant::now() + within;
        let mut collected = match timeout_at(deadline, &mut self.task).await {
            Ok(Ok(collected)) => collected,
            Ok(Err(error)) => return lost(format!("the history is lost: {error}")),
            Err(_) => {
                self.task.abort();
                return lost("the watch of a closed instance did not end".to_owned());
            }
        };
        let is_closed = |recorded: &Recorded| matches!(recorded.event, Event::Closed);
        if closed && collected.complete && !collected.history.iter().rev().any(is_closed) {
            let from = self.happened.borrow().reached.map_or(WatchFrom::Start, WatchFrom::Phase);
            let rest = collected.add_rest(self.client.watch(self.instance, from));
            let rest =
                timeout_at(deadline, rest).await.unwrap_or_else(|_| Err("the watch did not end".to_owned()));
            if let Err(trouble) = rest {
                collected.complete = false;
                collected.trouble = Some(format!("what happened after the end is not known: {trouble}"));
            }
        }
        collected
    }
}

impl Collected {
    /// Adds what has happened since the instance was finished, where a watch ends: an attack may go on when
    /// its process has left, and its offences are on record to the close.
    async fn add_rest(&mut self, mut again: Watch) -> Result<(), String> {
        while let Some(watched) = again.try_next().await.map_err(|error| error.to_string())? {
            match watched {
                Watched::Event(index, _) if index < self.history.len() as u64 => {}
                Watched::Event(index, recorded) => {
                    self.is_due(index)?;
                    self.history.push(recorded);
                }
                // It was not asked for.
                Watched::Snapshot(_) => {}
            }
        }
        Ok(())
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
    use crate::run::{OwnServer, ServerHandle, create};
    use crate::scenario::Scenario;

    /// An instance of one process, which has finished, and who follows it.
    async fn finished() -> (ServerHandle, OwnServer, InstanceId, Collector) {
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
        let collector = Collector::start(handle.client(), instance, progress);
        handle.client_of(ProcessId::FIRST).unwrap().propose(instance, "tea").await.unwrap();
        (handle, server, instance, collector)
    }

    #[tokio::test]
    async fn an_offence_after_the_instance_has_finished_is_collected() {
        let (handle, _server, instance, mut collector) = finished().await;
        // The watch has ended with the instance.
        let collected = (&mut collector.task).await.unwrap();
        assert!(collected.complete, "{:?}", collected.trouble);
        collector.task = tokio::spawn(async { collected });
        let process = handle.client_of(ProcessId::FIRST).unwrap();
        let refused = process.close(instance).await.unwrap_err();
        assert_eq!(refused.reason(), Some(RefusalReason::NotCreator));
        handle.client().close(instance).await.unwrap();

        let collected = collector.finish(true, Duration::from_secs(60)).await;
        assert!(collected.complete, "{:?}", collected.trouble);
        let events: Vec<&Event> = collected.history.iter().map(|recorded| &recorded.event).collect();
        assert!(matches!(
            events.as_slice(),
            [.., Event::Finished, Event::Offence(offence), Event::Closed] if offence.kind == OffenceKind::ForeignIdentity
        ));
    }

    #[tokio::test]
    async fn what_was_collected_is_kept_when_the_rest_cannot_be() {
        let (handle, server, instance, mut collector) = finished().await;
        let collected = (&mut collector.task).await.unwrap();
        let events = collected.history.len();
        drop(handle);
        server.stop().await.unwrap();
        for (closed, complete) in [(false, true), (true, false)] {
            let client = collector.client.clone();
            let happened = collector.happened.clone();
            let kept = Collected { history: collected.history.clone(), complete: true, trouble: None };
            let task = tokio::spawn(async { kept });
            let collector = Collector { client, instance, task, happened };
            let collected = collector.finish(closed, Duration::from_millis(100)).await;
            assert_eq!((collected.history.len(), collected.complete), (events, complete));
            assert_eq!(collected.trouble.is_some(), closed, "{:?}", collected.trouble);
        }
    }
}
