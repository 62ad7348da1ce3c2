//! The channel to a server, and the principal that requests on it name.
//!
//! A [`Connection`] opens when it is first used, and again by itself after it broke; it may be shared by any
//! number of clients of one principal. [`crate::Error`] tells its errors apart.
//!
//! Only [`crate::raw`] shows this module: its types are those of tonic.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use hyper_util::rt::TokioIo;
use stickycas_certificates::{Fault, fault};
use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, PRINCIPAL_KEY, is_principal_name};
use stickycas_proto::v1::RefusalReason;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::judge_service_client::JudgeServiceClient;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tower::service_fn;

use crate::address::Address;
use crate::credentials::{Credentials, Token};
use crate::error::Error;

/// How long one try to connect may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The silence on an open stream after which a client pings the server, unless another time is given. An idle
/// connection is not pinged: servers of other makers punish that.
pub const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(20);
/// The same of a client of several servers. With half as long again for the answer it is less than the usual
/// lease: when a silent server has lost its instances, its clients ask the new owner.
pub const KEEP_ALIVE_OF_CLUSTER: Duration = Duration::from_secs(3);

/// The server's address, the principal, and the settings of the channel.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    server: String,
    principal: String,
    endpoint: Endpoint,
    keep_alive: Duration,
    metadata: MetadataValue<Ascii>,
    token: Option<Token>,
    /// The credentials by which connections prove the principal, so that there is no other on them.
    credentials: Option<Credentials>,
}

impl ClientConfig {
    /// The server at this address (`http://host:port`), for this principal. It has to believe the name.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the address is none, or the principal is no name of a principal.
    pub fn new(server: &str, principal: &str) -> Result<Self, Error> {
        Self::to(server, principal, None)
    }

    /// The same; with credentials, which are those of the principal, by TLS to `https://host:port`.
    ///
    /// # Errors
    /// The same, or if the credentials cannot be used.
    pub(crate) fn to(
        server: &str,
        principal: &str,
        credentials: Option<&Credentials>,
    ) -> Result<Self, Error> {
        let mut endpoint = endpoint(server, if credentials.is_some() { "https" } else { "http" })?;
        if let Some(credentials) = credentials {
            endpoint = endpoint.tls_config(credentials.tls()).map_err(|error| {
                let cause =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                let folder = credentials.folder().display();
                Error::InvalidArgument(format!("{folder}: the credentials cannot be used: {cause}"))
            })?;
        }
        let metadata = identity(principal)?;
        let (token, credentials) = (credentials.and_then(Credentials::token), credentials.cloned());
        let (server, principal) = (server.to_owned(), principal.to_owned());
        let keep_alive = DEFAULT_KEEP_ALIVE;
        Ok(Self { server, principal, endpoint, keep_alive, metadata, token, credentials }
            .with_keep_alive(keep_alive))
    }

    /// The same for another server.
    fn of_server(&self, address: &Address) -> Result<Self, Error> {
        let scheme = if self.credentials.is_some() { "https" } else { "http" };
        let other = Self::to(&format!("{scheme}://{address}"), &self.principal, self.credentials.as_ref())?;
        Ok(other.with_keep_alive(self.keep_alive))
    }

    /// The silence on an open stream after which the server is pinged.
    #[cfg(test)]
    pub(crate) fn keep_alive(&self) -> Duration {
        self.keep_alive
    }

    /// The same with another keep-alive than [`DEFAULT_KEEP_ALIVE`].
    #[must_use]
    pub fn with_keep_alive(mut self, interval: Duration) -> Self {
        self.endpoint = self.endpoint.http2_keep_alive_interval(interval).keep_alive_timeout(interval / 2);
        self.keep_alive = interval;
        self
    }

    /// The address as given.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.endpoint.uri().authority().map_or("", |authority| authority.as_str())
    }

    /// Host and port, as servers of a cluster name each other.
    pub(crate) fn address(&self) -> Address {
        Address::of(self.endpoint.uri())
    }

    /// The principal.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// The credentials by which connections prove the principal; `None`: the server believes the name.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The fault for which this server can never be reached, if it has one.
    pub(crate) async fn fault(&self) -> Option<Fault> {
        fault(&self.server, self.credentials.as_ref().map(Credentials::folder)).await
    }

    /// The value of the metadata key `authorization` in every call, if a token proves the principal.
    #[must_use]
    pub fn authorization(&self) -> Option<MetadataValue<Ascii>> {
        self.token.as_ref().and_then(Token::authorization)
    }
}

