//! Which servers of a cluster own an instance in the course of a plan.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Context;
use stickycas_client::{Client, ClusterInfo};
use stickycas_proto::names::InstanceId;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::plan::Service;

/// How often the servers are asked.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The owners of an instance so far. Asks for it, again and again, until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnerObserver(watch::Receiver<Owners>);

/// The names of the owners so far, by rising epoch.
#[derive(Debug, Default)]
struct Owners {
    names: Vec<String>,
    epoch: u64,
}

impl OwnerObserver {
    /// Begins to ask.
    pub(crate) fn start(client: Client, instance: InstanceId) -> Self {
        let (seen, owners) = watch::channel(Owners::default());
        tokio::spawn(async move {
            while !seen.is_closed() {
                // While no server answers, none is known to own it.
                if let Ok(cluster) = client.cluster().await {
                    seen.send_if_modified(|owners| owners.observe(&cluster, instance));
                }
                sleep(ASK_AGAIN).await;
            }
        });
        Self(owners)
    }

    /// The names of the servers that have owned it so far, one after another. Of a server without a cluster:
    /// none.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().names.clone()
    }

    /// The server of the cluster that was the owner of this number, as a service; waits until there was one.
    pub(crate) async fn service(&self, number: NonZeroU32) -> anyhow::Result<Service> {
        let mut owners = self.0.clone();
        let known = owners.wait_for(|owners| owners.of_number(number).is_some()).await;
        let known = known.context("nobody asks for the owner any more")?;
        let name = known.of_number(number).context("it is known")?;
        let service = name.parse().ok().filter(|service| matches!(service, Service::ServerOfCluster(_)));
        service.with_context(|| {
            format!("the owner of the instance is {name:?}, which is the name of no service of the project")
        })
    }
}

impl Owners {
    /// Whether there is another owner.
    fn observe(&mut self, cluster: &ClusterInfo, instance: InstanceId) -> bool {
        // A server with an old view names an older owner.
        let newer = cluster.owner_of(instance).filter(|(_, epoch)| *epoch > self.epoch);
        let Some((server, epoch)) = newer else { return false };
        self.epoch = epoch;
        let is_other = self.names.last() != Some(&server.name);
        self.names.extend(is_other.then(|| server.name.clone()));
        is_other
    }

    /// The one that is meant by `owner` (1), `owner-2` and so on: every one that has not been the owner
    /// before.
    fn of_number(&self, number: NonZeroU32) -> Option<&String> {
        let is_first = |(index, name): &(usize, &String)| !self.names[..*index].contains(name);
        let mut different = self.names.iter().enumerate().filter(is_first).map(|(_, name)| name);
        different.nth(number.get() as usize - 1)
    }
}
