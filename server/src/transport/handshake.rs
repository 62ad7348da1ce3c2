//! The handshake of TLS, and what it proves of a client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::connection::Connection;
use super::listener::Security;
use crate::auth::{CredentialStore, Credentials, Registration, audit};
use crate::quota::Counter;

/// A connection after its handshake, if its listener demands one.
pub(super) struct Secured<T> {
    pub(super) io: Either<T, Box<TlsStream<T>>>,
    /// Of a client that has proven its principal: it may stay as long as this has not ended.
    pub(super) registration: Option<Registration>,
}

/// Secures a connection as its listener demands, within `deadline`. `None`: the client failed, or is not
/// allowed; it has been told by an alert.
pub(super) async fn secure<T>(
    io: T,
    security: &Security,
    deadline: Duration,
    connection: &Connection,
) -> Option<Secured<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (io, registration) = match security {
        Security::Plain => return Some(Secured { io: Either::Left(io), registration: None }),
        Security::Tokens(store) => {
            let tls = store.current().token_tls.clone()?;
            (handshake(io, tls, deadline, connection).await?, None)
        }
        Security::ClientCertificates(store) => {
            let used = store.current();
            let stream = handshake(io, used.tls.clone(), deadline, connection).await?;
            let registration = admit(&stream, store, &used, connection)?;
            (stream, Some(registration))
        }
    };
    Some(Secured { io: Either::Right(Box::new(io)), registration })
}

async fn handshake<T>(
    io: T,
    tls: Arc<ServerConfig>,
    deadline: Duration,
    connection: &Connection,
) -> Option<TlsStream<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match timeout(deadline, shake_hands(io, tls)).await {
        Ok(Ok(stream)) => Some(stream),
        // A client that goes has failed to prove nothing: a load balancer looks in this way whether somebody
        // listens.
        Ok(Err(error)) if error.kind() != io::ErrorKind::InvalidData => {
            connection.count(Counter::ConnectionClosedEarly);
            tracing::debug!(address = %connection.address(), %error, "closed by the client in its handshake");
            None
        }
        Ok(Err(error)) => {
            refuse(connection, &error);
            None
        }
        Err(_) => {
            connection.count(Counter::ConnectionSilent);
            None
        }
    }
}

/// The client offers no protocol for inside TLS, or none that is HTTP/2. gRPC clients all offer it, and some,
/// as those in Go, leave a server that does not name it: so a client without HTTP/2 is told at once (RFC
/// 9113, section 3.2).
#[derive(Debug, thiserror::Error)]
#[error("the client offers no protocol (ALPN): HTTP/2 over TLS demands that it offers h2")]
struct NoProtocol;

/// # Errors
/// Of kind `InvalidData` if the client was refused, which an alert has told it. Else it has gone.
async fn shake_hands<T>(io: T, tls: Arc<ServerConfig>) -> io::Result<TlsStream<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// A record with the fatal alert `no_application_protocol` (RFC 8446, section 6; RFC 7301). The library
    /// sends it for protocols that do not fit, and serves a client that offers none.
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 120];
    let mut start = LazyConfigAcceptor::new(Acceptor::default(), io).await?;
    if start.client_hello().alpn().is_none() {
        start.io.write_all(&ALERT).await?;
        start.io.shutdown().await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, NoProtocol));
    }
    start.into_stream(tls).await
}

