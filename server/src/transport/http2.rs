//! HTTP/2 on one connection, by hyper: its settings, keepalive PINGs and its end.
//!
//! hyper is used directly. The builder of hyper-util that recognises a version has nothing to recognise here,
//! and its graceful end waits for clients that answer nothing.

use std::convert::Infallible;
use std::error::Error;
use std::iter::successors;
use std::pin::pin;
use std::time::Duration;

use h2::Reason;
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
use super::fair_queue::FairQueue;
use super::windows::Windows;
use crate::limits::Limits;
use crate::quota::Counter;

/// The interval of PINGs on an idle connection, and the time for their answers.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The interval at which a connection that ends is checked: whether its last call has ended.
const LAST_CALL: Duration = Duration::from_millis(50);
/// The time for a connection without calls to confirm the GOAWAY: calls that are under way when the server
/// stops are still taken. A client that answers nothing is not waited for.
const GOODBYE: Duration = Duration::from_millis(500);

/// HTTP/2 as this server speaks it, and the service behind it.
pub(super) struct HttpServer<S> {
    pub(super) limits: Limits,
    service: S,
    /// The queue in which tasks of connections have their turns.
    pub(super) queue: FairQueue,
}

/// Runs the calls of one connection in turns, and counts those that are open.
#[derive(Clone)]
struct CallExecutor(Connection, FairQueue);

impl<F> Executor<F> for CallExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        tokio::spawn(self.1.clone().run_call(self.0.clone(), call));
    }
}

impl<S> HttpServer<S> {
    /// Must be called inside a runtime.
    pub(super) fn new(service: S, limits: &Limits) -> Self {
        Self { limits: limits.clone(), service, queue: FairQueue::new() }
    }

    /// The settings of one connection.
    fn builder(&self, connection: &Connection, windows: &Windows) -> Builder<CallExecutor> {
        let limits = &self.limits;
        let mut http = Builder::new(CallExecutor(connection.clone(), self.queue.clone()));
        http.timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            .initial_connection_window_size(windows.connection)
            .initial_stream_window_size(windows.stream)
            .max_send_buf_size(limits.send_buffer_bytes as usize)
            .max_pending_accept_reset_streams(limits.pending_reset_streams)
            .max_local_error_reset_streams(limits.local_reset_streams)
            .max_header_list_size(limits.header_bytes)
            .max_concurrent_streams(limits.streams_per_connection);
        http
    }

    /// Serves HTTP/2 on this byte stream, TCP or TLS, to its end, or until it is to be drained and its calls
    /// have ended. Each request carries the connection in its extensions.
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
        let windows = Windows::of(&connection, &self.limits);
        let io = ConnectionIo::new(io, connection.clone(), &self.limits, windows.connection);
        let of_request = connection.clone();
        let service = self.service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(of_request.clone());
            request.map(Body::new)
        });
        let http = self.builder(&connection, &windows);
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
        idle = if connection.open_calls() > 0 { Duration::ZERO } else { idle + LAST_CALL };
    }
}

fn log_end(error: &hyper::Error, connection: &Connection) {
    tracing::debug!(error = error as &dyn Error, "connection failed");
    if is_flood(error) {
        connection.count(Counter::ConnectionGivenUp);
    }
}

