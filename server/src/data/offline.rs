//! The log of a server that does not run, recovered.

use std::sync::Arc;

use anyhow::bail;
use stickycas_model::machine::State;
use stickycas_proto::names::InstanceId;

use crate::commit_log::DataDir;
use crate::commit_log::engine::Engine;
use crate::instances::{Instance, Instances, Recovered};
use crate::limits::Limits;
use crate::quota::KnownPrincipals;
use crate::storage::Storage;

/// Of histories, all is kept that the log has, however few events the server keeps.
fn limits() -> Limits {
    Limits { events: usize::MAX / 2, event_bytes: usize::MAX, ..Limits::default() }
}

/// See the module.
pub(super) struct Offline {
    storage: Storage,
    instances: Arc<Instances>,
    recovered: Recovered,
}

impl Offline {
    /// Recovers the log in this folder.
    ///
    /// # Errors
    /// What is damaged.
    pub(super) async fn open(dir: DataDir) -> anyhow::Result<Self> {
        let engine = Arc::new(dir.engine()?);
        Self::recover(Storage::durable(engine, Some(dir), &limits())?).await
    }

    /// Recovers what this engine holds.
    ///
    /// # Errors
    /// What is damaged.
    pub(super) async fn on(engine: Arc<dyn Engine>) -> anyhow::Result<Self> {
        Self::recover(Storage::durable(engine, None, &limits())?).await
    }

    async fn recover(storage: Storage) -> anyhow::Result<Self> {
        let instances = storage.instances(limits(), KnownPrincipals::default());
        // Nobody is served.
        instances.logs().stop_clock();
        let recovered = storage.replay(&instances).await?;
        Ok(Self { storage, instances, recovered })
    }

    /// What was found.
    pub(super) fn summary(&self) -> String {
        let Recovered { last, batches, records, instances, .. } = &self.recovered;
        format!(
            "{instances} instances; {records} inputs in {batches} batches behind their checkpoints, the last is {last}"
        )
    }

    /// The instances with these ids or names; all if none are given.
    ///
    /// # Errors
    /// If there is none of that id or name.
    pub(super) fn select(&self, wanted: &[String]) -> anyhow::Result<Vec<Arc<Instance>>> {
        let all = self.all();
        if wanted.is_empty() {
            return Ok(all);
        }
        let mut selected = Vec::new();
        for wanted in wanted {
            let is_wanted = |instance: &&Arc<Instance>| {
                let config = instance.config();
                config.id.to_string() == *wanted
                    || config.name.as_ref().is_some_and(|name| name.as_str() == wanted)
            };
            let before = selected.len();
            selected.extend(all.iter().filter(is_wanted).cloned());
            if selected.len() == before {
                bail!("there is no instance {wanted} in the log");
            }
        }
        Ok(selected)
    }

    fn all(&self) -> Vec<Arc<Instance>> {
        const PAGE: usize = 4_096;
        let (mut all, mut after): (Vec<Arc<Instance>>, Option<InstanceId>) = (Vec::new(), None);
        loop {
            let page = self.instances.after(after, PAGE);
            let Some(last) = page.last() else { return all };
            after = Some(last.config().id);
            all.extend(page);
        }
    }

    /// Gives every instance a checkpoint, so that nothing else of the log is needed. Ends the log.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub(super) async fn write_checkpoints(self) -> anyhow::Result<()> {
        self.storage.begin(&self.instances, self.recovered).await;
        self.storage.shorten(&self.instances).await;
        self.storage.close().await;
        match self.instances.log_failure() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }

    /// Closes every instance that has not ended, and returns how many these were. Ends the log.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub(super) async fn close_live(self) -> anyhow::Result<usize> {
        let all = self.all();
        self.storage.begin(&self.instances, self.recovered).await;
        let mut closed = 0;
        let mut closings = Vec::new();
        for instance in all {
            let state = instance.state().committed().await??;
            if !matches!(state, State::Finished | State::Closed) {
                closings.push(instance.close());
                closed += 1;
            }
        }
        for closing in closings {
            closing.committed().await??;
        }
        self.storage.shorten(&self.instances).await;
        self.storage.close().await;
        Ok(closed)
    }
}