/// Registers the client by the certificate that it has shown. The connection knows its principal afterwards.
fn admit<T>(
    stream: &TlsStream<T>,
    store: &Arc<CredentialStore>,
    used: &Arc<Credentials>,
    connection: &Connection,
) -> Option<Registration> {
    let shown = stream.get_ref().1.peer_certificates()?;
    let certificates: Arc<[CertificateDer<'static>]> =
        shown.iter().map(|it| it.clone().into_owned()).collect();
    // The handshake has just verified the chain with these very credentials.
    let own = certificates.first().ok_or(rustls::Error::NoCertificatesPresented);
    let identity = own.and_then(|own| used.verifier.read_allowed(own));
    let admitted = identity.and_then(|identity| {
        let principal = identity.principal.clone();
        Ok((identity, store.register_connection(principal, &certificates, used)?))
    });
    match admitted {
        Ok((identity, registration)) => {
            audit::certificate_admitted(&identity, connection.address());
            connection.set_identity(identity);
            Some(registration)
        }
        Err(error) => {
            refuse(connection, &error);
            None
        }
    }
}

/// A failed handshake names no principal, so only the server's own count has it.
fn refuse(connection: &Connection, error: &dyn std::fmt::Display) {
    connection.count(Counter::HandshakeFailed);
    audit::handshake_refused(error, connection.address());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::AsyncReadExt as _;
    use tokio_rustls::TlsConnector;

    use super::super::connection::{Connections, LOCAL};
    use super::*;
    use crate::config::{AuthMode, Config, CredentialFolder};
    use crate::limits::Limits;
    use crate::quota::Principals;
    use stickycas_certificates::development::DevelopmentCas;

    const ENOUGH: Duration = Duration::from_secs(60);

    /// A server's credentials, and a client that is ann.
    fn credentials() -> (tempfile::TempDir, Arc<CredentialStore>, ClientConfig) {
        let mut cas = DevelopmentCas::new("example.org", Duration::from_secs(3600)).unwrap();
        let (server, ann) = (cas.server(&["localhost".to_owned()]).unwrap(), cas.client("ann").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let [of_server, of_ann] = ["server", "ann"].map(|name| folder.path().join(name));
        cas.write_server(&of_server, &server).unwrap();
        cas.write_client(&of_ann, &ann).unwrap();
        let credentials = CredentialFolder {
            path: of_server,
            trust_domain: "example.org".to_owned(),
            allow_missing_revocation_list: false,
        };
        let config = Config { auth_mode: AuthMode::Certificates(credentials), ..Config::insecure([]) };
        let store = CredentialStore::of(&config).unwrap().unwrap();

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(of_ann.join("ca.crt")).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(ann.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(ann.key.as_bytes()).unwrap();
        let mut client =
            ClientConfig::builder().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        client.alpn_protocols = vec![b"h2".to_vec()];
        (folder, store, client)
    }

    fn count(principals: &Principals, counters: [Counter; 2]) -> [u64; 2] {
        counters.map(|counter| principals.all().get(counter))
    }

    #[tokio::test]
    async fn a_client_that_offers_no_protocol_is_told_so_by_an_alert() {
        let (_folder, store, client) = credentials();
        for protocols in [vec![], vec![b"http/1.1".to_vec()]] {
            let mut client = client.clone();
            client.alpn_protocols = protocols;
            let principals = Principals::new(&Limits::default());
            let connection = Connections::new(&Limits::default(), principals.clone()).register(LOCAL);
            let (client_io, io) = tokio::io::duplex(64 * 1024);
            let security = Security::ClientCertificates(store.clone());
            let connector = TlsConnector::from(Arc::new(client));
            let (secured, connected) = tokio::join!(
                secure(io, &security, ENOUGH, &connection),
                connector.connect(ServerName::try_from("localhost").unwrap(), client_io)
            );
            assert!(secured.is_none());
            let told = connected.unwrap_err().to_string();
            assert!(told.contains("NoApplicationProtocol"), "{told}");
            assert_eq!(
                count(&principals, [Counter::HandshakeFailed, Counter::ConnectionClosedEarly]),
                [1, 0]
            );
        }
    }

    /// As a load balancer that looks whether somebody listens.
    #[tokio::test]
    async fn a_client_that_goes_has_failed_to_prove_nothing() {
        let (_folder, store, _) = credentials();
        // Nothing, a line, and the beginning of a ClientHello.
        for sent in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
            let principals = Principals::new(&Limits::default());
            let connection = Connections::new(&Limits::default(), principals.clone()).register(LOCAL);
            let (mut client_io, io) = tokio::io::duplex(64 * 1024);
            client_io.write_all(sent).await.unwrap();
            drop(client_io);
            let security = Security::ClientCertificates(store.clone());
            assert!(secure(io, &security, ENOUGH, &connection).await.is_none());
            assert_eq!(
                count(&principals, [Counter::HandshakeFailed, Counter::ConnectionClosedEarly]),
                [0, 1]
            );
        }
    }

    #[tokio::test]
    async fn a_handshake_verifies_the_chain_once() {
        let (folder, store, client) = credentials();
        let limits = Limits::default();
        let connection = Connections::new(&limits, Principals::new(&limits)).register(LOCAL);
        let (client_io, io) = tokio::io::duplex(64 * 1024);
        let security = Security::ClientCertificates(store.clone());
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(client));
        let (secured, connected) =
            tokio::join!(secure(io, &security, ENOUGH, &connection), connector.connect(name, client_io));
        let Some(Secured { io, registration: Some(registration) }) = secured else { panic!("ann is let in") };
        assert_eq!(connection.identity().unwrap().principal.as_str(), "ann");
        assert_eq!(store.current().verifier.verified.load(Ordering::Relaxed), 1);
        // She is registered: what does not allow her any more ends her connection.
        std::fs::write(folder.path().join("server/denied"), "ann\n").unwrap();
        assert!(store.reload().unwrap());
        timeout(ENOUGH, registration.ended()).await.unwrap();
        drop(io);
        assert_eq!(connected.unwrap().read(&mut [0]).await.unwrap_or(0), 0);
    }
}
