//! Backups that are not as they were written.

use std::io::Cursor;

use super::*;
use crate::commit_log::engine::DiskEngine;

const OF_FORMAT_1: &[u8] = include_bytes!("../../../tests/logs/0.1.0.backup");

/// A log of three checkpoints and three batches.
fn log() -> DiskEngine {
    let log = DiskEngine::in_memory().unwrap();
    let filled: Result<(), EngineError> = log.fill(|visit| {
        for number in 1..=3 {
            visit(Stored::Checkpoint(number, &[number as u8; 20]))?;
        }
        (7..10).try_for_each(|place| visit(Stored::Batch(place, &[place as u8; 30])))
    });
    filled.unwrap();
    log
}

fn backup_of(log: &DiskEngine) -> Vec<u8> {
    let mut backup = Vec::new();
    write(log, &mut backup).unwrap();
    backup
}

fn read_file(backup: &[u8]) -> Result<(), BackupError> {
    let backup = BackupFile::open(Cursor::new(backup.to_vec()))?;
    Ok(backup.read(&mut |_| Ok(()))?)
}

fn assert_damaged(backup: &[u8], what: &dyn fmt::Display) {
    let error = read_file(backup).expect_err(&what.to_string());
    assert!(error.is_damage(), "{what}: {error}");
}

#[test]
fn a_backup_holds_what_the_log_has() {
    let log = log();
    let backup = backup_of(&log);
    let file = BackupFile::open(Cursor::new(backup)).unwrap();
    assert!(file.has_digest());
    assert_eq!(file.identity().unwrap(), log.identity().unwrap());
    let contents = |engine: &dyn Engine| {
        let mut contents = Vec::new();
        let mut add = |stored: Stored<'_>| {
            contents.push(match stored {
                Stored::Checkpoint(instance, state) => (instance, true, state.to_vec()),
                Stored::Batch(place, batch) => (place, false, batch.to_vec()),
            });
            Ok(())
        };
        engine.read(&mut add).unwrap();
        contents
    };
    let all = contents(&log);
    assert_eq!(all.len(), 6);
    assert_eq!(contents(&file), all);
    assert_eq!(contents(&file), all, "it is read as often as it takes");
}

#[test]
fn a_change_of_any_bit_or_byte_of_a_backup_is_found() {
    let backup = backup_of(&log());
    for place in 0..backup.len() {
        for change in (0..8).map(|bit| 1 << bit).chain([0x03, 0x81, 0xff]) {
            let mut changed = backup.clone();
            changed[place] ^= change;
            assert_damaged(&changed, &format!("byte {place} ^ {change:#x}"));
        }
    }
}

#[test]
fn a_backup_that_is_cut_off_or_added_to_is_damaged() {
    for backup in [&backup_of(&log())[..], OF_FORMAT_1] {
        read_file(backup).unwrap();
        let step = 1 + backup.len() / 1_000;
        for length in (0..backup.len()).rev().step_by(step) {
            assert_damaged(&backup[..length], &format!("{length} of {} bytes", backup.len()));
        }
        for more in [&[0][..], &backup[backup.len() - 37..], backup] {
            assert_damaged(&[backup, more].concat(), &format!("{} bytes more", more.len()));
        }
    }
}

#[test]
fn a_backup_of_format_1_is_read_and_has_no_digest() {
    let backup = BackupFile::open(Cursor::new(OF_FORMAT_1)).unwrap();
    assert!(!backup.has_digest());
    backup.read(&mut |_| Ok(())).unwrap();
}

#[test]
fn a_backup_of_a_newer_format_is_not_called_damaged() {
    let mut newer = Digested::new(Vec::new());
    let header = BackupHeader { format: FORMAT + 1, ..BackupHeader::default() };
    put(&mut newer, Entry::Header(header)).unwrap();
    let digest = newer.last_entry();
    for end in [&digest[..], &[7; 100]] {
        let error = read_file(&[&newer.inner, end].concat()).unwrap_err();
        assert!(matches!(error, BackupError::Newer(3)), "{error}");
        assert!(!error.is_damage() && error.to_string().contains("use a newer stickycas-server"), "{error}");
    }
}

#[test]
fn checkpoints_without_a_batch_are_damage() {
    let log = DiskEngine::in_memory().unwrap();
    let filled: Result<(), EngineError> = log.fill(|visit| visit(Stored::Checkpoint(7, &[1])));
    filled.unwrap();
    let error = read_file(&backup_of(&log)).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("it has checkpoints and no batch"), "{error}");
}

/// A file that fails behind so many bytes.
struct Failing(Cursor<Vec<u8>>, u64, io::ErrorKind);

impl Read for Failing {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.1 - self.0.position()).unwrap().min(out.len());
        if left == 0 { Err(self.2.into()) } else { self.0.read(&mut out[..left]) }
    }
}

impl Seek for Failing {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn what_cannot_be_read_is_not_called_damaged() {
    let backup = backup_of(&log());
    for kind in [io::ErrorKind::Other, io::ErrorKind::OutOfMemory, io::ErrorKind::PermissionDenied] {
        for (backup, length) in [0, 1, 20, 60, backup.len() - 1]
            .map(|length| (&backup[..], length))
            .into_iter()
            .chain([0, 1, 20, 60, OF_FORMAT_1.len() - 1].map(|length| (OF_FORMAT_1, length)))
        {
            let failing = Failing(Cursor::new(backup.to_vec()), length as u64, kind);
            let read = BackupFile::open(failing).and_then(|file| Ok(file.read(&mut |_| Ok(()))?));
            let error = read.unwrap_err();
            assert!(!error.is_damage(), "{length}: {error}");
        }
    }
}
