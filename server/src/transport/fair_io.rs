//! What one connection may take of the server's time: turns that end, and a rate of control frames.
//!
//! **Turns.** HTTP/2 goes on reading as long as bytes are there, and hyper tries again after each request that it takes; a
//! task of tokio ends its turn only when its cooperative budget is used up, of which a read takes one unit however much it
//! brings. So a client that floods would keep a thread for milliseconds, and hundreds of them everybody else for
//! seconds. Here a read is charged by what it brings, and reads nothing while the budget is used up: the turn has then
//! ended and stays ended, until the task is polled again behind the tasks of others.
//!
//! **Pace.** Frames that carry no request cost the server time, and nothing else bounds them: WINDOW_UPDATE, PING, SETTINGS,
//! RST_STREAM, CONTINUATION, frames of unknown types and empty ones. They are charged to the account of the connection's
//! principal, which all of its connections share, and of connections without one to the account of all clients without
//! identity. While that is overdrawn, the connection is not read. It is never closed for it; what the server writes, and
//! all other connections, go on.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::Sleep;

use super::connection::Connection;
use super::frame_headers::{FrameHeaders, FrameTally};
use crate::quota::{ConnectionFrames, Counter, FrameType};

/// Bytes of one read: what HTTP/2 offers room for is mostly less.
const READ: usize = 16 * 1024;
/// Bytes for one unit of the budget, of which a turn has 128.
const BYTES_PER_UNIT: usize = 1024;
/// Control frames for one unit. A request takes a unit of its own: a task is made for it.
const FRAMES_PER_UNIT: u32 = 16;
/// How much longer than the account is overdrawn the first pause is: timers are no finer than a millisecond.
const EXTRA_PAUSE: Duration = Duration::from_millis(5);
/// How often that may double while others of the same account are served first.
const DOUBLINGS: u32 = 6;

/// A TCP or TLS stream. See the module.
pub(super) struct FairIo<T> {
    stream: T,
    connection: Connection,
    headers: FrameHeaders,
    frames: ConnectionFrames,
    /// Until when the connection is not read.
    pause: Option<Pin<Box<Sleep>>>,
    /// How many pauses in a row were not long enough, because others of the same account were served.
    in_vain: u32,
    paced: bool,
    reset_flooded: bool,
}

impl<T> FairIo<T> {
    pub(super) fn new(stream: T, connection: Connection) -> Self {
        let frames = ConnectionFrames::default();
        let headers = FrameHeaders::new();
        Self {
            stream,
            connection,
            headers,
            frames,
            pause: None,
            in_vain: 0,
            paced: false,
            reset_flooded: false,
        }
    }

    /// Ready when the connection may be read.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = self.next_pause();
        }
        self.in_vain = 0;
        Poll::Ready(())
    }

    /// A pause, if the account is overdrawn.
    fn next_pause(&mut self) -> Option<Pin<Box<Sleep>>> {
        let wait = self.connection.charged_account().frames_overdrawn()?;
        // All connections of the account wait for the same moment, and one of them may overdraw it again.
        let extra = EXTRA_PAUSE * 2_u32.pow(self.in_vain.min(DOUBLINGS));
        self.in_vain += 1;
        Some(Box::pin(tokio::time::sleep(wait + extra)))
    }

    /// Charges what a read has brought.
    fn charge(&mut self, bytes: &[u8], cx: &mut Context<'_>) {
        let tally = self.headers.count(bytes);
        self.connection.count_frames(&tally.by_type);
        if tally.control > 0 {
            self.charge_control(&tally);
        }
        let requests = tally.of(FrameType::Headers);
        // One unit was charged before the read.
        let units = bytes.len() / BYTES_PER_UNIT + (requests + tally.control / FRAMES_PER_UNIT) as usize;
        for _ in 0..units {
            match coop::poll_proceed(cx) {
                Poll::Ready(unit) => unit.made_progress(),
                // The turn is over, and the task is woken.
                Poll::Pending => break,
            }
        }
    }

    fn charge_control(&mut self, tally: &FrameTally) {
        let account = Arc::clone(self.connection.charged_account());
        let resets = tally.of(FrameType::RstStream);
        let overdrawn = account.charge_control_frames(&mut self.frames, tally.control, resets);
        if overdrawn.any() {
            self.pause = self.next_pause();
        }
        if overdrawn.any() && !std::mem::replace(&mut self.paced, true) {
            self.connection.count(Counter::ConnectionPaced);
        }
        if overdrawn.resets && !std::mem::replace(&mut self.reset_flooded, true) {
            self.connection.count(Counter::ConnectionResetFlooded);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FairIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.poll_pace(cx));
        let unit = ready!(coop::poll_proceed(cx));
        let before = buffer.filled().len();
        if buffer.remaining() <= READ {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(READ));
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buffer.advance(read);
        }
        unit.made_progress();
        this.charge(&buffer.filled()[before..], cx);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FairIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
