//! Live instances, and the cost of an access beside many of them.
//!
//! The work of `cost` does not depend on their number: every message of a client has 64 reads; all eight
//! processes of an instance send theirs at the same time, and every phase answers two of them. One instance
//! receives all 64 ahead; with 64 or more, each read goes to another instance, and a pass goes through all
//! live instances before it comes back to the first.

use std::sync::Arc;

use stickycas_client::raw::Connection;
use stickycas_load::attach_codec::ResponseFrame;
use tokio::task::JoinSet;

use super::{Before, PROCESSES};
use crate::fixture::Fixture;
use crate::results::{Figures, Row};
use crate::servers::{Launch, Server};
use crate::stopwatch::processor_time_of;
use crate::streams::{AttachStream, append, hello, read};
use crate::tasks::in_order;
use crate::workload::{Shape, proposal};

/// Open instances of one stream: the default limit of the server.
const CHANNELS: usize = 4_096;
/// Accesses in one message of `cost`.
const BATCH: usize = 64;
/// About so many accesses are timed.
const ACCESSES: usize = 2_000_000;

/// Live instances of groups of eight principals.
pub(crate) struct Live {
    // The server ends before the streams.
    fixture: Arc<Fixture>,
    count: usize,
    /// The streams of each group.
    groups: Vec<Vec<AttachStream>>,
    per_group: usize,
    /// The number of the next read in all of them.
    next: u64,
}

impl Live {
    /// Principals for so many, on this server.
    pub(crate) async fn fixture(server: Server, shape: Shape, count: usize) -> anyhow::Result<Arc<Fixture>> {
        let fixture = Fixture::groups(server, shape, count.div_ceil(CHANNELS).max(1));
        fixture.await.map(Arc::new)
    }

    /// Creates so many. All processes say hello; the first `appending` of each group also append and then
    /// read.
    pub(crate) async fn begin(fixture: Arc<Fixture>, count: usize, appending: usize) -> anyhow::Result<Self> {
        let per_group = count.div_ceil(count.div_ceil(CHANNELS).max(1)).max(1);
        let ids = fixture.create(count, per_group).await?;
        let mut beginning = JoinSet::new();
        for (number, principal) in fixture.principals.iter().cloned().enumerate() {
            let (group, member) = (number / PROCESSES, number % PROCESSES);
            let ids: Vec<String> = ids.iter().skip(group * per_group).take(per_group).cloned().collect();
            beginning.spawn(async move {
                anyhow::Ok((number, join(&principal, member, &ids, member < appending).await?))
            });
        }
        let mut streams = in_order(beginning).await?.into_iter();
        let groups = fixture.principals.chunks(PROCESSES);
        let groups = groups.map(|group| streams.by_ref().take(group.len()).collect()).collect();
        Ok(Self { fixture, count, groups, per_group, next: 3 })
    }

    /// All processes read `each` times in each instance, a few messages ahead of the answers; one group after
    /// the other.
    async fn pass(&mut self, each: u64) -> anyhow::Result<()> {
        let (numbers, count) = (self.next..self.next + each, self.count);
        self.next += each;
        for (group, streams) in self.groups.iter_mut().enumerate() {
            let channels = 0..count.saturating_sub(group * self.per_group).min(self.per_group);
            let mut reading = JoinSet::new();
            for (member, mut stream) in streams.drain(..).enumerate() {
                let (channels, numbers) = (channels.clone(), numbers.clone());
                reading.spawn(async move {
                    read_all(&mut stream, channels, numbers).await?;
                    anyhow::Ok((member, stream))
                });
            }
            *streams = in_order(reading).await?;
        }
        Ok(())
    }
}

