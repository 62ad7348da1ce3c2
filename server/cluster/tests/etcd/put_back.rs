//! An etcd that is put back to an older state while servers run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stickycas_cluster::committer::{Committer, CommitterConfig, LogEnd, LogWrite, Outcome};
use stickycas_cluster::etcd::Client;
use stickycas_cluster::keys::{Epoch, Keys, LogIndex, Name, RulesVersion, ServerInfo};
use stickycas_cluster::membership::{Event, Membership, MembershipConfig};
use stickycas_cluster::shard::{ShardCount, ShardId};
use stickycas_cluster::store::{KeyRange, Store as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::single;

pub(super) const LEASE: Duration = Duration::from_secs(2);

pub(super) fn keys() -> Keys {
    Keys::new(&Name::new("demo").unwrap())
}

/// A server that is nothing but a member, and releases what it is asked for.
pub(super) struct Server {
    pub(super) membership: Membership,
    pub(super) events: mpsc::UnboundedReceiver<Event>,
    pub(super) driver: JoinHandle<()>,
    pub(super) owned: BTreeMap<ShardId, Epoch>,
}

impl Server {
    pub(super) fn start(client: Client, name: &str, time_to_live: Duration) -> Self {
        let info = ServerInfo {
            address: format!("{name}:1"),
            incarnation: rand::random(),
            replays: RulesVersion(1),
            draining: false,
        };
        let config = MembershipConfig { name: Name::new(name).unwrap(), info, time_to_live };
        let shards = ShardCount::new(4).unwrap();
        let (membership, events, driver) = Membership::new(client, keys(), shards, config);
        Self { membership, events, driver: tokio::spawn(driver), owned: BTreeMap::new() }
    }

    pub(super) async fn event(&mut self) {
        match self.events.recv().await.unwrap() {
            Event::Claimed { shard, epoch } => drop(self.owned.insert(shard, epoch)),
            Event::Lost { shard, .. } => drop(self.owned.remove(&shard)),
            Event::ReleaseRequested { shard, epoch } => {
                self.membership.release(shard, epoch).await;
                self.owned.remove(&shard);
            }
        }
    }

    /// Waits until its lease was kept alive so many times.
    pub(super) async fn is_kept_alive(&self, times: usize) {
        let mut valid_until = self.membership.valid_until();
        let mut last = *valid_until.borrow_and_update();
        for _ in 0..times {
            // The same is told again and again.
            last = *valid_until.wait_for(|until| *until > last).await.unwrap();
        }
    }

    /// Waits until it owns so many shards.
    pub(super) async fn owns(&mut self, count: usize) {
        while self.owned.len() != count {
            self.event().await;
        }
    }
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn servers_notice_that_etcd_was_put_back_and_go_on() {
    let (mut etcd, _client) = single().await;
    // It survives the restarts of etcd.
    let lease = LEASE * 8;
    let client = Client::new(&etcd.config().with_lease(lease)).unwrap();
    let mut server = Server::start(client.clone(), "a", lease);
    server.owns(4).await;
    let (committer, commits) = Committer::new(Arc::new(client.clone()), keys(), CommitterConfig::default());
    let commits = tokio::spawn(commits);
    let open = |server: &Server| {
        for (&shard, &epoch) in &server.owned {
            committer.open(shard, epoch, LogEnd::default());
        }
    };
    let write = async |server: &Server, log_index| {
        let (&shard, &epoch) = server.owned.first_key_value().unwrap();
        let write = LogWrite { log_index: LogIndex(log_index), batch: "x".into(), ..LogWrite::default() };
        committer.write(shard, epoch, write).await
    };
    open(&server);
    let saved = etcd.saved(0).await.unwrap();
    for log_index in 1..=20 {
        assert_eq!(write(&server, log_index).await, Outcome::Committed);
    }
    let before = client.range(KeyRange::one("nothing"), 1).await.unwrap().revision;
    etcd.put_back(0, &saved).await.unwrap();
    assert!(client.range(KeyRange::one("nothing"), 1).await.unwrap().revision < before);
    // The owner's key is as it was, and its log is not; or the server has noticed before, and has given its
    // keys up.
    let refused = write(&server, 21).await;
    assert!(matches!(refused, Outcome::Closed | Outcome::Deposed(None)), "{refused:?}");
    server.owns(0).await;
    server.owns(4).await;
    open(&server);
    assert_eq!(write(&server, 1).await, Outcome::Committed);
    server.membership.leave().await;
    commits.abort();
}
