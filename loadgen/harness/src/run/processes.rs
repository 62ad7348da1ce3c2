//! The processes of a run, whether they are child processes or tasks.

use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::completion::ProcessEnding;

/// Tells all processes to stop.
#[derive(Clone, Debug)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns when all processes are to stop.
    pub(super) async fn wait(mut self) {
        // If the sender is gone, it is time to stop as well.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}

impl From<watch::Receiver<bool>> for Stop {
    fn from(stop: watch::Receiver<bool>) -> Self {
        Self(stop)
    }
}

/// The processes of a run. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct Processes {
    playing: JoinSet<ProcessEnding>,
    stop: watch::Sender<bool>,
}

impl Processes {
    pub(super) fn new() -> Self {
        Self { playing: JoinSet::new(), stop: watch::Sender::new(false) }
    }

    /// Starts a process, which tells at its end what it says and what went wrong.
    pub(super) fn start<F>(
        &mut self,
        process: ProcessId,
        start: impl FnOnce(Stop) -> anyhow::Result<F>,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = (Option<Report>, Option<String>)> + Send + 'static,
    {
        let playing = start(Stop(self.stop.subscribe()))?;
        self.playing.spawn(async move {
            let (report, trouble) = playing.await;
            ProcessEnding { process, report, trouble }
        });
        Ok(())
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.playing.is_empty()
    }

    /// The next one that ends; `None` if none is left.
    pub(super) async fn next(&mut self) -> Option<ProcessEnding> {
        match self.playing.join_next().await? {
            Ok(ending) => Some(ending),
            // No task is cancelled alone.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Stops those that are left.
    pub(super) async fn stop(mut self) -> Vec<ProcessEnding> {
        self.stop.send_replace(true);
        let mut endings = Vec::new();
        while let Some(ending) = self.next().await {
            endings.push(ending);
        }
        endings
    }
}
