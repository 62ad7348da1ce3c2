//! HTTP/2 on one connection, by hyper: its settings, keepalive PINGs and its end.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use super::connection::Connection;
use super::connection_io::ConnectionIo;
use super::goaway::is_flood;
use crate::limits::Limits;
use crate::quota::Counter;

/// How often an idle connection gets a PING, and how long its peer has to answer.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// HTTP/2 as this server speaks it, and the service behind it.
pub(super) struct HttpServer<S> {
    http: Builder<TokioExecutor>,
    service: S,
    pub(super) preface_timeout: Duration,
    first_call_timeout: Duration,
}

impl<S> HttpServer<S> {
    pub(super) fn new(service: S, limits: &Limits) -> Self {
        let mut http = Builder::new(TokioExecutor::new()).http2_only();
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .max_pending_accept_reset_streams(limits.pending_reset_streams)
            .max_local_error_reset_streams(limits.local_reset_streams)
            .max_header_list_size(limits.header_bytes)
            .max_concurrent_streams(limits.streams_per_connection);
        let (preface_timeout, first_call_timeout) = (limits.preface_timeout, limits.first_call_timeout);
        Self { http, service, preface_timeout, first_call_timeout }
    }

    /// Serves HTTP/2 on this byte stream, TCP or TLS, to its end. Each request carries the connection in its
    /// extensions.
    pub(super) async fn serve_connection<T>(&self, io: T, connection: Connection, watcher: Watcher)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = ConnectionIo::new(io, connection.clone(), self.preface_timeout, self.first_call_timeout);
        let of_request = connection.clone();
        let service = self.service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of_request.clone());
            request.map(Body::new)
        });
        let http = self.http.serve_connection(TokioIo::new(io), TowerToHyperService::new(service));
        if let Err(error) = watcher.watch(http).await {
            tracing::debug!(%error, "connection failed");
            if is_flood(&*error) {
                connection.count(Counter::ConnectionResetFlooded);
            }
        }
    }
}
