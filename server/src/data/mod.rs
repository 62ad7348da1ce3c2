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
use std::io::{self, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use prost::Message as _;

use crate::commit_log::engine::{Engine, RedbEngine};
use crate::commit_log::{DataDir, DataDirError};
use crate::private_files::create_private_file;

use offline::Offline;

/// The subcommands of `data`.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Read the whole log and replay it; say what is in it, or what is damaged.
    ///
    /// It has failed if the log is damaged.
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

impl DataCommand {
    /// Runs the command. `default`: the folder that `serve` takes if none is given.
    ///
    /// # Errors
    /// Why it was not possible.
    pub(crate) async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(check) => check.run(default).await,
            Self::Dump(dump) => dump.run(default).await,
            Self::Compact(folder) => compact(&folder.path(default)?).await,
            Self::Backup(backup) => backup.run(default).await,
            Self::Restore(restore) => restore.run(default).await,
        }
    }
}

impl Folder {
    fn path(self, default: Option<PathBuf>) -> anyhow::Result<PathBuf> {
        self.data.or(default).context("there is no folder: give one with --data DIR")
    }

    /// The log in the folder, which must hold one; or in the backup.
    async fn open(self, backup: Option<&Path>, default: Option<PathBuf>) -> anyhow::Result<Offline> {
        match backup {
            Some(file) => {
                let from = File::open(file).with_context(|| file.display().to_string())?;
                let engine = restore_to_memory(from).with_context(|| file.display().to_string())?;
                Offline::on(engine).await
            }
            None => Offline::open(existing(&self.path(default)?, DataDir::open_to_read)?).await,
        }
    }
}

fn restore_to_memory(from: impl Read) -> anyhow::Result<Arc<dyn Engine>> {
    let engine: Arc<dyn Engine> = Arc::new(RedbEngine::in_memory()?);
    backup::restore(from, &*engine)?;
    Ok(engine)
}

/// What `check` says of a backup.
///
/// # Errors
/// What is damaged.
#[cfg(feature = "fuzzing")]
pub(crate) async fn check_backup(from: impl Read) -> anyhow::Result<String> {
    Ok(Offline::on(restore_to_memory(from)?).await?.summary())
}

/// The folder, opened in this way, if there is a log in it.
fn existing(path: &Path, open: fn(&Path) -> Result<DataDir, DataDirError>) -> anyhow::Result<DataDir> {
    if !DataDir::has_log(path) {
        bail!("there is no log in {}: give the folder of a server with --data DIR", path.display());
    }
    Ok(open(path)?)
}

/// A new file, which only its owner may read: it holds what clients have written.
fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    let file = create_private_file(path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(BufWriter::new(file))
}

/// Writes a file and syncs it. What was written of it is removed if that fails.
fn write_file<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut out = create(path)?;
    let written = write(&mut out).and_then(|written| {
        out.flush()?;
        out.get_ref().sync_all()?;
        Ok(written)
    });
    if written.is_err() {
        let _ = fs::remove_file(path);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

impl Check {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        // When a log is opened, everything in it is compared with its checksums.
        match self.folder.open(self.backup.as_deref(), default).await {
            Ok(log) => {
                say(&format!("whole: {}", log.summary()))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) if is_damage(&error) => {
                say(&format!("damaged: {error:#}"))?;
                Ok(ExitCode::FAILURE)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether what was found is damage, and not that something could not be done.
fn is_damage(error: &anyhow::Error) -> bool {
    error.is::<crate::RecoveryError>()
        || error.is::<backup::BackupError>()
        || matches!(error.downcast_ref(), Some(DataDirError::Log { .. }))
}

impl Dump {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let log = self.folder.open(self.backup.as_deref(), default).await?;
        let instances = log.select(&self.instances)?;
        let count = instances.len();
        write_file(&self.out, |out| {
            for instance in instances {
                out.write_all(&instance.dump().encode_length_delimited_to_vec())?;
            }
            Ok(())
        })?;
        say(&format!("{count} instances in {}", self.out.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn compact(path: &Path) -> anyhow::Result<ExitCode> {
    let existing = || existing(path, DataDir::open);
    let file = existing()?.log_path();
    let before = fs::metadata(&file)?.len();
    Offline::open(existing()?).await?.write_checkpoints().await?;
    let dir = existing()?;
    let mut engine = dir.engine()?;
    while engine.compact()? {}
    drop(engine);
    say(&format!("{} bytes before, {} now", before, fs::metadata(&file)?.len()))?;
    Ok(ExitCode::SUCCESS)
}

impl Backup {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let path = self.folder.path(default)?;
        match existing(&path, DataDir::open_to_read).map_err(anyhow::Error::downcast::<DataDirError>) {
            Ok(dir) => {
                let engine = dir.engine()?;
                let contents = write_file(&self.out, |out| Ok(backup::write(&engine, out)?))?;
                say(&format!("{contents} in {}", self.out.display()))?;
            }
            Err(Ok(DataDirError::Locked { .. })) => {
                let mut out = create(&self.out)?;
                let copied = socket::backup(&path, &mut out).await;
                if copied.is_err() {
                    let _ = fs::remove_file(&self.out);
                }
                let bytes = copied.context("the server that uses the folder cannot be asked for a backup")?;
                out.flush()?;
                out.get_ref().sync_all()?;
                say(&format!("{bytes} bytes in {}, from a server that runs", self.out.display()))?;
            }
            Err(Ok(error)) => return Err(error.into()),
            Err(Err(error)) => return Err(error),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Restore {
    async fn run(self, default: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let path = self.folder.path(default)?;
        if DataDir::has_log(&path) {
            bail!("{} holds a log, which would be lost: give a folder without one", path.display());
        }
        let from = File::open(&self.from).with_context(|| self.from.display().to_string())?;
        let dir = DataDir::open(&path)?;
        // Nobody serves it before the instances are closed, also if this ends in the middle.
        let engine = Arc::new(dir.new_log()?);
        backup::restore(from, &*engine).with_context(|| self.from.display().to_string())?;
        let log = Offline::on(engine.clone()).await?;
        let summary = log.summary();
        let closed = log.close_live().await?;
        drop(engine);
        dir.finish_new_log()?;
        say(&format!("restored: {summary}; {closed} instances that had not ended were closed"))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}
