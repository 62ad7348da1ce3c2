//! Backup files: all that the engine of a log has kept, in one file.
//!
//! A backup is a view of one moment, also of a server that goes on. It ends with the counts of what is in it, so a file
//! that was cut off is noticed.

use std::fmt;
use std::io::{self, BufReader, Read, Write};
use std::time::SystemTime;

use prost::Message as _;
use stickycas_proto::delimited::read_message;
use stickycas_proto::log::v1::backup_entry::Entry;
use stickycas_proto::log::v1::{BackupBatch, BackupCheckpoint, BackupEnd, BackupEntry, BackupHeader};

use crate::commit_log::engine::{AppendBatch, Engine, EngineError, Outcome, Stored};

/// The version of the format of backup files.
const FORMAT: u32 = 1;
/// The most bytes of one entry; a longer one is damage.
const LONGEST_ENTRY: u64 = 2 * 1024 * 1024 * 1024;

/// What is in a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) checkpoints: u64,
    pub(super) batches: u64,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checkpoints and {} batches", self.checkpoints, self.batches)
    }
}

/// Why a backup cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackupError {
    /// The log cannot be read or written.
    #[error("the log: {0}")]
    Engine(#[from] EngineError),
    /// The file cannot be read or written.
    #[error("the backup file: {0}")]
    File(#[from] io::Error),
    /// The file is no backup, or not a whole one.
    #[error("the backup file is damaged after {0}: {1}; use another backup")]
    Damaged(Contents, String),
    /// A newer program wrote it.
    #[error(
        "the backup file has format {0}, and this program knows formats up to {FORMAT}: use a newer stickycas-server"
    )]
    Newer(u32),
}

/// Writes a backup of what the engine holds now.
///
/// # Errors
/// If the log cannot be read, or the backup not written.
pub(super) fn write(engine: &dyn Engine, mut out: impl Write) -> Result<Contents, BackupError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let header = BackupHeader {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        identity: engine.identity()?.into(),
        time_nanos: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
    };
    put(&mut out, Entry::Header(header))?;
    let mut contents = Contents::default();
    engine.read(&mut |stored| {
        let entry = match stored {
            Stored::Checkpoint(instance, checkpoint) => {
                contents.checkpoints += 1;
                Entry::Checkpoint(BackupCheckpoint { instance, checkpoint: checkpoint.to_vec().into() })
            }
            Stored::Batch(place, batch) => {
                contents.batches += 1;
                Entry::Batch(BackupBatch { place, batch: batch.to_vec().into() })
            }
        };
        put(&mut out, entry).map_err(|error| EngineError(format!("the backup cannot be written: {error}")))
    })?;
    let Contents { checkpoints, batches } = contents;
    put(&mut out, Entry::End(BackupEnd { checkpoints, batches }))?;
    out.flush()?;
    Ok(contents)
}

fn put(out: &mut impl Write, entry: Entry) -> io::Result<()> {
    out.write_all(&BackupEntry { entry: Some(entry) }.encode_length_delimited_to_vec())
}

/// Puts the content of a backup into an empty engine.
///
/// # Errors
/// If the backup is not whole, or the log cannot be written. What was written then is of no use.
pub(super) fn restore(from: impl Read, engine: &dyn Engine) -> Result<Contents, BackupError> {
    let (mut from, mut contents) = (BufReader::new(from), Contents::default());
    let Some(Entry::Header(header)) = next(&mut from, contents)? else {
        return Err(BackupError::Damaged(contents, "it does not begin as a backup does".to_owned()));
    };
    if header.format != FORMAT {
        return Err(BackupError::Newer(header.format));
    }
    let mut checkpoints = Vec::new();
    loop {
        match next(&mut from, contents)? {
            Some(Entry::Checkpoint(it)) => {
                contents.checkpoints += 1;
                checkpoints.push((it.instance, Some(it.checkpoint.to_vec())));
            }
            Some(Entry::Batch(it)) => {
                contents.batches += 1;
                let checkpoints = std::mem::take(&mut checkpoints);
                append(
                    engine,
                    AppendBatch {
                        place: it.place,
                        batch: it.batch.to_vec(),
                        checkpoints,
                        ..AppendBatch::default()
                    },
                )?;
            }
            // They are put in with the batch behind them, and a log has one.
            Some(Entry::End(_)) if !checkpoints.is_empty() => {
                return Err(BackupError::Damaged(contents, "it has checkpoints and no batch".to_owned()));
            }
            Some(Entry::End(end))
                if (end.checkpoints, end.batches) == (contents.checkpoints, contents.batches) =>
            {
                return Ok(contents);
            }
            Some(Entry::Header(_) | Entry::End(_)) | None => {
                return Err(BackupError::Damaged(contents, "it is not whole".to_owned()));
            }
        }
    }
}

fn append(engine: &dyn Engine, batch: AppendBatch) -> Result<(), BackupError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    engine.append(
        batch,
        Box::new(move |outcome| {
            let _ = sender.send(outcome);
        }),
    );
    match receiver.recv() {
        Ok(Outcome::Committed) => Ok(()),
        Ok(Outcome::Unknown(error)) => Err(error.into()),
        Ok(Outcome::Refused(why)) => Err(EngineError(why.message).into()),
        Err(_) => Err(EngineError("it has ended".to_owned()).into()),
    }
}

/// The next entry; `None`: there is none.
fn next(from: &mut impl Read, contents: Contents) -> Result<Option<Entry>, BackupError> {
    let damaged = |what: &str| BackupError::Damaged(contents, what.to_owned());
    let message = read_message(from, LONGEST_ENTRY).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it is cut off"),
        io::ErrorKind::InvalidData => damaged(&error.to_string()),
        _ => error.into(),
    })?;
    let Some(message) = message else { return Ok(None) };
    let entry = BackupEntry::decode(&*message).map_err(|error| damaged(&error.to_string()))?;
    entry.entry.map(Some).ok_or_else(|| damaged("an entry is empty"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit_log::engine::RedbEngine;

    #[test]
    fn a_backup_of_checkpoints_without_a_batch_is_damaged() {
        let log = RedbEngine::in_memory().unwrap();
        let checkpoints = vec![(7, Some(vec![1, 2, 3]))];
        append(&log, AppendBatch { place: 3, batch: vec![4], checkpoints, ..AppendBatch::default() })
            .unwrap();
        let mut backup = Vec::new();
        assert_eq!(write(&log, &mut backup).unwrap(), Contents { checkpoints: 1, batches: 1 });
        restore(&*backup, &RedbEngine::in_memory().unwrap()).unwrap();

        // The batch itself is trimmed.
        append(&log, AppendBatch { place: 4, trim: Some(5), ..AppendBatch::default() }).unwrap();
        backup.clear();
        assert_eq!(write(&log, &mut backup).unwrap(), Contents { checkpoints: 1, batches: 0 });
        let error = restore(&*backup, &RedbEngine::in_memory().unwrap()).unwrap_err().to_string();
        assert!(error.contains("it has checkpoints and no batch"), "{error}");
    }
}
