//! The socket in the folder of the log, by which `stickycas-server data` copies the log of a server that
//! runs.
//!
//! Only the owner of the folder and root can reach it. Each client that connects gets a backup and nothing
//! else; the end of a backup shows that it is whole.
//!
//! As long as a backup is being written, the log keeps what it has replaced since the backup began. So there
//! is one at a time, and the next client waits; a client that reads nothing is given up, also when the log
//! has become twice as large; and the end of the server ends the backup. The log of the server says why a
//! backup has failed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::UnixListener;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::backup;
use crate::commit_log::engine::Engine;
use crate::commit_log::log_bytes;

/// The name of the socket.
const SOCKET: &str = "control";
/// Bytes that are written at once.
const CHUNK: usize = 256 * 1024;
/// The time that a client may read nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 30 });
/// Bytes by which a log may grow during a backup, however small it is.
const LEAST_GROWTH: u64 = if cfg!(test) { 1024 * 1024 } else { 1024 * 1024 * 1024 };
/// Bytes from which on a path is too long for the address of a socket: 104 of some systems and 108 of Linux,
/// with a zero.
const LONGEST_PATH: usize = 104;

/// The path by which the socket in this folder is reached, as long as the file that comes with it is open.
///
/// # Errors
/// If the folder cannot be opened.
fn reach(folder: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let path = folder.join(SOCKET);
    if path.as_os_str().len() < LONGEST_PATH {
        return Ok((path, None));
    }
    let opened = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(SOCKET);
    Ok((short, Some(opened)))
}

/// The socket in this folder, for errors, with an advice if its path is too long.
fn advice(folder: &Path, short: Option<&File>) -> String {
    let folder = folder.display();
    match short {
        None => format!("the socket {SOCKET} in {folder}"),
        Some(_) => format!(
            "the socket {SOCKET} in {folder}, whose path is too long for the system and not to be shortened by /proc: give a \
             folder with a shorter path (--data DIR)"
        ),
    }
}

/// Serves the socket in this folder until `end`. A backup that is being written ends then too, before this
/// returns.
///
/// # Errors
/// If it cannot be served.
pub(crate) async fn serve(
    folder: &Path,
    engine: Arc<dyn Engine>,
    end: CancellationToken,
) -> anyhow::Result<()> {
    let (path, short) = reach(folder)?;
    let advice = || advice(folder, short.as_ref());
    // A server that was killed leaves it behind, and the folder is ours.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(advice),
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(advice)?;
    while let Some(accepted) = end.run_until_cancelled(accept(&listener)).await {
        let (client, connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Too many files are open.
                tracing::warn!(%error, "a client cannot be sent a backup");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let (engine, out) = (engine.clone(), ToClient::new(client, folder.to_owned()));
        let mut writing =
            spawn_blocking(move || backup::write(&*engine, BufWriter::with_capacity(CHUNK, out)));
        let written = tokio::select! {
            written = &mut writing => written,
            () = end.cancelled() => {
                drop(connection);
                writing.await
            }
        };
        // redb panics at some damage: other clients are served all the same.
        if let Err(error) = written.map_err(anyhow::Error::from).and_then(|written| Ok(written?)) {
            tracing::warn!(%error, "a backup has failed");
        }
    }
    Ok(())
}

async fn accept(listener: &UnixListener) -> io::Result<(UnixStream, Connection)> {
    let client = listener.accept().await?.0.into_std()?;
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(LONGEST_PAUSE))?;
    let connection = Connection(client.try_clone()?);
    Ok((client, connection))
}

/// Copies the log of the server that uses this folder. Returns how many bytes it has.
///
/// # Errors
/// If the server cannot be asked, or the copy not be written.
pub(super) fn backup(folder: &Path, out: &mut impl Write) -> anyhow::Result<u64> {
    let (path, short) = reach(folder)?;
    let mut server = UnixStream::connect(path).with_context(|| {
        format!(
            "{}: it is there when the server has read its log, and the log of the server says why if not; or stop the server, \
             and make the backup then",
            advice(folder, short.as_ref())
        )
    })?;
    Ok(io::copy(&mut server, out)?)
}

/// A connection that is closed when this is dropped, also while another thread writes to it.
struct Connection(UnixStream);

impl Drop for Connection {
    fn drop(&mut self) {
        // One that is gone is closed.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Sends what is written to it, as long as the client reads and the log does not grow too much.
struct ToClient {
    client: UnixStream,
    /// The folder of the log.
    folder: PathBuf,
    /// Bytes from which on the log is too large.
    most: u64,
    /// Whether a write has failed. The buffer before this writes once more when it is dropped.
    given_up: bool,
}

impl ToClient {
    fn new(client: UnixStream, folder: PathBuf) -> Self {
        let bytes = log_bytes(&folder);
        Self { client, folder, most: bytes + bytes.max(LEAST_GROWTH), given_up: false }
    }
}

impl Write for ToClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.given_up {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = self.send(bytes);
        self.given_up = written.is_err();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ToClient {
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if log_bytes(&self.folder) > self.most {
            let why = "the log has grown too much meanwhile, which it does as long as a backup is written: make the backup again, \
                       and read it faster";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.client.write(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                let why = format!("the client has read nothing for {LONGEST_PAUSE:?}: make the backup again");
                io::Error::new(io::ErrorKind::TimedOut, why)
            }
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests;
