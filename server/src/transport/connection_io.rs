//! The byte stream of one connection: its [turns and its pace](super::fair_io), the deadlines of a
//! [silent client](super::silent_client), and fewer writes.
//!
//! HTTP/2 writes as soon as one answer is ready. A write costs as much as the making of an answer, so a write is put off
//! here until the answers that are ready next can go with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Connection;
use super::fair_io::FairIo;
use super::silent_client::SilentClientDeadline;

/// A TCP or TLS stream. See the module.
pub(super) struct ConnectionIo<T> {
    stream: FairIo<T>,
    connection: Connection,
    /// `None` once the connection belongs to a principal.
    deadline: Option<SilentClientDeadline>,
    /// Whether the next write has been put off already.
    write_deferred: bool,
}

impl<T> ConnectionIo<T> {
    pub(super) fn new(
        stream: T,
        connection: Connection,
        preface_timeout: Duration,
        first_call_timeout: Duration,
    ) -> Self {
        let stream = FairIo::new(stream, connection.clone());
        let deadline = Some(SilentClientDeadline::new(preface_timeout, first_call_timeout));
        Self { stream, connection, deadline, write_deferred: false }
    }

    /// The same where the client may send so much that no call has taken.
    pub(super) fn with_window(self, window: u32) -> Self {
        Self { stream: self.stream.with_window(window), ..self }
    }

    /// Whether to write one turn later. One answer seldom comes alone: the tasks that run now have others for the
    /// same client, which then go out in the same write. An idle runtime polls this task again at once.
    fn defer_write(&mut self, cx: &mut Context<'_>) -> bool {
        self.write_deferred = !self.write_deferred;
        if self.write_deferred {
            cx.waker().wake_by_ref();
        }
        self.write_deferred
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ConnectionIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = read.map_ok(|()| buffer.filled().len() - before);
        let Self { connection, deadline, .. } = &mut *self;
        if let Some(running) = deadline
            && running.check(&read, connection, cx)?
        {
            *deadline = None;
        }
        read.map_ok(drop)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.defer_write(cx) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.defer_write(cx) {
            return Poll::Pending;
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::connection::Connections;
    use super::*;
    use crate::counting_waker::CountingWaker;
    use crate::limits::Limits;
    use crate::quota::Principals;

    /// The server's end of a connection, its handle, and the client's end.
    async fn connect() -> (ConnectionIo<TcpStream>, Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let limits = Limits::default();
        let connection = Connections::new(&limits, Principals::new(&limits)).register(address);
        let (preface, first_call) = (limits.preface_timeout, limits.first_call_timeout);
        (ConnectionIo::new(stream, connection.clone(), preface, first_call), connection, client)
    }

    #[tokio::test]
    async fn written_bytes_reach_the_client_in_order() {
        let (mut io, _connection, mut client) = connect().await;
        let (mut written, mut read) = (Vec::new(), Vec::new());
        for number in 0..20_u8 {
            let chunk = vec![number; 1_000];
            let done = async {
                if number % 3 == 0 {
                    let slices = chunk.chunks(300).map(io::IoSlice::new).collect::<Vec<_>>();
                    assert_eq!(io.write_vectored(&slices).await.unwrap(), chunk.len());
                } else {
                    io.write_all(&chunk).await.unwrap();
                }
                io.flush().await.unwrap();
                client.read_buf(&mut read).await.unwrap();
            };
            // A deferred write that is not woken would wait for ever.
            tokio::time::timeout(Duration::from_secs(60), done).await.expect("nothing was written");
            written.extend(chunk);
        }
        drop(io);
        client.read_to_end(&mut read).await.unwrap();
        assert_eq!(read, written);
    }

    #[tokio::test]
    async fn each_write_is_deferred_once_and_wakes_its_task() {
        let (mut io, _connection, mut client) = connect().await;
        let wakes = Arc::new(CountingWaker::default());
        let waker = Waker::from(wakes.clone());
        let mut write = |bytes| Pin::new(&mut io).poll_write(&mut Context::from_waker(&waker), bytes);
        for turn in 1..=3 {
            assert!(write(b"abc").is_pending());
            assert_eq!(wakes.wake_count(), turn, "nothing else wakes the task");
            // More is to be written by then.
            assert!(matches!(write(b"abcdef"), Poll::Ready(Ok(6))));
        }
        let mut read = [0; 18];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"abcdefabcdefabcdef");
    }

    #[tokio::test]
    async fn an_aborted_connection_drops_its_deferred_write() {
        let (mut io, connection, mut client) = connect().await;
        let (deferred, is_deferred) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let write = Pin::new(&mut io).poll_write(&mut Context::from_waker(Waker::noop()), b"late");
            deferred.send(write.is_pending()).unwrap();
            std::future::pending::<()>().await;
            drop(io);
        });
        connection.set_task(task.abort_handle());
        assert!(is_deferred.await.unwrap());
        connection.abort();
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        assert!(read.is_empty());
    }
}