fn identity(principal: &str) -> Result<MetadataValue<Ascii>, Error> {
    let name = Some(principal).filter(|name| is_principal_name(name.as_bytes()));
    let metadata = name.and_then(|name| name.parse().ok());
    metadata
        .ok_or_else(|| Error::InvalidArgument(format!("principal {principal:?}: give {PRINCIPAL_GRAMMAR}")))
}

fn endpoint(server: &str, scheme: &str) -> Result<Endpoint, Error> {
    let wrong =
        |why: &str| Error::InvalidArgument(format!("server {server:?}: give {scheme}://host:port ({why})"));
    let endpoint = Endpoint::from_shared(server.to_owned()).map_err(|error| wrong(&error.to_string()))?;
    match endpoint.uri().scheme_str() {
        Some(given) if given == scheme => {}
        Some("http") => {
            let why = "credentials are shown over TLS only: give https://host:port, or no credentials";
            return Err(Error::InvalidArgument(format!("server {server:?}: {why}")));
        }
        Some("https") => {
            let why = "TLS needs credentials: give a folder of them too, or http://host:port";
            return Err(Error::InvalidArgument(format!("server {server:?}: {why}")));
        }
        Some(_) => return Err(wrong("only http and https are spoken")),
        None => return Err(wrong("the scheme is missing")),
    }
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        // Small messages that somebody waits for: nothing is gained by collecting them.
        .tcp_nodelay(true)
        .keep_alive_while_idle(false))
}

/// A channel to a [`ClientConfig`].
#[derive(Clone, Debug)]
pub struct Connection {
    config: Arc<ClientConfig>,
    channel: Channel,
    /// `None`: TCP.
    connector: Option<Connector>,
}

/// Opens channels over byte streams in the place of TCP.
#[derive(Clone)]
struct Connector(Arc<dyn Fn(&Endpoint) -> Channel + Send + Sync>);

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").finish_non_exhaustive()
    }
}

/// Puts the principal beside each request, and the token that proves it, if there is one.
#[derive(Clone, Debug)]
pub struct Identify {
    principal: MetadataValue<Ascii>,
    token: Option<Token>,
}

impl Interceptor for Identify {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(PRINCIPAL_KEY, self.principal.clone());
        if let Some(authorization) = self.token.as_ref().and_then(Token::authorization) {
            request.metadata_mut().insert("authorization", authorization);
        }
        Ok(request)
    }
}

/// A channel on which every request names its principal.
pub type Identified = InterceptedService<Channel, Identify>;

impl Connection {
    /// A connection that opens when it is first used. Needs a tokio runtime around it.
    #[must_use]
    pub fn lazy(config: ClientConfig) -> Self {
        let channel = config.endpoint.connect_lazy();
        Self { config: config.into(), channel, connector: None }
    }

    /// The same over byte streams that `connect` opens, in place of TCP: it is given the address of a server,
    /// host and port.
    #[must_use]
    pub fn lazy_over<F, T>(
        config: ClientConfig,
        connect: impl Fn(String) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<T>> + Send + 'static,
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let open = move |endpoint: &Endpoint| {
            let connect = connect.clone();
            endpoint.connect_with_connector_lazy(service_fn(move |uri: Uri| {
                let connecting = connect(Address::of(&uri).to_string());
                async move { connecting.await.map(TokioIo::new) }
            }))
        };
        let channel = open(&config.endpoint);
        Self { config: config.into(), channel, connector: Some(Connector(Arc::new(open))) }
    }

    /// One try to open a connection now.
    ///
    /// # Errors
    /// [`Error::Unreachable`].
    pub async fn open(config: ClientConfig) -> Result<Self, Error> {
        let connected = config.endpoint.connect().await;
        let channel = connected.map_err(|error| {
            Error::from_status(&config.server, &Status::from_error(error.into())).before_anything_was_sent()
        })?;
        Ok(Self { config: config.into(), channel, connector: None })
    }

