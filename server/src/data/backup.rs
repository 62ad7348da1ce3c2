//! Backup files: all that the engine of a log has kept, in one file.
//!
//! A backup is a view of one moment, also of a server that goes on. It ends with the counts of what is in it
//! and with the SHA-256 of all of that, so a file that was cut off, changed or added to is noticed. It is no
//! protection against those who may write the file. Files of format 1 carry no digest and are still read.

use std::fmt;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use prost::Message as _;
use stickycas_proto::delimited::read_message;
use stickycas_proto::log::v1::backup_entry::Entry;
use stickycas_proto::log::v1::{
    BackupBatch, BackupCheckpoint, BackupDigest, BackupEnd, BackupEntry, BackupHeader,
};

use crate::commit_log::engine::{Done, Engine, EngineError, Outcome, StoreUsage, Stored, Visit, WriteBatch};

/// The version of the format of backup files.
const FORMAT: u32 = 2;
/// The version of files without a digest.
const WITHOUT_DIGEST: u32 = 1;
/// The most bytes of one entry; a longer one is damage.
const LONGEST_ENTRY: u64 = 3 * 1024 * 1024 * 1024;
/// The most bytes of a header.
const LONGEST_HEADER: u64 = 1024;

/// The counts of the entries in a backup.
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

/// The reason for which a backup cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackupError {
    /// The log cannot be read or written.
    #[error("the log: {0}")]
    Engine(#[from] EngineError),
    /// The file cannot be read or written.
    #[error("the backup file: {0}")]
    File(#[from] io::Error),
    /// The file is no backup, or not as it was written.
    #[error("the backup file is damaged: {0}; use another backup")]
    Damaged(String),
    /// A newer program wrote it.
    #[error(
        "the backup file has format {0}, and this program knows formats up to {FORMAT}: use a newer stickycas-server"
    )]
    Newer(u32),
}

impl BackupError {
    fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    /// Whether the error is damage to a file or a log, and not a failed operation.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_damage(),
            Self::Damaged(_) => true,
            Self::File(_) | Self::Newer(_) => false,
        }
    }
}

/// Something that is written, with the digest of the bytes that have passed.
struct Digested<T> {
    inner: T,
    passed: Context,
}

impl<T> Digested<T> {
    fn new(inner: T) -> Self {
        Self { inner, passed: Context::new(&SHA256) }
    }

    /// The last entry of a backup that has these bytes before it.
    fn last_entry(&self) -> Vec<u8> {
        let sha256 = self.passed.clone().finish().as_ref().to_vec().into();
        let entry = Some(Entry::Digest(BackupDigest { sha256 }));
        BackupEntry { entry }.encode_length_delimited_to_vec()
    }
}

impl<T: Write> Write for Digested<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.passed.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a backup of what the engine holds now.
///
/// # Errors
/// If the log cannot be read, or the backup not written.
pub(super) fn write(engine: &dyn Engine, out: impl Write) -> Result<Contents, BackupError> {
    let mut out = Digested::new(out);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let header = BackupHeader {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        identity: engine.identity()?.into(),
        time_nanos: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
    };
    put(&mut out, Entry::Header(header))?;
    let (mut contents, mut failed) = (Contents::default(), None);
    let read = engine.read(&mut |stored| {
        let entry = match stored {
            Stored::Checkpoint(instance, checkpoint) => {
                contents.checkpoints += 1;
                Entry::Checkpoint(BackupCheckpoint { instance, checkpoint: checkpoint.to_vec().into() })
            }
            Stored::Batch(log_index, batch) => {
                contents.batches += 1;
                Entry::Batch(BackupBatch { place: log_index, batch: batch.to_vec().into() })
            }
        };
        put(&mut out, entry).map_err(|error| {
            let why = EngineError::failed(error.to_string());
            failed = Some(error);
            why
        })
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    read?;
    let Contents { checkpoints, batches } = contents;
    put(&mut out, Entry::End(BackupEnd { checkpoints, batches }))?;
    let last = out.last_entry();
    out.write_all(&last)?;
    out.flush()?;
    Ok(contents)
}

fn put(out: &mut impl Write, entry: Entry) -> io::Result<()> {
    out.write_all(&BackupEntry { entry: Some(entry) }.encode_length_delimited_to_vec())
}

/// Gives the entries of a backup to `visit`, in the order in which an engine reads them. They count only when
/// this has succeeded. A digest was compared before.
///
/// # Errors
/// If the backup is not as it was written, or cannot be read; or that of `visit`.
pub(super) fn read(from: impl Read, visit: Visit<'_>) -> Result<Contents, BackupError> {
    let (mut from, mut contents) = (BufReader::new(from), Contents::default());
    let header = header(&mut from)?;
    loop {
        let after = move |what: &str| BackupError::Damaged(format!("after {contents} {what}"));
        let entry = next(&mut from, LONGEST_ENTRY).map_err(|error| match error {
            BackupError::Damaged(what) => after(&what),
            error => error,
        });
        match entry? {
            // They belong to a batch behind them, and a log has one.
            Some(Entry::Checkpoint(it)) if contents.batches == 0 => {
                visit(Stored::Checkpoint(it.instance, &it.checkpoint))?;
                contents.checkpoints += 1;
            }
            Some(Entry::Batch(it)) => {
                visit(Stored::Batch(it.place, &it.batch))?;
                contents.batches += 1;
            }
            Some(Entry::End(_)) if contents.checkpoints > 0 && contents.batches == 0 => {
                return Err(BackupError::damaged("it has checkpoints and no batch"));
            }
            Some(Entry::End(end))
                if (end.checkpoints, end.batches) == (contents.checkpoints, contents.batches) =>
            {
                break;
            }
            Some(_) | None => return Err(after("it is not whole")),
        }
    }
    if header.format == WITHOUT_DIGEST && from.read(&mut [0])? > 0 {
        return Err(BackupError::damaged("there is something behind its end"));
    }
    Ok(contents)
}

fn header(from: &mut impl Read) -> Result<BackupHeader, BackupError> {
    match next(from, LONGEST_HEADER) {
        Ok(Some(Entry::Header(header))) => Ok(header),
        Err(error @ BackupError::File(_)) => Err(error),
        _ => Err(BackupError::damaged("it does not begin as a backup does")),
    }
}

/// The next entry; `None`: there is none.
fn next(from: &mut impl Read, longest: u64) -> Result<Option<Entry>, BackupError> {
    let message = read_message(from, longest).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BackupError::damaged("it is cut off"),
        io::ErrorKind::InvalidData => BackupError::damaged(error.to_string()),
        _ => error.into(),
    })?;
    let Some(message) = message else { return Ok(None) };
    let entry = BackupEntry::decode(bytes::Bytes::from(message))
        .map_err(|error| BackupError::damaged(error.to_string()))?;
    entry.entry.map(Some).ok_or_else(|| BackupError::damaged("an entry is empty"))
}

