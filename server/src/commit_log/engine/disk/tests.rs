use super::database::was_cut_off;
use super::meta::{FORMAT, set_meta};
use super::table::seal;
use super::*;

fn files(folder: &tempfile::TempDir) -> Files<PathBuf> {
    let [database, tail] = ["log", "tail"].map(|name| folder.path().join(name));
    Files { database, tail }
}

fn batch(log_index: u64) -> WriteBatch {
    WriteBatch { log_index, batch: vec![9; 100], ..WriteBatch::default() }
}

#[test]
fn a_log_of_a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let engine = DiskEngine::create(&files(&folder)).unwrap();
    let write = begin(&engine.database).unwrap();
    set_meta(&write, &[(FORMAT, &(FORMAT_VERSION + 1).to_le_bytes())]).unwrap();
    write.commit().unwrap();
    engine.close().unwrap();
    let refused = DiskEngine::open(&files(&folder)).unwrap_err().to_string();
    let expected =
        "the log has format 3, and this program knows formats up to 2: use a newer stickycas-server";
    assert_eq!(refused, expected);
}

#[test]
fn what_was_cut_off_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let header = || was_cut_off(&fs::read(files(&folder).database).unwrap());
    let engine = DiskEngine::create(&files(&folder)).unwrap();
    engine.write(batch(1), Box::new(|_| ()));
    assert!(header(), "as a crash would leave it");
    engine.close().unwrap();
    assert!(!header(), "it was closed");
    assert!(!was_cut_off(&[]), "a new log");
}

/// What stands in the log: places of batches.
fn read(engine: &DiskEngine) -> Vec<u64> {
    let mut places = Vec::new();
    let read = engine.read(&mut |stored| {
        if let Stored::Batch(place, _) = stored {
            places.push(place);
        }
        Ok(())
    });
    read.unwrap();
    places
}

#[test]
fn a_log_of_format_1_is_read_and_gets_a_tail() {
    let folder = tempfile::tempdir().unwrap();
    let database = builder(SMALL_CACHE).create(files(&folder).database).unwrap();
    let write = begin(&database).unwrap();
    set_meta(&write, &[(FORMAT, &WITHOUT_TAIL.to_le_bytes()), (IDENTITY, &[7; 16])]).unwrap();
    write.open_table(CHECKPOINTS).unwrap();
    for place in 5..9 {
        let batch = seal(BATCHES.name(), place, &[1; 5]);
        write.open_table(BATCHES).unwrap().insert(place, &*batch).unwrap();
    }
    write.commit().unwrap();
    drop(database);
    let whole = fs::read(files(&folder).database).unwrap();
    assert_eq!(read(&DiskEngine::open_to_read(&files(&folder)).unwrap()), [5, 6, 7, 8]);
    assert!(whole == fs::read(files(&folder).database).unwrap() && !files(&folder).tail.exists());
    // A conversion that was cut off has left anything in the file of the tail.
    fs::write(files(&folder).tail, [9; 10]).unwrap();
    for last in 8..10 {
        let engine = DiskEngine::open(&files(&folder)).unwrap();
        assert_eq!(read(&engine), (5..=last).collect::<Vec<_>>());
        assert_eq!(engine.identity().unwrap(), [7; 16]);
        engine.write(batch(last + 1), Box::new(|outcome| assert!(matches!(outcome, Outcome::Committed))));
    }
}

#[test]
fn the_files_of_two_logs_are_no_log() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        DiskEngine::create(&files(folder)).unwrap().write(batch(1), Box::new(|_| ()));
    }
    fs::rename(files(&folders[0]).tail, files(&folders[1]).tail).unwrap();
    for open in [DiskEngine::open, DiskEngine::open_to_read] {
        assert!(open(&files(&folders[1])).unwrap_err().is_damage());
        assert!(
            open(&files(&folders[0])).unwrap_err().to_string().contains("the file of its tail is missing")
        );
    }
}
