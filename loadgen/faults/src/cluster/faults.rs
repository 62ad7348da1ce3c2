//! Injects the faults of a round, one after the other, into servers and members of etcd.

use std::time::Duration;

use stickycas_client::raw::Connection;
use stickycas_client::{Client, ClusterServer};
use stickycas_cluster::shard::ShardCount;
use tokio::time::{Instant, sleep, timeout};

use super::stale::Samples;
use super::{ClusterServers, LONGEST_VIEW, Machines, Owned, PROBE_EVERY, of_one, of_servers, server_name};
use crate::fail_over::ON_ITS_WAY;
use crate::fault::{Fault, FaultKind, Hit};

/// A server learns of a change of owners far faster than this.
const VIEW_LAG: Duration = Duration::from_millis(200);
/// How often a server that is cut off from etcd is asked for its instances.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Asks a server for instances that it owned.
pub(super) type Ask<'a> = &'a mut (dyn FnMut(&Hit, &Connection) + Send);

impl<M: Machines> ClusterServers<M> {
    pub(super) async fn inject_fault(&mut self, fault: &Fault, ask: Ask<'_>) -> anyhow::Result<Option<Hit>> {
        let Fault { kind, target, lasts, .. } = *fault;
        let mut hit = None;
        match kind {
            FaultKind::ServerKilled => {
                let before = self.shards_of(target, target).await;
                self.machines.begin(fault).await?;
                hit = self.hit(fault, before).await;
                self.start_server(target)?;
            }
            FaultKind::ServerPaused => hit = self.pause(fault, ask).await?,
            FaultKind::ServerStopped => {
                self.machines.begin(fault).await?;
                sleep(lasts).await;
                self.start_server(target)?;
            }
            FaultKind::ServerCutFromEtcd | FaultKind::ServerDeposed | FaultKind::ServerReceivesNothing => {
                hit = self.cut_from_etcd(fault, ask).await?;
            }
            FaultKind::ServerCutOff => {
                let before = self.shards_of(target, target).await;
                self.machines.begin(fault).await?;
                hit = self.hit(fault, before).await;
                self.machines.end(fault).await?;
            }
            FaultKind::MemberCutOff
            | FaultKind::MemberReceivesNothing
            | FaultKind::MemberKilled
            | FaultKind::EtcdKilled
            | FaultKind::MemberPaused
            | FaultKind::EtcdPaused => {
                self.machines.begin(fault).await?;
                sleep(lasts).await;
                self.machines.end(fault).await?;
            }
        }
        Ok(hit)
    }

    async fn pause(&mut self, fault: &Fault, ask: Ask<'_>) -> anyhow::Result<Option<Hit>> {
        let target = fault.target;
        let before = self.shards_of(target, target).await;
        let direct = self.direct(target)?;
        let samples = Samples::create(&direct).await;
        self.machines.begin(fault).await?;
        let mut hit = self.hit(fault, before).await;
        let mut answers = None;
        if let Some(hit) = &hit {
            if let Some(others) = self.others(target)?.filter(|_| hit.is_deposed) {
                answers = Some(samples.ask(&others, direct.connection(), |id| hit.owned(id)).await);
            }
            ask(hit, direct.connection());
            sleep(ON_ITS_WAY).await;
        }
        self.machines.end(fault).await?;
        if let (Some(hit), Some(answers)) = (&mut hit, answers) {
            hit.stale = answers.collect().await;
        }
        Ok(hit)
    }

