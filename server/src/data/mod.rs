//! `stickycas-server data`: operations on the log of a server.
//!
//! A log belongs to one process at a time. So `check`, `dump`, `compact` and `restore` work on the log of a
//! server that does not run; `backup` also asks one that runs, on a socket in the folder of the log
//! ([`socket`]). A backup can be checked and dumped like a log.

mod backup;
mod offline;
#[cfg(test)]
mod released;
pub(crate) mod socket;

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use prost::Message as _;

use crate::RecoveryError;
use crate::commit_log::engine::{Engine, EngineError};
use crate::commit_log::{DataDir, DataDirError};
use stickycas_certificates::private_files::create_private_file;

use backup::{BackupError, BackupFile};

/// Exit code: the log or the backup is damaged.
const DAMAGED: u8 = 1;
/// Exit code: there is no log or backup.
const NOT_THERE: u8 = 2;
/// Exit code: something could not be done.
const NOT_DONE: u8 = 3;

/// The subcommands of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read the whole log and replay it; say what is in it, or what is damaged. Nothing is written.
    ///
    /// One of four answers, each with an exit code of its own: "whole" (0), "damaged" (1), "not there" (2),
    /// and "could not be checked" (3), which says nothing about the log.
    Check(LogArgs),
    /// Write every instance with its history into one file, for `stickycas-loadgen replay` and `explain`.
    Dump {
        #[command(flatten)]
        source: LogArgs,
        /// Only the instance with this id or name. Repeat for several.
        #[arg(long = "instance", value_name = "ID|NAME")]
        instances: Vec<String>,
        /// The file to write; it must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Write checkpoints, drop what is not needed any more, and give the free parts of the files back to the
    /// system.
    Compact(Folder),
    /// Copy the log into one file. The server may run meanwhile.
    Backup {
        #[command(flatten)]
        folder: Folder,
        /// The file to write; it must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Make a log of a backup, in a folder that has none.
    ///
    /// The result is another log: the instances that had not ended are closed, since what was told after the
    /// backup is not in it, and nobody may go on from less than was told.
    Restore {
        #[command(flatten)]
        folder: Folder,
        /// The backup.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// Folder of the log; without this the one that `serve` takes.
    #[arg(long, value_name = "DIR", env = "STICKYCAS_DATA")]
    data: Option<PathBuf>,
}

/// The log or backup to read.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    folder: Folder,
    /// Read what this backup holds and not the log in a folder.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    backup: Option<PathBuf>,
}

/// There is nothing to look at.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotThere(String);

/// The kind of the error that ended a command: the word for it, and the exit code.
fn kind_of(error: &anyhow::Error) -> (&'static str, u8) {
    if is_damage(error) {
        ("damaged", DAMAGED)
    } else if error.is::<NotThere>() {
        ("not there", NOT_THERE)
    } else {
        ("could not be checked", NOT_DONE)
    }
}

/// Whether the error is damage, and not a failed operation.
fn is_damage(error: &anyhow::Error) -> bool {
    if let Some(error) = error.downcast_ref::<BackupError>() {
        return error.is_damage();
    }
    let engine = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(RecoveryError::Damaged { .. }), _) => return true,
        (Some(RecoveryError::Engine(error)), _) | (_, Some(DataDirError::Log { error, .. })) => Some(error),
        _ => error.downcast_ref(),
    };
    engine.is_some_and(EngineError::is_damage)
}

/// The exit code of the program if this error has ended a command.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    kind_of(error).1
}

impl DataCommand {
    /// Runs the command. `default`: the folder that `serve` takes if none is given.
    ///
    /// # Errors
    /// The reason for which it was not possible.
    pub(crate) async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(source) => return check(&source, default).await,
            Self::Dump { source, instances, out } => dump(&source, default, &instances, &out).await?,
            Self::Compact(folder) => compact(&folder.path(default)?).await?,
            Self::Backup { folder, out } => write_backup(&folder.path(default)?, &out).await?,
            Self::Restore { folder, from } => restore(&folder.path(default)?, &from).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Folder {
    fn path(&self, default: Option<PathBuf>) -> anyhow::Result<PathBuf> {
        self.data.clone().or(default).context("there is no folder: give one with --data DIR")
    }
}

impl LogArgs {
    /// The log or backup to read, and the folder of the log: no server may begin to write the log meanwhile.
    fn open(&self, default: Option<PathBuf>) -> anyhow::Result<(Arc<dyn Engine>, Option<DataDir>)> {
        match &self.backup {
            Some(backup) => Ok((Arc::new(open_backup(backup)?), None)),
            None => {
                let dir = existing(&self.folder.path(default)?, DataDir::open_to_read)?;
                Ok((Arc::new(dir.engine_to_read()?), Some(dir)))
            }
        }
    }
}

/// The backup in a file, compared with its digest.
fn open_backup(path: &Path) -> anyhow::Result<BackupFile<File>> {
    let mut file = match File::open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            bail!(NotThere(format!("there is no backup {}: give the file of one", path.display())))
        }
        opened => opened.with_context(|| path.display().to_string())?,
    };
    if file.stream_position().is_err() {
        bail!("{} can be read once only: copy it into a file first", path.display());
    }
    let backup = BackupFile::open(file).with_context(|| path.display().to_string())?;
    if !backup.has_digest() {
        let note = "carries no digest, so bytes that have changed may not be noticed";
        let _ = writeln!(io::stderr(), "note: the backup {} {note}", path.display());
    }
    Ok(backup)
}

