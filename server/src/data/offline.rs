//! The log of a server that does not run. To be checked and dumped it is recovered part by part, since it may
//! be larger than the memory; to be compacted and restored as a whole, as by a server.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::bail;
use stickycas_model::machine::State;
use stickycas_proto::log::v1::DumpedInstance;
use stickycas_proto::names::InstanceId;
use tokio::task::spawn_blocking;

use super::NotThere;
use crate::commit_log::engine::{DiskEngine, Engine, EngineError, StoreUsage};
use crate::instances::{Instance, Instances, Part, Recovered, Recovery};
use crate::limits::Limits;
use crate::memory::Memory;
use crate::quota::KnownPrincipals;
use crate::storage::Storage;

/// Bytes of a log of which about one part is made with so much memory. Recovered instances take several times
/// as much, and each part reads the whole log.
fn part_bytes(memory: u64) -> u64 {
    const LEAST: u64 = if cfg!(test) { 4 * 1024 } else { 32 * 1024 * 1024 };
    LEAST.max(memory / 16)
}

/// Of histories, all is kept that the log has, however few events the server keeps.
fn limits() -> Limits {
    Limits { events: usize::MAX / 2, event_bytes: usize::MAX, ..Limits::default() }
}

/// The parts in which the log of this engine is recovered.
///
/// # Errors
/// If it cannot be read.
pub(super) fn parts(engine: &dyn Engine) -> Result<impl Iterator<Item = Part> + use<>, EngineError> {
    // Logs of tests are small.
    let memory = if cfg!(test) { 0 } else { Memory::of_process().bytes };
    engine.read(&mut |_| Ok(()))?;
    let StoreUsage { batches, checkpoints, .. } = engine.usage();
    let of = (batches + checkpoints).div_ceil(part_bytes(memory)).max(1);
    Ok((0..of).map(move |index| Part { index, of }))
}

/// Recovers everything that this engine holds. Returns a summary, in words.
///
/// # Errors
/// If the log is damaged.
pub(super) async fn check(engine: &Arc<dyn Engine>) -> anyhow::Result<String> {
    let (mut instances, mut summary) = (0, String::new());
    for part in parts(&**engine)? {
        let recovered = Offline::recover(engine.clone(), part).await?.recovered;
        instances += recovered.instances;
        summary = summary_of(&recovered, instances);
    }
    Ok(summary)
}

fn summary_of(recovered: &Recovered, instances: usize) -> String {
    let Recovered { last, batches, records, .. } = recovered;
    format!(
        "{instances} instances; {records} inputs in {batches} batches behind their checkpoints, the last is {last}"
    )
}

/// Gives the instances with these ids or names to `visit`; all if none are given. Returns how many these are.
///
/// # Errors
/// If the log is damaged; if there is no instance of such an id or name; or an error of `visit`.
pub(super) async fn dump(
    engine: &Arc<dyn Engine>,
    wanted: &[String],
    mut visit: impl FnMut(DumpedInstance) -> anyhow::Result<()>,
) -> anyhow::Result<usize> {
    let (mut missing, mut count) = (wanted.iter().collect::<BTreeSet<_>>(), 0);
    for part in parts(&**engine)? {
        for instance in all(&Offline::recover(engine.clone(), part).await?.instances) {
            let config = instance.config();
            let is_called = |text: &str| {
                config.id.to_string() == text
                    || config.name.as_ref().is_some_and(|name| name.as_str() == text)
            };
            if wanted.is_empty() || wanted.iter().any(|wanted| is_called(wanted)) {
                missing.retain(|wanted| !is_called(wanted));
                visit(instance.dump())?;
                count += 1;
            }
        }
    }
    match missing.first() {
        Some(missing) => bail!(NotThere(format!("there is no instance {missing} in the log"))),
        None => Ok(count),
    }
}

/// Gives every instance of a log a checkpoint, so that nothing else of the log is needed.
///
/// # Errors
/// If the log is damaged, or cannot be written.
pub(super) async fn write_checkpoints(log: Arc<DiskEngine>) -> anyhow::Result<()> {
    let offline = Offline::recover(log, Part::ALL).await?;
    offline.storage.begin(&offline.instances, offline.recovered).await;
    end(&offline.storage, &offline.instances).await
}

/// Closes every instance of a restored log that has not ended, and leaves checkpoints alone. Returns a
/// summary of the log, in words, and the number of instances that were closed. It takes the memory that a
/// server takes for them.
///
/// # Errors
/// If the log is damaged, or cannot be written.
pub(super) async fn close_live(log: Arc<DiskEngine>) -> anyhow::Result<(String, usize)> {
    let Offline { storage, instances, recovered } = Offline::recover(log, Part::ALL).await?;
    let summary = summary_of(&recovered, recovered.instances);
    storage.begin(&instances, recovered).await;
    let mut closings = Vec::new();
    for instance in all(&instances) {
        let state = instance.state().committed().await??;
        if !matches!(state, State::Finished | State::Closed) {
            closings.push(instance.close());
        }
    }
    let closed = closings.len();
    for closing in closings {
        closing.committed().await??;
    }
    end(&storage, &instances).await?;
    Ok((summary, closed))
}

/// Writes checkpoints and ends the log.
async fn end(storage: &Storage, instances: &Instances) -> anyhow::Result<()> {
    storage.shorten(instances).await;
    storage.close().await;
    match instances.log_failure() {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

/// All instances, or those of a part.
struct Offline {
    storage: Storage,
    instances: Arc<Instances>,
    recovered: Recovered,
}

impl Offline {
    /// Recovers this part of the log.
    ///
    /// # Errors
    /// If the log is damaged.
    async fn recover(engine: Arc<dyn Engine>, part: Part) -> anyhow::Result<Self> {
        let storage = Storage::durable(engine.clone(), None, &limits())?;
        let instances = storage.instances(limits(), KnownPrincipals::default());
        // Nobody is served.
        instances.logs().stop_clock();
        let target = instances.clone();
        let recovering =
            spawn_blocking(move || Recovery::run(&target, &target.only_shard(), &*engine, None, part));
        Ok(Self { storage, instances, recovered: recovering.await?? })
    }
}

fn all(instances: &Instances) -> Vec<Arc<Instance>> {
    const PAGE: usize = 4_096;
    let (mut all, mut after): (Vec<Arc<Instance>>, Option<InstanceId>) = (Vec::new(), None);
    loop {
        let page = instances.after(after, PAGE);
        let Some(last) = page.last() else { return all };
        after = Some(last.config().id);
        all.extend(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_grows_with_the_memory() {
        assert_eq!([0, 64 * 1024, 1 << 40].map(part_bytes), [4 * 1024, 4 * 1024, 1 << 36]);
    }
}
