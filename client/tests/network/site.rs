//! A server with credentials, and clients with credentials of every kind.

#![allow(unreachable_pub)]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use stickycas_certificates::development::{Certified, DevelopmentCas, TokenIssuer};
use stickycas_client::{AccessNumber, Client, Credentials, Error, InstanceId, RefusalReason, WaitMode};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_server::{AuthMode, Config, CredentialFolder, Listeners, TokenConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};

pub const DAY: Duration = Duration::from_secs(24 * 3600);
pub const DOMAIN: &str = "example.org";
/// The claims of tokens that the server takes.
pub const ISSUER: &str = "https://issuer.example.org";
pub const AUDIENCE: &str = "lists";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A server with its CAs and its issuer of tokens, and the folders of its clients.
pub struct Site {
    pub folder: TempDir,
    pub cas: DevelopmentCas,
    pub issuer: TokenIssuer,
    server_ca: CertificateDer<'static>,
    /// The listeners for certificates and for tokens.
    pub address: String,
    pub token_address: String,
}

impl Site {
    /// With a coordinator and an observer, each of the name of its role.
    pub async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// The same with a changed configuration.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cas = DevelopmentCas::new(DOMAIN, DAY).unwrap();
        let issuer = TokenIssuer::new("key-1").unwrap();
        let server = cas.server(&["localhost".to_owned()]).unwrap();
        let path = folder.path().join("server");
        cas.write_server(&path, &server).unwrap();
        issuer.write_key_set(&path).unwrap();
        let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (grpc, tokens) = (bind().await, bind().await);
        let [address, token_address] =
            [&grpc, &tokens].map(|it| format!("https://localhost:{}", it.local_addr().unwrap().port()));
        let credentials =
            CredentialFolder { path, trust_domain: DOMAIN.to_owned(), allow_missing_revocation_list: false };
        let mut config = Config {
            auth_mode: AuthMode::Certificates(credentials),
            tokens: Some(TokenConfig { issuer: ISSUER.to_owned(), audience: AUDIENCE.to_owned() }),
            ..Config::insecure(["coordinator".to_owned()])
        };
        config.observers.insert("observer".to_owned());
        config.reload_every = Duration::from_millis(20);
        change(&mut config);
        let listeners = Listeners { tokens: Some(tokens), ..Listeners::from(grpc) };
        tokio::spawn(async move {
            stickycas_server::run(listeners, config, std::future::pending()).await.unwrap();
        });
        let any = cas.client("any").unwrap();
        cas.write_client(&folder.path().join("any"), &any).unwrap();
        let server_ca = CertificateDer::from_pem_file(folder.path().join("any/ca.crt")).unwrap();
        Self { folder, cas, issuer, server_ca, address, token_address }
    }

    /// The folder of the server.
    pub fn server(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// The folder of a principal with a certificate of the clients' CA of this site.
    pub fn folder_of(&mut self, principal: &str) -> PathBuf {
        let certified = self.cas.client(principal).unwrap();
        self.write(principal, &certified)
    }

    /// The folder of this name for this certificate.
    pub fn write(&self, name: &str, certified: &Certified) -> PathBuf {
        let folder = self.folder.path().join(name);
        self.cas.write_client(&folder, certified).unwrap();
        folder
    }

    /// A client with a certificate.
    pub fn client(&mut self, principal: &str) -> Client {
        let credentials = Credentials::read(&self.folder_of(principal)).unwrap();
        assert_eq!(credentials.principal(), principal);
        Client::builder(&*self.address).credentials(credentials).connect_lazy().unwrap()
    }

    /// A client with a token of this principal.
    pub fn token_client(&self, principal: &str) -> Client {
        self.client_with_token(&self.token(principal, &json!({})))
    }

    pub fn client_with_token(&self, token: &str) -> Client {
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        self.cas.write_token_client(&folder, token).unwrap();
        let credentials = Credentials::read(&folder).unwrap();
        Client::builder(&*self.token_address).credentials(credentials).connect_lazy().unwrap()
    }

    /// A token of this principal with these changes of its claims; null takes one away.
    pub fn token(&self, principal: &str, changes: &Value) -> String {
        self.issuer.sign(&claims(principal, changes)).unwrap()
    }

    /// A connection to the listener for tokens.
    pub fn token_channel(&self) -> Channel {
        let ca = Certificate::from_pem(std::fs::read(self.folder.path().join("any/ca.crt")).unwrap());
        let tls = ClientTlsConfig::new().ca_certificate(ca);
        let endpoint = Endpoint::from_shared(self.token_address.clone()).unwrap().tls_config(tls).unwrap();
        endpoint.connect_lazy()
    }

    /// A connection that shows the certificate in this folder.
    pub fn channel(&self, folder: &Path) -> Channel {
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("ca.crt")))
            .identity(Identity::from_pem(read("tls.crt"), read("tls.key")));
        let endpoint = Endpoint::from_shared(self.address.clone()).unwrap().tls_config(tls).unwrap();
        endpoint.connect_lazy()
    }

    /// The TLS of a client that shows the certificate in this folder, or none.
    pub fn tls(&self, folder: Option<&Path>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.server_ca.clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match folder {
            None => config.with_no_client_auth(),
            Some(folder) => {
                let certificate = CertificateDer::from_pem_file(folder.join("tls.crt")).unwrap();
                let key = PrivateKeyDer::from_pem_file(folder.join("tls.key")).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    /// A connection with the certificate in this folder, or none.
    pub async fn connect(&self, folder: Option<&Path>) -> TlsStream<TcpStream> {
        connect(&self.address, self.tls(folder).into()).await
    }

    /// What a server says to a client that shows the certificate in this folder, or none: the alert in words.
    pub async fn alert(&self, folder: Option<&Path>) -> String {
        speak_in_words(&mut self.connect(folder).await).await
    }
}

/// A connection by TLS to this address.
pub async fn connect(address: &str, config: Arc<ClientConfig>) -> TlsStream<TcpStream> {
    try_connect(address, config).await.unwrap()
}

/// The same, which may fail in the handshake.
pub async fn try_connect(address: &str, config: Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let port = address.rsplit(':').next().unwrap();
    let tcp = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(config).connect(name, tcp).await
}

/// Begins with HTTP/2. In TLS 1.3 a client has shaken hands before the server has seen its certificate, so
/// this tells whether it is let in.
pub async fn speak(tls: &mut TlsStream<TcpStream>) -> io::Result<()> {
    tls.write_all(PREFACE).await?;
    tls.read_exact(&mut [0; 9]).await.map(|_| ())
}

/// The same in words: "let in", or the alert.
pub async fn speak_in_words(tls: &mut TlsStream<TcpStream>) -> String {
    let alert = |error: io::Error| error.to_string().replace("received fatal alert: ", "");
    speak(tls).await.map_or_else(alert, |()| "let in".to_owned())
}

/// The claims of a good token of this principal, with these changes; null takes a claim away.
pub fn claims(principal: &str, changes: &Value) -> Value {
    let now = now();
    let mut claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": principal, "iat": now, "nbf": now, "exp": now + 3600,
    });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// What Get is answered on this connection with this metadata.
pub async fn get(
    channel: &Channel,
    instance: InstanceId,
    metadata: &[(&'static str, &str)],
) -> Result<(), Status> {
    let mut request = Request::new(v1::GetRequest {
        instance: Some(v1::get_request::Instance::InstanceId(instance.to_string())),
    });
    for (key, value) in metadata {
        request.metadata_mut().append(*key, value.parse().unwrap());
    }
    InstanceServiceClient::new(channel.clone()).get(request).await.map(drop)
}

/// The reason and the text of a refusal.
pub fn refused(status: &Status) -> (RefusalReason, String) {
    let refusal = RpcRefusal::from_status(status).unwrap_or_else(|| panic!("{status:?}"));
    (refusal.reason, refusal.message)
}

/// An instance of two processes.
pub async fn create(coordinator: &Client, roster: [&str; 2]) -> InstanceId {
    let created = coordinator.create_instance().roster(roster).processes(2).read_size(2).send().await;
    created.unwrap().instance.id
}

/// The first access of a process.
pub async fn append(client: &Client, instance: InstanceId) -> Result<(), Error> {
    client.append(instance, AccessNumber::FIRST, "x", WaitMode::UntilPhase).await.map(drop)
}

/// A stream that watches an instance, and has begun to. It ends for good when the server ends it, where a
/// client would open it again.
pub async fn watching(
    channel: &Channel,
    token: Option<&str>,
    instance: InstanceId,
) -> Streaming<v1::WatchResponse> {
    let mut request = Request::new(v1::WatchRequest {
        instance_id: instance.to_string(),
        snapshot_first: true,
        ..v1::WatchRequest::default()
    });
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let mut watch = InstanceServiceClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
    watch.message().await.unwrap().expect("a snapshot comes first");
    watch
}

/// The status with which a watch ends.
pub async fn end_of(mut watch: Streaming<v1::WatchResponse>) -> Status {
    loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the instance has ended"),
            Err(status) => return status,
        }
    }
}
