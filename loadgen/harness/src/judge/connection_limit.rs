//! The connections to the [`ReportService`](super::ReportService): no more at a time than the limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// How long to wait after an accept failed, usually for want of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Accepted connections, at most `limit` open at a time; one more is closed at once. No more are accepted when
/// the stream is dropped.
pub(super) fn accept(listener: TcpListener, limit: usize) -> ReceiverStream<io::Result<LimitedConnection>> {
    let (accepted, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(limit));
        loop {
            let connection = tokio::select! {
                () = accepted.closed() => return,
                connection = listener.accept() => connection,
            };
            let (stream, peer) = match connection {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(BACK_OFF).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                tracing::warn!(%peer, limit, "connection closed: as many are open as may be");
                continue;
            };
            if accepted.send(Ok(LimitedConnection { stream, _permit: permit })).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

/// An open connection, counted as long as it lives.
#[derive(Debug)]
pub(super) struct LimitedConnection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for LimitedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