/// Whether the connection ended because its client did too much of something: h2 then sends a GOAWAY with
/// ENHANCE_YOUR_CALM (RFC 9113, section 7) and fails with it. h2 does so for streams that the client resets
/// before they are accepted, for streams that it has the server reset, for CONTINUATION frames and for empty
/// DATA frames without end. [`super::connection_io`] paces all of them, so clients seldom come to this, and a
/// correct one can: that is no offence.
///
/// The error does not show this, and the connection is not counted, if the client has sent a GOAWAY with an
/// error before (h2 then reports the client's error) or has closed the socket before our GOAWAY was written
/// (the error is then one of I/O).
pub(super) fn is_flood(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |error| Error::source(*error))
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(|error| {
            error.is_go_away() && error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
        })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use h2::client::SendRequest;
    use http::StatusCode;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::super::connection::{Connections, LOCAL};
    use super::*;
    use crate::quota::{Bound, Buffer, FrameType, Principals};

    /// A connection to a server that never takes the content of a request to `/hold`, and answers others.
    async fn connect(limits: &Limits) -> (SendRequest<Bytes>, Principals) {
        let principals = Principals::new(limits);
        (connect_to(limits, &principals).await, principals)
    }

    async fn connect_to(limits: &Limits, principals: &Principals) -> SendRequest<Bytes> {
        let (send, connection) = h2::client::handshake(serve(limits, principals)).await.unwrap();
        tokio::spawn(connection);
        send
    }

    /// The client's end of a connection to such a server.
    fn serve(limits: &Limits, principals: &Principals) -> DuplexStream {
        let service = tower::service_fn(|request: Request<Body>| async move {
            if request.uri().path() == "/hold" {
                std::future::pending::<()>().await;
            }
            drop(request);
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let server = HttpServer::new(service, limits);
        let connection = Connections::new(limits, principals.clone()).register(LOCAL);
        let (client, io) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            server.serve_connection(io, connection, CancellationToken::new()).await;
        });
        client
    }

    fn request(path: &str) -> Request<()> {
        Request::post(format!("http://server{path}")).body(()).unwrap()
    }

    /// Whether a connection still answers after the window of a stream was filled by messages of so many
    /// bytes.
    async fn survives(message: usize, limits: &Limits) -> bool {
        survives_messages(message, u64::from(limits.stream_window_bytes) / message as u64, limits).await
    }

    /// Whether a connection still answers while so many messages of so many bytes wait.
    async fn survives_messages(message: usize, messages: u64, limits: &Limits) -> bool {
        let (mut client, principals) = connect(limits).await;
        // Answered when the client knows the windows.
        let (response, _) = client.send_request(request("/"), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
        let (_response, mut send) = client.send_request(request("/hold"), false).unwrap();
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
        principals.totals().frames[FrameType::Data as usize].load(Ordering::Relaxed)
    }

    /// How much a client may send on a connection where nobody takes anything, and on one stream of it.
    async fn windows(client: &mut SendRequest<Bytes>) -> (usize, usize) {
        /// More than fill a window.
        const STREAMS: usize = 40;
        let hold = |_| {
            let (response, mut send) = client.clone().send_request(request("/hold"), false).unwrap();
            send.reserve_capacity(1 << 30);
            (response, send)
        };
        let held: Vec<_> = (0..STREAMS).map(hold).collect();
        // Answered when all of them are open, and the client knows the windows.
        let (response, _) = client.send_request(request("/"), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
        let capacities = held.iter().map(|(_, send)| send.capacity());
        (capacities.clone().sum(), capacities.max().unwrap())
    }

    const KIB: usize = 1024;

    #[tokio::test]
    async fn the_windows_of_all_connections_share_a_bound() {
        // Half of it is for principals that are known, and of the rest half for clients without identity.
        const TOTAL: usize = 64 * 1024 * KIB;
        let limits = Limits {
            connection_window_bytes: 512 * 1024,
            stream_window_bytes: 32 * 1024,
            window_bytes: TOTAL,
            ..Limits::default()
        };
        let principals = Principals::new(&limits);
        let (mut clients, mut all) = (Vec::new(), Vec::new());
        for _ in 0..160 {
            let mut client = connect_to(&limits, &principals).await;
            all.push(windows(&mut client).await);
            clients.push(client);
        }
        // A connection without identity has a part of what is free of the common half, so the windows become
        // smaller slowly, and in the end they are the smallest.
        assert_eq!(all[0], (512 * KIB, 32 * KIB));
        assert!(all.is_sorted_by(|before, after| before.0 >= after.0), "{all:?}");
        assert!(all[20].0 > 200 * KIB, "{all:?}");
        let least = (65_535, 16 * KIB);
        assert_eq!(all.last(), Some(&least));
        assert!(all.iter().all(|(_, stream)| (16 * KIB..=32 * KIB).contains(stream)), "{all:?}");
        // The longest message comes in time, even over a slow line.
        let round_trips = limits.message_bytes.div_ceil(least.1);
        let slowest = limits.request_timeout / u32::try_from(round_trips).unwrap();
        assert!(slowest > Duration::from_millis(75), "{slowest:?}");
        let held: usize = all.iter().filter(|windows| **windows != least).map(|(window, _)| window).sum();
        assert_eq!(principals.buffered(Buffer::Windows), (held, TOTAL));
        assert!(held <= TOTAL / 4);
        let refused = all.iter().filter(|windows| **windows == least).count();
        assert_eq!(principals.admission().refused(Bound::WindowBytes), refused as u64);
        drop(clients);
        while principals.buffered(Buffer::Windows).0 > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(windows(&mut connect_to(&limits, &principals).await).await, all[0]);
    }

    /// As bytes, since a client that keeps to the standard cannot send more.
    #[tokio::test]
    async fn a_connection_holds_its_window_and_no_more() {
        const FRAME: usize = 16 * KIB;
        const FLOW_CONTROL_ERROR: u8 = 3;
        let limits = Limits {
            connection_window_bytes: 128 * 1024,
            stream_window_bytes: 64 * 1024,
            ..Limits::default()
        };
        let mut client = serve(&limits, &Principals::new(&limits));
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        // POST http server /hold, in the codes of HPACK.
        let headers = b"\x83\x86\x44\x05/hold\x41\x06server";
        for stream in [1, 3, 5, 7] {
            client.write_all(&frame(HEADERS, END_HEADERS, stream, headers)).await.unwrap();
            client.write_all(&frame(DATA, 0, stream, &[9; FRAME]).repeat(2)).await.unwrap();
        }
        client.write_all(&frame(PING, 0, 0, &[1; 8])).await.unwrap();
        let taken = next_frame(&mut client, |kind, flags, _| match kind {
            PING => (flags == 1).then_some(true),
            GO_AWAY => Some(false),
            _ => None,
        });
        assert!(taken.await, "the whole window is taken");
        client.write_all(&frame(DATA, 0, 1, &[9])).await.unwrap();
        let code = next_frame(&mut client, |kind, _, content| (kind == GO_AWAY).then(|| content[7])).await;
        assert_eq!(code, FLOW_CONTROL_ERROR);
    }

    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const PING: u8 = 6;
    const GO_AWAY: u8 = 7;
    const END_HEADERS: u8 = 4;

    fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
    }

    /// Reads frames until one of them, by type, flags and content, is what is looked for.
    async fn next_frame<T>(client: &mut DuplexStream, wanted: impl Fn(u8, u8, &[u8]) -> Option<T>) -> T {
        loop {
            let mut header = [0; 9];
            client.read_exact(&mut header).await.expect("the server says something");
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut content = vec![0; length as usize];
            client.read_exact(&mut content).await.unwrap();
            if let Some(found) = wanted(header[3], header[4], &content) {
                return found;
            }
        }
    }

    /// HTTP/2 keeps what waits in the buffers into which it was read, so a small message between others that
    /// are taken holds a whole buffer. How much that is at most: `cargo test -p stickycas-server --lib --
    /// --ignored --nocapture what_small_messages_hold`.
    #[tokio::test]
    #[ignore = "a measurement"]
    async fn what_small_messages_hold_is_measured() {
        const UNKNOWN: u8 = 0x77;
        let limits = Limits {
            anonymous_control_frames_per_second: u32::MAX,
            window_bytes: 1 << 30,
            ..Limits::default()
        };
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4 * KIB
        };
        let mut client = serve(&limits, &Principals::new(&limits));
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        let headers = b"\x83\x86\x44\x05/hold\x41\x06server";
        client.write_all(&frame(HEADERS, END_HEADERS, 1, headers)).await.unwrap();
        let before = resident();
        let messages = limits.connection_window_bytes as usize / 2 / 255 - 1;
        let pair = [frame(DATA, 0, 1, &[9]), frame(UNKNOWN, 0, 0, &[9; 16 * KIB])].concat();
        for _ in 0..messages {
            client.write_all(&pair).await.unwrap();
        }
        client.write_all(&frame(PING, 0, 0, &[1; 8])).await.unwrap();
        next_frame(&mut client, |kind, flags, _| (kind == PING && flags == 1).then_some(())).await;
        let held = resident().saturating_sub(before);
        println!(
            "{messages} messages of a byte hold {held} bytes, {:.1} times the window",
            held as f64 / f64::from(limits.connection_window_bytes)
        );
    }

    #[tokio::test]
    async fn small_messages_that_wait_never_close_a_connection() {
        // The smallest message of gRPC has 5 bytes, one access on Attach some 20.
        let room = Limits { window_bytes: 1 << 30, ..Limits::default() };
        for message in [16, 40, 200, 255] {
            assert!(survives(message, &room).await, "{message}");
        }
        // With the windows that hyper has by itself.
        let window = 1024 * 1024;
        let usual =
            Limits { connection_window_bytes: window, stream_window_bytes: window, ..Limits::default() };
        assert!(!survives(40, &usual).await);
        // A connection for whose window there is no room: as many as `LEAST_OF_STREAM` says, and not as many
        // as fit.
        let pressed = Limits { window_bytes: 0, ..Limits::default() };
        assert!(survives_messages(16, 128, &pressed).await);
        assert!(!survives_messages(16, 16 * 1024 / 16, &pressed).await);
    }

    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const CONTINUATION: u8 = 9;
    const END_STREAM_AND_HEADERS: u8 = 5;
    /// GET http://a/, as HPACK has it.
    const REQUEST: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

    /// Whether a connection counts as flooded on which the client has sent these frames.
    async fn is_flooded(frames: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let (mut client, io) = tokio::io::duplex(1 << 20);
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        client.write_all(&frames.into_iter().flatten().collect::<Vec<_>>()).await.unwrap();
        client.shutdown().await.unwrap();
        let mut builder = h2::server::Builder::new();
        builder.max_pending_accept_reset_streams(20).max_local_error_reset_streams(Some(20));
        let mut connection = builder.handshake::<_, Bytes>(io).await.unwrap();
        while let Some(accepted) = connection.accept().await {
            if let Err(error) = accepted {
                return is_flood(&error);
            }
        }
        false
    }

    fn streams(count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(|index| 2 * index + 1)
    }

    #[tokio::test]
    async fn a_flood_of_resets_is_told_by_the_error() {
        let reset = |stream| {
            let request = frame(HEADERS, END_STREAM_AND_HEADERS, stream, &REQUEST);
            [request, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        };
        assert!(is_flooded(streams(50).map(reset)).await);
        assert!(!is_flooded(streams(5).map(reset)).await);
    }

    #[tokio::test]
    async fn a_flood_of_malformed_requests_is_told_by_the_error() {
        // Without a path, so that the server resets the stream.
        let malformed = |stream| frame(HEADERS, END_STREAM_AND_HEADERS, stream, &REQUEST[..1]);
        assert!(is_flooded(streams(50).map(malformed)).await);
        assert!(!is_flooded(streams(5).map(malformed)).await);
    }

    #[tokio::test]
    async fn a_flood_of_continuations_is_told_by_the_error() {
        let begin = frame(HEADERS, 0, 1, &REQUEST);
        let more = (0..10_000).map(|_| frame(CONTINUATION, 0, 1, &[]));
        assert!(is_flooded([begin].into_iter().chain(more)).await);
    }

    #[tokio::test]
    async fn other_errors_are_no_flood() {
        let goaway =
            |reason: Reason| frame(GO_AWAY, 0, 0, &[[0; 4], u32::from(reason).to_be_bytes()].concat());
        assert!(!is_flooded([goaway(Reason::ENHANCE_YOUR_CALM)]).await, "the client says so");
        assert!(!is_flooded([goaway(Reason::NO_ERROR)]).await);
        assert!(!is_flooded([frame(HEADERS, END_STREAM_AND_HEADERS, 0, &REQUEST)]).await, "PROTOCOL_ERROR");
    }
}
