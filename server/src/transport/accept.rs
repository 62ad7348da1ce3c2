//! The accept loop: no more connections than may be, no delay by Nagle's algorithm, and an end.
//!
//! tonic has no limit on connections, ignores its own TCP settings when it is handed connections, and keeps a
//! listening socket open while it drains. So we accept ourselves. And it tells nobody why it gave a connection
//! up, so we look at the last words that it sent there. And HTTP/2 writes whenever one answer is ready; we have it wait
//! for those that are ready next, for a write costs as much as making an answer does.

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
use tonic::transport::server::Connected;

use super::connection::{Connection, UnclaimedConnections};
use super::last_words::LastWords;
use crate::limits::Limits;
use crate::quota::{Counter, Principals};

/// How long to wait after an accept failed, usually for want of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Accepted connections, no more of them open at a time than may be, until `stop` is cancelled. Then the listener
/// is closed, so that new clients are turned away instead of being left to wait. What is still open when `cut`
/// is cancelled breaks off.
pub(crate) fn accept(
    listener: TcpListener,
    limits: &Limits,
    principals: &Principals,
    stop: CancellationToken,
    cut: CancellationToken,
) -> ReceiverStream<io::Result<ServerIo>> {
    let (limit, opening, naming) = (limits.connections, limits.preface_timeout, limits.first_call_timeout);
    let unclaimed = UnclaimedConnections::new(limits.unclaimed_connections, principals.clone());
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
                unclaimed.count(Counter::ConnectionRefused);
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%peer, %error, "TCP_NODELAY not set");
            }
            let cut = cut.child_token();
            let connection = ServerIo {
                stream,
                opening: Some(Opening::new(opening, naming)),
                connection: unclaimed.register(cut.clone()),
                cut: Box::pin(cut.cancelled_owned()),
                last_words: LastWords::default(),
                lingered: false,
                _permit: permit,
            };
            if accepted.send(Ok(connection)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

/// An open connection, counted as long as it lives.
pub(crate) struct ServerIo {
    stream: TcpStream,
    /// `None` once somebody has spoken on it.
    opening: Option<Opening>,
    connection: Connection,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    last_words: LastWords,
    /// Whether what is to be written has waited for its turn already.
    lingered: bool,
    _permit: OwnedSemaphorePermit,
}

/// A connection on which nobody has spoken yet.
struct Opening {
    /// Bytes that are missing of those that must come first.
    missing: usize,
    /// How long it may then take until somebody speaks.
    naming: Duration,
    deadline: Pin<Box<Sleep>>,
}

/// Bytes with which every client opens an HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: usize = 24;

impl Opening {
    fn new(opening: Duration, naming: Duration) -> Self {
        Self { missing: PREFACE, naming, deadline: Box::pin(tokio::time::sleep(opening)) }
    }

    /// So many bytes more have come.
    fn read(&mut self, bytes: usize) {
        if self.missing > 0 && bytes >= self.missing {
            self.deadline = Box::pin(tokio::time::sleep(self.naming));
        }
        self.missing = self.missing.saturating_sub(bytes);
    }
}

impl ServerIo {
    /// Counts what was read; fails if nobody speaks on the connection in time.
    fn open(&mut self, read: &Poll<usize>, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(opening) = &mut self.opening else { return Ok(()) };
        match read {
            Poll::Ready(bytes) => opening.read(*bytes),
            Poll::Pending if self.connection.account().is_some() => self.opening = None,
            Poll::Pending if opening.deadline.as_mut().poll(cx).is_ready() => {
                self.connection.count(Counter::ConnectionSilent);
                return Err(io::ErrorKind::TimedOut.into());
            }
            Poll::Pending => {}
        }
        Ok(())
    }

    /// Whether to write later. One answer seldom comes alone: the tasks whose turn is now have others for the same
    /// client, which then go out in the same write. An idle runtime comes back at once.
    fn linger(&mut self, cx: &mut Context<'_>) -> bool {
        self.lingered = !self.lingered;
        if self.lingered {
            cx.waker().wake_by_ref();
        }
        self.lingered
    }

    /// Fails once the connection is to break off; wakes the task then.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl Connected for ServerIo {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl AsyncRead for ServerIo {
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

impl AsyncWrite for ServerIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        if self.linger(cx) {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes)?;
        if let Poll::Ready(written) = written {
            self.last_words.note(&bytes[..written]);
        }
        written.map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        if self.linger(cx) {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)?;
        if let Poll::Ready(mut rest) = written {
            for buffer in buffers {
                let count = rest.min(buffer.len());
                self.last_words.note(&buffer[..count]);
                rest -= count;
            }
        }
        written.map(Ok)
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

impl Drop for ServerIo {
    fn drop(&mut self) {
        if self.last_words.give_up() {
            self.connection.count(Counter::ConnectionResetFlooded);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::counting_waker::CountingWaker;

    /// A connection as the server has it, its client, and what cuts it.
    async fn connection() -> (ServerIo, TcpStream, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (limits, cut) = (Limits::default(), CancellationToken::new());
        let principals = Principals::new(&limits);
        let mut accepted = accept(listener, &limits, &principals, CancellationToken::new(), cut.clone());
        let client = TcpStream::connect(address).await.unwrap();
        (accepted.next().await.unwrap().unwrap(), client, cut)
    }

    #[tokio::test]
    async fn whatever_is_written_comes_to_the_client_in_order() {
        let (mut connection, mut client, _cut) = connection().await;
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for number in 0..20_u8 {
            let piece = vec![number; 1_000];
            let done = async {
                if number % 3 == 0 {
                    let slices = piece.chunks(300).map(io::IoSlice::new).collect::<Vec<_>>();
                    assert_eq!(connection.write_vectored(&slices).await.unwrap(), piece.len());
                } else {
                    connection.write_all(&piece).await.unwrap();
                }
                connection.flush().await.unwrap();
                client.read_buf(&mut read).await.unwrap();
            };
            // What waits for its turn and is not woken would wait for ever.
            tokio::time::timeout(Duration::from_secs(60), done).await.expect("nothing was written");
            written.extend(piece);
        }
        drop(connection);
        client.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, written);
    }

    #[tokio::test]
    async fn a_write_lets_others_have_their_turn_and_comes_back_by_itself() {
        let (mut connection, mut client, _cut) = connection().await;
        let woken = Arc::new(CountingWaker::default());
        let waker = Waker::from(woken.clone());
        let mut write = |bytes| Pin::new(&mut connection).poll_write(&mut Context::from_waker(&waker), bytes);
        for turn in 1..=3 {
            assert!(write(b"abc").is_pending());
            assert_eq!(woken.wake_count(), turn, "nobody else wakes it");
            // More has come until then.
            assert!(matches!(write(b"abcdef"), Poll::Ready(Ok(6))));
        }
        let mut read = [0; 18];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcdefabcdefabcdef");
    }

    #[tokio::test]
    async fn a_connection_that_is_cut_writes_nothing_more_even_if_a_write_waits_for_its_turn() {
        let (mut connection, mut client, cut) = connection().await;
        let mut write =
            || Pin::new(&mut connection).poll_write(&mut Context::from_waker(Waker::noop()), b"late");
        assert!(write().is_pending());
        cut.cancel();
        let Poll::Ready(Err(error)) = write() else { panic!("it was written") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        drop(connection);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert!(read.is_empty());
    }
}
