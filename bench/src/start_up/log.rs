//! The log on which servers are started, made by clients of a server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, ensure};

use super::READY_WITHIN;
use crate::operators;
use crate::scale::finished::play_portions;
use crate::scale::fixture::{PROCESSES, ScaleFixture};
use crate::scale::live::{begin, groups};
use crate::scale::server::{DurableServer, Serving};

/// Accesses of a process that may wait.
const PIPELINE: u32 = 16;

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

    /// Plays so many instances to their end, and kills the server.
    pub(super) async fn add_archived(&self, count: usize) -> anyhow::Result<()> {
        let fixture = Arc::new(self.fixture(PROCESSES as usize).await?);
        play_portions(&fixture, count, false).await.map(drop)
    }

    /// Begins so many instances, which stay live, and kills the server.
    pub(super) async fn add_live(&self, count: usize) -> anyhow::Result<()> {
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
