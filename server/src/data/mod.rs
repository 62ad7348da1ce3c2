//! `stickycas-server data`: what an operator does with the log of a server.
//!
//! A log belongs to one process at a time. So `check`, `dump`, `compact` and `restore` work on the log of a server that
//! does not run; `backup` also asks one that runs, on a socket in the folder of the log ([`socket`]). What a backup holds
//! can be checked and dumped like a log.

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
use crate::private_files::create_private_file;

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
    /// One of four answers, each with an exit code of its own: "whole" (0), "damaged" (1), "not there" (2), and "could not be
    /// checked" (3), which says nothing about the log.
    Check(Check),
    /// Write every instance with its history into one file, for `stickycas-loadgen replay` and `explain`.
    Dump(Dump),
    /// Write checkpoints, drop what is not needed any more, and give the free part of the file back to the system.
    Compact(Folder),
    /// Copy the log into one file. The server may run meanwhile.
    Backup(Backup),
    /// Make a log of a backup, in a folder that has none.
    ///
    /// The result is another log: the instances that had not ended are closed, since what was told after the backup is not
    /// in it, and nobody may go on from less than was told.
    Restore(Restore),
}

#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// Folder of the log; without this the one that `serve` takes.
    #[arg(long, value_name = "DIR", env = "STICKYCAS_DATA")]
    data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    folder: Folder,
    /// Check what this backup holds and not the log in a folder.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    backup: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    folder: Folder,
    /// Dump what this backup holds and not the log in a folder.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    backup: Option<PathBuf>,
    /// Only the instance with this id or name. Repeat for several.
    #[arg(long = "instance", value_name = "ID|NAME")]
    instances: Vec<String>,
    /// The file to write; it must not exist yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    #[command(flatten)]
    folder: Folder,
    /// The file to write; it must not exist yet.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    #[command(flatten)]
    folder: Folder,
    /// The backup.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
}

/// There is nothing to look at.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotThere(String);

/// What kind of error ended a command: the word for it, and the exit code.
fn kind_of(error: &anyhow::Error) -> (&'static str, u8) {
    if is_damage(error) {
        ("damaged", DAMAGED)
    } else if error.is::<NotThere>() {
        ("not there", NOT_THERE)
    } else {
        ("could not be checked", NOT_DONE)
    }
}

/// Whether what was found is damage, and not that something could not be done.
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
    /// Why it was not possible.
    pub(crate) async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(check) => return check.run(default).await,
            Self::Dump(dump) => dump.run(default).await?,
            Self::Compact(folder) => compact(&folder.path(default)?).await?,
            Self::Backup(backup) => backup.run(default).await?,
            Self::Restore(restore) => restore.run(default).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Folder {
    fn path(&self, default: Option<PathBuf>) -> anyhow::Result<PathBuf> {
        self.data.clone().or(default).context("there is no folder: give one with --data DIR")
    }

    /// The log in the folder, or in the backup, to be read.
    fn open(&self, backup: Option<&Path>, default: Option<PathBuf>) -> anyhow::Result<OpenLog> {
        let Some(path) = backup else {
            let dir = existing(&self.path(default)?, DataDir::open_to_read)?;
            return Ok(OpenLog {
                engine: Arc::new(dir.engine_to_read()?),
                has_digest: true,
                _dir: Some(dir),
            });
        };
        let backup = match open_backup(path)? {
            Source::File(backup) => backup,
            Source::Pipe(_) => bail!("{} can be read once only: copy it into a file first", path.display()),
        };
        Ok(OpenLog { has_digest: backup.has_digest(), engine: Arc::new(backup), _dir: None })
    }
}

/// A log that is read.
struct OpenLog {
    engine: Arc<dyn Engine>,
    /// Whether changed bytes would have been noticed.
    has_digest: bool,
    /// No server may begin to write the log meanwhile.
    _dir: Option<DataDir>,
}

/// What a backup is read from.
enum Source {
    /// Compared with its digest.
    File(BackupFile<File>),
    /// What can be read only once.
    Pipe(File),
}

fn open_backup(path: &Path) -> anyhow::Result<Source> {
    let mut file = match File::open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            bail!(NotThere(format!("there is no backup {}: give the file of one", path.display())))
        }
        opened => opened.with_context(|| path.display().to_string())?,
    };
    if file.stream_position().is_err() {
        return Ok(Source::Pipe(file));
    }
    Ok(Source::File(BackupFile::open(file).with_context(|| path.display().to_string())?))
}

/// What `check` says of a backup.
///
/// # Errors
/// What is damaged.
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

/// Syncs a file that was written. What was written of it is removed if that has failed.
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

