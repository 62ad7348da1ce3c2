//! One direction of a connection: bytes on their way, in order, each piece with the time at which it arrives.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

use tokio::time::{Duration, Instant};

/// Bytes that may be on their way; more have to wait for the reader, as in TCP.
const CAPACITY: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Pipe {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// When the last piece arrives: none overtakes another.
    last: Option<Instant>,
    end: Option<End>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Piece {
    arrives: Instant,
    bytes: Vec<u8>,
    read: usize,
}

/// How the bytes come to an end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The writer has closed the connection, which is seen behind the bytes.
    Closed(Instant),
    /// It was reset, which is seen behind the bytes too.
    Reset(Instant),
    /// Nothing is seen any more, and nothing arrives: the writer's machine is gone.
    Silent,
}

/// What there is to read.
#[derive(Debug)]
pub(super) enum Arrived<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Nothing before this time.
    Later(Instant),
    /// Nothing yet; the reader is woken.
    Nothing,
    /// The end.
    Closed,
    /// The connection was reset.
    Reset,
}

impl Pipe {
    /// Takes some bytes that arrive at this time, or behind those before them; returns how many.
    pub(super) fn write(
        &mut self,
        bytes: &[u8],
        arrives: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match self.end {
            None => {}
            Some(End::Silent) => return Poll::Ready(Ok(bytes.len())),
            Some(End::Closed(_) | End::Reset(_)) => {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        if self.bytes >= CAPACITY {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let arrives = self.behind(arrives);
        self.pieces.push_back(Piece { arrives, bytes: bytes.to_vec(), read: 0 });
        self.bytes += bytes.len();
        self.wake_reader();
        Poll::Ready(Ok(bytes.len()))
    }

    /// Not before what was written before.
    fn behind(&mut self, arrives: Instant) -> Instant {
        let arrives = self.last.map_or(arrives, |last| last.max(arrives));
        self.last = Some(arrives);
        arrives
    }

    /// What there is to read at this time.
    pub(super) fn arrived(&mut self, now: Instant, cx: &mut Context<'_>) -> Arrived<'_> {
        if self.pieces.is_empty() || self.pieces[0].arrives > now {
            self.reader = Some(cx.waker().clone());
        }
        let end_at = |at: Instant, end| if at <= now { end } else { Arrived::Later(at) };
        match (self.pieces.front(), self.end) {
            (Some(piece), _) if piece.arrives <= now => Arrived::Bytes(&piece.bytes[piece.read..]),
            (Some(piece), _) => Arrived::Later(piece.arrives),
            (None, Some(End::Closed(at))) => end_at(at, Arrived::Closed),
            (None, Some(End::Reset(at))) => end_at(at, Arrived::Reset),
            (None, Some(End::Silent) | None) => Arrived::Nothing,
        }
    }

    /// So many bytes were read.
    pub(super) fn advance(&mut self, bytes: usize) {
        let Some(piece) = self.pieces.front_mut() else { return };
        piece.read += bytes;
        self.bytes -= bytes;
        if piece.read == piece.bytes.len() {
            self.pieces.pop_front();
        }
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// Everything that is on its way arrives so much later.
    pub(super) fn delay(&mut self, until: Instant) {
        for piece in &mut self.pieces {
            piece.arrives = piece.arrives.max(until);
        }
        if !self.pieces.is_empty() {
            self.last = Some(self.behind(until));
        }
    }

    /// The writer has closed it.
    pub(super) fn close(&mut self, arrives: Instant) {
        let at = self.behind(arrives);
        self.finish(End::Closed(at));
    }

    /// The connection is reset; what is on its way still arrives.
    pub(super) fn reset(&mut self, arrives: Instant) {
        let at = self.behind(arrives);
        self.finish(End::Reset(at));
    }

    /// What is on its way still arrives, and nothing more.
    pub(super) fn silence(&mut self) {
        self.finish(End::Silent);
    }

    /// Whether nothing arrives any more because a machine is gone.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.end, Some(End::Silent))
    }

    /// What is on its way is lost.
    pub(super) fn lose(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    fn finish(&mut self, end: End) {
        match (self.end, end) {
            // A silent connection is reset once somebody answers for it again.
            (None, _) | (Some(End::Silent), End::Reset(_)) => self.end = Some(end),
            _ => {}
        }
        self.wake_reader();
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// So long after now.
pub(super) fn after(delay: Duration) -> Instant {
    Instant::now() + delay
}
