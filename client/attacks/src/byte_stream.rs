//! The byte streams under HTTP/2: TCP, and TLS where the server knows callers by certificates.

use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig as TlsConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use stickycas_client::Error;
use stickycas_client::raw::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// A connection on which nothing of HTTP/2 was said yet.
pub(super) type ByteStream = Either<TcpStream, TlsStream<TcpStream>>;

/// What a client shows of itself in a handshake.
pub(super) enum Shown {
    Nothing,
    /// This certificate and those behind it, with the key.
    Certificates(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
}

/// A connection as every client of this configuration opens it, by TLS if it has credentials.
pub(super) async fn connect(config: &ClientConfig) -> Result<ByteStream, Error> {
    let Some(credentials) = config.credentials() else { return Ok(Either::Left(tcp(config).await?)) };
    let shown = own(credentials.folder())?;
    Ok(Either::Right(tls(config, credentials.folder(), shown).await?))
}

/// A connection by TLS that trusts the CAs in this folder of credentials and shows this. The server may still refuse it:
/// in TLS 1.3 it sees a certificate after the client has shaken hands.
pub(super) async fn tls(
    config: &ClientConfig,
    folder: &Path,
    shown: Shown,
) -> Result<TlsStream<TcpStream>, Error> {
    let tls = tls_config(folder, shown)?;
    let name = server_name(config)?;
    let connecting = TlsConnector::from(Arc::new(tls)).connect(name, tcp(config).await?);
    connecting.await.map_err(|error| broken(config, error))
}

/// A TCP connection on which nothing was said, no handshake either.
pub(super) async fn tcp(config: &ClientConfig) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(config.authority()).await;
    let stream = stream.map_err(|error| unreachable(config, error, false))?;
    stream.set_nodelay(true).map_err(|error| broken(config, error))?;
    Ok(stream)
}

/// Whether a connection broke because the other end closed it, in the middle of something or with an alert of TLS; anything
/// else is a fault of this side or of the path.
pub(super) fn is_ended_by_peer(error: &io::Error) -> bool {
    const CLOSED: [ErrorKind; 3] =
        [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    CLOSED.contains(&error.kind()) || matches!(tls, Some(rustls::Error::AlertReceived(_)))
}

/// `http` or `https`.
pub(super) fn scheme(config: &ClientConfig) -> &'static str {
    if config.credentials().is_some() { "https" } else { "http" }
}

/// What the owner of this folder of credentials shows. A folder without a certificate is one with a token.
pub(super) fn own(folder: &Path) -> Result<Shown, Error> {
    if !folder.join("tls.crt").exists() {
        return Ok(Shown::Nothing);
    }
    let key = PrivateKeyDer::from_pem_slice(&read(folder, "tls.key")?);
    let key = key.map_err(|error| wrong(folder, "tls.key", error))?;
    Ok(Shown::Certificates(certificates(folder, "tls.crt")?, key))
}

fn tls_config(folder: &Path, shown: Shown) -> Result<TlsConfig, Error> {
    let unusable = |error: &dyn Display| wrong(folder, "ca.crt", error);
    let mut roots = RootCertStore::empty();
    for ca in certificates(folder, "ca.crt")? {
        roots.add(ca).map_err(|error| unusable(&error))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let builder = TlsConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| unusable(&error))?
        .with_webpki_verifier(verifier.map_err(|error| unusable(&error))?);
    let mut tls = match shown {
        Shown::Nothing => builder.with_no_client_auth(),
        Shown::Certificates(certificates, key) => {
            let built = builder.with_client_auth_cert(certificates, key);
            built.map_err(|error| wrong(folder, "tls.crt", error))?
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec()];
    Ok(tls)
}

/// The name under which the certificate of the server is checked.
fn server_name(config: &ClientConfig) -> Result<ServerName<'static>, Error> {
    let host = config.authority().rsplit_once(':').map_or(config.authority(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).map_err(|error| Error::InvalidArgument(format!("{host}: {error}")))
}

fn certificates(folder: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = read(folder, name)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    read.map_err(|error| wrong(folder, name, error))
}

fn read(folder: &Path, name: &str) -> Result<Vec<u8>, Error> {
    fs::read(folder.join(name)).map_err(|error| wrong(folder, name, error))
}

fn wrong(folder: &Path, name: &str, error: impl Display) -> Error {
    Error::InvalidArgument(format!("{}: {error}", folder.join(name).display()))
}

pub(super) fn broken(config: &ClientConfig, error: impl std::error::Error) -> Error {
    unreachable(config, error, true)
}

pub(super) fn unreachable(config: &ClientConfig, error: impl std::error::Error, sent: bool) -> Error {
    Error::Unreachable { server: config.server().to_owned(), cause: error.to_string(), sent }
}
