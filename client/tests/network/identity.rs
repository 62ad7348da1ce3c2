//! Principals that are proven by certificates: a real server with TLS, clients with credentials of every kind.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use stickycas_client::{Client, Credentials, Error, InstanceId, RefusalReason};
use stickycas_proto::v1;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_server::{AuthMode, Config, CredentialFolder, DevelopmentCas};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Request;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::support::value;

const DAY: Duration = Duration::from_secs(24 * 3600);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A server with its CAs, and the folders of its clients.
struct Site {
    folder: TempDir,
    cas: DevelopmentCas,
    server_ca: CertificateDer<'static>,
    address: String,
}

impl Site {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cas = DevelopmentCas::new("example.org", DAY).unwrap();
        let server = cas.server(&["localhost".to_owned()]).unwrap();
        cas.write_server(&folder.path().join("server"), &server).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let credentials = CredentialFolder {
            path: folder.path().join("server"),
            trust_domain: "example.org".to_owned(),
            allow_missing_revocation_list: false,
        };
        let config = Config {
            auth_mode: AuthMode::Certificates(credentials),
            ..Config::insecure(["coordinator".to_owned()])
        };
        tokio::spawn(async move {
            stickycas_server::run(listener, config, std::future::pending()).await.unwrap();
        });
        let any = client_folder(folder.path().join("any"), &mut cas, "any");
        let server_ca = CertificateDer::from_pem_file(any.join("ca.crt")).unwrap();
        Self { folder, cas, server_ca, address }
    }

    /// The folder of a principal with a certificate of the clients' CA of this site.
    fn folder_of(&mut self, principal: &str) -> PathBuf {
        client_folder(self.folder.path().join(principal), &mut self.cas, principal)
    }

    fn client(&mut self, principal: &str) -> Client {
        let credentials = Credentials::read(&self.folder_of(principal)).unwrap();
        assert_eq!(credentials.principal(), principal);
        Client::builder(&*self.address).credentials(credentials).connect_lazy().unwrap()
    }

    /// What a call as ann is answered with that says this in its metadata.
    async fn call_with(&mut self, key: &'static str, value: &'static str, instance: InstanceId) -> String {
        let folder = self.folder_of("ann");
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read("ca.crt")))
            .identity(Identity::from_pem(read("tls.crt"), read("tls.key")));
        let endpoint = Endpoint::from_shared(self.address.clone()).unwrap().tls_config(tls).unwrap();
        let mut instances = InstanceServiceClient::new(endpoint.connect_lazy());
        let mut request = Request::new(v1::GetRequest {
            instance: Some(v1::get_request::Instance::InstanceId(instance.to_string())),
            ..v1::GetRequest::default()
        });
        request.metadata_mut().append(key, value.parse().unwrap());
        instances.get(request).await.unwrap_err().message().to_owned()
    }

    /// A connection that shows the certificate in this folder, or none.
    async fn connect(&self, folder: Option<&Path>) -> TlsStream<TcpStream> {
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
        let port = self.address.rsplit(':').next().unwrap();
        let tcp = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap()
    }

    /// What a server says to a client that shows the certificate in this folder, or none: the alert in words.
    async fn alert(&self, folder: Option<&Path>) -> String {
        let mut tls = self.connect(folder).await;
        speak(&mut tls).await.map_or_else(|error| error.to_string(), |()| "let in".to_owned())
    }
}

/// Begins with HTTP/2. In TLS 1.3 a client has shaken hands before the server has seen its certificate, so this tells whether
/// it is let in.
async fn speak(tls: &mut TlsStream<TcpStream>) -> io::Result<()> {
    tls.write_all(PREFACE).await?;
    tls.read_exact(&mut [0; 9]).await.map(|_| ())
}

/// The folder of a principal with a certificate of these CAs.
fn client_folder(folder: PathBuf, cas: &mut DevelopmentCas, principal: &str) -> PathBuf {
    let certified = cas.client(principal).unwrap();
    cas.write_client(&folder, &certified).unwrap();
    folder
}

