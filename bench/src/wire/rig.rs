//! A server, its instances and 32 connections to it; and the stopwatch.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{CreateRequest, EndlessPatience, Parameters, ReadResult};
use stickycas_server::limits::Limits;
use stickycas_server::{Config, PRINCIPAL_KEY};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};

use super::floor;

/// n, the number of processes, each with a connection of its own.
pub(crate) const PROCESSES: u32 = 32;
/// p, the number of processes in a warp.
const WARP_SIZE: u32 = 4;
/// r, the most entries that one read returns: as many as there are warps.
pub(crate) const READ_SIZE: u32 = 8;
/// How often a process appends and reads in one instance.
const ACCESSES_PER_PROCESS: usize = 2;
/// How long a finished instance is kept: so short that finished ones go while others run.
const RETENTION: Duration = Duration::from_millis(100);

const COORDINATOR: &str = "coordinator";

/// See the module. The server ends when this is dropped.
pub(crate) struct Rig {
    /// One per process.
    pub(crate) lines: Vec<Line>,
    /// The instances' ids.
    pub(crate) ids: Vec<String>,
    server: AbortHandle,
}

/// The connection of one process, from 0.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) process: usize,
    pub(crate) channel: Channel,
    /// Who it says it is; the floor is not told.
    pub(crate) principal: Option<MetadataValue<Ascii>>,
}

impl Line {
    /// A request of this process.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(principal) = &self.principal {
            request.metadata_mut().insert(PRINCIPAL_KEY, principal.clone());
        }
        request
    }
}

impl Rig {
    /// The real server with this many instances.
    pub(crate) async fn server(instances: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let limits = Limits { retention: RETENTION, ..Limits::default() };
        let config = Config { limits, ..Config::insecure([COORDINATOR.to_owned()]) };
        let server = tokio::spawn(stickycas_server::run(listener, config, std::future::pending()));
        let principals: Vec<_> = (1..=PROCESSES).map(|process| format!("process-{process}")).collect();
        let ids = create(&url, &principals, instances).await?;
        let mut lines = Vec::new();
        for (process, principal) in principals.iter().enumerate() {
            let channel = Endpoint::from_shared(url.clone())?.connect().await?;
            lines.push(Line { process, channel, principal: Some(principal.parse()?) });
        }
        Ok(Self { lines, ids, server: server.abort_handle() })
    }

    /// A service that does nothing, with instances that nobody has created.
    pub(crate) async fn floor(instances: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server =
            tokio::spawn(Server::builder().add_service(floor::service()).serve_with_incoming(connections));
        let mut lines = Vec::new();
        for process in 0..PROCESSES as usize {
            let channel = Endpoint::from_shared(url.clone())?.connect().await?;
            lines.push(Line { process, channel, principal: None });
        }
        let ids = (0..instances).map(|number| format!("{number:032x}")).collect();
        Ok(Self { lines, ids, server: server.abort_handle() })
    }

    /// Accesses that all processes make in all instances.
    pub(crate) fn accesses(&self) -> usize {
        self.ids.len() * self.lines.len() * ACCESSES_PER_PROCESS
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn create(url: &str, principals: &[String], instances: usize) -> anyhow::Result<Vec<String>> {
    let mut client = InstanceServiceClient::connect(url.to_owned()).await?;
    let mut ids = Vec::with_capacity(instances);
    for _ in 0..instances {
        let parameters = Parameters {
            processes: PROCESSES,
            warp_size: WARP_SIZE,
            read_size: READ_SIZE,
            patience_choice: Some(PatienceChoice::EndlessPatience(EndlessPatience {})),
            ..Parameters::default()
        };
        let mut request = Request::new(CreateRequest {
            name: String::new(),
            parameters: Some(parameters),
            roster: principals.to_vec(),
        });
        request.metadata_mut().insert(PRINCIPAL_KEY, MetadataValue::from_static(COORDINATOR));
        let created = client.create(request).await?.into_inner();
        ids.push(created.instance.context("no instance in the answer")?.instance_id);
    }
    Ok(ids)
}

/// What a process proposes: one of three values, so that who wins the phases decides.
pub(crate) fn proposal(process: usize, instance: usize) -> Bytes {
    const VALUES: [&[u8]; 3] = [b"value  a", b"value  b", b"value  c"];
    Bytes::from_static(VALUES[(process + instance) % VALUES.len()])
}

/// What a process decides: the mode of the sealed list, the smallest of several (D1).
pub(crate) fn decide(read: &ReadResult) -> anyhow::Result<Bytes> {
    ensure!(
        read.sealed && read.values.len() == READ_SIZE as usize,
        "the first read is not the last: {read:?}"
    );
    let mut values: Vec<&Bytes> = read.values.iter().collect();
    values.sort_unstable();
    // The last of the greatest: with the order turned round, the smallest value.
    let runs = values.chunk_by(|a, b| a == b).rev();
    runs.max_by_key(|run| run.len()).map(|run| run[0].clone()).context("nothing was read")
}

/// Fails unless all processes decided the same in each instance. `decisions`: by process, then by instance.
pub(crate) fn check_agreement(decisions: &[Vec<Bytes>], instances: usize) -> anyhow::Result<()> {
    ensure!(decisions.len() == PROCESSES as usize, "{} processes decided", decisions.len());
    for own in decisions {
        ensure!(own.len() == instances, "decided in {} of {instances} instances", own.len());
        ensure!(*own == decisions[0], "two processes decided differently");
    }
    Ok(())
}

/// What one turn took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) accesses: usize,
    pub(crate) wall: Duration,
    /// Processor time of all threads; `None` where the system does not tell.
    pub(crate) processor: Option<Duration>,
}

/// Runs from its creation on.
pub(crate) struct Stopwatch {
    started: Instant,
    processor: Option<Duration>,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), processor: processor_time() }
    }

    pub(crate) fn stop(&self, accesses: usize) -> Sample {
        let wall = self.started.elapsed();
        let processor = processor_time().zip(self.processor).map(|(now, before)| now.saturating_sub(before));
        Sample { accesses, wall, processor }
    }
}

/// Processor time of the living threads of this program, from Linux's schedstat (nanoseconds come first).
fn processor_time() -> Option<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}
