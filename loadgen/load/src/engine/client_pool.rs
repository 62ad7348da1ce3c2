//! The clients of a load: for each roster, n principals, each with its connection and, over Attach, its
//! stream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use stickycas_client::raw::Connection;
use stickycas_client::{Client, RetryPolicy};
use stickycas_harness::run::{Identities, ServerHandle};
use stickycas_model::types::ProcessId;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::Shared;
use super::instance_state::InstanceState;
use super::process_task::ProcessTask;
use super::stream::{StreamCommand, StreamHandle};
use super::unary::Caller;
use crate::measure::Principal;
use crate::profile::{Profile, Transport};

/// Connections opened at a time.
const AT_A_TIME: usize = 64;
/// Attach streams opened at a time: all 65,536 of a large load at once would keep client and server from
/// anything else for so long that connections count as broken.
const STREAMS_AT_A_TIME: usize = 1_024;

/// See the module.
pub(super) struct ClientPool {
    groups: Vec<RosterClients>,
    shared: Arc<Shared>,
}

/// The principals of one roster.
struct RosterClients {
    roster: Vec<String>,
    clients: Vec<PooledClient>,
}

/// One principal.
struct PooledClient {
    connection: Connection,
    /// Its stream, if it has one.
    stream: Option<Mutex<StreamHandle>>,
}

impl ClientPool {
    /// Connects all principals.
    pub(super) async fn gather(
        server: &ServerHandle,
        profile: &Profile,
        shared: &Arc<Shared>,
    ) -> anyhow::Result<Self> {
        if !server.identities().may_share_connections() && profile.load.principals_per_connection.get() > 1 {
            bail!(
                "principals_per_connection = {}: with certificates a connection is one principal's, give 1",
                profile.load.principals_per_connection
            );
        }
        let mut groups = Vec::new();
        for group in 1..=profile.load.rosters.get() as usize {
            let roster: Vec<String> = ProcessId::all(profile.params.processes())
                .map(|process| format!("{}-{group}-{process}", profile.load.principal_prefix.0))
                .collect();
            let connections = connect(server, &roster, profile, shared.time_to_open()).await?;
            let clients = clients(connections, group - 1, profile.load.transport, shared).await?;
            groups.push(RosterClients { roster, clients });
        }
        Ok(Self { groups, shared: Arc::clone(shared) })
    }

    /// The roster of the instance with this number.
    pub(super) fn roster(&self, instance: u64) -> Vec<String> {
        self.groups[self.group(instance)].roster.clone()
    }

    /// The principal that plays this process of the instance with this number.
    pub(super) fn principal(&self, instance: u64, process: ProcessId) -> Principal {
        Principal { group: self.group(instance), process }
    }

    /// Which group plays the instance with this number.
    fn group(&self, instance: u64) -> usize {
        usize::try_from(instance % self.groups.len() as u64).expect("it is below a length")
    }

    /// Starts a task for each process of this instance that joins.
    pub(super) fn play(&self, state: &Arc<InstanceState>) {
        let group = self.group(state.number);
        let clients = &self.groups[group].clients;
        for (process, client) in ProcessId::all(state.drawn.params.processes()).zip(clients) {
            if let Some(task) = ProcessTask::begin(state, process) {
                self.start_task(client, task, Principal { group, process });
            }
        }
    }

    fn start_task(&self, client: &PooledClient, task: ProcessTask, principal: Principal) {
        let Some(stream) = &client.stream else {
            let (connection, shared) = (client.connection.clone(), Arc::clone(&self.shared));
            tokio::spawn(Caller { connection, shared, principal }.play(task));
            return;
        };
        let mut stream = stream.lock().expect("nobody panics while holding it");
        let mut order = StreamCommand::Begin(Box::new(task));
        while let Err(refused) = stream.give(order) {
            // It broke, or has too many channels that never come free: a new one takes what is new.
            *stream = StreamHandle::open(client.connection.clone(), Arc::clone(&self.shared), principal).0;
            order = refused;
        }
    }

    /// Ends the tasks of an instance that is over.
    pub(super) fn clear(&self, state: &InstanceState) {
        for client in &self.groups[self.group(state.number)].clients {
            if let Some(stream) = &client.stream {
                // A stream that is gone has left already.
                let _ = stream.lock().expect("nobody panics while holding it").give(StreamCommand::Clear);
            }
        }
    }
}

/// A connection for each principal of a roster, as many of them to one as the profile says, all open.
async fn connect(
    server: &ServerHandle,
    roster: &[String],
    profile: &Profile,
    time_to_open: Duration,
) -> anyhow::Result<Vec<Connection>> {
    let together = profile.load.principals_per_connection.get() as usize;
    let has_tokens = matches!(server.identities(), Identities::Tokens(_));
    let mut connections = Vec::with_capacity(roster.len());
    for batch in roster.chunks(together * AT_A_TIME) {
        let mut opening = Vec::new();
        for principals in batch.chunks(together) {
            let first = server.identities().client(server.url(), &principals[0])?.connect_lazy()?;
            let first = first.connection().config().clone();
            opening.push(AbortOnDropHandle::new(tokio::spawn(async move {
                let opened = timeout(time_to_open, Connection::open(first))
                    .await
                    .context("no connection in time")??;
                if has_tokens {
                    identify(&opened).await?;
                }
                anyhow::Ok(opened)
            })));
        }
        for (principals, opened) in batch.chunks(together).zip(opening) {
            let opened = opened.await?.context("cannot connect everybody")?;
            for principal in principals {
                connections.push(opened.as_principal(principal)?);
            }
        }
    }
    Ok(connections)
}

/// One call of the first principal on a connection. From then on the connection is charged to that principal:
/// if all began at once, each token would be charged to the one small share of clients without identity until
/// the first was verified.
async fn identify(connection: &Connection) -> anyhow::Result<()> {
    let client = Client::on(connection.clone(), RetryPolicy::default());
    client.counts(&[]).await.context("cannot identify the first principal of a connection")?;
    Ok(())
}

async fn clients(
    connections: Vec<Connection>,
    group: usize,
    transport: Transport,
    shared: &Arc<Shared>,
) -> anyhow::Result<Vec<PooledClient>> {
    let mut clients = Vec::with_capacity(connections.len());
    let mut opening = Vec::new();
    let processes = ProcessId::all(u32::try_from(connections.len()).unwrap_or(u32::MAX));
    for (process, connection) in processes.zip(connections) {
        let principal = Principal { group, process };
        let stream = (transport == Transport::Attach).then(|| {
            let (handle, is_open) = StreamHandle::open(connection.clone(), Arc::clone(shared), principal);
            opening.push(is_open);
            Mutex::new(handle)
        });
        clients.push(PooledClient { connection, stream });
        if opening.len() == STREAMS_AT_A_TIME {
            all_open(std::mem::take(&mut opening)).await?;
        }
    }
    all_open(opening).await?;
    Ok(clients)
}

async fn all_open(opening: Vec<oneshot::Receiver<Result<(), String>>>) -> anyhow::Result<()> {
    for is_open in opening {
        if let Err(why) = is_open.await.context("a stream's task is gone")? {
            bail!("cannot open everybody's Attach stream: {why}");
        }
    }
    Ok(())
}
