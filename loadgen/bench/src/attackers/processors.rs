//! Which processor a program runs on, by `taskset`.

use std::io::Read as _;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// That of the server and of the correct processes.
pub(super) const OURS: &str = "0";
/// That of the attackers.
const THEIRS: &str = "1";

/// Puts this program, and what it starts, on one processor.
///
/// # Errors
/// If there is no other one for the attackers.
pub(super) fn keep_to_ours() -> anyhow::Result<()> {
    let there_are = std::thread::available_parallelism()?.get();
    ensure!(
        there_are >= 2,
        "there is {there_are} processor, and attackers need one of their own: run this where there are two"
    );
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", OURS, &own]).output();
    let pinned = pinned.context("taskset")?;
    let why = String::from_utf8_lossy(&pinned.stderr);
    ensure!(pinned.status.success(), "processor {OURS} cannot be chosen: {}", why.trim());
    Ok(())
}

/// This program on the processor of the attackers.
pub(super) fn attackers_program() -> anyhow::Result<Command> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", THEIRS]).arg(std::env::current_exe()?);
    Ok(command)
}

/// The subcommand: works on nothing until standard input ends.
pub(crate) fn busy() -> anyhow::Result<()> {
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}
