//! The listener of operators: `/livez`, `/readyz` and `/metrics` over HTTP/1.1, apart from the port of clients.
//!
//! It shows no data of an instance and no name of a client, and takes no command. What it may cost is bounded: few
//! connections, small headers, one request each, and a deadline for the whole of a connection, so that a slow client
//! holds nothing. It is served until the server has ended, so that probes see it drain.

mod pages;

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::metrics::Sources;

/// Connections at a time; the next one is closed at once. Probes and scrapers are few.
const CONNECTIONS: usize = 32;
/// How long a connection may take, from its first byte to its last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the headers of its request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the request's headers, and how many there may be.
const HEADER_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// How long to wait after an accept failed, usually for want of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Serves for ever. Dropping the future ends all connections.
pub(crate) async fn serve(listener: TcpListener, sources: Arc<Sources>) {
    let router = pages::router(sources);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, _)) if connections.len() < CONNECTIONS => {
                    connections.spawn(serve_connection(tcp, router.clone()));
                }
                Ok((_, address)) => tracing::warn!(%address, "http connection closed: too many are open"),
                Err(error) => {
                    tracing::warn!(%error, "http accept failed");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
        }
    }
}

async fn serve_connection(tcp: TcpStream, router: axum::Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(tcp), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "http connection failed"),
        Err(_) => tracing::debug!("http connection closed: it took too long"),
    }
}
