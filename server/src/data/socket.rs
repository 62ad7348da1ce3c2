//! The socket in the folder of the log, on which `stickycas-server data` asks a server that runs.
//!
//! Only the owner of the folder and root can reach it. It serves what only an operator may do, and nothing of the API.

use std::io::{self, Write};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use stickycas_proto::log::v1::data_service_client::DataServiceClient;
use stickycas_proto::log::v1::data_service_server::{DataService, DataServiceServer};
use stickycas_proto::log::v1::{BackupRequest, BackupResponse};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use super::backup;
use crate::commit_log::engine::Engine;

/// The name of the socket.
const SOCKET: &str = "control";
/// Bytes of a backup in one message.
const CHUNK: usize = 256 * 1024;
/// Messages that wait for the client to read them.
const CHUNKS: usize = 4;

/// Serves the socket in this folder for ever.
///
/// # Errors
/// If it cannot be served.
pub(crate) async fn serve(folder: &Path, engine: Arc<dyn Engine>) -> anyhow::Result<()> {
    let path = folder.join(SOCKET);
    // A server that was killed leaves it behind, and the folder is ours.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    let service = DataServiceServer::new(Backups(engine));
    Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener)).await?;
    Ok(())
}

/// Copies the log of the server that uses this folder. Returns how many bytes it has.
///
/// # Errors
/// If the server cannot be asked, or the copy not be written.
pub(super) async fn backup(folder: &Path, out: &mut impl Write) -> anyhow::Result<usize> {
    let path = folder.join(SOCKET);
    // The address is not looked at: the connector knows the way.
    let endpoint = Endpoint::from_static("http://localhost");
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector(connect).await?;
    let mut client = DataServiceClient::new(channel);
    let mut response = client.backup(BackupRequest {}).await?.into_inner();
    let mut bytes = 0;
    while let Some(chunk) = response.message().await? {
        out.write_all(&chunk.bytes)?;
        bytes += chunk.bytes.len();
    }
    Ok(bytes)
}

struct Backups(Arc<dyn Engine>);

type Chunk = Result<BackupResponse, Status>;

#[tonic::async_trait]
impl DataService for Backups {
    type BackupStream = Pin<Box<dyn Stream<Item = Chunk> + Send>>;

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        let engine = self.0.clone();
        tokio::task::spawn_blocking(move || {
            let mut chunks = Chunks { buffer: Vec::new(), sender };
            if let Err(error) = backup::write(&*engine, &mut chunks) {
                tracing::warn!(%error, "a backup has failed");
                let _ = chunks.sender.blocking_send(Err(Status::internal(error.to_string())));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Sends what is written to it.
struct Chunks {
    buffer: Vec<u8>,
    sender: mpsc::Sender<Chunk>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.buffer).into();
        let sent = self.sender.blocking_send(Ok(BackupResponse { bytes }));
        sent.map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the client is gone"))
    }
}
