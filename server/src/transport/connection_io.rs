//! The byte stream of one connection: bounds of the server's time for it, by turns that end and a rate of
//! control frames; the deadlines of a [silent client](super::silent_client); and fewer writes.
//!
//! **Turns.** HTTP/2 goes on reading as long as bytes are there, and hyper tries again after each request
//! that it takes; a task of tokio ends its turn only when its cooperative budget is used up, of which a read
//! takes one unit however much it brings. So a client that floods would keep a thread for milliseconds, and
//! hundreds of them everybody else for seconds. Here a read is charged by what it brings, and reads nothing
//! while the budget is used up: the turn has then ended and stays ended, until the task is polled again
//! behind the tasks of others.
//!
//! HTTP/2 closes a connection on which too many small messages wait, half of its window counting each as 256
//! bytes. A turn ends long before these have come, so that the tasks of calls can take them: however many a
//! correct client sends at once, it keeps its connection.
//!
//! **Pace.** Frames that carry no request cost the server time, and nothing else bounds them: WINDOW_UPDATE,
//! PING, SETTINGS, RST_STREAM, CONTINUATION, frames of unknown types and empty ones. They are charged to the
//! account of the connection's principal, which all of its connections share, and of connections without one
//! to the account of all clients without identity. So are frames that open a request, at a rate of their own:
//! whether it is served or refused, it is decoded, and a task is made for it. While that is overdrawn, the
//! connection is not read. It is never closed for it; the writes of the server, and all other connections, go
//! on.
//!
//! **Writes.** HTTP/2 writes as soon as one answer is ready. A write costs as much as the making of an
//! answer, so a write is put off here until the answers that are ready next can go with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;
use tokio::time::Sleep;

use super::connection::Connection;
use super::frame_headers::{FrameHeaders, FrameTally};
use super::silent_client::SilentClientDeadline;
use crate::limits::Limits;
use crate::quota::{ConnectionFrames, Counter, FrameType, FramesRead};

/// Bytes of one read: HTTP/2 mostly offers room for fewer.
const READ: usize = 16 * 1024;
/// The same on a connection without a principal. A read is charged afterwards, so a client that connects
/// again and again has this much uncharged each time.
const STRANGERS_READ: usize = 1024;
/// Bytes for one unit of the budget, of which a turn has 128.
const BYTES_PER_UNIT: usize = 1024;
/// Control frames for one unit. A request takes a unit of its own: a task is made for it.
const FRAMES_PER_UNIT: u32 = 16;
/// The window of a connection of which a frame with content takes one unit; with larger ones, less. A turn of
/// 128 units then has frames of 256 bytes for a sixteenth of the window: the task of a call takes some turns
/// to begin.
const WINDOW_OF_UNIT: usize = 512 * 1024;
/// The part of the window that one read may bring, for the same reason. The smallest frame of a message has
/// 14 bytes.
const READS_OF_WINDOW: usize = 256;
/// The time that the first pause lasts beyond the moment when the account is not overdrawn any more: timers
/// are no finer than a millisecond.
const EXTRA_PAUSE: Duration = Duration::from_millis(5);
/// The number of times that it may double while others of the same account are served first.
const DOUBLINGS: u32 = 6;

/// A TCP or TLS stream. See the module.
pub(super) struct ConnectionIo<T> {
    stream: T,
    connection: Connection,
    headers: FrameHeaders,
    frames: ConnectionFrames,
    /// The bytes that the client may send and no call has taken.
    window: usize,
    /// Until when the connection is not read.
    pause: Option<Pin<Box<Sleep>>>,
    /// The number of pauses in a row that were not long enough, because others of the same account were
    /// served.
    in_vain: u32,
    paced: bool,
    reset_flooded: bool,
    /// `None` once the connection belongs to a principal.
    deadline: Option<SilentClientDeadline>,
    /// Whether the next write has been put off already.
    write_deferred: bool,
}