async fn create(coordinator: &Client, roster: [&str; 2]) -> InstanceId {
    let created = coordinator.create_instance().roster(roster).processes(2).read_size(2).send().await;
    created.unwrap().instance.id
}

#[tokio::test]
async fn principals_with_certificates_decide() {
    let mut site = Site::new().await;
    let [coordinator, ann, bob] = ["coordinator", "ann", "bob"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let (of_ann, of_bob) = tokio::join!(ann.propose(instance, value("a")), bob.propose(instance, value("b")));
    assert_eq!(of_ann.unwrap().value, of_bob.unwrap().value);
}

#[tokio::test]
async fn certificates_that_prove_nothing_are_told_why_in_the_handshake() {
    let mut site = Site::new().await;
    let ann = site.folder_of("ann");
    assert_eq!(site.alert(Some(&ann)).await, "let in");
    assert_eq!(site.alert(None).await, "received fatal alert: CertificateRequired");
    let others = |name: &str, trust_domain: &str, lifetime| {
        let mut cas = DevelopmentCas::new(trust_domain, lifetime).unwrap();
        client_folder(site.folder.path().join(name), &mut cas, "ann")
    };
    let other_ca = others("other-ca", "example.org", DAY);
    // The CAs have the same name as ours, and other keys.
    assert_eq!(site.alert(Some(&other_ca)).await, "received fatal alert: DecryptError");
}

#[tokio::test]
async fn a_connection_is_one_principal_whatever_its_requests_say() {
    let mut site = Site::new().await;
    let [coordinator, ann] = ["coordinator", "ann"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let why = ann.as_principal("bob").unwrap_err().to_string();
    assert!(why.contains("a connection with the credentials of ann is for that principal alone"), "{why}");
    let counts = coordinator.counts(&["ann".to_owned()]).await.unwrap();
    assert_eq!(counts.all.handshakes_failed, 0);
    let refused =
        ann.create_instance().roster(["ann", "bob"]).processes(2).read_size(2).send().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Refused(refusal) if refusal.reason == RefusalReason::NotCoordinator),
        "{refused}"
    );
    let foreign = "stickycas-principal names another than the certificate, which names ann";
    let token = "tokens are not taken here: callers are known by their certificates";
    for (key, value, expected) in
        [("stickycas-principal", "bob", foreign), ("authorization", "Bearer x", token)]
    {
        let message = site.call_with(key, value, instance).await;
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn a_denied_principal_is_out_on_its_open_connections_too() {
    let mut site = Site::new().await;
    let [coordinator, bob] = ["coordinator", "bob"].map(|name| site.client(name));
    let instance = create(&coordinator, ["ann", "bob"]).await;
    let folder = site.folder_of("ann");
    let mut open = site.connect(Some(&folder)).await;
    speak(&mut open).await.unwrap();
    std::fs::write(site.folder.path().join("server/denied"), "ann # has lost its key\n").unwrap();
    // No deadline: without the denial the connection would stay, and the test hang.
    let _ended = open.read_to_end(&mut Vec::new()).await;
    assert!(site.alert(Some(&folder)).await.starts_with("received fatal alert"));
    bob.get(instance).await.unwrap();
}

/// One connection is one principal from its handshake on, whether it makes calls or not; a client above the limit is told so
/// by its first call.
#[tokio::test]
async fn connections_count_for_their_principal_without_a_call() {
    /// `connections_per_principal`.
    const LIMIT: usize = 64;
    let mut site = Site::new().await;
    let instance = create(&site.client("coordinator"), ["ann", "bob"]).await;
    let folder = site.folder_of("ann");
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        let mut tls = site.connect(Some(&folder)).await;
        speak(&mut tls).await.unwrap();
        held.push(tls);
    }
    let told = site.call_with("x-any", "thing", instance).await;
    assert!(told.contains("you have 64 connections, as many as you may"), "{told}");
    drop(held);
    site.client("bob").get(instance).await.unwrap();
}