/// The answer of `check` about a backup.
///
/// # Errors
/// If it is damaged.
#[cfg(feature = "fuzzing")]
pub(crate) async fn check_backup(bytes: &[u8]) -> anyhow::Result<String> {
    let backup: Arc<dyn Engine> = Arc::new(BackupFile::open(io::Cursor::new(bytes.to_vec()))?);
    offline::check(&backup).await
}

/// The folder, opened in this way, if there is a log in it.
fn existing(path: &Path, open: fn(&Path) -> Result<DataDir, DataDirError>) -> anyhow::Result<DataDir> {
    if !DataDir::has_log(path)? {
        let what =
            format!("there is no log in {}: give the folder of a server with --data DIR", path.display());
        bail!(NotThere(what));
    }
    Ok(open(path)?)
}

/// A new file, which only its owner may read: it holds what clients have written.
fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = create_private_file(path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(BufWriter::new(file))
}

/// Syncs a file that was written. A file whose writing or sync failed is removed.
fn finish<T>(path: &Path, written: anyhow::Result<T>, mut out: BufWriter<File>) -> anyhow::Result<T> {
    let finished = written.and_then(|written| {
        let synced = out.flush().and_then(|()| out.get_ref().sync_all());
        synced.with_context(|| cannot_write(path)).map(|()| written)
    });
    if finished.is_err() {
        let _ = fs::remove_file(path);
    }
    finished
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// When a log is opened, everything in it is compared with its checksums, and a backup with its digest.
async fn check(source: &LogArgs, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let found = async {
        let (engine, _dir) = source.open(default)?;
        offline::check(&engine).await
    };
    let (answer, code) = match found.await {
        Ok(found) => (format!("whole: {found}"), 0),
        Err(error) => {
            let (word, code) = kind_of(&error);
            (format!("{word}: {error:#}"), code)
        }
    };
    say(&answer)?;
    Ok(code.into())
}

async fn dump(
    source: &LogArgs,
    default: Option<PathBuf>,
    instances: &[String],
    path: &Path,
) -> anyhow::Result<()> {
    let (engine, _dir) = source.open(default)?;
    let mut out = create(path)?;
    let dumped = offline::dump(&engine, instances, |instance| {
        out.write_all(&instance.encode_length_delimited_to_vec()).with_context(|| cannot_write(path))
    });
    let count = finish(path, dumped.await, out)?;
    Ok(say(&format!("{count} instances in {}", path.display()))?)
}

async fn compact(path: &Path) -> anyhow::Result<()> {
    let dir = existing(path, DataDir::open)?;
    let before = dir.log_bytes();
    offline::write_checkpoints(Arc::new(dir.engine()?)).await?;
    let mut engine = dir.engine()?;
    while engine.compact()? {}
    drop(engine);
    Ok(say(&format!("{before} bytes before, {} now", dir.log_bytes()))?)
}

async fn write_backup(path: &Path, out: &Path) -> anyhow::Result<()> {
    let dir = existing(path, DataDir::open_to_read);
    let is_used = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(DataDirError::Locked { .. }));
    let written = match dir {
        Err(error) if is_used(&error) => {
            let mut file = create(out)?;
            let copied = socket::backup(path, &mut file);
            let copied = copied.context("the server that uses the folder cannot be asked for a backup");
            let bytes = finish(out, copied, file)?;
            // A server that ends may have sent a part.
            let whole = File::open(out).map_err(Into::into).and_then(BackupFile::open);
            if whole.is_err() {
                let _ = fs::remove_file(out);
            }
            // A part of a backup is no damaged log: the code is that of a command that could not be carried
            // out.
            if let Err(error) = whole {
                bail!("the server has not sent a whole backup, and its log says why: try again ({error:#})");
            }
            format!("{bytes} bytes in {}, from a server that runs", out.display())
        }
        dir => {
            let engine = dir?.engine_to_read()?;
            let mut file = create(out)?;
            let written = backup::write(&engine, &mut file);
            let contents = finish(out, written.map_err(Into::into), file)?;
            format!("{contents} in {}", out.display())
        }
    };
    Ok(say(&written)?)
}

async fn restore(path: &Path, from: &Path) -> anyhow::Result<()> {
    if DataDir::has_log(path)? {
        bail!("{} holds a log, which would be lost: give a folder without one", path.display());
    }
    let backup = open_backup(from)?;
    let dir = DataDir::open(path)?;
    // The remains of an interrupted restore keep servers from beginning with an empty log: they stay until
    // there is a log.
    let was_interrupted = dir.check_restored().is_err();
    match fill(&backup, from, &dir).await {
        Ok(said) => Ok(say(&said)?),
        Err(error) if was_interrupted => Err(error),
        Err(error) => match dir.abandon_restore() {
            Ok(()) => Err(error),
            Err(left) => Err(error.context(format!("cannot clear {}: {left}", path.display()))),
        },
    }
}

/// Makes the log of the folder. No server serves it before the instances in it are closed, also if this ends
/// in the middle.
async fn fill(backup: &BackupFile<File>, from: &Path, dir: &DataDir) -> anyhow::Result<String> {
    let log = Arc::new(dir.begin_restore()?);
    let filled = log.fill(|visit| backup.read(visit).map_err(BackupError::from));
    filled.with_context(|| from.display().to_string())?;
    let (summary, closed) = offline::close_live(log.clone()).await?;
    dir.finish_restore(Arc::into_inner(log).context("the restored log is still in use")?)?;
    Ok(format!("restored: {summary}; {closed} instances that had not ended were closed"))
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
