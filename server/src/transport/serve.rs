//! The accept loop and the connections that it serves.
//!
//! An accepted connection goes through three steps in a task of its own: a handshake, HTTP/2 by hyper, and
//! its end. tonic's server is not used: it has no limit on connections and no deadline for a handshake, does
//! not report why a connection ended, and ignores TCP_NODELAY on connections that it is handed.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response};
use rand::seq::SliceRandom as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tower::Service;

use super::connection::{Connection, Connections};
use super::handshake::{Secured, secure};
use super::http2::HttpServer;
use super::listener::{IN_A_TURN, Listener, Security, accept};
use crate::limits::Limits;
use crate::quota::{Counter, Principals};

/// A listener for clients, and what its connections prove.
#[derive(Debug)]
pub(crate) struct GrpcListener<L> {
    pub(crate) listener: L,
    pub(crate) security: Security,
}

/// Serves `service` on the connections of all these listeners until `drain` is cancelled. Then the listeners
/// are closed, so that new clients are turned away and not left to wait, every connection gets a GOAWAY, and
/// the future completes when all of them have ended. Dropping the future aborts those that are still open.
pub(crate) async fn serve<L, S>(
    listeners: Vec<GrpcListener<L>>,
    service: S,
    limits: &Limits,
    principals: &Principals,
    drain: CancellationToken,
) where
    L: Listener,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let server = Arc::new(HttpServer::new(service, limits));
    let connections = Connections::new(limits, principals.clone());
    let _closing = AbortOnDropHandle::new(tokio::spawn(connections.clone().close_unread(limits.unread_for)));
    // The permits of accepted connections whose tasks have not begun: so a flood of connections waits in the
    // backlog of the kernel, and not in the queue of the runtime before the tasks of others. This may run on
    // a thread of its own, where to yield would not bound what it adds to that queue.
    let not_begun = Arc::new(Semaphore::new(IN_A_TURN));
    let mut tasks = JoinSet::new();
    loop {
        let accepting = async {
            let permit = not_begun.clone().acquire_owned().await;
            (permit, accept_any(&listeners).await)
        };
        let (permit, (security, io, address)) = tokio::select! {
            () = drain.cancelled() => break,
            Some(ended) = tasks.join_next() => {
                log_panic(ended);
                continue;
            }
            accepted = accepting => accepted,
        };
        if tasks.len() >= limits.connections {
            tracing::warn!(%address, limit = limits.connections, "connection closed: the limit is reached");
            connections.count(Counter::ConnectionRefused);
            tokio::task::yield_now().await;
            continue;
        }
        let connection = connections.register(address);
        let task =
            serve_accepted(permit, server.clone(), io, security.clone(), connection.clone(), drain.clone());
        connection.set_task(tasks.spawn(task));
    }
    drop(listeners);
    while let Some(ended) = tasks.join_next().await {
        log_panic(ended);
    }
}

