//! Principals with a connection of their own, and the one that creates instances.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Context as _;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::parameters::PatienceChoice;
use stickycas_proto::v1::{CreateRequest, EndlessPatience, Parameters};
use stickycas_server::PRINCIPAL_KEY;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::serve::COORDINATOR;

/// A connected principal.
#[derive(Clone)]
pub(crate) struct Principal {
    pub(crate) channel: Channel,
    /// The name in its metadata. A server that does nothing does not read it, but receives the same bytes.
    name: MetadataValue<Ascii>,
}

impl Principal {
    pub(crate) async fn connect(url: &str, name: &str) -> anyhow::Result<Self> {
        Self::certified(url, name, None).await
    }

    /// The same to a server that may know principals by certificates. `clients`: the folder with a folder of
    /// credentials for each; `None`: it believes names.
    pub(crate) async fn certified(url: &str, name: &str, clients: Option<&Path>) -> anyhow::Result<Self> {
        Self::certified_from(url, name, clients, None).await
    }

    /// The same from this address of the machine; `None`: from that of its choice.
    pub(crate) async fn certified_from(
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

/// n, p and r of the instances of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstanceSize {
    pub(crate) processes: u32,
    pub(crate) warp_size: u32,
    pub(crate) read_size: u32,
}

/// The coordinator, which creates instances of one size, with endless patience.
#[derive(Clone)]
pub(crate) struct Creator {
    pub(crate) principal: Principal,
    client: InstanceServiceClient<Channel>,
    size: InstanceSize,
}

impl Creator {
    /// Over a connection of its own.
    pub(crate) async fn connect(url: &str, size: InstanceSize) -> anyhow::Result<Self> {
        Self::certified(url, size, None).await
    }

    /// The same, see [`Principal::certified`].
    pub(crate) async fn certified(
        url: &str,
        size: InstanceSize,
        clients: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let principal = Principal::certified(url, COORDINATOR, clients).await?;
        let client = InstanceServiceClient::new(principal.channel.clone());
        Ok(Self { principal, client, size })
    }

    /// Creates an instance whose processes are these principals, and returns its id. `pipeline`: how many
    /// accesses of a process may wait; `None`: as many as by default.
    pub(crate) async fn create(
        &mut self,
        roster: Vec<String>,
        pipeline: Option<u32>,
    ) -> anyhow::Result<String> {
        let InstanceSize { processes, warp_size, read_size } = self.size;
        let parameters = Parameters {
            processes,
            warp_size,
            read_size,
            patience_choice: Some(PatienceChoice::EndlessPatience(EndlessPatience {})),
            pipeline: pipeline.unwrap_or_default(),
            ..Parameters::default()
        };
        let request = CreateRequest { name: String::new(), parameters: Some(parameters), roster };
        let created = self.client.create(self.principal.request(request)).await?.into_inner();
        Ok(created.instance.context("no instance in the answer")?.instance_id)
    }
}
