//! The connections of a page: HTTP/1.1, plain on a loopback address and else by TLS.
//!
//! The cost of connections is bounded: their number, in all and of one network, the time for the handshake
//! and for the head of each request, the bytes of that head. The connection of a client that does not read
//! its answers is closed. A connection ends when its client closes it, and its answers with it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use crate::permits::{Bounds, Network, Permits};
use crate::stalled::Stalled;
use crate::tls::PageCertificate;

/// How long the handshake of TLS may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the head of a request may take, and how long a connection may be idle before it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of the head of a request, and how many headers there may be.
const HEADER_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// How long to wait after an accept failed, usually for want of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Serves these pages for browsers of this machine, for ever. Dropping the future ends all connections.
pub async fn serve_plain(listener: TcpListener, pages: Router) {
    serve(&listener, None, pages, &Permits::new(Bounds::default())).await;
}

/// Serves for ever. `tls`: with this certificate.
pub(crate) async fn serve(
    listener: &TcpListener,
    tls: Option<Arc<PageCertificate>>,
    pages: Router,
    permits: &Arc<Permits>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((tcp, address)) => {
                    let network = Network::of(address.ip());
                    let Some(permit) = permits.connection(network) else {
                        tracing::warn!(%address, "connection to the page closed: too many are open");
                        continue;
                    };
                    let (tls, pages) = (tls.clone(), pages.clone());
                    connections.spawn(async move {
                        serve_connection(tcp, network, tls, pages).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    sleep(BACK_OFF).await;
                }
            },
        }
    }
}

async fn serve_connection(
    tcp: TcpStream,
    network: Network,
    tls: Option<Arc<PageCertificate>>,
    pages: Router,
) {
    let Some(certificate) = tls else { return serve_requests(tcp, network, pages).await };
    match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(certificate.current()).accept(tcp)).await {
        Ok(Ok(stream)) => serve_requests(stream, network, pages).await,
        Ok(Err(error)) => tracing::debug!(%error, "connection to the page closed in its handshake"),
        Err(_) => tracing::debug!("connection to the page closed: its handshake took too long"),
    }
}

async fn serve_requests<T>(io: T, network: Network, pages: Router)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = pages.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(network);
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::body::Body;
    use axum::routing::get;
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::sync::mpsc;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_viewer_leaves_though_nothing_happens() {
        let (events, stream) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
        let body = Arc::new(Mutex::new(Some(Body::from_stream(ReceiverStream::new(stream)))));
        let answer = move || std::future::ready(body.lock().unwrap().take().unwrap());
        let pages = Router::new().route("/", get(answer));
        let (mut viewer, io) = duplex(4096);
        tokio::spawn(serve_requests(io, Network::of([127, 0, 0, 1].into()), pages));
        viewer.write_all(b"GET / HTTP/1.1\r\nhost: page\r\n\r\n").await.unwrap();
        events.send(Ok(Bytes::from_static(b"begun"))).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"begun\r\n") {
            viewer.read_buf(&mut answer).await.unwrap();
        }
        drop(viewer);
        // The clock goes on only when nothing else does.
        timeout(HEADER_TIMEOUT, events.closed()).await.expect("the stream is held for nobody");
    }
}