/// A backup as an engine: its entries can be read like a log, any number of times, and nothing is kept in
/// memory.
pub(super) struct BackupFile<F> {
    file: Mutex<F>,
    header: BackupHeader,
    length: u64,
}

impl<F> fmt::Debug for BackupFile<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupFile").field("length", &self.length).finish_non_exhaustive()
    }
}

impl<F: Read + Seek> BackupFile<F> {
    /// The backup in this file. Nothing of it is decoded but its header before all of it is compared with its
    /// digest.
    ///
    /// # Errors
    /// If it is not as it was written, or cannot be read.
    pub(super) fn open(mut file: F) -> Result<Self, BackupError> {
        let length = file.seek(SeekFrom::End(0))?;
        file.rewind()?;
        let header = header(&mut BufReader::new(&mut file))?;
        if header.format != WITHOUT_DIGEST {
            check_digest(&mut file, length, header.format)?;
        }
        Ok(Self { file: Mutex::new(file), header, length })
    }

    /// Whether it carries a digest: without one, changed bytes may go unnoticed.
    pub(super) fn has_digest(&self) -> bool {
        self.header.format != WITHOUT_DIGEST
    }
}

fn check_digest(file: &mut (impl Read + Seek), length: u64, format: u32) -> Result<(), BackupError> {
    /// Bytes of the last entry before the digest.
    const KEYS: usize = 5;
    file.rewind()?;
    let mut all = Digested::new(io::sink());
    let last = all.last_entry().len();
    io::copy(&mut file.take(length.saturating_sub(last as u64)), &mut all)?;
    let (mut found, expected) = (Vec::new(), all.last_entry());
    file.read_to_end(&mut found)?;
    if found == expected {
        return if format == FORMAT { Ok(()) } else { Err(BackupError::Newer(format)) };
    }
    if found.get(..KEYS) == expected.get(..KEYS) {
        return Err(BackupError::damaged("its digest is not that of what is in it"));
    }
    if format > FORMAT {
        // It may end in another way.
        return Err(BackupError::Newer(format));
    }
    Err(BackupError::damaged("its digest is not at its end: it is cut off, or was added to"))
}

impl<F: Read + Seek + Send> Engine for BackupFile<F> {
    fn depth(&self) -> usize {
        1
    }

    fn write(&self, _: WriteBatch, done: Done) {
        done(Outcome::Unknown(EngineError::failed("a backup is not written")));
    }

    fn read(&self, visit: Visit<'_>) -> Result<(), EngineError> {
        let file = &mut *self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = file.rewind().map_err(BackupError::from).and_then(|()| read(file, visit));
        contents.map(drop).map_err(|error| match error {
            BackupError::Engine(error) => error,
            error if error.is_damage() => EngineError::damaged(error.to_string()),
            error => EngineError::failed(error.to_string()),
        })
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        Ok(self.header.identity.to_vec())
    }

    fn usage(&self) -> StoreUsage {
        StoreUsage { batches: self.length, ..StoreUsage::default() }
    }
}

#[cfg(test)]
mod tests;
