//! Live instances: all processes have joined, half of the warps have appended and wait to read, the others
//! have not appended.

use std::path::Path;
use std::time::Instant;

use stickycas_proto::v1::ClientFrame;
use stickycas_proto::v1::server_frame::Frame;
use tokio::task::JoinSet;

use super::Measurement;
use super::fixture::{PROCESSES, ScaleFixture, group};
use super::process::proposal;
use super::server::memory;
use crate::attach_stream::{AttachStream, append, hello, read};
use crate::principal::Principal;

/// Open instances of one stream: the default limit of the server.
pub(crate) const CHANNELS: usize = 4_096;
/// Frames in one message.
const FRAMES: usize = 768;

/// The number of groups of eight principals that this many instances need.
pub(crate) fn groups(instances: usize) -> usize {
    instances.div_ceil(CHANNELS)
}

/// Measures this many live instances.
pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Measurement> {
    let groups = groups(count);
    let fixture = ScaleFixture::start(program, count, groups * PROCESSES as usize).await?;
    let before = memory(fixture.server.pid()).await?;
    let started = Instant::now();
    let _lines = begin(&fixture, count, 16, PROCESSES as usize / 2).await?;
    let wall = started.elapsed();
    let after = memory(fixture.server.pid()).await?;
    Ok(Measurement::new("live instances", count, before, after, wall))
}

/// Creates this many instances, with a group of principals for each `CHANNELS` of them. All send hello; the
/// first `appending` of each group also append and then read. Returns their streams, by principal.
pub(crate) async fn begin(
    fixture: &ScaleFixture,
    count: usize,
    pipeline: u32,
    appending: usize,
) -> anyhow::Result<Vec<AttachStream>> {
    let rosters = (0..count).map(|number| group(number / CHANNELS)).collect();
    let ids = fixture.create(rosters, pipeline).await?;
    let mut beginning = JoinSet::new();
    for (number, principal) in fixture.principals.iter().cloned().enumerate() {
        let (own_group, member) = (number / PROCESSES as usize, number % PROCESSES as usize);
        let ids: Vec<String> = ids.iter().skip(own_group * CHANNELS).take(CHANNELS).cloned().collect();
        let appends = member < appending;
        beginning.spawn(async move { anyhow::Ok((number, join(&principal, number, &ids, appends).await?)) });
    }
    let mut streams: Vec<Option<AttachStream>> = fixture.principals.iter().map(|_| None).collect();
    while let Some(stream) = beginning.join_next().await {
        let (number, stream) = stream??;
        streams[number] = Some(stream);
    }
    Ok(streams.into_iter().flatten().collect())
}

/// Joins the instances of one principal; returns when all of them have sent their welcome.
async fn join(
    principal: &Principal,
    number: usize,
    ids: &[String],
    appends: bool,
) -> anyhow::Result<AttachStream> {
    let mut stream = AttachStream::open(principal, Vec::new()).await?;
    let mut frames: Vec<ClientFrame> = Vec::new();
    let mut welcomed = 0;
    for (channel, id) in ids.iter().enumerate() {
        frames.push(hello(channel as u32, id));
        if appends {
            frames.extend([append(channel as u32, 1, proposal(number, channel)), read(channel as u32, 2)]);
        }
        if frames.len() >= FRAMES {
            stream.send(std::mem::take(&mut frames))?;
            // Not too far ahead, so that the server need not buffer much.
            while welcomed + FRAMES < channel {
                welcomed += welcomes(&stream.receive().await?);
            }
        }
    }
    stream.send(frames)?;
    while welcomed < ids.len() {
        welcomed += welcomes(&stream.receive().await?);
    }
    Ok(stream)
}

fn welcomes(frames: &[Frame]) -> usize {
    frames.iter().filter(|frame| matches!(frame, Frame::Welcome(_))).count()
}
