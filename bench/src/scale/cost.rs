//! What an access costs while many instances live.
//!
//! The same work whatever their number: every message of a client holds 64 accesses, each a read, all eight processes
//! of an instance send theirs at the same time, and every phase answers two of them. With one instance all 64 are sent
//! ahead to that one; with 64 and more, each goes to another instance, and the rounds go on through all that live, so
//! that none is met again before all others were. Groups of principals take turns.

use std::path::Path;

use serde::Serialize;
use stickycas_proto::v1::server_frame::Frame;
use tokio::task::JoinSet;

use super::live::{CHANNELS, begin, groups};
use super::play::{Line, read};
use super::program::memory;
use super::town::{PROCESSES, Town};
use crate::stopwatch::processor_time_of;

/// Accesses in one message.
const BATCH: usize = 64;
/// Accesses that are timed, about.
const ACCESSES: usize = 2_000_000;

/// What one access costs.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    /// Instances that live meanwhile.
    pub(super) live: usize,
    pub(super) accesses: usize,
    /// Processor time of the server for each access, in microseconds.
    pub(super) server_us: f64,
    pub(super) bytes_each: u64,
}

pub(super) async fn measure(program: &Path, live: usize) -> anyhow::Result<Cost> {
    let processes = PROCESSES as usize;
    let town = Town::found(program, live, groups(live) * processes).await?;
    let pid = town.server.pid();
    let before = memory(pid).await?;
    // Everybody appends and reads once, so that the lists are whole; and then reads on.
    let mut lines = begin(&town, live, BATCH as u32, processes).await?;
    let after = memory(pid).await?;
    let mut next = 3;
    pass(&mut lines, live, &mut next).await?;
    let passes = (ACCESSES / accesses_of_pass(live)).max(1);
    let started = processor_time_of(pid)?;
    for _ in 0..passes {
        pass(&mut lines, live, &mut next).await?;
    }
    let spent = processor_time_of(pid)?.saturating_sub(started);
    let accesses = passes * accesses_of_pass(live);
    #[allow(clippy::cast_precision_loss)]
    let server_us = spent.as_secs_f64() * 1e6 / accesses as f64;
    let bytes_each = after.rss_bytes.saturating_sub(before.rss_bytes) / live as u64;
    Ok(Cost { live, accesses, server_us, bytes_each })
}

/// A pass through all instances has whole messages.
fn accesses_of_pass(live: usize) -> usize {
    PROCESSES as usize * live * BATCH.div_ceil(live).max(1)
}

/// Every process reads in every instance, group after group. `next`: the number of the next access everywhere.
async fn pass(lines: &mut Vec<Line>, live: usize, next: &mut u64) -> anyhow::Result<()> {
    // Few instances get several accesses each, ahead.
    let each = BATCH.div_ceil(live).max(1) as u64;
    let (first, processes) = (*next, PROCESSES as usize);
    *next += each;
    let mut done = Vec::new();
    let all: Vec<Line> = std::mem::take(lines);
    let mut all = all.into_iter();
    for group in 0..groups(live) {
        let instances = live.saturating_sub(group * CHANNELS).min(CHANNELS);
        let mut reading = JoinSet::new();
        for (place, line) in all.by_ref().take(processes).enumerate() {
            reading.spawn(async move { anyhow::Ok((place, read_all(line, instances, first, each).await?)) });
        }
        let mut back = Vec::new();
        while let Some(line) = reading.join_next().await {
            back.push(line??);
        }
        back.sort_by_key(|(place, _)| *place);
        done.extend(back.into_iter().map(|(_, line)| line));
    }
    *lines = done;
    Ok(())
}

/// One process reads in all instances of its group, a few messages ahead of the answers.
async fn read_all(mut line: Line, instances: usize, first: u64, each: u64) -> anyhow::Result<Line> {
    const AHEAD: usize = 8 * BATCH;
    let all =
        (0..instances).flat_map(|channel| (first..first + each).map(move |number| read(channel, number)));
    let (total, mut all) = (instances * each as usize, all);
    let (mut sent, mut answered) = (0, 0);
    while answered < total {
        while sent < total && sent < answered + AHEAD {
            let frames: Vec<_> = all.by_ref().take(BATCH).collect();
            sent += frames.len();
            line.say(frames)?;
        }
        // Answers to what was read when the lists were made come first.
        let frames = line.hear().await?;
        answered += frames.iter().filter(|it| matches!(it, Frame::Answer(it) if it.number >= first)).count();
    }
    Ok(line)
}
