//! The channel to a server, and who we say we are on it.
//!
//! A [`Connection`] opens when it is first used, and again by itself after it broke; it may be shared by any
//! number of clients of one principal. Errors of it are told apart by [`crate::Error`].

use std::time::Duration;

use stickycas_proto::principal::PRINCIPAL_KEY;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::judge_service_client::JudgeServiceClient;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::error::Error;

/// How long one try to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that vanished without a word is noticed after this much silence on an open stream, and half as long
/// again without an answer to a ping. An idle connection is not pinged: servers of other makers punish that.
pub const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Which server, and as whom.
#[derive(Clone, Debug)]
pub struct Target {
    server: String,
    principal: String,
    endpoint: Endpoint,
    metadata: MetadataValue<Ascii>,
}

impl Target {
    /// The server at this address (`http://host:port`), for this principal.
    ///
    /// # Errors
    /// [`Error::Usage`] if the address is none, or the principal is empty or not visible ASCII.
    pub fn new(server: &str, principal: &str) -> Result<Self, Error> {
        let endpoint = endpoint(server)?;
        let metadata = identity(principal)?;
        Ok(Self { server: server.to_owned(), principal: principal.to_owned(), endpoint, metadata }
            .with_keep_alive(DEFAULT_KEEP_ALIVE))
    }

    /// The same, with a peer that vanished without a word being noticed after another time than
    /// [`DEFAULT_KEEP_ALIVE`].
    #[must_use]
    pub fn with_keep_alive(mut self, interval: Duration) -> Self {
        self.endpoint = self.endpoint.http2_keep_alive_interval(interval).keep_alive_timeout(interval / 2);
        self
    }

    /// The address as given.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> &str {
        self.endpoint.uri().authority().map_or("", |authority| authority.as_str())
    }

    /// As whom.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }
}

fn identity(principal: &str) -> Result<MetadataValue<Ascii>, Error> {
    let metadata = principal.parse().ok().filter(|_| !principal.is_empty());
    metadata.ok_or_else(|| {
        Error::Usage(format!("principal {principal:?}: give one or more visible ASCII characters"))
    })
}

fn endpoint(server: &str) -> Result<Endpoint, Error> {
    let wrong = |why: &str| Error::Usage(format!("server {server:?}: give http://host:port ({why})"));
    let endpoint = Endpoint::from_shared(server.to_owned()).map_err(|error| wrong(&error.to_string()))?;
    match endpoint.uri().scheme_str() {
        Some("http") => {}
        Some(_) => return Err(wrong("only http is spoken")),
        None => return Err(wrong("the scheme is missing")),
    }
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        // Small messages that somebody waits for: nothing is gained by collecting them.
        .tcp_nodelay(true)
        .keep_alive_while_idle(false))
}

/// A channel to a [`Target`].
#[derive(Clone, Debug)]
pub struct Connection {
    target: Target,
    channel: Channel,
}

/// Puts the principal beside each request.
#[derive(Clone, Debug)]
pub struct Identify(MetadataValue<Ascii>);

impl Interceptor for Identify {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(PRINCIPAL_KEY, self.0.clone());
        Ok(request)
    }
}

/// A channel on which every request names its principal.
pub type Identified = InterceptedService<Channel, Identify>;

impl Connection {
    /// A connection that opens when it is first used. Needs a tokio runtime around it.
    #[must_use]
    pub fn lazy(target: Target) -> Self {
        let channel = target.endpoint.connect_lazy();
        Self { target, channel }
    }

    /// One try to open a connection now.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub async fn open(target: Target) -> Result<Self, Error> {
        let connected = target.endpoint.connect().await;
        let channel = connected.map_err(|error| {
            Error::from_status(&target.server, &Status::from_error(error.into())).before_anything_was_sent()
        })?;
        Ok(Self { target, channel })
    }

    /// The same connection for another principal: the two share one channel. Fit where a program plays many
    /// processes; the server limits the streams on it.
    ///
    /// # Errors
    /// [`Error::Usage`] if the principal is empty or not visible ASCII.
    pub fn as_principal(&self, principal: &str) -> Result<Self, Error> {
        let metadata = identity(principal)?;
        let target = Target { principal: principal.to_owned(), metadata, ..self.target.clone() };
        Ok(Self { target, channel: self.channel.clone() })
    }

    /// Where it goes, and as whom.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The list's service, for whoever speaks it without a [`crate::Client`].
    #[must_use]
    pub fn list(&self) -> StickyCasServiceClient<Identified> {
        // The server is trusted (SPEC section 10) and a read may return r values: no limit of our own.
        StickyCasServiceClient::new(self.identified()).max_decoding_message_size(usize::MAX)
    }

    /// The service of instances, likewise.
    #[must_use]
    pub fn instances(&self) -> InstanceServiceClient<Identified> {
        InstanceServiceClient::new(self.identified()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) fn server(&self) -> ServerServiceClient<Identified> {
        ServerServiceClient::new(self.identified()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) fn judge(&self) -> JudgeServiceClient<Identified> {
        JudgeServiceClient::new(self.identified())
    }

    /// The channel itself, for calls that no generated client makes. Each request names the principal.
    #[must_use]
    pub fn identified(&self) -> Identified {
        InterceptedService::new(self.channel.clone(), Identify(self.target.metadata.clone()))
    }

    /// What the status of a call that failed on this connection means.
    #[must_use]
    pub fn error(&self, status: &Status) -> Error {
        Error::from_status(&self.target.server, status)
    }

    /// No answer in time, or the end of a stream that should go on.
    pub(crate) fn no_answer(&self, cause: &str) -> Error {
        Error::unreachable(&self.target.server, cause, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(server: &str, principal: &str) -> String {
        Target::new(server, principal).unwrap_err().to_string()
    }

    #[test]
    fn an_address_needs_its_scheme() {
        assert!(Target::new("http://127.0.0.1:7420", "p1").is_ok());
        assert!(refused("127.0.0.1:7420", "p1").contains("give http://host:port"));
        assert!(refused("https://127.0.0.1:7420", "p1").contains("only http is spoken"));
        assert!(refused("", "p1").contains("give http://host:port"));
    }

    #[test]
    fn a_principal_is_visible_ascii() {
        assert_eq!(refused("http://h:1", ""), "principal \"\": give one or more visible ASCII characters");
        assert!(refused("http://h:1", "a\nb").starts_with("principal"));
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_was_sent_nothing() {
        // Bound and dropped: nobody listens on this port.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target = Target::new(&format!("http://127.0.0.1:{port}"), "p1").unwrap();
        let error = Connection::open(target.clone()).await.unwrap_err();
        assert!(error.may_retry() && !error.may_have_happened(), "{error:?}");
        let request = stickycas_proto::v1::ListRequest::default();
        let lazy = Connection::lazy(target);
        let error = lazy.error(&lazy.instances().list(request).await.unwrap_err());
        assert!(error.may_retry() && !error.may_have_happened(), "{error:?}");
        assert!(error.to_string().contains("refused"), "the cause is told: {error}");
    }
}
