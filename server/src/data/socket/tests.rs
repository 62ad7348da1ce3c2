//! Backups whose client does not read, and the end of the server.

use std::io::{Cursor, Read as _};

use tokio::task::JoinHandle;

use super::super::backup::BackupFile;
use super::*;
use crate::commit_log::engine::{DiskEngine, Stored};

/// Bytes of a value: more than is on its way to a client that does not read.
const VALUE: usize = 5 * 1024 * 1024;

/// A server that serves the socket in a folder.
struct Server {
    folder: tempfile::TempDir,
    engine: Arc<dyn Engine>,
    end: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Server {
    async fn start() -> Self {
        let log = DiskEngine::in_memory().unwrap();
        let filled: Result<(), crate::EngineError> = log
            .fill(|visit| (1..4).try_for_each(|log_index| visit(Stored::Batch(log_index, &vec![7; VALUE]))));
        filled.unwrap();
        let (folder, engine) = (tempfile::tempdir().unwrap(), Arc::new(log) as Arc<dyn Engine>);
        let (end, path) = (CancellationToken::new(), folder.path().to_owned());
        let (served, token) = (engine.clone(), end.clone());
        let serving = tokio::spawn(async move { serve(&path, served, token).await });
        while !folder.path().join(SOCKET).exists() {
            tokio::task::yield_now().await;
        }
        Self { folder, engine, end, serving }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join(SOCKET)).unwrap()
    }

    /// Waits until no backup is being written: the server and the test alone have the log.
    async fn until_written(&self) {
        while Arc::strong_count(&self.engine) > 2 {
            tokio::task::yield_now().await;
        }
    }

    async fn end(self) {
        self.end.cancel();
        self.serving.await.unwrap().unwrap();
        assert_eq!(Arc::strong_count(&self.engine), 1, "nothing reads the log any more");
    }
}

/// Reads the first byte of a backup.
async fn begin(mut client: UnixStream) -> (UnixStream, Vec<u8>) {
    let mut begun = vec![0];
    let read = move || {
        client.read_exact(&mut begun).unwrap();
        (client, begun)
    };
    spawn_blocking(read).await.unwrap()
}

/// Whether the client gets a whole backup behind what it has.
async fn is_whole(mut client: UnixStream, mut backup: Vec<u8>) -> bool {
    let read = move || {
        client.read_to_end(&mut backup).unwrap();
        BackupFile::open(Cursor::new(backup)).is_ok()
    };
    spawn_blocking(read).await.unwrap()
}

#[tokio::test]
async fn a_client_that_stops_reading_is_given_up() {
    let server = Server::start().await;
    let (client, begun) = begin(server.connect()).await;
    server.until_written().await;
    assert!(!is_whole(client, begun).await);
    assert!(is_whole(server.connect(), Vec::new()).await, "another is served");
    server.end().await;
}

#[tokio::test]
async fn there_is_one_backup_at_a_time() {
    let server = Server::start().await;
    let (first, begun) = begin(server.connect()).await;
    let second = server.connect();
    second.set_nonblocking(true).unwrap();
    let nothing = (&second).read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock, "it waits");
    assert!(is_whole(first, begun).await);
    second.set_nonblocking(false).unwrap();
    assert!(is_whole(second, Vec::new()).await);
    server.end().await;
}

#[test]
fn a_backup_is_given_up_when_the_log_grows_too_much() {
    for (bytes, is_given_up) in [(LEAST_GROWTH, false), (LEAST_GROWTH + 1, true)] {
        let folder = tempfile::tempdir().unwrap();
        let (server, _client) = UnixStream::pair().unwrap();
        let mut out = ToClient::new(server, folder.path().to_owned());
        for (file, bytes) in [("log.redb", 1), ("log.tail", bytes - 1)] {
            File::create(folder.path().join(file)).unwrap().set_len(bytes).unwrap();
        }
        let error = out.write(&[1]).err();
        assert_eq!(error.is_some(), is_given_up, "{error:?}");
        assert!(error.is_none_or(|error| error.to_string().contains("the log has grown too much")));
    }
}

#[test]
fn a_client_that_reads_nothing_is_named() {
    let (server, _client) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let mut out = ToClient::new(server, PathBuf::from("no log"));
    let error = out.write_all(&vec![0; 2 * VALUE]).unwrap_err();
    assert!(error.to_string().contains("the client has read nothing for"), "{error}");
}

#[tokio::test]
async fn backups_end_with_the_server() {
    let server = Server::start().await;
    let (client, begun) = begin(server.connect()).await;
    server.end().await;
    assert!(!is_whole(client, begun).await, "a part of a backup is no whole one");
}

#[tokio::test]
async fn a_backup_ends_when_its_service_is_cancelled() {
    let server = Server::start().await;
    let (client, begun) = begin(server.connect()).await;
    server.serving.abort();
    while Arc::strong_count(&server.engine) > 1 {
        tokio::task::yield_now().await;
    }
    assert!(!is_whole(client, begun).await);
}

#[tokio::test]
async fn a_folder_with_a_long_path_has_a_socket() {
    let parent = tempfile::tempdir().unwrap();
    let mut folder = parent.path().to_owned();
    for _ in 0..4 {
        folder.push("x".repeat(200));
    }
    std::fs::create_dir_all(&folder).unwrap();
    let end = CancellationToken::new();
    let (path, token) = (folder.clone(), end.clone());
    let engine = Arc::new(DiskEngine::in_memory().unwrap());
    let serving = tokio::spawn(async move { serve(&path, engine, token).await });
    while !folder.join(SOCKET).exists() && !serving.is_finished() {
        tokio::task::yield_now().await;
    }
    let copied = spawn_blocking(move || {
        let mut copy = Vec::new();
        (backup(&folder, &mut copy).unwrap(), copy.len() as u64)
    });
    let (bytes, copied) = copied.await.unwrap();
    assert!(bytes == copied && bytes > 0);
    end.cancel();
    serving.await.unwrap().unwrap();
}
