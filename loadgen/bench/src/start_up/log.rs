//! The log on which servers are started, made by clients of a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::READY_WITHIN;
use crate::scale::finished::play_portions;
use crate::scale::fixture::{PROCESSES, ScaleFixture};
use crate::scale::live::{begin, groups};
use crate::scale::server::{DurableServer, Serving};
use crate::{disk, operators};

/// Accesses of a process that may wait.
const PIPELINE: u32 = 16;
/// The file beside a kept log that says how it was made.
const MADE: &str = "made.json";

/// How a log was made.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Made {
    archived: usize,
    live: usize,
    pub(super) made_s: f64,
    /// Disk in use with the archived instances alone, after `data compact`.
    pub(super) archived_bytes: u64,
    /// Disk in use after the kill.
    pub(super) killed_bytes: u64,
}

/// Where a log is kept that is not made yet.
pub(super) struct KeptPlace {
    kept: PathBuf,
    /// A folder beside it, which is deleted unless it takes that place.
    beside: TempDir,
}

impl KeptPlace {
    /// Makes what leads to this folder, which does not exist: a log takes long, and a mistake shows before.
    pub(super) fn new(kept: &Path) -> anyhow::Result<Self> {
        let parent = kept.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let beside = tempfile::Builder::new().prefix(".kept-").tempdir_in(parent);
        Ok(Self { kept: kept.to_owned(), beside: beside.with_context(|| parent.display().to_string())? })
    }
}

/// See the module.
pub(super) struct Log {
    program: PathBuf,
    folder: PathBuf,
    serving: Serving,
}

impl Log {
    /// In this folder, of servers of this program with room for so many instances.
    pub(super) fn new(program: &Path, folder: &Path, instances: usize) -> Self {
        let serving = Serving::durable(instances, "24h", folder);
        Self { program: program.to_owned(), folder: folder.to_owned(), serving }
    }

    /// Starts a server on it, which is killed when it is dropped.
    pub(super) fn start(&self) -> anyhow::Result<DurableServer> {
        DurableServer::start(&self.program, &self.serving)
    }

    async fn fixture(&self, principals: usize) -> anyhow::Result<ScaleFixture> {
        let server = self.start()?;
        operators::ready(&server.operators, READY_WITHIN).await?;
        ScaleFixture::on(server.process, principals).await
    }

    /// Makes the log: so many archived instances, then so many live ones.
    pub(super) async fn make(&self, archived: usize, live: usize) -> anyhow::Result<Made> {
        let started = Instant::now();
        self.add_archived(archived).await?;
        self.compact()?;
        let archived_bytes = disk::usage(&self.folder)?;
        self.add_live(live).await?;
        let killed_bytes = disk::usage(&self.folder)?;
        let made_s = started.elapsed().as_secs_f64();
        Ok(Made { archived, live, made_s, archived_bytes, killed_bytes })
    }

    /// Keeps a copy in the folder for which `place` was made.
    pub(super) fn copy_to(&self, place: KeptPlace, made: &Made) -> anyhow::Result<()> {
        let KeptPlace { kept, beside } = place;
        copy_files(&self.folder, beside.path())?;
        fs::write(beside.path().join(MADE), serde_json::to_vec(made)?)?;
        // A copy that was cut short is not taken for a log. It is kept only once it has its name.
        fs::rename(beside.path(), &kept).with_context(|| kept.display().to_string())?;
        let _moved = beside.keep();
        Ok(())
    }

    /// Takes the log that was kept in this folder, which must hold as many instances.
    pub(super) fn copy_from(&self, kept: &Path, archived: usize, live: usize) -> anyhow::Result<Made> {
        let made = kept.join(MADE);
        let made: Made =
            serde_json::from_slice(&fs::read(&made).with_context(|| made.display().to_string())?)?;
        ensure!(
            (made.archived, made.live) == (archived, live),
            "{} holds {} archived and {} live instances: give another folder, or these numbers",
            kept.display(),
            made.archived,
            made.live
        );
        copy_files(kept, &self.folder)?;
        Ok(made)
    }

    /// Plays so many instances to their end, and kills the server.
    async fn add_archived(&self, count: usize) -> anyhow::Result<()> {
        let fixture = Arc::new(self.fixture(PROCESSES as usize).await?);
        play_portions(&fixture, count, false).await.map(drop)
    }

    /// Begins so many instances, which stay live, and kills the server.
    async fn add_live(&self, count: usize) -> anyhow::Result<()> {
        let principals = PROCESSES as usize;
        let fixture = self.fixture(groups(count) * principals).await?;
        let streams = begin(&fixture, count, PIPELINE, principals / 2).await?;
        // The streams must not end before the server does.
        drop(fixture);
        drop(streams);
        Ok(())
    }

    /// Leaves only what lives in the log.
    pub(super) fn compact(&self) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        let output = command.args(["data", "compact", "--data"]).arg(&self.folder).output();
        let output = output.with_context(|| self.program.display().to_string())?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the log was not compacted: {}", error.trim());
        Ok(())
    }
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // A server also has a socket in its folder.
        if entry.file_type()?.is_file() && entry.file_name() != MADE {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
