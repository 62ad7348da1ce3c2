//! Logs that released versions have written are read for ever: each came to these histories then, and does now.
//!
//! `scripts/released-log` adds those of a version when it is released.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use prost::Message as _;
use stickycas_proto::delimited::read_message;
use stickycas_proto::log::v1::DumpedInstance;

use super::backup;
use super::offline::Offline;
use crate::commit_log::engine::{Engine, RedbEngine};

fn read_dump(path: &Path) -> Vec<DumpedInstance> {
    let mut file = File::open(path).unwrap();
    let mut instances = Vec::new();
    while let Some(message) = read_message(&mut file, u64::from(u32::MAX)).unwrap() {
        instances.push(DumpedInstance::decode(message.as_slice()).unwrap());
    }
    instances
}

#[tokio::test]
async fn logs_of_released_versions_are_recovered() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut found = Vec::new();
    for file in fs::read_dir(logs).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "backup") {
            continue;
        }
        let engine: Arc<dyn Engine> = Arc::new(RedbEngine::in_memory().unwrap());
        let contents = backup::restore(File::open(&path).unwrap(), &*engine).unwrap();
        assert!(contents.checkpoints > 0 && contents.batches > 0, "{contents:?} in {}", path.display());
        let log = Offline::on(engine).await.unwrap();
        let recovered: Vec<_> = log.select(&[]).unwrap().iter().map(|instance| instance.dump()).collect();
        let then = read_dump(&path.with_extension("dump"));
        assert_eq!(recovered.len(), then.len());
        for (now, then) in recovered.iter().zip(&then) {
            assert_eq!((now.number, now.first_index), (then.number, then.first_index));
            assert_eq!(now.created, then.created);
            assert_eq!(now.events, then.events, "instance {}", now.number);
        }
        found.push(path);
    }
    assert!(!found.is_empty(), "there are no logs to read");
}