impl Check {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        match self.look(default).await {
            Ok(found) => {
                say(&format!("whole: {found}"))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                let (word, code) = kind_of(&error);
                say(&format!("{word}: {error:#}"))?;
                Ok(code.into())
            }
        }
    }

    async fn look(self, default: Option<PathBuf>) -> anyhow::Result<String> {
        // When a log is opened, everything in it is compared with its checksums, and a backup with its digest.
        let log = self.folder.open(self.backup.as_deref(), default)?;
        let mut found = offline::check(&log.engine).await?;
        if !log.has_digest {
            found.push_str(NO_DIGEST);
        }
        Ok(found)
    }
}

/// Of a backup that an older version has made.
const NO_DIGEST: &str =
    "; the backup carries no digest, so bytes that have changed may not have been noticed";

impl Dump {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<()> {
        let log = self.folder.open(self.backup.as_deref(), default)?;
        let mut out = create(&self.out)?;
        let dumped = offline::dump(&log.engine, &self.instances, |instance| {
            out.write_all(&instance.encode_length_delimited_to_vec()).with_context(|| cannot_write(&self.out))
        });
        let count = finish(&self.out, dumped.await, out)?;
        let no_digest = if log.has_digest { "" } else { NO_DIGEST };
        Ok(say(&format!("{count} instances in {}{no_digest}", self.out.display()))?)
    }
}

async fn compact(path: &Path) -> anyhow::Result<()> {
    let existing = || existing(path, DataDir::open);
    let dir = existing()?;
    let file = dir.log_path();
    let before = fs::metadata(&file)?.len();
    offline::write_checkpoints(Arc::new(dir.engine()?)).await?;
    let mut engine = dir.engine()?;
    while engine.compact()? {}
    drop(engine);
    Ok(say(&format!("{} bytes before, {} now", before, fs::metadata(&file)?.len()))?)
}

impl Backup {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<()> {
        let path = self.folder.path(default)?;
        let out = self.out.display();
        match existing(&path, DataDir::open_to_read).map_err(anyhow::Error::downcast::<DataDirError>) {
            Ok(dir) => {
                let engine = dir.engine_to_read()?;
                let mut file = create(&self.out)?;
                let written = backup::write(&engine, &mut file);
                let contents = finish(&self.out, written.map_err(Into::into), file)?;
                say(&format!("{contents} in {out}"))?;
            }
            Err(Ok(DataDirError::Locked { .. })) => {
                let mut file = create(&self.out)?;
                let copied = socket::backup(&path, &mut file).await;
                let copied = copied.context("the server that uses the folder cannot be asked for a backup");
                let bytes = finish(&self.out, copied, file)?;
                // A server that ends may have sent a part.
                let whole = File::open(&self.out).map_err(Into::into).and_then(BackupFile::open);
                if whole.is_err() {
                    let _ = fs::remove_file(&self.out);
                }
                whole.context("the server has not sent a whole backup: try again")?;
                say(&format!("{bytes} bytes in {out}, from a server that runs"))?;
            }
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => return Err(error),
        }
        Ok(())
    }
}

impl Restore {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<()> {
        let path = self.folder.path(default)?;
        if DataDir::has_log(&path)? {
            bail!("{} holds a log, which would be lost: give a folder without one", path.display());
        }
        let from = open_backup(&self.from)?;
        let dir = DataDir::open(&path)?;
        // What an earlier one has left keeps servers from beginning with an empty log: it stays until there is a log.
        let was_interrupted = dir.check_restored().is_err();
        match self.restore(from, &dir).await {
            Ok(said) => Ok(say(&said)?),
            Err(error) if was_interrupted => Err(error),
            Err(error) => match dir.abandon_restore() {
                Ok(()) => Err(error),
                Err(left) => Err(error.context(format!("cannot clear {}: {left}", path.display()))),
            },
        }
    }

    /// Nobody serves the log before the instances in it are closed, also if this ends in the middle.
    async fn restore(&self, from: Source, dir: &DataDir) -> anyhow::Result<String> {
        let log = Arc::new(dir.begin_restore()?);
        let has_digest = !matches!(&from, Source::File(backup) if !backup.has_digest());
        let filled = log.fill(|visit| match from {
            Source::File(backup) => backup.read(visit).map_err(BackupError::from),
            Source::Pipe(pipe) => backup::read(pipe, visit).map(drop),
        });
        filled.with_context(|| self.from.display().to_string())?;
        let (summary, closed) = offline::close_live(log.clone()).await?;
        dir.finish_restore(Arc::into_inner(log).context("the restored log is still in use")?)?;
        let no_digest = if has_digest { "" } else { NO_DIGEST };
        Ok(format!("restored: {summary}; {closed} instances that had not ended were closed{no_digest}"))
    }
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