    /// Cuts a server off from etcd while its clients still reach it.
    async fn cut_from_etcd(&mut self, fault: &Fault, ask: Ask<'_>) -> anyhow::Result<Option<Hit>> {
        let Fault { kind, target, lasts, .. } = *fault;
        let (direct, others) = (self.direct(target)?, self.others(target)?);
        let samples = Samples::create(&direct).await;
        let owned = self.settled(target).await;
        self.machines.begin(fault).await?;
        let at = Instant::now();
        let mut hit = None;
        if let Some((owned, others)) = owned.zip(others) {
            while !self.is_deposed(target, &owned).await && at.elapsed() < lasts {
                sleep(PROBE_EVERY).await;
            }
            let is_deposed = self.is_deposed(target, &owned).await;
            let owns = {
                let owned = owned.clone();
                move |id| owned.has(id)
            };
            let mut this = Hit::new(kind, at, is_deposed, owns);
            if is_deposed {
                ask(&this, direct.connection());
                let answers = samples.ask(&others, direct.connection(), |id| owned.has(id)).await;
                this.stale = answers.collect().await;
            }
            while at.elapsed() + ASK_EVERY < lasts {
                ask(&this, direct.connection());
                sleep(ASK_EVERY).await;
            }
            hit = Some(this);
        }
        sleep(lasts.saturating_sub(at.elapsed())).await;
        self.machines.end(fault).await?;
        Ok(hit)
    }

    /// Waits until `lasts` has passed, and returns the hit of a fault that ends, stops or isolates a server.
    async fn hit(&self, fault: &Fault, before: Option<Owned>) -> Option<Hit> {
        let Fault { kind, target, lasts, .. } = *fault;
        let at = Instant::now();
        let owned = self.still_owned(target, before).await;
        sleep(lasts.saturating_sub(at.elapsed())).await;
        let owned = owned?;
        let is_deposed = self.is_deposed(target, &owned).await;
        Some(Hit::new(kind, at, is_deposed, move |id| owned.has(id)))
    }

    /// The shards of server `owner`, in the view of another server.
    async fn shards_of(&self, owner: usize, as_told_by: usize) -> Option<Owned> {
        let told = timeout(LONGEST_VIEW, self.probes[as_told_by].cluster()).await.ok()?.ok()?;
        let server = told.servers.iter().find(|server| server.name == server_name(owner))?;
        let epochs = server.shards.iter().map(|owned| (owned.shard, owned.epoch)).collect();
        Some(Owned { epochs, count: ShardCount::new(told.shards).ok()? })
    }

    /// The shards that a server without answers still owned: those in its own view before, and still in the
    /// view of another server before the lease has ended.
    async fn still_owned(&self, target: usize, before: Option<Owned>) -> Option<Owned> {
        let mut owned = before?;
        if self.size.servers > 1 {
            sleep(VIEW_LAG).await;
            let after = self.shards_of(target, self.other(target)).await?;
            owned.epochs.retain(|shard, epoch| after.epochs.get(shard) == Some(epoch));
        }
        Some(owned)
    }

    /// The shards of a server of which another server knows, if there are any.
    async fn settled(&self, target: usize) -> Option<Owned> {
        let mut owned = self.shards_of(target, target).await?;
        let told = self.shards_of(target, self.other(target)).await?;
        owned.epochs.retain(|shard, epoch| told.epochs.get(shard) == Some(epoch));
        (!owned.epochs.is_empty()).then_some(owned)
    }

    /// Whether other servers have taken over shards that this server owned.
    async fn is_deposed(&self, target: usize, owned: &Owned) -> bool {
        let probe = &self.probes[self.other(target)];
        let Ok(Ok(told)) = timeout(LONGEST_VIEW, probe.cluster()).await else { return false };
        let has_some = |owner: &ClusterServer| {
            owner.name != server_name(target)
                && owner.shards.iter().any(|shard| owned.epochs.contains_key(&shard.shard))
        };
        told.servers.iter().any(has_some)
    }

    /// Another server; with one server, that one.
    fn other(&self, server: usize) -> usize {
        (server + 1) % self.size.servers
    }

    /// See [`of_one`].
    fn direct(&self, server: usize) -> anyhow::Result<Client> {
        Ok(of_one(&self.machines, server)?)
    }

    /// A client of all other servers.
    fn others(&self, server: usize) -> anyhow::Result<Option<Client>> {
        if self.size.servers == 1 {
            return Ok(None);
        }
        let others = (0..self.size.servers).filter(|other| *other != server);
        Ok(Some(self.machines.connect(of_servers(&self.machines, others))?))
    }
}
