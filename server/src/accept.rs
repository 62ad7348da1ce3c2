//! The accept loop: no more connections than may be, no delay by Nagle's algorithm, and an end.
//!
//! tonic has no limit on connections, ignores its own TCP settings when it is handed connections, and keeps a
//! listening socket open while it drains. So we accept ourselves.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::limits::Limits;

/// How long to wait after an accept failed, usually for want of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Accepted connections, no more of them open at a time than may be, until `stop` is cancelled. Then the listener
/// is closed, so that new clients are turned away instead of being left to wait. What is still open when `cut`
/// is cancelled breaks off.
pub(crate) fn accept(
    listener: TcpListener,
    limits: &Limits,
    stop: CancellationToken,
    cut: CancellationToken,
) -> ReceiverStream<io::Result<Connection>> {
    let (limit, opening) = (limits.connections, limits.opening);
    let (accepted, connections) = mpsc::channel(64);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(limit));
        loop {
            let (stream, peer) = tokio::select! {
                () = stop.cancelled() => return,
                () = accepted.closed() => return,
                connection = listener.accept() => match connection {
                    Ok(connection) => connection,
                    Err(error) => {
                        tracing::warn!(%error, "accept failed");
                        tokio::time::sleep(BACK_OFF).await;
                        continue;
                    }
                },
            };
            let Ok(permit) = permits.clone().try_acquire_owned() else {
                tracing::warn!(%peer, limit, "connection closed: as many are open as may be");
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%peer, %error, "TCP_NODELAY not set");
            }
            let cut = Box::pin(cut.child_token().cancelled_owned());
            let opening = Some(Opening::new(opening));
            if accepted.send(Ok(Connection { stream, opening, cut, _permit: permit })).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

/// An open connection, counted as long as it lives.
pub(crate) struct Connection {
    stream: TcpStream,
    /// `None` once the client has opened it.
    opening: Option<Opening>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

/// A connection whose client has not said yet what it must say first.
struct Opening {
    /// Bytes that are missing.
    missing: usize,
    deadline: Pin<Box<Sleep>>,
}

/// Bytes with which every client opens an HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: usize = 24;

impl Opening {
    fn new(time: Duration) -> Self {
        Self { missing: PREFACE, deadline: Box::pin(tokio::time::sleep(time)) }
    }
}

impl Connection {
    /// Counts what was read; fails if the client takes too long to open the connection.
    fn open(&mut self, read: &Poll<usize>, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(opening) = &mut self.opening else { return Ok(()) };
        match read {
            Poll::Ready(read) => opening.missing = opening.missing.saturating_sub(*read),
            Poll::Pending if opening.deadline.as_mut().poll(cx).is_ready() => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Poll::Pending => {}
        }
        if opening.missing == 0 {
            self.opening = None;
        }
        Ok(())
    }

    /// Fails once the connection is to break off; wakes the task then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer)?;
        self.open(&read.map(|()| buffer.filled().len() - before), cx)?;
        read.map(Ok)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
