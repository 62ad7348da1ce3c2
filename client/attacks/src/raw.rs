//! HTTP/2 by hand: what no generated client sends.

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use prost::Message;
use stickycas_proto::principal::PRINCIPAL_KEY;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tonic::Status;

use stickycas_client::Error;
use stickycas_client::raw::ClientConfig;

use super::byte_stream::{broken, connect, scheme};

/// What every client says first (RFC 9113, section 3.4), with an empty SETTINGS frame.
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
        let mut builder = Builder::new();
        if let Some(window) = window {
            builder.initial_window_size(window);
        }
        Self::handshake(config, &builder, connect(config).await?).await
    }

    /// HTTP/2 on a connection that is open.
    pub(super) async fn over(
        config: &ClientConfig,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, Error> {
        Self::handshake(config, &Builder::new(), io).await
    }

    async fn handshake(
        config: &ClientConfig,
        builder: &Builder,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, Error> {
        let (send, connection) = builder.handshake(io).await.map_err(|error| broken(config, error))?;
        let mut driving = JoinSet::new();
        // How it ended, its calls tell.
        driving.spawn(async move { drop(connection.await) });
        Ok(Self { config: config.clone(), send, _driving: driving })
    }

    /// Begins a call of this method, for example `StickyCasService/Append`, in the name of all these. It shows the token of
    /// the attacker, if it has one.
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
        // Whoever refuses a call early does not wait for its body.
        let _ = send.send_data(body, true);
        Ok(response)
    }

    /// What a call ended with.
    pub(super) async fn status(&self, response: ResponseFuture) -> Result<Status, Error> {
        status(response).await.map_err(|error| broken(&self.config, error))
    }

    /// A whole call with this body; what it ended with.
    pub(super) async fn call(
        &mut self,
        method: &str,
        principals: &[&str],
        body: Bytes,
    ) -> Result<Status, Error> {
        let (response, mut send) = self.begin(method, principals).await?;
        // Whoever refuses a call early does not wait for its body.
        let _ = send.send_data(body, true);
        self.status(response).await
    }
}

/// What a call ended with; messages are passed over.
async fn status(response: ResponseFuture) -> Result<Status, h2::Error> {
    let response = response.await?;
    let headers = response.headers().clone();
    let trailers = trailers(response.into_body()).await?;
    let status = Status::from_header_map(trailers.as_ref().unwrap_or(&headers));
    Ok(status.unwrap_or_else(|| Status::unknown("the server ended the call without a status")))
}

async fn trailers(mut body: RecvStream) -> Result<Option<HeaderMap>, h2::Error> {
    while let Some(chunk) = body.data().await {
        let length = chunk?.len();
        body.flow_control().release_capacity(length)?;
    }
    body.trailers().await
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