impl<T> ConnectionIo<T> {
    /// `window`: how much the client may send that no call has taken.
    pub(super) fn new(stream: T, connection: Connection, limits: &Limits, window: u32) -> Self {
        Self {
            stream,
            connection,
            headers: FrameHeaders::new(),
            frames: ConnectionFrames::default(),
            window: window as usize,
            pause: None,
            in_vain: 0,
            paced: false,
            reset_flooded: false,
            deadline: Some(SilentClientDeadline::new(limits.preface_timeout, limits.first_call_timeout)),
            write_deferred: false,
        }
    }

    /// Whether to write one turn later. One answer seldom comes alone: the tasks that run now have others for
    /// the same client, which then go out in the same write. An idle runtime polls this task again at once.
    /// With one open call nothing is put off: a stream of Attach has waited for its further answers already.
    fn defer_write(&mut self, cx: &mut Context<'_>) -> bool {
        self.write_deferred = !self.write_deferred && self.connection.open_calls() > 1;
        if self.write_deferred {
            cx.waker().wake_by_ref();
        }
        self.write_deferred
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
        let requests = tally.of(FrameType::Headers);
        if tally.control > 0 || requests > 0 {
            self.charge_frames(&tally);
        }
        // One unit was charged before the read.
        let messages =
            (tally.of(FrameType::Data) as usize).saturating_mul(WINDOW_OF_UNIT) / self.window.max(1);
        let units =
            bytes.len() / BYTES_PER_UNIT + messages + (requests + tally.control / FRAMES_PER_UNIT) as usize;
        for _ in 0..units {
            match coop::poll_proceed(cx) {
                Poll::Ready(unit) => unit.made_progress(),
                // The turn is over, and the task is woken.
                Poll::Pending => break,
            }
        }
    }

    fn charge_frames(&mut self, tally: &FrameTally) {
        let read = FramesRead {
            control: tally.control,
            resets: tally.of(FrameType::RstStream),
            requests: tally.of(FrameType::Headers),
        };
        let overdrawn = self.connection.charged_account().charge_read(&mut self.frames, read);
        if overdrawn.any() {
            self.pause = self.next_pause();
        }
        if overdrawn.any() && !std::mem::replace(&mut self.paced, true) {
            self.connection.count(Counter::ConnectionPaced);
        }
        // A client that cancels calls that were under way is paced too, and that is all.
        let at_once = 2 * tally.early_resets > read.resets;
        if overdrawn.resets && at_once && !std::mem::replace(&mut self.reset_flooded, true) {
            self.connection.count(Counter::ConnectionResetFlooded);
        }
    }
}

impl<T: AsyncRead + Unpin> ConnectionIo<T> {
    /// Reads as much as may be read at once, and charges it; how much.
    fn poll_fair_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        ready!(self.poll_pace(cx));
        let unit = ready!(coop::poll_proceed(cx));
        let before = buffer.filled().len();
        let most = if self.connection.account().is_some() { READ } else { STRANGERS_READ };
        let most = most.min((self.window / READS_OF_WINDOW).max(1));
        if buffer.remaining() <= most {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buffer.advance(read);
        }
        unit.made_progress();
        self.charge(&buffer.filled()[before..], cx);
        Poll::Ready(Ok(buffer.filled().len() - before))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ConnectionIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_fair_read(cx, buffer);
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
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::net::{TcpListener, TcpStream};

    use super::super::connection::{Connections, LOCAL};
    use super::super::frame_headers::PREFACE;
    use super::*;
    use crate::counting_waker::CountingWaker;
    use crate::quota::Principals;

    /// Frames of this type, with content of so many bytes each, in a megabyte or a little more, behind the
    /// preface.
    fn flood(code: u8, content: usize) -> Vec<u8> {
        let length = u32::try_from(content).unwrap().to_be_bytes();
        let frame = [&length[1..], &[code, 0, 0, 0, 0, 1], &vec![9; content]].concat();
        [vec![b'P'; PREFACE], frame.repeat((1 << 20) / frame.len() + 1)].concat()
    }

