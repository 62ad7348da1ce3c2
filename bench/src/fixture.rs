//! A server, its instances and 32 connections to it, one for each process.

use anyhow::Context as _;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{CreateRequest, EndlessPatience, Parameters};
use stickycas_server::PRINCIPAL_KEY;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use crate::serve::{COORDINATOR, Launch, RunningServer, Service};
use crate::stopwatch::Stopwatch;
use crate::workload::{self, Observation, PROCESSES, READ_SIZE, WARP_SIZE};

/// See the module. The server ends when this is dropped.
pub(crate) struct Fixture {
    /// By process.
    pub(crate) connections: Vec<ProcessConnection>,
    /// The ids of the instances.
    pub(crate) ids: Vec<String>,
    /// Whether the server knows instances with these ids: the floor does not.
    pub(crate) real: bool,
    server: RunningServer,
}

/// The connection of one process, from 0.
#[derive(Clone)]
pub(crate) struct ProcessConnection {
    pub(crate) process: usize,
    pub(crate) channel: Channel,
    /// The name in its metadata. The floor does not read it, but receives the same bytes.
    principal: MetadataValue<Ascii>,
}

impl ProcessConnection {
    /// A request of this process.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(PRINCIPAL_KEY, self.principal.clone());
        request
    }
}

/// One connection for each process.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for _ in 0..PROCESSES {
        channels.push(Endpoint::from_shared(url.to_owned())?.connect().await?);
    }
    Ok(channels)
}

/// One connection for each process, with the name of its principal.
async fn connections(url: &str) -> anyhow::Result<Vec<ProcessConnection>> {
    let channels = connect(url).await?.into_iter().enumerate();
    let connection = |(process, channel)| {
        Ok(ProcessConnection { process, channel, principal: principal(process).parse()? })
    };
    channels.map(connection).collect()
}

impl Fixture {
    /// StickyCAS, with this many instances.
    pub(crate) async fn start(instances: usize, launch: &Launch) -> anyhow::Result<Self> {
        let server = RunningServer::start(Service::Stickycas, launch).await?;
        let mut creator = Creator::connect(&server.url).await?;
        let mut ids = Vec::with_capacity(instances);
        for _ in 0..instances {
            ids.push(creator.create().await?);
        }
        Ok(Self { connections: connections(&server.url).await?, ids, real: true, server })
    }

    /// The floor, with ids that belong to no instance.
    pub(crate) async fn start_floor(instances: usize, launch: &Launch) -> anyhow::Result<Self> {
        let server = RunningServer::start(Service::Floor, launch).await?;
        let ids = (0..instances).map(|number| format!("{number:032x}")).collect();
        Ok(Self { connections: connections(&server.url).await?, ids, real: false, server })
    }

    /// Creates further instances.
    pub(crate) async fn creator(&self) -> anyhow::Result<Creator> {
        Creator::connect(&self.server.url).await
    }

    /// Starts a stopwatch that also counts the processor time of the server.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.server.pid())
    }

    /// Judges the observations, by process and then by instance. Those of the floor only have to be equal.
    pub(crate) fn judge(&self, observations: &[Vec<Observation>]) -> anyhow::Result<()> {
        let judge = if self.real { workload::judge } else { workload::agree };
        judge(observations, self.ids.len())
    }
}

fn principal(process: usize) -> String {
    format!("process-{}", process + 1)
}

/// Creates instances, over a connection of its own.
pub(crate) struct Creator {
    client: InstanceServiceClient<Channel>,
    roster: Vec<String>,
}

impl Creator {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let client = InstanceServiceClient::connect(url.to_owned()).await?;
        Ok(Self { client, roster: (0..PROCESSES as usize).map(principal).collect() })
    }

    /// Creates one instance, and returns its id.
    pub(crate) async fn create(&mut self) -> anyhow::Result<String> {
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
            roster: self.roster.clone(),
        });
        request.metadata_mut().insert(PRINCIPAL_KEY, MetadataValue::from_static(COORDINATOR));
        let created = self.client.create(request).await?.into_inner();
        Ok(created.instance.context("no instance in the answer")?.instance_id)
    }
}
