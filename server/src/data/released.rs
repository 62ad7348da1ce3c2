//! Logs that released versions have written are read for ever: each came to these histories then, and does
//! now.
//!
//! `scripts/released-log` adds those of a version when it is released.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message as _;
use stickycas_proto::delimited::read_message;
use stickycas_proto::log::v1::DumpedInstance;
use stickycas_proto::v1::event::What;

use super::backup::{self, BackupFile};
use super::offline;
use crate::commit_log::engine::{DiskEngine, Engine};

fn released() -> Vec<PathBuf> {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let files = fs::read_dir(logs).unwrap().map(|file| file.unwrap().path());
    let backups: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "backup")).collect();
    assert!(!backups.is_empty(), "there are no logs to read");
    backups
}

fn read_dump(path: &Path) -> Vec<DumpedInstance> {
    let mut file = File::open(path).unwrap();
    let mut instances = Vec::new();
    while let Some(message) = read_message(&mut file, u64::from(u32::MAX)).unwrap() {
        instances.push(DumpedInstance::decode(message.as_slice()).unwrap());
    }
    instances.sort_by_key(|instance| instance.number);
    instances
}

/// The log is recovered in several parts.
async fn dump(engine: &Arc<dyn Engine>) -> Vec<DumpedInstance> {
    let mut instances = Vec::new();
    let add = |instance| {
        instances.push(instance);
        Ok(())
    };
    offline::dump(engine, &[], add).await.unwrap();
    assert!(offline::parts(&**engine).unwrap().count() > 1, "they come in one part");
    instances.sort_by_key(|instance| instance.number);
    instances
}

#[tokio::test]
async fn logs_of_released_versions_are_recovered() {
    for path in released() {
        let contents = backup::read(File::open(&path).unwrap(), &mut |_| Ok(())).unwrap();
        assert!(contents.checkpoints > 0 && contents.batches > 0, "{contents:?} in {}", path.display());
        let backup: Arc<dyn Engine> = Arc::new(BackupFile::open(File::open(&path).unwrap()).unwrap());
        let (recovered, then) = (dump(&backup).await, read_dump(&path.with_extension("dump")));
        assert_eq!(recovered.len(), then.len());
        for (now, then) in recovered.iter().zip(&then) {
            assert_eq!((now.number, now.first_index), (then.number, then.first_index));
            assert_eq!(now.created, then.created);
            assert_eq!(now.events, then.events, "instance {}", now.number);
        }
        let instances = format!("{} instances; ", then.len());
        assert!(offline::check(&backup).await.unwrap().starts_with(&instances));
    }
}

#[tokio::test]
async fn logs_of_released_versions_are_restored() {
    for path in released() {
        let log = Arc::new(DiskEngine::in_memory().unwrap());
        log.fill(|visit| backup::read(File::open(&path).unwrap(), visit)).unwrap();
        let (_, closed) = offline::close_live(log.clone()).await.unwrap();
        let usage = log.usage();
        let then = read_dump(&path.with_extension("dump"));
        assert_eq!(usage.checkpoint_count, then.len() as u64);
        let log: Arc<dyn Engine> = log;
        let now = dump(&log).await;
        assert_eq!(now.len(), then.len());
        let mut were_live = 0;
        for (now, then) in now.iter().zip(&then) {
            let more = now.events.strip_prefix(&then.events[..]).expect("what was told stands");
            let more: Vec<_> = more.iter().map(|event| event.what.as_ref().unwrap()).collect();
            match more[..] {
                [] => {}
                [What::Restarted(_), .., What::Closed(_)] => were_live += 1,
                _ => panic!("instance {}: {more:?}", now.number),
            }
        }
        assert!(were_live > 0 && were_live == closed, "{were_live} {closed}");
        let found = offline::check(&log).await.unwrap();
        assert!(found.contains(" 0 inputs in "), "checkpoints alone: {found}");
    }
}
