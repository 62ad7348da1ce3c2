//! Instances that do not end: all of their processes read on, slice after slice.

use std::convert::Infallible;
use std::time::Duration;

use stickycas_proto::v1::server_frame::Frame;

use crate::attach_stream::{AttachStream, read};
use crate::scale::fixture::{PROCESSES, ScaleFixture};
use crate::scale::live::{CHANNELS, begin};

/// Instances of a slice.
const SLICE: usize = 256;
/// The time between two slices.
const EVERY: Duration = Duration::from_millis(50);
/// Accesses of a process that may wait.
const PIPELINE: u32 = 16;
/// The number of the first read after those with which the instances have begun.
const NEXT: u64 = 3;

/// See the module.
pub(super) struct LiveInstances {
    streams: Vec<AttachStream>,
    count: usize,
}

impl LiveInstances {
    /// Begins so many: all processes have appended and read once.
    pub(super) async fn begin(fixture: &ScaleFixture, count: usize) -> anyhow::Result<Self> {
        let streams =
            if count == 0 { Vec::new() } else { begin(fixture, count, PIPELINE, PROCESSES as usize).await? };
        Ok(Self { streams, count })
    }

    /// Reads for ever.
    pub(super) async fn read_on(mut self) -> anyhow::Result<Infallible> {
        let mut every = tokio::time::interval(EVERY);
        for number in NEXT.. {
            for (group, streams) in self.streams.chunks_mut(PROCESSES as usize).enumerate() {
                let instances = self.count.saturating_sub(group * CHANNELS).min(CHANNELS);
                for first in (0..instances).step_by(SLICE) {
                    every.tick().await;
                    read_slice(streams, first..(first + SLICE).min(instances), number).await?;
                }
            }
            if self.count == 0 {
                std::future::pending::<()>().await;
            }
        }
        std::future::pending().await
    }
}

/// All processes of a group read in these instances, and wait for the answers.
async fn read_slice(
    streams: &mut [AttachStream],
    channels: std::ops::Range<usize>,
    number: u64,
) -> anyhow::Result<()> {
    for stream in &*streams {
        stream.send(channels.clone().map(|channel| read(channel as u32, number)).collect())?;
    }
    for stream in streams {
        let mut answered = 0;
        while answered < channels.len() {
            let frames = stream.receive().await?;
            answered +=
                frames.iter().filter(|it| matches!(it, Frame::Answer(it) if it.number == number)).count();
        }
    }
    Ok(())
}