    /// A connection of the same principal, with the same settings, to another server.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn to_server(&self, address: &Address) -> Result<Self, Error> {
        let config = self.config.of_server(address)?;
        let channel = match &self.connector {
            Some(Connector(open)) => open(&config.endpoint),
            None => config.endpoint.connect_lazy(),
        };
        Ok(Self { config: config.into(), channel, connector: self.connector.clone() })
    }

    /// The same channel, for the principal of another connection.
    pub(crate) fn identified_as(&self, other: &Self) -> Self {
        if self.config.principal == other.config.principal {
            return self.clone();
        }
        let ClientConfig { server, endpoint, keep_alive, .. } = ClientConfig::clone(&self.config);
        let config = ClientConfig { server, endpoint, keep_alive, ..ClientConfig::clone(&other.config) };
        Self { config: config.into(), channel: self.channel.clone(), connector: self.connector.clone() }
    }

    /// The same connection for another principal: the two share one channel. Fit where a program plays many
    /// processes; the server limits the streams on it. With credentials, both must be in one file of tokens:
    /// a certificate is shown once, for the whole connection, and a token with each call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the principal is no name of a principal, or the credentials are not its
    /// own.
    pub fn as_principal(&self, principal: &str) -> Result<Self, Error> {
        let credentials = self.config.credentials.as_ref();
        let credentials =
            credentials.map(|own| own.of(principal).map_err(|_| other_principal(own, principal)));
        let credentials = credentials.transpose()?;
        let metadata = identity(principal)?;
        let token = credentials.as_ref().and_then(Credentials::token);
        let principal = principal.to_owned();
        let config =
            ClientConfig { principal, metadata, token, credentials, ..ClientConfig::clone(&self.config) };
        Ok(Self { config: config.into(), channel: self.channel.clone(), connector: self.connector.clone() })
    }

    /// The server's address and the principal.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// The list's service, for callers that speak it without a [`crate::Client`].
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
        let (principal, token) = (self.config.metadata.clone(), self.config.token.clone());
        InterceptedService::new(self.channel.clone(), Identify { principal, token })
    }

    /// The fault for which this server can never be reached, if it has one.
    pub(crate) async fn fault(&self) -> Option<Fault> {
        match self.connector {
            // There is no address that could be asked.
            Some(_) => None,
            None => self.config.fault().await,
        }
    }

    /// The error of a call that failed on this connection with this status.
    #[must_use]
    pub fn error(&self, status: &Status) -> Error {
        Error::from_status(&self.config.server, status)
    }

    /// The error of an open stream that has ended with this status. A status without a refusal of StickyCAS
    /// means that the connection broke, whatever the code: proxies make such ends. The token of the stream
    /// may have expired, and another be in the file by now: opening the stream again shows it.
    pub(crate) fn stream_error(&self, status: &Status) -> Error {
        let error = self.error(status);
        match (&error, &self.config.token) {
            (Error::UnexpectedPeer { .. }, _) => self.no_answer(&error.to_string()),
            (Error::Refused(refused), Some(token)) if refused.reason == RefusalReason::NoIdentity => {
                token.read_again();
                self.no_answer(&error.to_string())
            }
            _ => error,
        }
    }

    /// No answer in time, or the end of a stream that should go on.
    #[must_use]
    pub fn no_answer(&self, cause: &str) -> Error {
        Error::unreachable(&self.config.server, cause, true)
    }
}

/// A principal for which these credentials are not.
fn other_principal(own: &Credentials, principal: &str) -> Error {
    let why = if own.are_of_many() {
        format!("{principal:?}: there is no token of it in {}", own.folder().display())
    } else {
        let own = own.principal();
        format!("{principal:?}: a connection with the credentials of {own} is for that principal alone")
    };
    Error::InvalidArgument(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(server: &str, principal: &str) -> String {
        ClientConfig::new(server, principal).unwrap_err().to_string()
    }

    #[test]
    fn an_address_needs_its_scheme() {
        assert!(ClientConfig::new("http://127.0.0.1:7420", "p1").is_ok());
        assert!(refused("127.0.0.1:7420", "p1").contains("give http://host:port"));
        assert!(refused("https://127.0.0.1:7420", "p1").contains("TLS needs credentials"));
        assert!(refused("", "p1").contains("give http://host:port"));
    }

    #[test]
    fn a_principal_has_a_name() {
        assert_eq!(refused("http://h:1", ""), format!("principal \"\": give {PRINCIPAL_GRAMMAR}"));
        assert!(refused("http://h:1", "a\nb").starts_with("principal"));
    }

    #[tokio::test]
    async fn an_absent_server_was_sent_nothing() {
        // Bound and dropped: nobody listens on this port.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = ClientConfig::new(&format!("http://127.0.0.1:{port}"), "p1").unwrap();
        let error = Connection::open(config.clone()).await.unwrap_err();
        assert!(error.may_retry() && !error.may_have_happened(), "{error:?}");
        let request = stickycas_proto::v1::ListRequest::default();
        let lazy = Connection::lazy(config);
        let error = lazy.error(&lazy.instances().list(request).await.unwrap_err());
        assert!(error.may_retry() && !error.may_have_happened(), "{error:?}");
        assert!(error.to_string().contains("refused"), "the cause is told: {error}");
    }
}
