use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use stickycas_cluster::etcd::wire::auth_client::AuthClient;
use stickycas_cluster::etcd::wire::{
    AuthEnableRequest, AuthRoleAddRequest, AuthUserAddRequest, AuthUserGrantRoleRequest,
};
use stickycas_cluster::etcd::{Client, Config, Identity, Tls, User};
use stickycas_cluster::store::{KeyRange, Members, Revision, Store, StoreError};
use stickycas_cluster::testing::conformance::{conforms, next};
use stickycas_cluster::testing::etcd::{Options, ServerTls};

use super::{set, single, start};

const PASSWORD: &str = "correct horse";

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn with_users_a_password_is_needed_and_a_lost_token_is_replaced() {
    let (mut etcd, nobody) = single().await;
    enable_users(&etcd.urls()[0]).await;
    let answer = set(&nobody, "a", "1").await;
    assert!(
        matches!(&answer, Err(StoreError::NotDone(told)) if told.contains("user name is empty")),
        "{answer:?}"
    );

    let folder = tempfile::tempdir().unwrap();
    let with = |password: &str| {
        let password_file = folder.path().join("password");
        fs::write(&password_file, format!("{password}\n")).unwrap();
        let user = Some(User { name: "root".to_owned(), password_file });
        Client::new(&Config { user, ..etcd.config() }).unwrap()
    };
    let client = with("wrong");
    let answer = set(&client, "a", "1").await;
    assert!(
        matches!(&answer, Err(StoreError::NotDone(told)) if told.contains("does not take the user \"root\"")
            && told.contains("authentication failed")),
        "{answer:?}"
    );

    // The same client goes on when the file has the right one.
    with(PASSWORD);
    conforms(&client, "/conforms/").await.unwrap();
    // A member keeps tokens in memory only.
    etcd.restart(0).await.unwrap();
    let url = etcd.urls()[0].clone();
    while client.space(&url).await.is_err() {
        tokio::task::yield_now().await;
    }
    let revision = set(&client, "a", "2").await.unwrap().revision;
    etcd.restart(0).await.unwrap();
    while client.space(&url).await.is_err() {
        tokio::task::yield_now().await;
    }
    let mut watch = client.watch(KeyRange::one("a"), revision).await.unwrap();
    assert_eq!(next(&mut watch).await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn a_user_is_no_error_where_etcd_has_none() {
    let (etcd, _client) = single().await;
    let folder = tempfile::tempdir().unwrap();
    let password_file = folder.path().join("password");
    fs::write(&password_file, PASSWORD).unwrap();
    let user = Some(User { name: "root".to_owned(), password_file });
    let client = Client::new(&Config { user, ..etcd.config() }).unwrap();
    assert!(set(&client, "a", "1").await.is_ok());
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn with_tls_both_sides_show_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let (server, client) =
        (authority.issue(folder.path(), "server"), authority.issue(folder.path(), "client"));
    let tls = Tls { authorities: authority.file.clone(), identity: Some(client), domain: None };
    let server_tls = ServerTls {
        certificate: server.certificate,
        key: server.key,
        client_authorities: Some(authority.file.clone()),
        client: tls.clone(),
    };
    let etcd = start(&Options { tls: Some(server_tls), ..Options::default() }).await;
    let client = Client::new(&etcd.config()).unwrap();
    let revision = set(&client, "a", "1").await.unwrap().revision;
    let mut watch = client.watch(KeyRange::one("a"), Revision(revision.0)).await.unwrap();
    assert_eq!(next(&mut watch).await.unwrap().unwrap().len(), 1);

    let other = Authority::new(folder.path(), "other");
    let stranger = other.issue(folder.path(), "stranger");
    for wrong in [
        Tls { authorities: other.file.clone(), ..tls.clone() },
        Tls { domain: Some("etcd.example".to_owned()), ..tls.clone() },
    ] {
        let client = Client::new(&Config { tls: Some(wrong), ..etcd.config() }).unwrap();
        let answer = set(&client, "a", "2").await;
        assert!(matches!(answer, Err(StoreError::NotDone(_))), "{answer:?}");
    }
    for identity in [None, Some(stranger)] {
        // In TLS 1.3 a server refuses a client after the handshake: the request may have been sent by then.
        let client =
            Client::new(&Config { tls: Some(Tls { identity, ..tls.clone() }), ..etcd.config() }).unwrap();
        let answer = set(&client, "a", "2").await;
        assert!(matches!(answer, Err(StoreError::NotDone(_) | StoreError::Unknown(_))), "{answer:?}");
    }
    assert_eq!(client.range(KeyRange::one("a"), 0).await.unwrap().found[0].value, "1");
}

#[tokio::test]
#[ignore = "needs etcd (Debian: etcd-server); scripts/verify etcd runs it"]
async fn renewed_authorities_and_certificates_are_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "authority");
    let (server, client) =
        (authority.issue(folder.path(), "server"), authority.issue(folder.path(), "client"));
    let tls = Tls { authorities: authority.file.clone(), identity: Some(client.clone()), domain: None };
    let server_tls = ServerTls {
        certificate: server.certificate,
        key: server.key,
        client_authorities: Some(authority.file.clone()),
        client: tls,
    };
    let etcd = start(&Options { tls: Some(server_tls), ..Options::default() }).await;
    let credentials = tempfile::tempdir().unwrap();
    let put = |from: &Path, name: &str| fs::copy(from, credentials.path().join(name)).unwrap();
    let (other, stranger) =
        (Authority::new(folder.path(), "other"), authority.issue(folder.path(), "stranger"));
    put(&other.file, "ca.crt");
    put(&client.certificate, "tls.crt");
    put(&client.key, "tls.key");
    let config = Config::new(etcd.urls()).with_folder(credentials.path()).unwrap();
    let reader = Client::new(&config).unwrap();
    let refused = set(&reader, "a", "1").await.unwrap_err().to_string();
    assert!(refused.contains("UnknownIssuer"), "{refused}");

    // While the files do not fit together, those that were read before are used.
    put(&authority.file, "ca.crt");
    put(&stranger.key, "tls.key");
    assert!(set(&reader, "a", "1").await.is_err());
    put(&client.key, "tls.key");
    while set(&reader, "a", "1").await.is_err() {
        tokio::task::yield_now().await;
    }
    // Without a failure, when it is told to.
    put(&other.file, "ca.crt");
    set(&reader, "a", "2").await.unwrap();
    reader.read_again().await;
    assert!(set(&reader, "a", "3").await.is_err());
    assert!(reader.space(&etcd.urls()[0]).await.is_err());
    put(&authority.file, "ca.crt");
    while reader.space(&etcd.urls()[0]).await.is_err() {
        tokio::task::yield_now().await;
    }
    set(&reader, "a", "4").await.unwrap();
}

/// Turns authentication on, with the user root.
async fn enable_users(url: &str) {
    let mut client = AuthClient::connect(url.to_owned()).await.unwrap();
    let (name, password) = ("root".to_owned(), PASSWORD.to_owned());
    client.role_add(AuthRoleAddRequest { name: name.clone() }).await.unwrap();
    client.user_add(AuthUserAddRequest { name: name.clone(), password }).await.unwrap();
    client.user_grant_role(AuthUserGrantRoleRequest { user: name.clone(), role: name }).await.unwrap();
    client.auth_enable(AuthEnableRequest {}).await.unwrap();
}

/// Signs certificates for 127.0.0.1.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let file = folder.join(format!("{name}.pem"));
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), file }
    }

    fn issue(&self, folder: &Path, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let identity = Identity {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}-key.pem")),
        };
        fs::write(&identity.certificate, certificate.pem()).unwrap();
        fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }
}