/// One process reads on these channels.
async fn read_all(
    stream: &mut AttachStream,
    channels: std::ops::Range<usize>,
    numbers: std::ops::Range<u64>,
) -> anyhow::Result<()> {
    const AHEAD: usize = 8 * BATCH;
    let total = channels.len() * (numbers.end - numbers.start) as usize;
    let mut all = channels.flat_map(|channel| numbers.clone().map(move |number| (channel as u32, number)));
    let (mut sent, mut answered, mut frames) = (0, 0, Vec::new());
    while answered < total {
        while sent < total && sent < answered + AHEAD {
            for (channel, number) in all.by_ref().take(BATCH) {
                read(&mut frames, channel, number);
                sent += 1;
            }
            stream.send(&mut frames)?;
        }
        // The answers to the first reads come first.
        let is_new = |frame: &&ResponseFrame| matches!(frame, ResponseFrame::Read { number, .. } if *number >= numbers.start);
        answered += stream.receive().await?.frames().iter().filter(is_new).count();
    }
    Ok(())
}

/// Joins the instances of one principal; returns when all of them have sent their welcome.
async fn join(
    principal: &Connection,
    process: usize,
    ids: &[String],
    appends: bool,
) -> anyhow::Result<AttachStream> {
    /// Bytes of a message that is large enough: some 700 frames, where a server takes 1,024.
    const BYTES: usize = 12 << 10;
    /// Instances that it is ahead of the welcomes: the server need not buffer much.
    const AHEAD: usize = 768;
    let mut stream = AttachStream::open(principal).await?;
    let (mut frames, mut welcomed) = (Vec::new(), 0);
    for (number, id) in ids.iter().enumerate() {
        let channel = number as u32;
        hello(&mut frames, channel, id);
        if appends {
            append(&mut frames, channel, &proposal(process, number));
            read(&mut frames, channel, 2);
        }
        if frames.len() >= BYTES {
            stream.send(&mut frames)?;
            while welcomed + AHEAD < number {
                welcomed += welcomes(&mut stream).await?;
            }
        }
    }
    stream.send(&mut frames)?;
    while welcomed < ids.len() {
        welcomed += welcomes(&mut stream).await?;
    }
    Ok(stream)
}

/// The welcomes of the next message: it has no other frames than these and answers.
async fn welcomes(stream: &mut AttachStream) -> anyhow::Result<usize> {
    let message = stream.receive().await?;
    Ok(message.frames().iter().filter(|it| matches!(it, ResponseFrame::Other(_))).count())
}

/// Measures the memory of this many: half of the warps have appended and wait to read, the others have not
/// appended.
pub(super) async fn measure(launch: &Launch, count: usize) -> anyhow::Result<Row> {
    let fixture = Live::fixture(launch.start().await?, Shape::SMALL, count).await?;
    let before = Before::of(&fixture.server).await?;
    let _live = Live::begin(fixture, count, PROCESSES / 2).await?;
    before.row("live instances", count).await
}

/// The processor time of the server for an access beside this many, all of which have their whole list.
#[allow(clippy::cast_precision_loss)]
pub(super) async fn cost(launch: &Launch, count: usize) -> anyhow::Result<Row> {
    let shape = Shape { pipeline: BATCH as u32, ..Shape::SMALL };
    let fixture = Live::fixture(launch.start().await?, shape, count).await?;
    let mut live = Live::begin(fixture, count, PROCESSES).await?;
    let pid = live.fixture.server.pid();
    // Few instances get several accesses each, ahead.
    let each = BATCH.div_ceil(count).max(1);
    let accesses_of_pass = PROCESSES * count * each;
    let passes = (ACCESSES / accesses_of_pass).max(1);
    let mut started = None;
    for _ in 0..=passes {
        live.pass(each as u64).await?;
        // The first one does not count.
        started = Some(started.map_or_else(|| processor_time_of(pid), Ok)?);
    }
    let spent = processor_time_of(pid)?.saturating_sub(started.unwrap_or_default());
    let accesses = passes * accesses_of_pass;
    let figures = Figures::default()
        .count("live", count as u64)
        .count("accesses", accesses as u64)
        .with("server_cost_us", spent.as_secs_f64() * 1e6 / accesses as f64);
    Ok(Row::once(format!("cost beside {count} live"), figures))
}
