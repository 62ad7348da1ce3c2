//! Injects the faults of a round, one after the other, into servers and members of etcd.

use std::time::Duration;

use anyhow::Context;
use stickycas_client::{Client, ClusterServer};
use stickycas_cluster::shard::ShardCount;
use tokio::time::{Instant, sleep, timeout};

use super::super::{Ask, Hit, Injected, Machines, ON_ITS_WAY, server_name};
use super::stale::Samples;
use super::{ClusterServers, LONGEST_VIEW, Owned, PROBE_EVERY, of_one, of_servers};
use crate::draw::FaultKind;
use crate::plan::{Action, Service, Step, When};

/// How many leases the other servers may need, behind the end of a lease, until they have its shards and say
/// so.
const LEASES_TO_TAKE_OVER: u32 = 10;
/// A server learns of a change of owners far faster than this.
const VIEW_LAG: Duration = Duration::from_millis(200);
/// How often a server that is cut off from etcd is asked for its instances.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// A fault of a cluster, while it is injected.
struct Fault<'a> {
    step: &'a Step,
    kind: FaultKind,
    /// The number of the server or member.
    target: usize,
    /// Whether all shards are served when it begins, or the fault before it is not overcome yet.
    is_alone: bool,
    lasts: Duration,
}

impl<M: Machines> ClusterServers<M> {
    pub(super) async fn inject_fault(&mut self, step: &Step, ask: Ask<'_>) -> anyhow::Result<Injected> {
        let kind = FaultKind::of(step, self.size.members);
        let kind = kind.with_context(|| format!("{}: there is no such fault of a cluster", step.action))?;
        let (target, is_alone) = (step.services[0].index(), matches!(step.when, When::Served(_)));
        let target = target.filter(|_| step.services.iter().all(|service| self.has(*service)));
        let target = target.with_context(|| format!("{kind}: there is none of that number"))?;
        let fault = &Fault { step, kind, target, is_alone, lasts: step.lasts.unwrap_or_default() };
        let hit = match kind {
            FaultKind::ServerKilled
            | FaultKind::ServerCutOff
            | FaultKind::ServerPaused
            | FaultKind::ServerCutFromEtcd
            | FaultKind::ServerDeposed
            | FaultKind::ServerReceivesNothing => self.hit_server(fault, ask).await,
            _ => self.leave_to_clients(fault).await.map(|()| None),
        };
        Ok((kind, hit.with_context(|| kind.to_string())?))
    }

    fn has(&self, service: Service) -> bool {
        let most = if matches!(service, Service::Etcd(_)) { self.size.members } else { self.size.servers };
        service.index().is_some_and(|index| index < most)
    }

    async fn begin(&mut self, step: &Step) -> anyhow::Result<()> {
        for service in &step.services {
            self.machines.act(step.action, *service, step).await?;
        }
        Ok(())
    }

    /// All run and reach each other.
    async fn end(&mut self, step: &Step) -> anyhow::Result<()> {
        let action = step.action.undone_by().context("it is not undone")?;
        for service in &step.services {
            if action == Action::Start && matches!(service, Service::ServerOfCluster(_)) {
                self.starts += 1;
            }
            self.machines.act(action, *service, step).await?;
        }
        Ok(())
    }

    /// A fault that hits clients alone: nothing is asked meanwhile.
    async fn leave_to_clients(&mut self, fault: &Fault<'_>) -> anyhow::Result<()> {
        self.begin(fault.step).await?;
        sleep(fault.lasts).await;
        self.end(fault.step).await
    }

