//! The live page of a server with credentials: who may look, and for how long.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::server_service_client::ServerServiceClient;
use stickycas_proto::v1::{CreateViewerTokenRequest, CreateViewerTokenResponse};
use stickycas_server::{
    AuthMode, Config, CredentialFolder, DevelopmentCas, Listeners, TokenConfig, TokenIssuer,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use crate::harness::browser::{EventStream, get};
use crate::harness::fixtures::{create_request, parameters};
use crate::harness::with_timeout;

/// A server with credentials, and its CAs.
struct Site {
    folder: TempDir,
    cas: DevelopmentCas,
    issuer: TokenIssuer,
    grpc: SocketAddr,
    tokens: SocketAddr,
    page: SocketAddr,
}

impl Site {
    async fn new() -> Self {
        Self::on([127, 0, 0, 1]).await
    }

    /// With the page on this address.
    async fn on(page: [u8; 4]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cas = DevelopmentCas::new("example.org", Duration::from_secs(3_600)).unwrap();
        let issuer = TokenIssuer::new("key-1").unwrap();
        let server = cas.server(&["localhost".to_owned()]).unwrap();
        let path = folder.path().join("server");
        cas.write_server(&path, &server).unwrap();
        issuer.write_key_set(&path).unwrap();
        let credentials = CredentialFolder {
            path: path.clone(),
            trust_domain: "example.org".to_owned(),
            allow_missing_revocation_list: false,
        };
        std::fs::write(path.join("roles.toml"), "observers = ['eve']\n").unwrap();
        let config = Config {
            auth_mode: AuthMode::Certificates(credentials),
            tokens: Some(TokenConfig { issuer: "issuer".to_owned(), audience: "us".to_owned() }),
            reload_every: Duration::from_millis(20),
            page_hosts: if page == [0; 4] { vec!["localhost".to_owned()] } else { Vec::new() },
            ..Config::insecure(["coordinator".to_owned()])
        };
        let bind = |ip: [u8; 4]| stickycas_server::listen(SocketAddr::from((ip, 0))).unwrap();
        let (grpc, tokens, page) = (bind([127, 0, 0, 1]), bind([127, 0, 0, 1]), bind(page));
        let [address, token_address, page_address] =
            [&grpc, &tokens, &page].map(|listener| listener.local_addr().unwrap());
        let listeners = Listeners { tokens: Some(tokens), page: Some(page), ..Listeners::from(grpc) };
        tokio::spawn(async move {
            stickycas_server::run(listeners, config, std::future::pending()).await.unwrap();
        });
        Self { folder, cas, issuer, grpc: address, tokens: token_address, page: page_address }
    }

    fn server(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// A connection that shows a certificate of this principal.
    fn channel(&mut self, principal: &str) -> Channel {
        let certified = self.cas.client(principal).unwrap();
        let tls = self.tls().identity(Identity::from_pem(&certified.certificate, &certified.key));
        let endpoint = Endpoint::from_shared(format!("https://localhost:{}", self.grpc.port())).unwrap();
        endpoint.tls_config(tls).unwrap().connect_lazy()
    }

    fn tls(&mut self) -> ClientTlsConfig {
        let any = self.cas.client("any").unwrap();
        let folder = self.folder.path().join("any");
        self.cas.write_client(&folder, &any).unwrap();
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(std::fs::read(folder.join("ca.crt")).unwrap()))
    }

    /// What a viewer sends: a token of this principal.
    async fn viewer(&mut self, principal: &str) -> String {
        let made = viewer_token(self.channel(principal), None).await.unwrap();
        assert_eq!((made.scheme.as_str(), made.host.as_str()), ("http", "127.0.0.1"));
        assert_eq!(made.port, u32::from(self.page.port()));
        let expires = u64::try_from(made.expire_time.unwrap().seconds).unwrap();
        assert!(expires <= now() + 3_600 && expires > now());
        format!("Bearer {}", made.token)
    }

    async fn status(&self, path: &str, authorization: &str) -> StatusCode {
        get(self.page, path, &[("authorization", authorization)]).await.status
    }

    /// An instance of p1, p2 and p3.
    async fn instance(&mut self) -> String {
        let mut client = InstanceServiceClient::new(self.channel("coordinator"));
        let created = with_timeout(client.create(create_request(parameters()))).await.unwrap();
        created.into_inner().instance.unwrap().instance_id
    }

    async fn events(&self, id: &str, authorization: &str) -> EventStream {
        let path = format!("/api/instances/{id}/events");
        let mut stream =
            EventStream::open(self.page, &path, &[("authorization", authorization)]).await.unwrap();
        stream.expect("setting").await;
        stream.expect("frame").await;
        stream
    }
}

#[expect(deprecated, reason = "it lasts as long as the server has a page")]
async fn viewer_token(
    channel: Channel,
    authorization: Option<&str>,
) -> Result<CreateViewerTokenResponse, Status> {
    let mut request = Request::new(CreateViewerTokenRequest {});
    if let Some(authorization) = authorization {
        request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    }
    Ok(with_timeout(ServerServiceClient::new(channel).create_viewer_token(request)).await?.into_inner())
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// The status with which a stream is refused, and why.
async fn end_of(mut stream: EventStream) -> (u64, String) {
    let (_, (name, data)) = stream.rest().await;
    assert_eq!(name, "refused");
    (data["status"].as_u64().unwrap(), data["why"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_page_with_credentials_needs_a_token_on_loopback_too() {
    let (mut ours, mut theirs) = (Site::new().await, Site::new().await);
    let foreign = theirs.viewer("eve").await;
    let no_page_token = ours.issuer.token("eve", "issuer", "us", Duration::from_secs(60)).unwrap();
    let about = get(ours.page, "/api/about", &[]).await.json();
    assert_eq!(about["token"], true);
    let without = get(ours.page, "/api/instances", &[]).await;
    assert_eq!(without.status, StatusCode::UNAUTHORIZED);
    assert!(without.json()["why"].as_str().unwrap().contains("page-link"), "{without:?}");
    for wrong in [foreign.as_str(), &format!("Bearer {no_page_token}"), "Bearer x", "Basic eve"] {
        assert_eq!(ours.status("/api/instances", wrong).await, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let right = ours.viewer("eve").await;
    assert_eq!(ours.status("/api/instances", &right).await, StatusCode::OK);
    assert_eq!(ours.status("/metrics", &right).await, StatusCode::NOT_FOUND);
    // Twice is once too often.
    let two = [("authorization", right.as_str()), ("authorization", right.as_str())];
    assert_eq!(get(ours.page, "/api/instances", &two).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn members_see_their_instance_and_observers_all() {
    let mut site = Site::new().await;
    let id = site.instance().await;
    let path = format!("/api/instances/{id}/promise?f=0&values=1");
    for (principal, seen) in [("p1", true), ("coordinator", true), ("eve", true), ("mallory", false)] {
        let viewer = site.viewer(principal).await;
        let expected = if seen { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(site.status(&path, &viewer).await, expected, "{principal}");
        let list = get(site.page, "/api/instances", &[("authorization", &viewer)]).await.json();
        assert_eq!(list["rows"].as_array().unwrap().len(), usize::from(seen), "{principal}: {list}");
        assert_eq!(
            list["total"].is_null(),
            principal != "eve",
            "how many others there are is not theirs to know"
        );
    }
    let viewer = site.viewer("p1").await;
    assert_eq!(site.status("/api/overview", &viewer).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn who_is_denied_loses_its_streams_and_its_token() {
    let mut site = Site::new().await;
    let id = site.instance().await;
    let (mallory, other) = (site.viewer("p1").await, site.viewer("p2").await);
    let (ends, mut stays) = (site.events(&id, &mallory).await, site.events(&id, &other).await);
    std::fs::write(site.server().join("denied"), "p1\n").unwrap();
    let (status, why) = end_of(ends).await;
    assert_eq!(status, 401, "{why}");
    assert_eq!(site.status("/api/instances", &mallory).await, StatusCode::UNAUTHORIZED);
    // The others go on.
    let mut closing = InstanceServiceClient::new(site.channel("coordinator"));
    let close = stickycas_proto::v1::CloseRequest { instance_id: id };
    with_timeout(closing.close(close)).await.unwrap();
    assert_eq!(stays.rest().await.1.0, "end");
}

#[tokio::test]
async fn an_observer_who_is_none_any_more_sees_nothing() {
    let mut site = Site::new().await;
    let id = site.instance().await;
    let viewer = site.viewer("eve").await;
    let stream = site.events(&id, &viewer).await;
    std::fs::write(site.server().join("roles.toml"), "observers = []\n").unwrap();
    let (status, why) = end_of(stream).await;
    assert_eq!(status, 403, "{why}");
    let path = format!("/api/instances/{id}/told?process=1");
    assert_eq!(site.status(&path, &viewer).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn who_created_an_instance_sees_it_as_a_coordinator_no_more() {
    let mut site = Site::new().await;
    let roles = site.server().join("roles.toml");
    std::fs::write(&roles, "coordinators = ['carl']\n").unwrap();
    let mut client = InstanceServiceClient::new(site.channel("carl"));
    let mut create = async || client.create(create_request(parameters())).await;
    // Until the roles are read.
    let id = with_timeout(async {
        loop {
            if let Ok(created) = create().await {
                break created.into_inner().instance.unwrap().instance_id;
            }
        }
    })
    .await;
    std::fs::write(&roles, "").unwrap();
    let mut refused =
        async || create().await.err().map(|status| status.code()) == Some(Code::PermissionDenied);
    with_timeout(async { while !refused().await {} }).await;
    let viewer = site.viewer("carl").await;
    site.events(&id, &viewer).await;
    let of_others = format!("/api/instances/{}/promise?f=0&values=1", site.instance().await);
    assert_eq!(site.status(&of_others, &viewer).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let mut site = Site::new().await;
    let id = site.instance().await;
    // A token that is asked for with another one expires with it.
    let claims = json!({
        "iss": "issuer", "aud": "us", "sub": "eve", "iat": now(), "nbf": now(), "exp": now() + 3,
    });
    let short = site.issuer.sign(&claims).unwrap();
    let endpoint = Endpoint::from_shared(format!("https://localhost:{}", site.tokens.port())).unwrap();
    let channel = endpoint.tls_config(site.tls()).unwrap().connect_lazy();
    let made = viewer_token(channel, Some(&format!("Bearer {short}"))).await.unwrap();
    let viewer = format!("Bearer {}", made.token);
    let stream = site.events(&id, &viewer).await;
    let (status, why) = end_of(stream).await;
    assert_eq!(status, 401, "{why}");
    assert!(why.contains("expired"), "{why}");
    assert_eq!(site.status("/api/instances", &viewer).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_page_beyond_loopback_needs_credentials() {
    let everywhere = stickycas_server::listen(SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
    let local = || stickycas_server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let listeners = Listeners { page: Some(everywhere), ..Listeners::from(local()) };
    let refused = stickycas_server::run(listeners, Config::insecure([]), std::future::pending()).await;
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("by TLS only"), "{why}");
}

#[tokio::test]
async fn a_page_beyond_loopback_is_served_by_tls_to_its_own_names() {
    let mut site = Site::on([0, 0, 0, 0]).await;
    let made = viewer_token(site.channel("eve"), None).await.unwrap();
    assert_eq!((made.scheme.as_str(), made.host.as_str()), ("https", "localhost"));
    let _ = site.tls();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.folder.path().join("any/ca.crt")).unwrap()).unwrap();
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    for (host, expected) in [("localhost", "200"), ("127.0.0.1", "421"), ("evil.example", "421")] {
        let tcp = TcpStream::connect(("127.0.0.1", site.page.port())).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = with_timeout(connector.connect(name, tcp)).await.unwrap();
        let token = &made.token;
        let head = format!("host: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n");
        let request = format!("GET /api/instances HTTP/1.1\r\n{head}\r\n");
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = with_timeout(tls.read_to_end(&mut answer)).await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{host}: {answer}");
    }
    // Without TLS there is nothing.
    let mut tcp = TcpStream::connect(("127.0.0.1", site.page.port())).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = with_timeout(tcp.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}
