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

/// The end of the bytes.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The writer has closed the connection; the reader learns of it after the bytes.
    Closed(Instant),
    /// The connection was reset; the reader learns of it after the bytes too.
    Reset(Instant),
    /// Nothing arrives any more, not even an end: the writer's machine is gone.
    Silent,
}

/// The result of a read.
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

    /// This arrival time, or that of the bytes before if it is later.
    fn behind(&mut self, arrives: Instant) -> Instant {
        let arrives = self.last.map_or(arrives, |last| last.max(arrives));
        self.last = Some(arrives);
        arrives
    }

    /// The bytes or the end that the reader gets at this time.
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
        if let Some(End::Closed(at) | End::Reset(at)) = &mut self.end {
            *at = (*at).max(until);
        }
    }

    /// The writer has closed it.
    pub(super) fn close(&mut self, arrives: Instant) {
        let at = self.behind(arrives);
        self.finish(End::Closed(at));
    }

    /// The connection is reset; bytes on their way still arrive.
    pub(super) fn reset(&mut self, arrives: Instant) {
        let at = self.behind(arrives);
        self.finish(End::Reset(at));
    }

    /// Bytes on their way still arrive, and nothing more.
    pub(super) fn silence(&mut self) {
        self.finish(End::Silent);
    }

    /// Whether nothing arrives any more because a machine is gone.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.end, Some(End::Silent))
    }

    /// Bytes on their way are lost.
    pub(super) fn lose(&mut self) {
        self.pieces.clear();
        self.bytes = 0;
    }

    fn finish(&mut self, end: End) {
        match (self.end, end) {
            // A silent connection is reset once a new server answers for it.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// The text that can be read at this time.
    fn read(pipe: &mut Pipe, now: Instant) -> String {
        let mut text = String::new();
        while let Arrived::Bytes(bytes) = pipe.arrived(now, &mut cx()) {
            text += std::str::from_utf8(bytes).unwrap();
            let count = bytes.len();
            pipe.advance(count);
        }
        text
    }

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order_and_none_before_its_time() {
        let (mut pipe, now) = (Pipe::default(), Instant::now());
        for (text, delay) in [("a", 5), ("b", 2), ("c", 9)] {
            let written = pipe.write(text.as_bytes(), now + millis(delay), &mut cx());
            assert!(matches!(written, Poll::Ready(Ok(1))));
        }
        assert_eq!(read(&mut pipe, now + millis(4)), "");
        assert_eq!(read(&mut pipe, now + millis(5)), "ab");
        assert_eq!(read(&mut pipe, now + millis(9)), "c");
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_delays_what_is_on_its_way() {
        let (mut pipe, now) = (Pipe::default(), Instant::now());
        let _ = pipe.write(b"a", now, &mut cx());
        pipe.delay(now + millis(7));
        let _ = pipe.write(b"b", now + millis(1), &mut cx());
        assert_eq!(read(&mut pipe, now + millis(6)), "");
        assert_eq!(read(&mut pipe, now + millis(7)), "ab");
    }

    #[tokio::test(start_paused = true)]
    async fn a_partition_delays_an_end_that_is_on_its_way() {
        let now = Instant::now();
        let (mut closed, mut reset) = (Pipe::default(), Pipe::default());
        closed.close(now + millis(1));
        reset.reset(now + millis(9));
        for pipe in [&mut closed, &mut reset] {
            pipe.delay(now + millis(7));
        }
        assert!(matches!(closed.arrived(now + millis(6), &mut cx()), Arrived::Later(_)));
        assert!(matches!(closed.arrived(now + millis(7), &mut cx()), Arrived::Closed));
        assert!(matches!(reset.arrived(now + millis(8), &mut cx()), Arrived::Later(_)));
        assert!(matches!(reset.arrived(now + millis(9), &mut cx()), Arrived::Reset));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_is_seen_behind_what_was_sent() {
        let (mut pipe, now) = (Pipe::default(), Instant::now());
        let _ = pipe.write(b"a", now + millis(3), &mut cx());
        pipe.reset(now);
        assert_eq!(read(&mut pipe, now + millis(3)), "a");
        assert!(matches!(pipe.arrived(now + millis(3), &mut cx()), Arrived::Reset));
        assert!(matches!(pipe.write(b"b", now, &mut cx()), Poll::Ready(Err(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_pipe_takes_everything_and_tells_nothing() {
        let (mut pipe, now) = (Pipe::default(), Instant::now());
        pipe.silence();
        assert!(matches!(pipe.write(b"a", now, &mut cx()), Poll::Ready(Ok(1))));
        assert!(matches!(pipe.arrived(now + millis(9), &mut cx()), Arrived::Nothing));
        pipe.reset(now);
        assert!(matches!(pipe.arrived(now, &mut cx()), Arrived::Reset));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_pipe_waits_for_its_reader() {
        let (mut pipe, now) = (Pipe::default(), Instant::now());
        let _ = pipe.write(&vec![0; CAPACITY], now, &mut cx());
        assert!(pipe.write(b"a", now, &mut cx()).is_pending());
        pipe.advance(1);
        assert!(pipe.write(b"a", now, &mut cx()).is_ready());
    }
}
