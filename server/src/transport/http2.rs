//! HTTP/2 on one connection, by hyper: its settings, keepalive PINGs and its end.
//!
//! hyper is used directly. The builder of hyper-util that recognises a version has nothing to recognise here, and its
//! graceful end waits for clients that answer nothing.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use super::connection::Connection;
use super::connection_io::ConnectionIo;
use super::goaway::is_flood;
use super::turns::Turns;
use crate::limits::Limits;
use crate::quota::Counter;

/// How often an idle connection gets a PING, and how long its peer has to answer.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The largest window (RFC 9113, section 6.9.1).
const LARGEST_WINDOW: u32 = i32::MAX as u32;
/// How often a connection that ends is looked at: whether its last call has ended.
const LAST_CALL: Duration = Duration::from_millis(50);
/// How long a connection without calls may take to confirm the GOAWAY: calls that are under way when the server stops
/// are still taken. A client that answers nothing is not waited for.
const GOODBYE: Duration = Duration::from_millis(500);

/// HTTP/2 as this server speaks it, and the service behind it.
pub(super) struct HttpServer<S> {
    limits: Limits,
    service: S,
    turns: Turns,
}

/// Runs the calls of one connection in turns, and counts those that are open.
#[derive(Clone)]
struct CallExecutor(Connection, Turns);

impl<F> Executor<F> for CallExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        let open = self.0.open_call();
        let call = self.1.clone().of(self.0.clone(), call);
        tokio::spawn(async move {
            call.await;
            drop(open);
        });
    }
}

impl<S> HttpServer<S> {
    /// Must be called inside a runtime.
    pub(super) fn new(service: S, limits: &Limits) -> Self {
        Self { limits: limits.clone(), service, turns: Turns::new() }
    }

    /// How long a handshake, and then the preface, may take.
    pub(super) fn preface_timeout(&self) -> Duration {
        self.limits.preface_timeout
    }

    /// The turns in which tasks of connections are served.
    pub(super) fn turns(&self) -> Turns {
        self.turns.clone()
    }

    /// The settings of one connection.
    fn builder(&self, connection: &Connection) -> Builder<CallExecutor> {
        let limits = &self.limits;
        let mut http = Builder::new(CallExecutor(connection.clone(), self.turns.clone()));
        http.timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .initial_connection_window_size(limits.connection_window_bytes.min(LARGEST_WINDOW))
            .initial_stream_window_size(limits.stream_window_bytes.min(LARGEST_WINDOW))
            .max_send_buf_size(limits.send_buffer_bytes as usize)
            .max_pending_accept_reset_streams(limits.pending_reset_streams)
            .max_local_error_reset_streams(limits.local_reset_streams)
            .max_header_list_size(limits.header_bytes)
            .max_concurrent_streams(limits.streams_per_connection);
        http
    }

    /// Serves HTTP/2 on this byte stream, TCP or TLS, to its end, or until it is to be drained and its calls have ended.
    /// Each request carries the connection in its extensions.
    pub(super) async fn serve_connection<T>(&self, io: T, connection: Connection, drain: CancellationToken)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Limits { preface_timeout, first_call_timeout, .. } = self.limits;
        let io = ConnectionIo::new(io, connection.clone(), preface_timeout, first_call_timeout);
        let of_request = connection.clone();
        let service = self.service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of_request.clone());
            request.map(Body::new)
        });
        let http = self.builder(&connection);
        let mut http = pin!(http.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)));
        let ended = tokio::select! {
            ended = http.as_mut() => ended,
            () = drain.cancelled() => {
                http.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = http.as_mut() => ended,
                    () = idle(&connection) => return,
                }
            }
        };
        if let Err(error) = ended {
            log_end(&error, &connection);
        }
    }
}

/// Completes when no call has been open for some time.
async fn idle(connection: &Connection) {
    let mut idle = Duration::ZERO;
    while idle < GOODBYE {
        tokio::time::sleep(LAST_CALL).await;
        idle = if connection.has_calls() { Duration::ZERO } else { idle + LAST_CALL };
    }
}

fn log_end(error: &hyper::Error, connection: &Connection) {
    tracing::debug!(error = error as &dyn Error, "connection failed");
    if is_flood(error) {
        connection.count(Counter::ConnectionGivenUp);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use h2::client::SendRequest;
    use http::StatusCode;

    use super::super::connection::{LOCAL, UnclaimedConnections};
    use super::*;
    use crate::quota::{FrameType, Principals};

    /// A connection to a server that never takes the content of a request to `/hold`, and answers others.
    async fn connect(limits: &Limits) -> (SendRequest<Bytes>, Principals) {
        let service = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path() == "/hold" {
                std::future::pending::<()>().await;
            }
            drop(request);
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let server = HttpServer::new(service, limits);
        let principals = Principals::new(limits);
        let connection = UnclaimedConnections::new(limits, principals.clone()).register(LOCAL);
        let (client, io) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            server.serve_connection(io, connection, CancellationToken::new()).await;
        });
        let (send, connection) = h2::client::handshake(client).await.unwrap();
        tokio::spawn(connection);
        (send, principals)
    }

    fn request(path: &str) -> Request<()> {
        Request::post(format!("http://server{path}")).body(()).unwrap()
    }

    /// Whether a connection still answers after the window of a stream was filled by messages of so many bytes.
    async fn survives(message: usize, limits: &Limits) -> bool {
        let (mut client, principals) = connect(limits).await;
        // Answered when the client knows the windows.
        let (response, _) = client.send_request(request("/"), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
        let (_response, mut send) = client.send_request(request("/hold"), false).unwrap();
        let messages = u64::from(limits.stream_window_bytes) / message as u64;
        for _ in 0..messages {
            send.send_data(Bytes::from(vec![1; message]), false).unwrap();
        }
        let ended = async {
            while received(&principals) < messages {
                let Ok((response, _)) = client.send_request(request("/"), true) else { return false };
                if response.await.is_err() {
                    return false;
                }
            }
            match client.send_request(request("/"), true) {
                Ok((response, _)) => response.await.is_ok(),
                Err(_) => false,
            }
        };
        let survived = tokio::time::timeout(Duration::from_secs(120), ended).await.expect("it hangs");
        let given_up = || principals.all().get(Counter::ConnectionGivenUp);
        // Counted when the connection has ended, which its client may learn before.
        while !survived && given_up() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(given_up(), u64::from(!survived));
        survived
    }

    /// DATA frames that the server has read.
    fn received(principals: &Principals) -> u64 {
        principals.usage().frames[FrameType::Data as usize].load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn small_messages_that_wait_never_close_a_connection() {
        // The smallest message of gRPC has 5 bytes, one access on Attach some 20.
        for message in [16, 40, 200, 255] {
            assert!(survives(message, &Limits::default()).await, "{message}");
        }
        // With the windows that hyper has by itself.
        let window = 1024 * 1024;
        let usual =
            Limits { connection_window_bytes: window, stream_window_bytes: window, ..Limits::default() };
        assert!(!survives(40, &usual).await);
    }
}