/// The next connection of any of these listeners. None of them is preferred: where several have one, it is
/// drawn whose is taken.
async fn accept_any<L: Listener>(listeners: &[GrpcListener<L>]) -> (&Security, L::Io, SocketAddr) {
    let mut accepting: Vec<_> = listeners
        .iter()
        .map(|each| {
            Box::pin(async move {
                let (io, address) = accept(&each.listener).await;
                (&each.security, io, address)
            })
        })
        .collect();
    if accepting.len() > 1 {
        accepting.shuffle(&mut rand::rng());
    }
    poll_fn(|cx| {
        let mut ready = accepting.iter_mut().map(|each| each.as_mut().poll(cx));
        ready.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// A panic ends its connection and nothing else.
fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}

/// One accepted connection, from its handshake to its end; `accepted`: its permit until this begins.
async fn serve_accepted<T, S>(
    accepted: Result<OwnedSemaphorePermit, AcquireError>,
    server: Arc<HttpServer<S>>,
    io: T,
    security: Security,
    connection: Connection,
    drain: CancellationToken,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    drop(accepted);
    let handshake = secure(io, &security, server.limits.preface_timeout, &connection);
    let secured = tokio::select! {
        () = drain.cancelled() => return,
        secured = server.queue.clone().run(connection.clone(), handshake) => secured,
    };
    let Some(Secured { io, registration }) = secured else { return };
    connection.claim_for_identity();
    let serving = server.serve_connection(io, connection.clone(), drain);
    let serving = server.queue.clone().run(connection, serving);
    match registration {
        None => serving.await,
        Some(registration) => tokio::select! {
            () = serving => {}
            // Not in turns: a client that may not stay any longer is ended at once.
            () = registration.ended() => {}
        },
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::Context;

    use http::StatusCode;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::transport::connection::LOCAL;

    /// Responds 200 to a request that carries its connection, and 500 to others. A clone panics while
    /// `panics` is set.
    #[derive(Default)]
    struct TestService {
        panics: Arc<AtomicBool>,
    }

    impl Clone for TestService {
        fn clone(&self) -> Self {
            assert!(!self.panics.load(Ordering::Relaxed), "the clone panics");
            Self { panics: self.panics.clone() }
        }
    }

    impl Service<Request<Body>> for TestService {
        type Response = Response<Body>;
        type Error = Infallible;
        type Future = Ready<Result<Response<Body>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let mut response = Response::new(Body::empty());
            if request.extensions().get::<Connection>().is_none() {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
            ready(Ok(response))
        }
    }

    /// One request over this byte stream.
    async fn get<T>(io: T) -> Result<StatusCode, h2::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut client, connection) = h2::client::handshake(io).await?;
        tokio::spawn(connection);
        let request = Request::get("http://server/").body(()).unwrap();
        let (response, _) = client.send_request(request, true)?;
        Ok(response.await?.status())
    }

    #[tokio::test]
    async fn a_panic_ends_its_connection_and_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (limits, stop, panics) =
            (Limits::default(), CancellationToken::new(), Arc::<AtomicBool>::default());
        let stopped = stop.clone();
        let service = TestService { panics: panics.clone() };
        let serving = tokio::spawn(async move {
            let listeners = vec![GrpcListener { listener, security: Security::Plain }];
            serve(listeners, service, &limits, &Principals::new(&limits), stopped).await;
        });
        let connect = async || TcpStream::connect(address).await.unwrap();
        panics.store(true, Ordering::Relaxed);
        get(connect().await).await.unwrap_err();
        panics.store(false, Ordering::Relaxed);
        assert_eq!(get(connect().await).await.unwrap(), StatusCode::OK);
        stop.cancel();
        serving.await.unwrap();
    }

    /// Has so many connections ready, whose clients have gone.
    struct Flood(Arc<AtomicUsize>);

    impl Listener for Flood {
        type Io = tokio::io::DuplexStream;

        async fn accept(&self) -> std::io::Result<(Self::Io, SocketAddr)> {
            tokio::task::coop::consume_budget().await;
            self.0.fetch_sub(1, Ordering::Relaxed);
            Ok((tokio::io::duplex(64).1, LOCAL))
        }
    }

    /// How many connections the accept loop takes in each of its first turns, when all tasks were served
    /// between them.
    async fn accepted_by_turn(limits: Limits) -> Vec<usize> {
        let left = Arc::new(AtomicUsize::new(1_000));
        let listeners = vec![GrpcListener { listener: Flood(left.clone()), security: Security::Plain }];
        let principals = Principals::new(&limits);
        let mut serving = Box::pin(serve(
            listeners,
            TestService::default(),
            &limits,
            &principals,
            CancellationToken::new(),
        ));
        let mut turns = Vec::new();
        for _ in 0..5 {
            let before = left.load(Ordering::Relaxed);
            poll_fn(|cx| {
                assert!(serving.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            turns.push(before - left.load(Ordering::Relaxed));
            tokio::task::yield_now().await;
        }
        turns
    }

    #[tokio::test]
    async fn few_connections_are_accepted_before_they_are_served() {
        assert_eq!(accepted_by_turn(Limits::default()).await, [IN_A_TURN; 5]);
        let full = accepted_by_turn(Limits { connections: 4, ..Limits::default() }).await;
        assert!(full.iter().all(|accepted| (1..=IN_A_TURN).contains(accepted)), "{full:?}");
    }

    /// As one of TLS would be: a byte stream that is no TCP connection.
    #[tokio::test]
    async fn any_byte_stream_is_served_and_carries_its_connection() {
        let limits = Limits::default();
        let server = HttpServer::new(TestService::default(), &limits);
        let connection = Connections::new(&limits, Principals::new(&limits)).register(LOCAL);
        let (client, io) = tokio::io::duplex(1024);
        let drain = CancellationToken::new();
        let drained = drain.clone();
        let serving = tokio::spawn(async move { server.serve_connection(io, connection, drained).await });
        assert_eq!(get(client).await.unwrap(), StatusCode::OK);
        drain.cancel();
        serving.await.unwrap();
    }
}
