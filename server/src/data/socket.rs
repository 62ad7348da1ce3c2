//! The socket in the folder of the log, on which `stickycas-server data` asks a server that runs.
//!
//! Only the owner of the folder and root can reach it. It serves what only an operator may do, and nothing of the API.
//!
//! As long as a backup is being written, the log keeps what it has replaced since the backup began. So there is one at a time;
//! a client that does not read, or reads too slowly, is given up, also when the log has become twice as large; and the end of
//! the server ends the backup.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::Context as _;

use hyper_util::rt::TokioIo;
use stickycas_proto::log::v1::data_service_client::DataServiceClient;
use stickycas_proto::log::v1::data_service_server::{DataService, DataServiceServer};
use stickycas_proto::log::v1::{BackupRequest, BackupResponse};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use super::backup;
use crate::commit_log::LOG;
use crate::commit_log::engine::Engine;

/// The name of the socket.
const SOCKET: &str = "control";
/// Bytes of a backup in one message.
const CHUNK: usize = 256 * 1024;
/// Messages that wait for the client to read them.
const CHUNKS: usize = 4;
/// How long a client may read nothing.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Bytes that a client has to read in a second, pauses of [`LONGEST_PAUSE`] in all aside.
const SLOWEST: u64 = 1024 * 1024;
/// Bytes by which a log may grow during a backup, however small it is.
const LEAST_GROWTH: u64 = if cfg!(test) { 1024 * 1024 } else { 1024 * 1024 * 1024 };
/// Bytes from which on a path is too long for the address of a socket: 104 of some systems and 108 of Linux, with a zero.
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

/// What to do if the socket in this folder cannot be reached.
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

/// Serves the socket in this folder until `end`. Backups end then too, before this returns.
///
/// # Errors
/// If it cannot be served.
pub(crate) async fn serve(
    folder: &Path,
    engine: Arc<dyn Engine>,
    end: CancellationToken,
) -> anyhow::Result<()> {
    // Also if this is cancelled.
    let _end = end.clone().drop_guard();
    let (path, short) = reach(folder)?;
    let advice = || advice(folder, short.as_ref());
    // A server that was killed leaves it behind, and the folder is ours.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(advice),
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(advice)?;
    let running = TaskTracker::new();
    // A connection may stay, and must not keep the log open.
    let backups = Backups {
        engine: Arc::downgrade(&engine),
        log: folder.join(LOG),
        end: end.clone(),
        running: running.clone(),
        one: Arc::new(Semaphore::new(1)),
    };
    let server = Server::builder().add_service(DataServiceServer::new(backups));
    let served = tokio::select! {
        served = server.serve_with_incoming(UnixListenerStream::new(listener)) => served,
        () = end.cancelled() => Ok(()),
    };
    end.cancel();
    running.close();
    running.wait().await;
    Ok(served?)
}

/// Copies the log of the server that uses this folder. Returns how many bytes it has.
///
/// # Errors
/// If the server cannot be asked, or the copy not be written.
pub(super) async fn backup(folder: &Path, out: &mut impl Write) -> anyhow::Result<usize> {
    let (path, short) = reach(folder)?;
    // The address is not looked at: the connector knows the way.
    let endpoint = Endpoint::from_static("http://localhost");
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector(connect).await;
    let channel = channel.with_context(|| {
        format!(
            "{}: it is there when the server has read its log, and the log of the server says why if not; or stop the server, \
             and make the backup then",
            advice(folder, short.as_ref())
        )
    })?;
    let mut client = DataServiceClient::new(channel);
    let mut response = client.backup(BackupRequest {}).await?.into_inner();
    let mut bytes = 0;
    while let Some(chunk) = response.message().await? {
        out.write_all(&chunk.bytes)?;
        bytes += chunk.bytes.len();
    }
    Ok(bytes)
}

struct Backups {
    engine: Weak<dyn Engine>,
    /// The file of the log.
    log: PathBuf,
    /// Whoever writes a backup has it.
    one: Arc<Semaphore>,
    end: CancellationToken,
    running: TaskTracker,
}

type Chunk = Result<BackupResponse, Status>;

#[tonic::async_trait]
impl DataService for Backups {
    type BackupStream = Pin<Box<dyn Stream<Item = Chunk> + Send>>;

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let one = self.one.clone().try_acquire_owned();
        let one = one.map_err(|_| {
            Status::resource_exhausted("another backup is being written: make this one when that has ended")
        })?;
        let (sender, receiver) = mpsc::channel(CHUNKS + 1);
        // The reason of a failure has room, also if nothing is read.
        let failure =
            sender.clone().try_reserve_owned().map_err(|error| Status::internal(error.to_string()))?;
        let mut chunks = Chunks::new(sender, self.end.clone(), self.log.clone());
        let engine = self.engine.upgrade().ok_or_else(|| Status::unavailable("the server ends"))?;
        self.running.spawn_blocking(move || {
            let _one = one;
            if let Err(error) = backup::write(&*engine, &mut chunks) {
                tracing::warn!(%error, "a backup has failed");
                failure.send(Err(Status::aborted(error.to_string())));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Sends what is written to it.
struct Chunks {
    buffer: Vec<u8>,
    sender: mpsc::Sender<Chunk>,
    runtime: Handle,
    end: CancellationToken,
    began: Instant,
    sent: u64,
    log: PathBuf,
    /// Bytes from which on the log is too large.
    most: u64,
}

impl Chunks {
    fn new(sender: mpsc::Sender<Chunk>, end: CancellationToken, log: PathBuf) -> Self {
        let bytes = length(&log);
        Self {
            buffer: Vec::new(),
            sender,
            runtime: Handle::current(),
            end,
            began: Instant::now(),
            sent: 0,
            log,
            most: bytes + bytes.max(LEAST_GROWTH),
        }
    }

    /// When the client must have room for the next message.
    fn due(&self) -> Instant {
        let slowest = self.began + Duration::from_secs(self.sent / SLOWEST);
        slowest.min(Instant::now()) + LONGEST_PAUSE
    }
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An entry may be longer than a message.
        let taken = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.buffer);
        self.sent += bytes.len() as u64;
        let (due, response) = (self.due(), BackupResponse { bytes: bytes.into() });
        if Instant::now() > due {
            return Err(too_slow());
        }
        if length(&self.log) > self.most {
            let why = "the log has grown too much meanwhile, which it does as long as a backup is written: make the backup again, \
                       and read it faster";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.runtime.block_on(async {
            tokio::select! {
                sent = timeout_at(due, self.sender.send(Ok(response))) => match sent {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone")),
                    Err(_) => Err(too_slow()),
                },
                () = self.end.cancelled() => {
                    let why = "the server ends: make the backup of its log when it has ended";
                    Err(io::Error::new(io::ErrorKind::ConnectionAborted, why))
                }
            }
        })
    }
}

/// Bytes of a file; 0 if nobody can tell.
fn length(file: &Path) -> u64 {
    file.metadata().map_or(0, |file| file.len())
}

fn too_slow() -> io::Error {
    let (seconds, rate) = (LONGEST_PAUSE.as_secs(), SLOWEST / 1024);
    let why = format!(
        "the client has read nothing for {seconds} s, or less than {rate} KiB/s: make the backup again, and read it faster"
    );
    io::Error::new(io::ErrorKind::TimedOut, why)
}

#[cfg(test)]
mod tests;