    /// The server's end of a connection on which these bytes have come.
    async fn flooded(
        bytes: &[u8],
        limits: &Limits,
    ) -> (ConnectionIo<DuplexStream>, Principals, DuplexStream) {
        let (mut client, io) = tokio::io::duplex(bytes.len());
        client.write_all(bytes).await.unwrap();
        let principals = Principals::new(limits);
        let connection = Connections::new(limits, principals.clone()).register(LOCAL);
        let mut io = ConnectionIo::new(io, connection, limits, 0);
        io.window = usize::MAX;
        (io, principals, client)
    }

    /// Reads until nothing is ready, and then again as hyper does after each request; how much was read in
    /// one turn.
    fn read_for_one_turn(io: &mut ConnectionIo<DuplexStream>, cx: &mut Context<'_>) -> usize {
        let (mut bytes, mut all, mut pending) = (vec![0; 64 * 1024], 0, 0);
        while pending < 5 {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *io).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => {
                    read.unwrap();
                    assert!(pending == 0, "the turn has ended");
                    assert!((1..=STRANGERS_READ).contains(&buffer.filled().len()));
                    all += buffer.filled().len();
                }
                Poll::Pending => pending += 1,
            }
        }
        all
    }

    /// Bytes that are read in the first turns of a task.
    async fn turns(mut io: ConnectionIo<DuplexStream>, turns: usize) -> Vec<usize> {
        let mut read = Vec::new();
        let task = poll_fn(move |cx| {
            read.push(read_for_one_turn(&mut io, cx));
            if read.len() == turns { Poll::Ready(std::mem::take(&mut read)) } else { Poll::Pending }
        });
        tokio::spawn(task).await.unwrap()
    }

    #[tokio::test]
    async fn a_turn_ends_and_stays_ended_until_the_next() {
        const DATA: u8 = 0;
        let (io, ..) = flooded(&flood(DATA, 16_000), &Limits::default()).await;
        for read in turns(io, 4).await {
            assert!((32 * 1024..=160 * 1024).contains(&read), "{read}");
        }
    }

    #[tokio::test]
    async fn small_frames_end_a_turn_sooner() {
        const UNKNOWN: u8 = 0x77;
        let limits = Limits { anonymous_control_frames_per_second: u32::MAX, ..Limits::default() };
        let (io, ..) = flooded(&flood(UNKNOWN, 0), &limits).await;
        for read in turns(io, 4).await {
            assert!((1..=4_096 * 9).contains(&read), "{read}");
        }
    }

    /// HTTP/2 closes a connection on which more small messages wait than half of its window, each counted as
    /// 256 bytes.
    #[tokio::test]
    async fn small_messages_of_some_turns_wait_in_every_window() {
        const DATA: u8 = 0;
        const FRAME: usize = 14;
        for window in [65_535, 128 * 1024, 1 << 20, 8 << 20] {
            let (mut io, ..) = flooded(&flood(DATA, FRAME - 9), &Limits::default()).await;
            io.window = window;
            for read in turns(io, 4).await {
                let held = read / FRAME * 256;
                assert!(read > 0 && held * 4 <= window / 2, "{read} bytes in a turn of {window}");
            }
        }
    }

    #[tokio::test]
    async fn an_overdrawn_connection_is_not_read_and_is_written() {
        const PING: u8 = 6;
        let limits = Limits { anonymous_control_frames_per_second: 100, ..Limits::default() };
        let (mut io, principals, mut client) = flooded(&flood(PING, 8), &limits).await;
        let mut bytes = vec![0; READ];
        let first = io.read(&mut bytes).await.unwrap();
        assert_eq!(first, STRANGERS_READ, "it is charged when it was read");
        // Its own share, and a hundred of all.
        let mut all = first;
        while all < (32 + 100) * 17 {
            all += io.read(&mut bytes).await.unwrap();
        }
        let second = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut bytes);
            Poll::Ready(Pin::new(&mut io).poll_read(cx, &mut buffer).is_ready())
        });
        assert!(!second.await, "dozens of PINGs above are parts of a second");
        io.write_all(b"answer").await.unwrap();
        let mut answer = [0; 6];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        assert_eq!(principals.all().get(Counter::ConnectionPaced), 1);
    }

    #[tokio::test]
    async fn who_cancels_calls_under_way_is_no_reset_flood() {
        const STREAMS: u32 = 60;
        let frame = |code: u8, stream: u32, content: &[u8]| {
            let length = u32::try_from(content.len()).unwrap().to_be_bytes();
            [&length[1..], &[code, 4], &stream.to_be_bytes(), content].concat()
        };
        let headers = |stream| frame(1, stream, &[0x82]);
        let reset = |stream| frame(3, stream, &8_u32.to_be_bytes());
        let each = |frames: &dyn Fn(u32) -> Vec<u8>| (0..STREAMS).flat_map(frames).collect::<Vec<u8>>();
        let opened = [vec![b'P'; PREFACE], each(&headers)].concat();
        let cancelled = each(&reset);
        // Each in the place of one that is cancelled, as a client does that goes on.
        let replaced = each(&|stream| [reset(stream), headers(stream + STREAMS)].concat());
        let at_once = each(&|stream| [headers(stream + STREAMS), reset(stream + STREAMS)].concat());
        for (frames, floods) in [(cancelled, 0), (replaced, 0), (at_once, 1)] {
            let limits = Limits { resets_per_second: 20, ..Limits::default() };
            let (mut io, principals, _client) = flooded(&[opened.clone(), frames].concat(), &limits).await;
            io.read_exact(&mut vec![0; opened.len()]).await.unwrap();
            assert!(io.read(&mut [0; STRANGERS_READ]).await.unwrap() > 0);
            let counted = [Counter::ConnectionPaced, Counter::ConnectionResetFlooded];
            assert_eq!(counted.map(|counter| principals.all().get(counter)), [1, floods]);
        }
    }

    #[tokio::test]
    async fn a_paced_connection_is_read_to_its_end() {
        const PING: u8 = 6;
        let limits = Limits { anonymous_control_frames_per_second: 40_000, ..Limits::default() };
        let bytes = flood(PING, 8);
        let (mut io, principals, client) = flooded(&bytes, &limits).await;
        drop(client);
        let mut read = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(120), io.read_to_end(&mut read)).await;
        ended.expect("it was never read again").unwrap();
        assert!(read == bytes);
        assert_eq!(principals.all().get(Counter::ConnectionPaced), 1, "it was paced at all");
    }

    /// The server's end of a connection, its handle, and the client's end.
    async fn connect() -> (ConnectionIo<TcpStream>, Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let limits = Limits::default();
        let connection = Connections::new(&limits, Principals::new(&limits)).register(address);
        (ConnectionIo::new(stream, connection.clone(), &limits, u32::MAX), connection, client)
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
        let (mut io, connection, mut client) = connect().await;
        let _calls = [(); 2].map(|()| connection.open_call());
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
    async fn the_writes_of_one_call_are_not_deferred() {
        let (mut io, connection, _client) = connect().await;
        let mut write = || Pin::new(&mut io).poll_write(&mut Context::from_waker(Waker::noop()), b"abc");
        let calls = [(); 2].map(|()| connection.open_call());
        assert!(write().is_pending());
        drop(calls);
        let _call = connection.open_call();
        for _ in 0..3 {
            assert!(write().is_ready());
        }
    }

    #[tokio::test]
    async fn an_aborted_connection_drops_its_deferred_write() {
        let (mut io, connection, mut client) = connect().await;
        let _calls = [(); 2].map(|()| connection.open_call());
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
