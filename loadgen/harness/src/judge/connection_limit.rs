//! The connections to the [`ReportService`](super::ReportService): no more at a time than the limit, and, where reporters
//! show certificates, only those of reporters that are known.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use stickycas_server::ClientAcceptor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::either::Either;
use tonic::transport::server::Connected;

/// How long to wait after an accept failed, usually for want of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How long a handshake may take, ...
const HANDSHAKE: Duration = Duration::from_secs(5);
/// ... and how many may be under way.
const HANDSHAKES: usize = 64;
/// Connections of one reporter that has shown a certificate: its client has one, and another one that takes its place.
const PER_REPORTER: usize = 4;

/// Accepted connections, at most `limit` open at a time; one more is closed at once. No more are accepted when
/// the stream is dropped. With an `acceptor` those that have shown a certificate that it allows.
pub(super) fn accept(
    listener: TcpListener,
    limit: usize,
    acceptor: Option<Arc<ClientAcceptor>>,
) -> ReceiverStream<io::Result<LimitedConnection>> {
    let (accepted, connections) = mpsc::channel(1);
    let places = Places::new(limit);
    tokio::spawn(async move {
        loop {
            let connection = tokio::select! {
                () = accepted.closed() => return,
                connection = listener.accept() => connection,
            };
            let stream = match connection {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(BACK_OFF).await;
                    continue;
                }
            };
            let Some(acceptor) = acceptor.clone() else {
                let Some(open) = places.open() else { continue };
                let connection =
                    LimitedConnection { io: Either::Left(stream), reporter: None, ended: None, _open: open };
                if accepted.send(Ok(connection)).await.is_err() {
                    return;
                }
                continue;
            };
            let Ok(handshake) = places.handshakes.clone().try_acquire_owned() else {
                tracing::warn!(HANDSHAKES, "connection closed: as many handshakes are under way as may be");
                continue;
            };
            let (places, accepted) = (places.clone(), accepted.clone());
            tokio::spawn(async move {
                let connection = places.prove(stream, &acceptor).await;
                drop(handshake);
                if let Some(connection) = connection {
                    // The judge may have ended meanwhile.
                    let _ = accepted.send(Ok(connection)).await;
                }
            });
        }
    });
    ReceiverStream::new(connections)
}

/// The places of connections.
#[derive(Clone, Debug)]
struct Places {
    open: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    /// The open connections of reporters that have shown certificates.
    reporters: Arc<Mutex<BTreeMap<Arc<str>, usize>>>,
}

impl Places {
    fn new(limit: usize) -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        Self { open: places(limit), handshakes: places(HANDSHAKES), reporters: Arc::default() }
    }

    /// A place for one more connection.
    fn open(&self) -> Option<OwnedSemaphorePermit> {
        let open = Arc::clone(&self.open).try_acquire_owned();
        open.inspect_err(|_| tracing::warn!("connection closed: as many are open as may be")).ok()
    }

    /// The connection of a client that has proven who it is, if there is a place for it.
    async fn prove(&self, stream: TcpStream, acceptor: &ClientAcceptor) -> Option<LimitedConnection> {
        let (io, client) = acceptor.accept(stream, HANDSHAKE).await?;
        let name: Arc<str> = client.principal().into();
        let reporter = Reporter::enter(&self.reporters, name)?;
        let open = self.open()?;
        let ended = Box::pin(async move { client.ended().await });
        Some(LimitedConnection {
            io: Either::Right(Box::new(io)),
            reporter: Some(reporter),
            ended: Some(ended),
            _open: open,
        })
    }
}

/// One connection of a reporter that has shown a certificate, counted as long as this lives.
#[derive(Debug)]
struct Reporter {
    name: Arc<str>,
    all: Arc<Mutex<BTreeMap<Arc<str>, usize>>>,
}

impl Reporter {
    /// `None`: it has as many as it may.
    fn enter(all: &Arc<Mutex<BTreeMap<Arc<str>, usize>>>, name: Arc<str>) -> Option<Self> {
        let mut open = lock(all);
        let count = open.entry(Arc::clone(&name)).or_default();
        if *count >= PER_REPORTER {
            tracing::warn!(%name, "connection closed: the reporter has as many as it may");
            return None;
        }
        *count += 1;
        Some(Self { name, all: Arc::clone(all) })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let mut open = lock(&self.all);
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}

fn lock<T>(all: &Mutex<T>) -> MutexGuard<'_, T> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open connection, counted as long as it lives.
pub(super) struct LimitedConnection {
    io: Either<TcpStream, Box<TlsStream<TcpStream>>>,
    reporter: Option<Reporter>,
    /// Completes when the reporter is not allowed any more.
    ended: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    _open: OwnedSemaphorePermit,
}

/// What the calls on a connection know of it: the principal that its client has proven, if any.
#[derive(Clone, Debug)]
pub(super) struct ProvenReporter(pub(super) Option<Arc<str>>);

impl Connected for LimitedConnection {
    type ConnectInfo = ProvenReporter;

    fn connect_info(&self) -> ProvenReporter {
        ProvenReporter(self.reporter.as_ref().map(|reporter| Arc::clone(&reporter.name)))
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(ended) = &mut self.ended
            && ended.as_mut().poll(cx).is_ready()
        {
            self.ended = None;
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
