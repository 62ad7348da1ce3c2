//! A server, its instances and 32 connections to it, one for each process.

use anyhow::Context as _;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{CreateRequest, EndlessPatience, Parameters};
use stickycas_server::PRINCIPAL_KEY;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use crate::serve::{Launch, Running, Service};
use crate::stopwatch::Stopwatch;
use crate::work::{self, PROCESSES, READ_SIZE, Saw, WARP_SIZE};

/// The principal that creates instances.
pub(crate) const COORDINATOR: &str = "coordinator";

/// See the module. The server ends when this is dropped.
pub(crate) struct Rig {
    /// One per process.
    pub(crate) lines: Vec<Line>,
    /// The instances' ids.
    pub(crate) ids: Vec<String>,
    /// Whether there are instances behind the ids.
    pub(crate) real: bool,
    server: Running,
}

/// The connection of one process, from 0.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) process: usize,
    pub(crate) channel: Channel,
    /// Who it says it is. The floor does not listen, but the bytes are the same.
    principal: MetadataValue<Ascii>,
}

impl Line {
    /// A request of this process.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(PRINCIPAL_KEY, self.principal.clone());
        request
    }
}

/// A connection for each process.
pub(crate) async fn connect(url: &str) -> anyhow::Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for _ in 0..PROCESSES {
        channels.push(Endpoint::from_shared(url.to_owned())?.connect().await?);
    }
    Ok(channels)
}

/// The same, with who it belongs to.
async fn lines(url: &str) -> anyhow::Result<Vec<Line>> {
    let channels = connect(url).await?.into_iter().enumerate();
    let line = |(process, channel)| Ok(Line { process, channel, principal: principal(process).parse()? });
    channels.map(line).collect()
}

impl Rig {
    /// The real server with this many instances.
    pub(crate) async fn server(instances: usize, launch: &Launch) -> anyhow::Result<Self> {
        let server = Running::start(Service::Stickycas, launch).await?;
        let mut creator = Creator::connect(&server.url).await?;
        let mut ids = Vec::with_capacity(instances);
        for _ in 0..instances {
            ids.push(creator.create().await?);
        }
        Ok(Self { lines: lines(&server.url).await?, ids, real: true, server })
    }

    /// A service that does nothing, with instances that nobody has created.
    pub(crate) async fn floor(instances: usize, launch: &Launch) -> anyhow::Result<Self> {
        let server = Running::start(Service::Floor, launch).await?;
        let ids = (0..instances).map(|number| format!("{number:032x}")).collect();
        Ok(Self { lines: lines(&server.url).await?, ids, real: false, server })
    }

    /// For instances beyond those that it began with.
    pub(crate) async fn creator(&self) -> anyhow::Result<Creator> {
        Creator::connect(&self.server.url).await
    }

    /// Started, and counting the server's processor time too.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.server.pid())
    }

    /// Judges what the processes saw, by process and then by instance. What does nothing decides nothing: there it
    /// is enough that all got the same.
    pub(crate) fn judge(&self, saw: &[Vec<Saw>]) -> anyhow::Result<()> {
        if self.real { work::judge(saw, self.ids.len()) } else { work::agree(saw, self.ids.len()) }
    }
}

fn principal(process: usize) -> String {
    format!("process-{}", process + 1)
}

/// Creates instances over a connection of its own.
pub(crate) struct Creator {
    client: InstanceServiceClient<Channel>,
    roster: Vec<String>,
}

impl Creator {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let client = InstanceServiceClient::connect(url.to_owned()).await?;
        Ok(Self { client, roster: (0..PROCESSES as usize).map(principal).collect() })
    }

    /// One instance; its id.
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
