//! Who may look: whoever has a link, at what the principal of the page may see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use stickycas_certificates::development::DevelopmentCas;
use stickycas_client::{Client, Credentials, RetryPolicy};
use stickycas_server::{AuthMode, Config, CredentialFolder};
use stickycas_view::{PageError, PageOptions, ServerPage};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::browser::{EventStream, get, with_timeout};
use super::{bind, serve};

const DOMAIN: &str = "example.org";

/// A server with credentials.
struct Certified {
    folder: TempDir,
    cas: DevelopmentCas,
    server: String,
}

impl Certified {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut cas = DevelopmentCas::new(DOMAIN, Duration::from_secs(24 * 3600)).unwrap();
        let own = cas.server(&["localhost".to_owned()]).unwrap();
        let path = folder.path().join("server");
        cas.write_server(&path, &own).unwrap();
        let credentials =
            CredentialFolder { path, trust_domain: DOMAIN.to_owned(), allow_missing_revocation_list: false };
        let mut config = Config {
            auth_mode: AuthMode::Certificates(credentials),
            ..Config::insecure(["coordinator".to_owned()])
        };
        config.observers.insert("observer".to_owned());
        config.reload_every = Duration::from_millis(20);
        let listener = bind().await;
        let server = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            stickycas_server::run(listener, config, std::future::pending()).await.unwrap();
        });
        Self { folder, cas, server }
    }

    fn client(&mut self, principal: &str) -> Client {
        let folder = self.folder.path().join(principal);
        let certified = self.cas.client(principal).unwrap();
        self.cas.write_client(&folder, &certified).unwrap();
        let builder = Client::builder(&self.server).credentials(Credentials::read(&folder).unwrap());
        builder.connect_lazy().unwrap()
    }
}

fn with_token() -> PageOptions {
    PageOptions { needs_token: true, ..PageOptions::default() }
}

/// The header of a viewer with this link.
fn bearer(link: &str) -> String {
    format!("Bearer {}", link.split_once("token=").unwrap().1)
}

#[tokio::test]
async fn a_page_shows_what_its_principal_may_see_and_no_more() {
    let mut site = Certified::start().await;
    let coordinator = site.client("coordinator");
    let mut ids = BTreeMap::new();
    for name in ["ann", "bob"] {
        let created = with_timeout(coordinator.create_instance().roster([name, "eve"]).send()).await.unwrap();
        ids.insert(name, created.instance.id);
    }
    for (principal, seen, status, overview) in [
        ("observer", 2, 200, 200),
        ("ann", 1, 403, 403),
        ("coordinator", 2, 200, 200),
        ("mallory", 0, 403, 403),
    ] {
        let (link, page) = serve(site.client(principal), with_token()).await;
        let token = bearer(&link);
        let headers = [("authorization", token.as_str())];
        let list = get(page, "/api/instances", &headers).await.json();
        assert_eq!(list["rows"].as_array().unwrap().len(), seen, "{principal}");
        let of_bob = get(page, &format!("/api/instances/{}/told?process=1", ids["bob"]), &headers).await;
        assert_eq!(of_bob.status.as_u16(), status, "{principal}: {of_bob:?}");
        let mut stream = EventStream::open(page, "/api/overview", &headers).await.unwrap();
        let (name, data) = stream.next().await.unwrap();
        assert_eq!(
            if name == "overview" { 200 } else { data["status"].as_u64().unwrap() },
            overview,
            "{principal}"
        );
    }
}

#[tokio::test]
async fn without_a_link_nobody_sees_anything() {
    let mut site = Certified::start().await;
    let (link, page) = serve(site.client("observer"), with_token()).await;
    let other = serve(site.client("observer"), with_token()).await.0;
    assert!(link.starts_with(&format!("http://127.0.0.1:{}/#/?token=", page.port())), "{link}");
    assert_eq!(get(page, "/api/about", &[]).await.json()["token"], true);
    for path in ["/api/instances", "/api/overview", "/api/instances/0123456789abcdef0123456789abcdef/events"]
    {
        for token in [None, Some("Bearer x".to_owned()), Some(bearer(&other))] {
            let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
            let answer = get(page, path, &headers).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {answer:?}");
        }
    }
    assert_eq!(get(page, "/", &[]).await.status, StatusCode::OK, "files are no secret");
    let token = bearer(&link);
    assert_eq!(get(page, "/api/instances", &[("authorization", &token)]).await.status, StatusCode::OK);
}

