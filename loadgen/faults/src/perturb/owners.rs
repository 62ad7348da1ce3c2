//! Which servers of a cluster own an instance in the course of a plan.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use stickycas_client::{Client, ClusterInfo};
use stickycas_proto::names::InstanceId;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::plan::Service;

/// How often the servers are asked.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Asks for the owner of an instance, again and again until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnerObserver {
    owners: Arc<Mutex<Owners>>,
    task: JoinHandle<()>,
}

/// The owners so far, by rising epoch.
#[derive(Debug, Default)]
struct Owners {
    names: Vec<String>,
    epoch: u64,
}

impl OwnerObserver {
    /// Begins to ask.
    pub(crate) fn start(client: Client, instance: InstanceId) -> Self {
        let owners = Arc::<Mutex<Owners>>::default();
        let seen = owners.clone();
        let task = tokio::spawn(async move {
            loop {
                // While no server answers, none is known to own it.
                if let Ok(cluster) = client.cluster().await {
                    lock(&seen).observe(&cluster, instance);
                }
                sleep(ASK_AGAIN).await;
            }
        });
        Self { owners, task }
    }

    /// The names of the servers that have owned it so far, one after another. Of a server without a cluster:
    /// none.
    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.owners).names.clone()
    }

    /// The server of the cluster that was the owner of this number, as a service; waits until there was one.
    ///
    /// # Errors
    /// Its name is not that of a service, and so not that of a container.
    pub(crate) async fn service(&self, number: NonZeroU32) -> anyhow::Result<Service> {
        loop {
            let owner = lock(&self.owners).of_number(number).cloned();
            if let Some(name) = owner {
                let service = name.parse().ok();
                return service.filter(|service| matches!(service, Service::ServerOfCluster(_))).with_context(
                    || format!("the owner of the instance is {name:?}, which is the name of no service of the project"),
                );
            }
            sleep(ASK_AGAIN).await;
        }
    }
}

impl Drop for OwnerObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Owners {
    fn observe(&mut self, cluster: &ClusterInfo, instance: InstanceId) {
        // A server with an old view names an older owner.
        if let Some((server, epoch)) = cluster.owner_of(instance)
            && epoch > self.epoch
        {
            self.epoch = epoch;
            if self.names.last() != Some(&server.name) {
                self.names.push(server.name.clone());
            }
        }
    }

    /// The one that is meant by `owner` (1), `owner-2` and so on: every one that has not been the owner
    /// before.
    fn of_number(&self, number: NonZeroU32) -> Option<&String> {
        let is_first = |(index, name): &(usize, &String)| !self.names[..*index].contains(name);
        let mut different = self.names.iter().enumerate().filter(is_first).map(|(_, name)| name);
        different.nth(number.get() as usize - 1)
    }
}

fn lock(owners: &Mutex<Owners>) -> MutexGuard<'_, Owners> {
    // No step leaves it in between.
    owners.lock().unwrap_or_else(PoisonError::into_inner)
}
