//! Instances that live and stand in the middle: everybody has joined, half of the warps have appended and wait to read,
//! and the others have not come.

use std::path::Path;
use std::time::Instant;

use stickycas_proto::v1::ClientFrame;
use stickycas_proto::v1::server_frame::Frame;
use tokio::task::JoinSet;

use super::Measurement;
use super::play::{Line, append, hello, proposal, read};
use super::program::memory;
use super::town::{PROCESSES, Principal, Town, group};

/// Instances that one stream has open: what a server allows by default.
pub(super) const CHANNELS: usize = 4_096;
/// Frames in one message.
const FRAMES: usize = 768;

/// Groups of eight principals that so many instances need.
pub(super) fn groups(instances: usize) -> usize {
    instances.div_ceil(CHANNELS)
}

/// Has so many instances live.
pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Measurement> {
    let groups = groups(count);
    let town = Town::found(program, count, groups * PROCESSES as usize).await?;
    let before = memory(town.server.pid()).await?;
    let started = Instant::now();
    let _lines = begin(&town, count, 16, PROCESSES as usize / 2).await?;
    let wall = started.elapsed();
    let after = memory(town.server.pid()).await?;
    Ok(Measurement::new("live instances", count, before, after, wall))
}

/// Creates so many instances, a group of principals for each `CHANNELS` of them. All say hello; the first so many of
/// each group append, and read behind it. Their streams, by principal.
pub(super) async fn begin(
    town: &Town,
    count: usize,
    pipeline: u32,
    who_append: usize,
) -> anyhow::Result<Vec<Line>> {
    let rosters = (0..count).map(|number| group(number / CHANNELS)).collect();
    let ids = town.create(rosters, pipeline).await?;
    let mut beginning = JoinSet::new();
    for (number, principal) in town.principals.iter().cloned().enumerate() {
        let (own_group, member) = (number / PROCESSES as usize, number % PROCESSES as usize);
        let ids: Vec<String> = ids.iter().skip(own_group * CHANNELS).take(CHANNELS).cloned().collect();
        let appends = member < who_append;
        beginning.spawn(async move { anyhow::Ok((number, join(&principal, number, &ids, appends).await?)) });
    }
    let mut lines: Vec<Option<Line>> = town.principals.iter().map(|_| None).collect();
    while let Some(line) = beginning.join_next().await {
        let (number, line) = line??;
        lines[number] = Some(line);
    }
    Ok(lines.into_iter().flatten().collect())
}

/// One principal joins its instances; returns when it has been welcomed everywhere.
async fn join(principal: &Principal, number: usize, ids: &[String], appends: bool) -> anyhow::Result<Line> {
    let mut line = Line::open(principal, Vec::new()).await?;
    let mut frames: Vec<ClientFrame> = Vec::new();
    let mut welcomed = 0;
    for (channel, id) in ids.iter().enumerate() {
        frames.push(hello(channel, id));
        if appends {
            frames.extend([append(channel, 1, proposal(number, channel)), read(channel, 2)]);
        }
        if frames.len() >= FRAMES {
            line.say(std::mem::take(&mut frames))?;
            // Not too far ahead: what a server has not been asked to read it need not hold.
            while welcomed + FRAMES < channel {
                welcomed += welcomes(&line.hear().await?);
            }
        }
    }
    line.say(frames)?;
    while welcomed < ids.len() {
        welcomed += welcomes(&line.hear().await?);
    }
    Ok(line)
}

fn welcomes(frames: &[Frame]) -> usize {
    frames.iter().filter(|frame| matches!(frame, Frame::Welcome(_))).count()
}