/// All come from one address, as behind a proxy.
#[tokio::test]
async fn wrong_links_take_no_requests_from_good_ones() {
    let mut site = Certified::start().await;
    let mut options = with_token();
    // No second of the test has as many good requests.
    options.bounds.requests_per_second = 20;
    let (link, page) = serve(site.client("observer"), options).await;
    for _ in 0..200 {
        let refused = get(page, "/api/instances", &[("authorization", "Bearer x")]).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    }
    let token = bearer(&link);
    assert_eq!(get(page, "/api/instances", &[("authorization", &token)]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn streams_end_when_the_principal_is_denied() {
    let mut site = Certified::start().await;
    let created =
        with_timeout(site.client("coordinator").create_instance().roster(["ann", "bob"]).send()).await;
    let id = created.unwrap().instance.id;
    // A server that refuses its certificate counts as unreachable: the client tries until it gives up.
    let retry = RetryPolicy { give_up_after: Duration::from_secs(3), ..RetryPolicy::default() };
    let (link, page) = serve(site.client("observer").with_retry(retry), with_token()).await;
    let token = bearer(&link);
    let headers = [("authorization", token.as_str())];
    let path = format!("/api/instances/{id}/events");
    let mut viewer = EventStream::open(page, &path, &headers).await.unwrap();
    let mut overview = EventStream::open(page, "/api/overview", &headers).await.unwrap();
    viewer.expect("setting").await;
    overview.expect("overview").await;
    std::fs::write(site.folder.path().join("server/denied"), "observer\n").unwrap();
    let (_, (name, _)) = viewer.rest().await;
    assert_eq!(name, "refused");
    while let Some((name, data)) = overview.next().await {
        if name == "refused" {
            break;
        }
        assert_eq!(name, "overview", "{data}");
    }
    assert_ne!(get(page, &path, &headers).await.status, StatusCode::OK);
    assert_ne!(get(page, "/api/instances?state=running", &headers).await.status, StatusCode::OK);
}

#[tokio::test]
async fn other_machines_reach_the_page_by_tls_and_with_a_link() {
    let mut site = Certified::start().await;
    let everywhere = async || TcpListener::bind("0.0.0.0:0").await.unwrap();
    let options = |hosts: &[&str], certificate| PageOptions {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        certificate,
        ..PageOptions::default()
    };
    let certificate = site.folder.path().join("server");
    let client = site.client("observer");
    let refused =
        ServerPage::new(client.clone(), everywhere().await, options(&["localhost"], None)).unwrap_err();
    assert!(matches!(refused, PageError::NoCertificate), "{refused}");
    let refused =
        ServerPage::new(client.clone(), everywhere().await, options(&[], Some(certificate.clone())));
    assert!(matches!(refused.unwrap_err(), PageError::NoHost));
    let local = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = ServerPage::new(client.clone(), local, options(&[], Some(certificate.clone())));
    assert!(matches!(refused.unwrap_err(), PageError::NoUseForCertificate));
    let listener = everywhere().await;
    let port = listener.local_addr().unwrap().port();
    let page = ServerPage::new(client, listener, options(&["localhost"], Some(certificate))).unwrap();
    let link = page.link(None, None);
    assert!(link.starts_with(&format!("https://localhost:{port}/#/?token=")), "{link}");
    tokio::spawn(page.serve(|_| ()));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(site.folder.path().join("observer/ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = TlsConnector::from(Arc::new(tls.with_root_certificates(roots).with_no_client_auth()));
    let ask = async |host: &str, token: &str| {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut tls = tls.connect(ServerName::try_from("localhost").unwrap(), tcp).await.unwrap();
        let request = format!(
            "GET /api/instances HTTP/1.1\r\nhost: {host}\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"
        );
        tls.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        with_timeout(tls.read_to_string(&mut answer)).await.unwrap();
        answer.split_whitespace().nth(1).unwrap().to_owned()
    };
    let token = bearer(&link);
    assert_eq!(ask("localhost", &token).await, "200");
    assert_eq!(ask("localhost", "Bearer x").await, "401");
    assert_eq!(ask("127.0.0.1", &token).await, "421", "it is not its name");
    // Plain HTTP finds nobody.
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tcp.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = with_timeout(tcp.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}
