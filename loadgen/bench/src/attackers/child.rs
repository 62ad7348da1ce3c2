//! A program that works until its standard input ends, and then says on standard output what it did.

use std::io::Read as _;
use std::process::{self, Command};

use anyhow::{Context as _, ensure};

/// See the module. It is killed when this is dropped.
pub(super) struct Child(process::Child);

impl Child {
    /// Starts it; its standard input and output are pipes.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let program = command.get_program().display().to_string();
        Ok(Self(command.spawn().context(program)?))
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Tells it to end, and returns what it says.
    pub(super) fn finish(mut self) -> anyhow::Result<String> {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stdout.take().context("no standard output")?.read_to_string(&mut said)?;
        let ended = self.0.wait()?;
        ensure!(ended.success(), "the attackers failed: {ended}");
        Ok(said)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}
