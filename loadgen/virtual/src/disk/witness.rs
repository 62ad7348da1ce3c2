//! A client that watches every instance of a run: each committed event that it was told, with its place on
//! the tape of the server's disk.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stickycas_client::Client;
use stickycas_client::watch::{WatchFrom, Watched};
use stickycas_model::history::Recorded;
use stickycas_proto::names::InstanceId;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Disk;

/// The pause before the server is asked again which instances there are.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// See the module. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness(Arc<Mutex<BTreeMap<InstanceId, Vec<Told>>>>);

/// An event that was told.
#[derive(Clone, Debug)]
struct Told {
    /// The use of the disk in which it was told, and the place on the tape of that use. It is the place of
    /// the last commit that was told by then: the event was told there, or before.
    at: (u64, usize),
    event: Recorded,
}

impl Witness {
    fn told(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Vec<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches all instances, as soon as there are any, until there are so many.
    pub(crate) async fn watch(self, client: Client, disk: Disk, instances: usize) {
        let mut watching = JoinSet::new();
        while self.told().len() < instances {
            if let Ok(listed) = client.list().await {
                for id in listed.instances.into_iter().map(|summary| summary.id) {
                    if self.told().contains_key(&id) {
                        continue;
                    }
                    self.told().insert(id, Vec::new());
                    watching.spawn(self.clone().follow(client.clone(), disk.clone(), id));
                }
            }
            sleep(LOOK_EVERY).await;
        }
        watching.join_all().await;
    }

    async fn follow(self, client: Client, disk: Disk, id: InstanceId) {
        let mut watch = client.watch(id, WatchFrom::Start);
        while let Ok(Some(watched)) = watch.try_next().await {
            let Watched::Event(index, event) = watched else { continue };
            let at = disk.told();
            let mut told = self.told();
            let events = told.entry(id).or_default();
            // What an observer is told twice, or out of order, the checks of the round find.
            if index == events.len() as u64 {
                events.push(Told { at, event });
            }
        }
    }

    /// Compares a recovered server with what was told by this place of the tape of this use. The error says
    /// what does not hold. `may_lose`: an earlier state is right, too.
    pub(super) fn check(
        &self,
        recovered: &BTreeMap<InstanceId, Vec<Recorded>>,
        at: (u64, usize),
        may_lose: bool,
    ) -> Result<(), String> {
        for (id, events) in &*self.told() {
            let told = if may_lose { 0 } else { events.partition_point(|told| told.at <= at) };
            let found = recovered.get(id).map_or(&[][..], Vec::as_slice);
            if let Some(index) = found.iter().zip(events).position(|(found, told)| *found != told.event) {
                let (found, told) = (&found[index], &events[index].event);
                return Err(format!(
                    "instance {id}: event {index} is {found:?}, and a client was told {told:?}"
                ));
            }
            if found.len() < told {
                return Err(format!(
                    "instance {id}: {} events are there, though clients were told {told}, the last of these {:?}",
                    found.len(),
                    events[told - 1].event
                ));
            }
        }
        Ok(())
    }

    /// The number of events that were told by this place.
    pub(super) fn count(&self, at: (u64, usize)) -> u64 {
        let told = self.told();
        told.values().map(|events| events.partition_point(|told| told.at <= at) as u64).sum()
    }
}
