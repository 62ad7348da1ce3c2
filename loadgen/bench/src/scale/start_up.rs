//! The start of a server on a large log: the time until it serves, its memory, and the disk that the log
//! takes.
//!
//! | row | how |
//! | --- | --- |
//! | `start after a kill` | on the log as SIGKILL left it: checkpoints, and the inputs behind them |
//! | `start after compaction` | after `stickycas-server data compact`: checkpoints only |
//! | `log` | disk in use of an archived and of a live instance after compaction, and that after the kill in units of that |
//!
//! The log has first instances that ended and are archived, then live ones, in which half of the warps have
//! appended. A start is timed until `/readyz` says that the server serves; the metrics then have to tell of
//! every instance. The file is in the page cache. `of_reading`: in units of the time in which the files of
//! the log are read from there.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::ensure;

use super::live::Live;
use super::{IN_FLIGHT, PROCESSES, kept, play_portions};
use crate::results::{Figures, Row};
use crate::servers::{Launch, disk_usage, folder, peak_and_resident};
use crate::workload::Shape;

#[allow(clippy::cast_precision_loss)]
pub(super) async fn measure(
    launch: &Launch,
    disk: &Path,
    archived: usize,
    starts: u32,
) -> anyhow::Result<Vec<Row>> {
    let live = (archived / 10).max(1);
    let log = folder(disk)?;
    let launch = Launch { retention: "24h", ..launch.clone() }.durable(log.path());
    let fixture = Live::fixture(launch.start().await?, Shape::SMALL, 1).await?;
    play_portions(&fixture, archived, IN_FLIGHT).await?;
    drop(fixture);
    compact(&launch, log.path())?;
    let archived_bytes = disk_usage(log.path())?;
    let fixture = Live::fixture(launch.start().await?, Shape::SMALL, live).await?;
    let begun = Live::begin(fixture, live, PROCESSES / 2).await?;
    // The server is killed first: the field before the streams.
    drop(begun);
    let killed_bytes = disk_usage(log.path())?;
    let mut rows = Vec::new();
    for after in ["a kill", "compaction"] {
        if after == "compaction" {
            compact(&launch, log.path())?;
        }
        let disk_bytes = disk_usage(log.path())?;
        let mut row = Row { name: format!("start after {after}"), ..Row::default() };
        for _ in 0..starts {
            let server = launch.start().await?;
            let found = kept(&server).await?;
            ensure!(found == (live as f64, archived as f64), "live and ended instances: {found:?}");
            let (peak, resident) = peak_and_resident(server.pid())?;
            let started = server.started.as_secs_f64();
            drop(server);
            let read = reading(log.path())?;
            let figures = Figures::default()
                .with("start_s", started)
                .with("of_reading", started / read)
                .count("disk_bytes", disk_bytes)
                .count("peak_bytes", peak)
                .count("resident_bytes", resident);
            row.turns.push(figures);
        }
        rows.push(row);
    }
    let all = disk_usage(log.path())?;
    let figures = Figures::default()
        .count("archived", archived as u64)
        .count("live", live as u64)
        .count("archived_each_bytes", archived_bytes / archived as u64)
        .count("live_each_bytes", all.saturating_sub(archived_bytes) / live as u64)
        .with("killed_of_compacted", killed_bytes as f64 / all as f64);
    rows.push(Row::once("log", figures));
    Ok(rows)
}

/// The time in which everything in this folder is read, in seconds.
fn reading(folder: &Path) -> io::Result<f64> {
    const PIECE: usize = 1 << 20;
    let began = Instant::now();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.is_file() {
            io::copy(&mut BufReader::with_capacity(PIECE, File::open(path)?), &mut io::sink())?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Leaves only what lives in the log.
fn compact(launch: &Launch, log: &Path) -> anyhow::Result<()> {
    let output = Command::new(&launch.program).args(["data", "compact", "--data"]).arg(log).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the log was not compacted: {}", error.trim());
    Ok(())
}
