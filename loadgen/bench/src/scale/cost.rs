//! The cost of an access beside many live instances.
//!
//! The work does not depend on their number: every message of a client has 64 accesses, each a read; all
//! eight processes of an instance send theirs at the same time, and every phase answers two of them. With one
//! instance it receives all 64 ahead; with 64 or more, each access goes to another instance, and a pass goes
//! through all live instances before it comes back to the first. Groups of principals take turns.

use std::path::Path;

use serde::Serialize;
use stickycas_proto::v1::server_frame::Frame;
use tokio::task::JoinSet;

use super::fixture::{PROCESSES, ScaleFixture};
use super::live::{CHANNELS, begin, groups};
use super::server::memory;
use crate::attach_stream::{AttachStream, read};
use crate::stopwatch::processor_time_of;

/// Accesses in one message.
const BATCH: usize = 64;
/// About so many accesses are timed.
const ACCESSES: usize = 2_000_000;

/// The cost of one access.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    /// Live instances meanwhile.
    pub(super) live: usize,
    pub(super) accesses: usize,
    /// Processor time of the server for each access, in microseconds.
    pub(super) server_us: f64,
    pub(super) bytes_each: u64,
}

pub(super) async fn measure(program: &Path, live: usize) -> anyhow::Result<Cost> {
    let processes = PROCESSES as usize;
    let fixture = ScaleFixture::start(program, live, groups(live) * processes).await?;
    let pid = fixture.server.pid();
    let before = memory(pid).await?;
    // All processes append and read once, so that the lists are whole, and then read on.
    let mut streams = begin(&fixture, live, BATCH as u32, processes).await?;
    let after = memory(pid).await?;
    let mut next = 3;
    pass(&mut streams, live, &mut next).await?;
    let passes = (ACCESSES / accesses_of_pass(live)).max(1);
    let started = processor_time_of(pid)?;
    for _ in 0..passes {
        pass(&mut streams, live, &mut next).await?;
    }
    let spent = processor_time_of(pid)?.saturating_sub(started);
    let accesses = passes * accesses_of_pass(live);
    #[allow(clippy::cast_precision_loss)]
    let server_us = spent.as_secs_f64() * 1e6 / accesses as f64;
    let bytes_each = after.rss_bytes.saturating_sub(before.rss_bytes) / live as u64;
    Ok(Cost { live, accesses, server_us, bytes_each })
}

/// Accesses of a pass through all instances, in whole messages.
fn accesses_of_pass(live: usize) -> usize {
    PROCESSES as usize * live * BATCH.div_ceil(live).max(1)
}

/// Every process reads in every instance, group after group. `next`: the number of the next access in all of
/// them.
async fn pass(streams: &mut Vec<AttachStream>, live: usize, next: &mut u64) -> anyhow::Result<()> {
    // Few instances get several accesses each, ahead.
    let each = BATCH.div_ceil(live).max(1) as u64;
    let (first, processes) = (*next, PROCESSES as usize);
    *next += each;
    let mut done = Vec::new();
    let all: Vec<AttachStream> = std::mem::take(streams);
    let mut all = all.into_iter();
    for group in 0..groups(live) {
        let instances = live.saturating_sub(group * CHANNELS).min(CHANNELS);
        let mut reading = JoinSet::new();
        for (place, stream) in all.by_ref().take(processes).enumerate() {
            reading
                .spawn(async move { anyhow::Ok((place, read_all(stream, instances, first, each).await?)) });
        }
        let mut back = Vec::new();
        while let Some(stream) = reading.join_next().await {
            back.push(stream??);
        }
        back.sort_by_key(|(place, _)| *place);
        done.extend(back.into_iter().map(|(_, stream)| stream));
    }
    *streams = done;
    Ok(())
}

/// One process reads in all instances of its group, a few messages ahead of the answers.
async fn read_all(
    mut stream: AttachStream,
    instances: usize,
    first: u64,
    each: u64,
) -> anyhow::Result<AttachStream> {
    const AHEAD: usize = 8 * BATCH;
    let all = (0..instances)
        .flat_map(|channel| (first..first + each).map(move |number| read(channel as u32, number)));
    let (total, mut all) = (instances * each as usize, all);
    let (mut sent, mut answered) = (0, 0);
    while answered < total {
        while sent < total && sent < answered + AHEAD {
            let frames: Vec<_> = all.by_ref().take(BATCH).collect();
            sent += frames.len();
            stream.send(frames)?;
        }
        // The answers to the first reads come first.
        let frames = stream.receive().await?;
        answered += frames.iter().filter(|it| matches!(it, Frame::Answer(it) if it.number >= first)).count();
    }
    Ok(stream)
}
