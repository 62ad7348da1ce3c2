//! One end of a connection, as a byte stream.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::Network;
use super::pipe::{Arrived, Pipe};

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// The state that both ends share.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    /// Which of the client's connections this is.
    pub(super) host: usize,
    to_server: Mutex<Pipe>,
    to_client: Mutex<Pipe>,
    /// Whether the server's end is that of a server that is gone.
    cut_off: AtomicBool,
}

impl Link {
    pub(super) fn new(number: u64, host: usize) -> Self {
        let cut_off = AtomicBool::new(false);
        Self { number, host, to_server: Mutex::default(), to_client: Mutex::default(), cut_off }
    }

    /// The server is gone: its end has no effect any more.
    pub(super) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
    }

    /// The pipe that this side reads.
    pub(super) fn to(&self, side: Side) -> MutexGuard<'_, Pipe> {
        let pipe = match side {
            Side::Client => &self.to_client,
            Side::Server => &self.to_server,
        };
        pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    network: Network,
    link: Arc<Link>,
    side: Side,
    /// Until the next bytes arrive.
    arrival: Option<Pin<Box<Sleep>>>,
}

impl Side {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl Stream {
    pub(super) fn new(network: Network, link: Arc<Link>, side: Side) -> Self {
        Self { network, link, side, arrival: None }
    }

    fn is_cut_off(&self) -> bool {
        self.side == Side::Server && self.link.cut_off.load(Ordering::Relaxed)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let at = {
                let mut pipe = this.link.to(this.side);
                match pipe.arrived(Instant::now(), cx) {
                    Arrived::Bytes(bytes) => {
                        let count = bytes.len().min(buffer.remaining());
                        buffer.put_slice(&bytes[..count]);
                        this.network.trace().message(
                            this.link.number,
                            this.network.name(this.side),
                            &bytes[..count],
                        );
                        pipe.advance(count);
                        return Poll::Ready(Ok(()));
                    }
                    Arrived::Nothing => return Poll::Pending,
                    Arrived::Closed => return Poll::Ready(Ok(())),
                    Arrived::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                    Arrived::Later(at) => at,
                }
            };
            let arrival = this.arrival.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if arrival.deadline() != at {
                arrival.as_mut().reset(at);
            }
            if arrival.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let to = this.side.other();
        if this.side == Side::Client {
            this.network.answer_for_the_dead(&this.link);
        }
        let count = this.network.draw_piece(bytes.len());
        let arrives = this.network.draw_arrival(this.link.host, to);
        this.link.to(to).write(&bytes[..count], arrives, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let to = self.side.other();
        let arrives = self.network.draw_arrival(self.link.host, to);
        self.link.to(to).close(arrives);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_cut_off() {
            return;
        }
        let to = self.side.other();
        let arrives = self.network.draw_arrival(self.link.host, to);
        self.link.to(to).close(arrives);
        // This side reads no more: a peer that goes on writing gets a reset.
        let mut unread = self.link.to(self.side);
        unread.lose();
        unread.reset(arrives);
    }
}
