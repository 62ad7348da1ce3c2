//! The queue of log lines and the thread that writes them.
//!
//! A write to a pipe that nobody reads waits for ever. Here only the thread of the log waits; the queue has a
//! bound in lines and in bytes, and what does not fit is dropped and counted.
//!
//! `tracing-appender` is not used. It has the thread and a bound in lines; the bound in bytes, the cut of
//! lines and the reports would stay here around it, with a thread of their own. And when nobody reads
//! standard error its end prints to standard output.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::COUNTS;
use super::rate::RateLimit;

/// Lines in the queue.
const LINES: usize = 8_192;
/// Bytes of the lines in the queue.
const BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one line; a longer line is cut.
const LINE_BYTES: usize = 32 * 1024;
/// The interval at which the thread looks for lines that were left out.
const TICK: Duration = Duration::from_secs(1);
/// The time that the end of the program waits for the queue to be written.
const FLUSH: Duration = Duration::from_secs(1);

/// See the module. Clones share it. Each write is one line.
#[derive(Clone, Debug)]
pub(super) struct LineQueue {
    sender: SyncSender<String>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Bytes of the lines in the queue.
    bytes: AtomicUsize,
    /// Whether the thread is to end when the queue is empty.
    stop: AtomicBool,
    /// Whether lines may have the escape sequences of colours.
    ansi: bool,
}

/// Has the queue written when it is dropped, unless that takes long.
#[derive(Debug)]
pub(super) struct LogGuard {
    queue: LineQueue,
    ended: Receiver<()>,
}

impl LineQueue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(
        out: impl Write + Send + 'static,
        ansi: bool,
        limit: Arc<RateLimit>,
    ) -> io::Result<LogGuard> {
        let (sender, lines) = mpsc::sync_channel(LINES);
        let (end, ended) = mpsc::channel();
        let shared = Arc::new(Shared { bytes: AtomicUsize::new(0), stop: AtomicBool::new(false), ansi });
        let queue = Self { sender, shared: Arc::clone(&shared) };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            shared.write(&lines, &limit, out);
            let _ = end.send(());
        })?;
        Ok(LogGuard { queue, ended })
    }
}

impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let cleaned = clean(line, self.shared.ansi);
        let bytes = cleaned.len();
        let fits = self.shared.bytes.fetch_add(bytes, Relaxed) + bytes <= BYTES;
        if !fits || self.sender.try_send(cleaned).is_err() {
            self.shared.bytes.fetch_sub(bytes, Relaxed);
            COUNTS.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line with every control character escaped but its end, so that a line is one line and a terminal shows
/// it as it is; cut if it is too long. With `ansi` the escape sequences of the formatter stay: it has escaped
/// those of clients.
fn clean(line: &[u8], ansi: bool) -> String {
    let cut = &line[..line.len().min(LINE_BYTES)];
    let text = String::from_utf8_lossy(cut);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let keep = |character: char| !character.is_control() || (ansi && character == '\u{1b}');
    let mut cleaned = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if keep(character) { cleaned.push(character) } else { cleaned.extend(character.escape_default()) }
    }
    cleaned.push('\n');
    cleaned
}

impl Shared {
    /// Runs the thread: writes lines until it is told to stop, and logs the numbers of lines that were
    /// dropped or left out. These reports come through the queue too.
    fn write(&self, lines: &Receiver<String>, limit: &RateLimit, mut out: impl Write) {
        let mut write = |line: String| {
            self.bytes.fetch_sub(line.len(), Relaxed);
            // An empty line only wakes the thread. If standard error is gone there is nowhere to write.
            if !line.is_empty() && out.write_all(line.as_bytes()).is_ok() {
                COUNTS.written.fetch_add(1, Relaxed);
            }
        };
        let (mut ticked, mut told) = (Instant::now(), COUNTS.dropped.load(Relaxed));
        loop {
            match lines.recv_timeout(TICK) {
                Ok(line) => write(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let stop = self.stop.load(Relaxed);
            if stop || ticked.elapsed() >= TICK {
                ticked = Instant::now();
                let dropped = COUNTS.dropped.load(Relaxed) - told;
                if dropped > 0 {
                    told += dropped;
                    tracing::warn!(
                        "dropped {dropped} lines of the log: standard error was not read fast enough"
                    );
                }
                limit.report(ticked);
            }
            if stop {
                return lines.try_iter().for_each(write);
            }
        }
    }
}

impl LogGuard {
    /// The writers that put lines into the queue.
    pub(super) fn writer(&self) -> impl Fn() -> LineQueue + use<> {
        let queue = self.queue.clone();
        move || queue.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.queue.shared.stop.store(true, Relaxed);
        // Wakes the thread. If the queue is full it is awake, or waits for a reader.
        let _ = self.queue.sender.try_send(String::new());
        let _ = self.ended.recv_timeout(FLUSH);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Takes what is written while it is open, and waits while it is not.
    #[derive(Clone, Default)]
    struct Gate(Arc<GateState>);

    #[derive(Default)]
    struct GateState {
        open: Mutex<bool>,
        opened: Condvar,
        written: Mutex<Vec<u8>>,
    }

    impl Gate {
        fn open(&self) {
            *self.0.open.lock().unwrap() = true;
            self.0.opened.notify_all();
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.written.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.opened.wait_while(self.0.open.lock().unwrap(), |open| !*open).unwrap());
            self.0.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_queue_that_nobody_empties_drops_lines_and_counts_them() {
        let gate = Gate::default();
        let mut guard = LineQueue::start(gate.clone(), false, Arc::new(RateLimit::new(9))).unwrap();
        let (line, before) = (vec![b'x'; 1024], COUNTS.dropped.load(Relaxed));
        for _ in 0..3 * BYTES / 1024 {
            guard.queue.write_all(&line).unwrap();
        }
        let shared = &guard.queue.shared;
        let dropped = COUNTS.dropped.load(Relaxed) - before;
        assert!(dropped > 0 && shared.bytes.load(Relaxed) <= BYTES);
        gate.open();
        drop(guard);
        assert!(gate.text().lines().count() as u64 >= 3 * BYTES as u64 / 1024 - dropped);
    }

    #[test]
    fn control_characters_of_clients_are_escaped() {
        let hostile = b"principal=\x1b[31mroot\x1b[0m\r\nforged\x07\xc2\x9b\n";
        assert_eq!(clean(hostile, false), "principal=\\u{1b}[31mroot\\u{1b}[0m\\r\\nforged\\u{7}\\u{9b}\n");
        assert!(
            clean(hostile, true).contains("\u{1b}[31m"),
            "of the formatter, which escapes those of clients"
        );
        assert_eq!(clean(&[b'x'; LINE_BYTES + 9], false).len(), LINE_BYTES + 1);
    }
}
