//! Connections that no generated client makes: byte streams, by TLS where the server knows callers by
//! certificates, and calls by hand on them.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::Request;
use http::header::AUTHORIZATION;
use prost::Message;
use rustls::version::TLS13;
use rustls::{ClientConfig as TlsConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use stickycas_certificates::{identity, items, private_key, roots};
use stickycas_client::Error;
use stickycas_client::raw::ClientConfig;
use stickycas_proto::principal::PRINCIPAL_KEY;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::Status;

/// A connection on which nothing of HTTP/2 was said yet.
pub(super) type ByteStream = Either<TcpStream, TlsStream<TcpStream>>;

/// The identity that a client shows in a handshake.
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

/// A connection by TLS that trusts the CAs in this folder of credentials and shows this. The server may still
/// refuse it: in TLS 1.3 it sees a certificate after the client has shaken hands.
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

/// Whether a connection broke because the other end closed it, in the middle of something or with an alert of
/// TLS; anything else is a fault of this side or of the path.
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

/// The identity in this folder of credentials. A folder without a certificate is one with a token.
fn own(folder: &Path) -> Result<Shown, Error> {
    let certificate = folder.join("tls.crt");
    if !certificate.exists() {
        return Ok(Shown::Nothing);
    }
    let (chain, key) = identity(&certificate, &folder.join("tls.key")).map_err(invalid)?;
    Ok(Shown::Certificates(
        items(&chain, "CERTIFICATE").map_err(invalid)?,
        private_key(&key).map_err(invalid)?,
    ))
}

fn tls_config(folder: &Path, shown: Shown) -> Result<TlsConfig, Error> {
    let mut trusted = RootCertStore::empty();
    let cas = roots(&folder.join("ca.crt")).map_err(invalid)?;
    for ca in items(&cas, "CERTIFICATE").map_err(invalid)? {
        trusted.add(ca).map_err(invalid)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = TlsConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(invalid)?.with_root_certificates(trusted);
    let mut tls = match shown {
        Shown::Nothing => builder.with_no_client_auth(),
        Shown::Certificates(certificates, key) => {
            builder.with_client_auth_cert(certificates, key).map_err(invalid)?
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

fn invalid(error: impl Display) -> Error {
    Error::InvalidArgument(error.to_string())
}

pub(super) fn broken(config: &ClientConfig, error: impl std::error::Error) -> Error {
    unreachable(config, error, true)
}

fn unreachable(config: &ClientConfig, error: impl std::error::Error, sent: bool) -> Error {
    Error::Unreachable { server: config.server().to_owned(), cause: error.to_string(), sent }
}

/// The first bytes of every client (RFC 9113, section 3.4), with an empty SETTINGS frame.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A connection of its own. Ends when dropped.
pub(super) struct Raw {
    config: ClientConfig,
    send: SendRequest<Bytes>,
    /// The one task that drives the connection.
    _driving: JoinSet<()>,
}

impl Raw {
    /// Connects, with windows of the usual size or of this one.
    pub(super) async fn connect(config: &ClientConfig, window: Option<u32>) -> Result<Self, Error> {
        Self::over(config, connect(config).await?, window).await
    }

    /// HTTP/2 on a connection that is open.
    pub(super) async fn over(
        config: &ClientConfig,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        window: Option<u32>,
    ) -> Result<Self, Error> {
        let mut builder = Builder::new();
        if let Some(window) = window {
            builder.initial_window_size(window);
        }
        let (send, connection) = builder.handshake(io).await.map_err(|error| broken(config, error))?;
        let mut driving = JoinSet::new();
        // The calls on it report its end.
        driving.spawn(async move { drop(connection.await) });
        Ok(Self { config: config.clone(), send, _driving: driving })
    }

    /// Begins a call of this method, for example `StickyCasService/Append`, in the name of all these. It
    /// shows the token of the attacker, if it has one.
    pub(super) async fn begin(
        &mut self,
        method: &str,
        principals: &[&str],
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Error> {
        let authorization = self.config.authorization();
        let token = authorization.as_ref().and_then(|token| token.to_str().ok());
        let token = token.map(|token| (AUTHORIZATION.as_str(), token));
        let names = principals.iter().map(|principal| (PRINCIPAL_KEY, *principal));
        self.begin_with(method, names.chain(token)).await
    }

    /// The same with these headers and no other identity.
    async fn begin_with<'a>(
        &mut self,
        method: &str,
        headers: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), Error> {
        let uri = format!("{}://{}/stickycas.v1.{method}", scheme(&self.config), self.config.authority());
        let mut request =
            Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(()).map_err(|error| Error::InvalidArgument(error.to_string()))?;
        let broken = |error| broken(&self.config, error);
        self.send = self.send.clone().ready().await.map_err(broken)?;
        self.send.send_request(request, false).map_err(broken)
    }

    /// Begins a whole call with this body, with these headers and no other identity.
    pub(super) async fn begin_whole(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<ResponseFuture, Error> {
        let (response, mut send) = self.begin_with(method, headers.iter().copied()).await?;
        // A server that refuses a call early does not wait for its body.
        let _ = send.send_data(body, true);
        Ok(response)
    }

    /// The status with which a call ended; messages are skipped.
    pub(super) async fn status(&self, response: ResponseFuture) -> Result<Status, Error> {
        let trailers = async {
            let (head, mut body) = response.await?.into_parts();
            while let Some(chunk) = body.data().await {
                let length = chunk?.len();
                body.flow_control().release_capacity(length)?;
            }
            Ok::<_, h2::Error>(body.trailers().await?.unwrap_or(head.headers))
        };
        let headers = trailers.await.map_err(|error| broken(&self.config, error))?;
        let status = Status::from_header_map(&headers);
        Ok(status.unwrap_or_else(|| Status::unknown("the server ended the call without a status")))
    }

    /// A whole call with this body, and the status with which it ended.
    pub(super) async fn call(
        &mut self,
        method: &str,
        principals: &[&str],
        body: Bytes,
    ) -> Result<Status, Error> {
        let (response, mut send) = self.begin(method, principals).await?;
        // A server that refuses a call early does not wait for its body.
        let _ = send.send_data(body, true);
        self.status(response).await
    }
}

/// A message with its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    prefixed(&message.encode_to_vec())
}

/// Bytes with the prefix of a message.
pub(super) fn prefixed(bytes: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(bytes.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    framed.put_slice(bytes);
    framed.freeze()
}
