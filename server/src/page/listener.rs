//! The connections of the page: HTTP/1.1, plain on a loopback address and else by TLS with the server's certificate.
//!
//! What a connection may cost is bounded: how many there are, in all and of one address, the time for the handshake and for
//! the head of each request, the bytes of that head. Clients that do not read what they asked for are closed.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::permits::Permits;
use super::stalled::Stalled;
use crate::auth::{CredentialStore, audit};
use crate::transport::accept_in_turns;

/// How long the handshake of TLS may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the head of a request may take, and how long a connection may be idle before it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of a request, and how many headers there may be.
const HEADER_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Serves for ever. `tls`: with the certificate of these credentials.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<CredentialStore>>,
    router: Router,
    permits: &Arc<Permits>,
) {
    let mut connections = JoinSet::new();
    let mut in_turn = 0;
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            (tcp, address) = accept_in_turns(&listener, &mut in_turn) => match permits.connection(address.ip()) {
                Some(permit) => {
                    let (tls, router) = (tls.clone(), router.clone());
                    connections.spawn(async move {
                        serve_connection(tcp, address, tls, router).await;
                        drop(permit);
                    });
                }
                None => tracing::warn!(%address, "connection to the page closed: too many are open"),
            },
        }
    }
}

async fn serve_connection(
    tcp: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<CredentialStore>>,
    router: Router,
) {
    let Some(store) = tls else { return serve_requests(tcp, address, router).await };
    let acceptor = TlsAcceptor::from(store.current().page_tls.clone());
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(tcp)).await {
        Ok(Ok(stream)) => serve_requests(stream, address, router).await,
        // Nobody proves anything here: who goes was no more than a look whether somebody listens.
        Ok(Err(error)) if error.kind() != ErrorKind::InvalidData => {
            tracing::debug!(%address, %error, "connection to the page closed in its handshake");
        }
        Ok(Err(error)) => audit::handshake_refused(&error, address),
        Err(_) => tracing::debug!(%address, "connection to the page closed: its handshake took too long"),
    }
}

async fn serve_requests<T>(io: T, address: SocketAddr, router: Router)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = router.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(Peer(address));
        request
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(Stalled::new(io)), TowerToHyperService::new(service));
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection to the page failed");
    }
}