    /// Kills or pauses a server, or cuts it off from etcd or from all. One that may be deposed and not know
    /// it is asked for what it owned, before it goes on.
    async fn hit_server(&mut self, fault: &Fault<'_>, ask: Ask<'_>) -> anyhow::Result<Option<Hit>> {
        let Fault { kind, target, lasts, .. } = *fault;
        let (direct, others) = (self.direct(target)?, self.others(target)?);
        let samples = if kind.asks_deposed() { Some(Samples::create(&direct).await) } else { None };
        let gives_answers = kind.asks_deposed() && kind != FaultKind::ServerPaused;
        let before = if gives_answers { self.settled(fault).await } else { self.own_view(fault).await };
        self.begin(fault.step).await?;
        let at = Instant::now();
        let owned = if gives_answers {
            before
        } else {
            let owned = self.still_owned(target, before).await;
            sleep(lasts.saturating_sub(at.elapsed())).await;
            owned
        };
        let (mut hit, mut answers) = (None, None);
        if let Some(owned) = owned {
            let is_deposed = self.is_deposed(fault, &owned, at + lasts).await;
            let this = hit.insert(Hit::new(kind, at, is_deposed, move |id| owned.has(id)));
            if let Some(samples) = samples {
                if let Some(others) = others.filter(|_| is_deposed) {
                    answers = Some(samples.ask(&others, direct.connection(), |id| this.owned(id)).await);
                }
                ask(this, direct.connection());
                while at.elapsed() + ASK_EVERY < lasts {
                    sleep(ASK_EVERY).await;
                    ask(this, direct.connection());
                }
                sleep(ON_ITS_WAY).await;
            }
        }
        sleep(lasts.saturating_sub(at.elapsed())).await;
        self.end(fault.step).await?;
        if let (Some(hit), Some(answers)) = (&mut hit, answers) {
            hit.stale = answers.collect().await;
        }
        Ok(hit)
    }

    /// The shards of a server in its own view, before this fault. If all servers have shards by then, it is
    /// asked until it says which, within [`LONGEST_VIEW`].
    async fn own_view(&self, fault: &Fault<'_>) -> Option<Owned> {
        let view = || self.shards_of(fault.target, fault.target);
        self.once_known(fault, view).await
    }

    /// What `view` gives; of a fault that begins when all servers have shards: as soon as it gives some,
    /// within [`LONGEST_VIEW`].
    async fn once_known<V: Future<Output = Option<Owned>>>(
        &self,
        fault: &Fault<'_>,
        view: impl Fn() -> V,
    ) -> Option<Owned> {
        let deadline = Instant::now() + LONGEST_VIEW;
        loop {
            let seen = view().await.filter(|owned| !owned.epochs.is_empty());
            if seen.is_some() || !fault.is_alone || Instant::now() >= deadline {
                return seen;
            }
            sleep(PROBE_EVERY).await;
        }
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
            let after = self.shards_as_others_say(target).await?;
            owned.epochs.retain(|shard, epoch| after.epochs.get(shard) == Some(epoch));
        }
        Some(owned)
    }

    /// The shards of a server of which another server knows, if there are any.
    async fn settled(&self, fault: &Fault<'_>) -> Option<Owned> {
        let target = fault.target;
        let view = || async move {
            let mut owned = self.shards_of(target, target).await?;
            let told = self.shards_as_others_say(target).await?;
            owned.epochs.retain(|shard, epoch| told.epochs.get(shard) == Some(epoch));
            Some(owned)
        };
        self.once_known(fault, view).await
    }

    /// The shards of a server in the view of the first other one that answers.
    async fn shards_as_others_say(&self, target: usize) -> Option<Owned> {
        for other in self.others_of(target) {
            if let Some(told) = self.shards_of(target, other).await {
                return Some(told);
            }
        }
        None
    }

    /// Whether other servers have taken over shards that this server owned: as soon as one of them says so.
    /// Of a fault that outlasts the lease they are asked for longer than until the end of the fault, `end`:
    /// on a busy machine a take-over takes long.
    async fn is_deposed(&self, fault: &Fault<'_>, owned: &Owned, end: Instant) -> bool {
        let Fault { target, .. } = *fault;
        let is_awaited = fault.kind.outlasts(fault.lasts, self.size.lease)
            && self.size.servers > 1
            && !owned.epochs.is_empty();
        let end = if is_awaited { end + LEASES_TO_TAKE_OVER * self.size.lease } else { end };
        let has_some = |owner: &ClusterServer| {
            owner.name != server_name(target)
                && owner.shards.iter().any(|shard| owned.epochs.contains_key(&shard.shard))
        };
        loop {
            for other in self.others_of(target) {
                if let Ok(Ok(told)) = timeout(LONGEST_VIEW, self.probes[other].cluster()).await
                    && told.servers.iter().any(has_some)
                {
                    return true;
                }
            }
            if Instant::now() >= end {
                return false;
            }
            sleep(PROBE_EVERY).await;
        }
    }

    /// The other servers.
    fn others_of(&self, server: usize) -> impl Iterator<Item = usize> + use<M> {
        let all = self.size.servers;
        (1..all).map(move |step| (server + step) % all)
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
        Ok(Some(self.machines.connect(of_servers(&self.machines, self.others_of(server)))?))
    }
}
