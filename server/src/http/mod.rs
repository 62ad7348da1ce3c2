//! The listener of operators: `/livez`, `/readyz` and `/metrics` over HTTP/1.1, apart from the port of
//! clients.
//!
//! It shows no data of an instance and no name of a client, and takes no command. Its cost is bounded: few
//! connections, small headers, one request each, and a deadline for the whole of a connection, so that a slow
//! client holds nothing. No newcomer is refused for that: if there are too many connections, the address that
//! holds most loses its oldest. A probe sends its request at once and is answered in the next turn, so a
//! client that holds half-sent requests or reads no answers does not block probes. It is served until the
//! server has ended, so that probes see it drain.

mod metrics_page;
mod pages;

use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) use self::metrics_page::Sources;
use crate::transport::{Pool, PoolLimits, Source, accept_in_turns};

/// Connections at a time, and how many of them one address may have. Probes and scrapers are few.
const CONNECTIONS: usize = 64;
const CONNECTIONS_PER_ADDRESS: usize = 32;
/// The time that a connection may take, from its first byte to its last.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that the headers of its request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the request's headers, and the largest number of headers.
const HEADER_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;

/// Serves for ever. Dropping the future ends all connections. `names`: the names that browsers may use for it
/// on a loopback address, beside those of the machine itself.
pub(crate) async fn serve(listener: TcpListener, names: &[String], sources: Arc<Sources>) {
    let router = pages::router(sources, pages::names(&listener, names));
    // No address is known for anything here, and half of the places of a pool are for addresses that are.
    let limits =
        PoolLimits { connections: 2 * CONNECTIONS, per_address: CONNECTIONS_PER_ADDRESS, known_addresses: 0 };
    let (mut pool, mut connections) = (Pool::new(limits), JoinSet::new());
    let mut in_turn = 0;
    loop {
        tokio::select! {
            Some(ended) = connections.join_next() => {
                // One that was aborted is out of the pool.
                if let Ok((source, number)) = ended {
                    pool.remove(source, number);
                }
            }
            (tcp, address) = accept_in_turns(&listener, &mut in_turn) => {
                let source = Source::of(address);
                let (number, rounds) = pool.next_number(source);
                let connection = serve_connection(tcp, router.clone());
                let task = connections.spawn(async move {
                    connection.await;
                    (source, number)
                });
                if let Some(oldest) = pool.add(source, (number, rounds), task) {
                    tracing::warn!(newest = %address, "http connection closed: too many are open");
                    oldest.abort();
                }
            }
        }
    }
}

async fn serve_connection(tcp: TcpStream, router: axum::Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS)
        // A client that sends its request and no more may say so.
        .half_close(true)
        .keep_alive(false)
        .serve_connection(TokioIo::new(tcp), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "http connection failed"),
        Err(_) => tracing::debug!("http connection closed: it took too long"),
    }
}
