//! Principals with a connection of their own, and the one that creates instances.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context as _;
use stickycas_proto::principal::PRINCIPAL_KEY;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{CreateRequest, EndlessPatience, Parameters, RefusalReason};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::servers::{COORDINATOR, Server};
use crate::workload::Shape;

/// A connected principal.
#[derive(Clone)]
pub(crate) struct Principal {
    pub(crate) channel: Channel,
    /// The name in its metadata. A server that does nothing does not read it, but receives the same bytes.
    name: MetadataValue<Ascii>,
}

impl Principal {
    /// Connects it to a server.
    pub(crate) async fn of(server: &Server, name: &str) -> anyhow::Result<Self> {
        Self::connect(&server.url, name, server.clients.as_deref(), None).await
    }

    /// `clients`: the folder with a folder of credentials for each; `None`: the server believes names.
    /// `from`: this address of the machine; `None`: that of its choice.
    pub(crate) async fn connect(
        url: &str,
        name: &str,
        clients: Option<&Path>,
        from: Option<IpAddr>,
    ) -> anyhow::Result<Self> {
        let mut endpoint = Endpoint::from_shared(url.to_owned())?.local_address(from);
        if let Some(clients) = clients {
            endpoint = endpoint.tls_config(tls(&clients.join(name))?)?;
        }
        Ok(Self { channel: endpoint.connect().await?, name: name.parse()? })
    }

    /// A request of this principal.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(PRINCIPAL_KEY, self.name.clone());
        request
    }
}

/// The certificate and key of the owner of this folder of credentials, and the certificate that the owner
/// trusts.
fn tls(folder: &Path) -> anyhow::Result<ClientTlsConfig> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).with_context(|| path.display().to_string())
    };
    Ok(ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.crt")?))
        .identity(Identity::from_pem(read("tls.crt")?, read("tls.key")?)))
}

/// The coordinator, which creates instances of one shape.
#[derive(Clone)]
pub(crate) struct Creator {
    pub(crate) principal: Principal,
    client: InstanceServiceClient<Channel>,
    shape: Shape,
}

impl Creator {
    /// Over a connection of its own.
    pub(crate) async fn connect(server: &Server, shape: Shape) -> anyhow::Result<Self> {
        let principal = Principal::of(server, COORDINATOR).await?;
        let client = InstanceServiceClient::new(principal.channel.clone());
        Ok(Self { principal, client, shape })
    }

    /// Creates an instance whose processes are these principals, and returns its id. A busy server refuses a
    /// creator that is far ahead of those who play: the creation is then repeated later.
    pub(crate) async fn create(&mut self, roster: Vec<String>) -> anyhow::Result<String> {
        const MOST: usize = 1_000;
        let Shape { processes, warp_size, read_size, pipeline } = self.shape;
        let parameters = Parameters {
            processes,
            warp_size,
            read_size,
            patience_choice: Some(PatienceChoice::EndlessPatience(EndlessPatience {})),
            pipeline,
            ..Parameters::default()
        };
        let request = CreateRequest { name: String::new(), parameters: Some(parameters), roster };
        let mut tries = 0;
        loop {
            let refused = match self.client.create(self.principal.request(request.clone())).await {
                Ok(created) => {
                    let instance = created.into_inner().instance;
                    return Ok(instance.context("no instance in the answer")?.instance_id);
                }
                Err(refused) => refused,
            };
            let refusal = RpcRefusal::from_status(&refused);
            let busy = refusal.filter(|refusal| refusal.reason == RefusalReason::TooManyInstances);
            let Some(wait) = busy.and_then(|refusal| refusal.retry_after).filter(|_| tries < MOST) else {
                return Err(refused.into());
            };
            tries += 1;
            tokio::time::sleep(wait).await;
        }
    }
}
