//! A client of raw HTTP/2: for bytes that no generated client sends, and headers that it would act upon
//! itself.

use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};
use prost::Message;
use stickycas_server::PRINCIPAL_KEY;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::Status;

use super::with_timeout;

/// A connection.
pub(crate) struct RawClient {
    pub(crate) send: SendRequest<Bytes>,
    /// Ends with the connection.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

/// The end of a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) http: http::StatusCode,
    pub(crate) status: Option<Status>,
}

impl RawClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_with_window(address, 65_535).await
    }

    /// A connection with this initial window for the response of each stream.
    pub(crate) async fn connect_with_window(address: SocketAddr, bytes: u32) -> Self {
        let stream = with_timeout(TcpStream::connect(address)).await.unwrap();
        let opening = h2::client::Builder::new().initial_window_size(bytes).handshake(stream);
        let (send, connection) = with_timeout(opening).await.unwrap();
        Self { send, connection: tokio::spawn(connection) }
    }

    /// Begins a call of this method, for example `StickyCasService/Append`.
    pub(crate) async fn begin(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request = Request::post(format!("http://test/stickycas.v1.{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (key, value) in headers {
            request = request.header(*key, *value);
        }
        self.send = with_timeout(self.send.clone().ready()).await.unwrap();
        self.send.send_request(request.body(()).unwrap(), false).unwrap()
    }

    /// A whole call with this body.
    pub(crate) async fn call(&mut self, method: &str, headers: &[(&str, &str)], body: Bytes) -> Reply {
        let (response, mut send) = self.begin(method, headers).await;
        // A server that refuses a call early does not wait for its body.
        let _ = send.send_data(body, true);
        reply(response).await
    }

    /// A whole call as this principal.
    pub(crate) async fn call_as(&mut self, principal: &str, method: &str, body: Bytes) -> Reply {
        self.call(method, &[(PRINCIPAL_KEY, principal)], body).await
    }
}

/// Waits for the end of a call.
pub(crate) async fn reply(response: ResponseFuture) -> Reply {
    let response = with_timeout(response).await.unwrap();
    let http = response.status();
    let headers = response.headers().clone();
    let trailers = with_timeout(trailers(response.into_body())).await;
    let status = Status::from_header_map(trailers.as_ref().unwrap_or(&headers));
    Reply { http, status }
}

/// The trailers; the messages before them are skipped.
async fn trailers(mut body: RecvStream) -> Option<HeaderMap> {
    while let Some(chunk) = body.data().await {
        body.flow_control().release_capacity(chunk.unwrap().len()).unwrap();
    }
    body.trailers().await.unwrap()
}

/// A message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    prefixed(&message.encode_to_vec())
}

/// Bytes with the prefix of a message.
pub(crate) fn prefixed(bytes: &[u8]) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(bytes.len()).unwrap());
    framed.put_slice(bytes);
    framed.freeze()
}
