//! Backups whose client does not read, and the end of the server.

use tokio_stream::StreamExt as _;

use super::*;
use crate::commit_log::engine::{RedbEngine, Stored};

/// Bytes of a value: more than a message may have.
const VALUE: usize = 5 * 1024 * 1024;

fn engine() -> Arc<dyn Engine> {
    let log = RedbEngine::in_memory().unwrap();
    let filled: Result<(), crate::EngineError> =
        log.fill(|visit| (1..4).try_for_each(|log_index| visit(Stored::Batch(log_index, &vec![7; VALUE]))));
    filled.unwrap();
    Arc::new(log)
}

fn backups(engine: &Arc<dyn Engine>) -> Backups {
    let (end, running) = (CancellationToken::new(), TaskTracker::new());
    Backups {
        engine: Arc::downgrade(engine),
        log: PathBuf::from("no log"),
        end,
        running,
        one: Arc::new(Semaphore::new(1)),
    }
}

/// Reads on until the backup ends.
async fn read_all(stream: Response<<Backups as DataService>::BackupStream>) -> (usize, Option<Status>) {
    let (mut stream, mut bytes) = (stream.into_inner(), 0);
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => {
                assert!(chunk.bytes.len() <= CHUNK);
                bytes += chunk.bytes.len();
            }
            Err(status) => return (bytes, Some(status)),
        }
    }
    (bytes, None)
}

/// Lets time pass until no backup is being written.
async fn until_written(backups: &Backups) {
    backups.running.close();
    while !backups.running.is_empty() {
        tokio::time::advance(Duration::from_secs(1)).await;
        // The thread of the backup has to see it.
        std::thread::yield_now();
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_read_comes_in_messages_that_a_client_takes() {
    let engine = engine();
    let backups = backups(&engine);
    let stream = backups.backup(Request::new(BackupRequest {})).await.unwrap();
    let (bytes, error) = read_all(stream).await;
    assert!(bytes > 3 * VALUE && error.is_none(), "{bytes} {error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_given_up() {
    for read in [0, 3] {
        let engine = engine();
        let backups = backups(&engine);
        let mut stream = backups.backup(Request::new(BackupRequest {})).await.unwrap();
        for _ in 0..read {
            stream.get_mut().next().await.unwrap().unwrap();
        }
        until_written(&backups).await;
        assert_eq!(Arc::strong_count(&engine), 1, "it keeps nothing of the log any more");
        let (bytes, error) = read_all(stream).await;
        assert!(bytes <= CHUNKS * CHUNK, "{bytes}");
        assert!(error.unwrap().message().contains("the client has read nothing for 30 s"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_too_slowly_is_given_up() {
    let engine = engine();
    let backups = backups(&engine);
    let mut stream = backups.backup(Request::new(BackupRequest {})).await.unwrap();
    // 16 KiB/s: 15 MiB would take a quarter of an hour.
    let mut read = 0;
    let error = loop {
        match stream.get_mut().next().await.unwrap() {
            Ok(_) => read += 1,
            Err(status) => break status,
        }
        tokio::time::advance(Duration::from_secs(16)).await;
    };
    assert!(
        read < 3 * VALUE / CHUNK / 2 && error.message().contains("less than 1024 KiB/s"),
        "{read}: {error}"
    );
}

#[tokio::test(start_paused = true)]
async fn there_is_one_backup_at_a_time() {
    let engine = engine();
    let backups = backups(&engine);
    let first = backups.backup(Request::new(BackupRequest {})).await.unwrap();
    let refused = backups.backup(Request::new(BackupRequest {})).await.err().unwrap();
    assert!(refused.message().contains("another backup is being written"), "{refused}");
    assert!(read_all(first).await.1.is_none());
    until_written(&backups).await;
    assert!(backups.backup(Request::new(BackupRequest {})).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_given_up_when_the_log_grows_too_much() {
    for (bytes, is_given_up) in [(LEAST_GROWTH, false), (LEAST_GROWTH + 1, true)] {
        let (engine, log) = (engine(), tempfile::NamedTempFile::new().unwrap());
        let backups = Backups { log: log.path().to_owned(), ..backups(&engine) };
        let stream = backups.backup(Request::new(BackupRequest {})).await.unwrap();
        log.as_file().set_len(bytes).unwrap();
        let error = read_all(stream).await.1;
        assert_eq!(error.is_some(), is_given_up, "{error:?}");
        assert!(error.is_none_or(|error| error.message().contains("the log has grown too much")));
    }
}

#[tokio::test]
async fn backups_end_with_the_server_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, end) = (engine(), CancellationToken::new());
    let (path, served, token) = (folder.path().to_owned(), engine.clone(), end.clone());
    let serving = tokio::spawn(async move { serve(&path, served, token).await });
    while !folder.path().join(SOCKET).exists() {
        tokio::task::yield_now().await;
    }
    let path = folder.path().to_owned();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    /// Takes a first piece, and nothing more before it may.
    struct Stopped(std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>);
    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.send(());
            let _ = self.1.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(backup(&path, &mut Stopped(begun, may_go_on)))
    });
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
    end.cancel();
    serving.await.unwrap().unwrap();
    assert_eq!(Arc::strong_count(&engine), 1, "nothing reads the log any more");
    drop(go_on);
    // What is on its way to the client leaves meanwhile.
    let copied = tokio::task::spawn_blocking(move || client.join().unwrap()).await.unwrap();
    let error = format!("{:#}", copied.unwrap_err());
    assert!(error.contains("the server ends"), "{error}");
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
    let serving = tokio::spawn(async move { serve(&path, engine(), token).await });
    while !folder.join(SOCKET).exists() && !serving.is_finished() {
        tokio::task::yield_now().await;
    }
    let mut copy = Vec::new();
    assert_eq!(backup(&folder, &mut copy).await.unwrap(), copy.len());
    end.cancel();
    serving.await.unwrap().unwrap();
}
