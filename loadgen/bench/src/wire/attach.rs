//! Processes that append, read and decide on one Attach stream each.

use std::sync::Arc;

use anyhow::Context as _;
use stickycas_proto::v1::AppendResult;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::codec::{FrameCodec, FrameVisitor, Op};
use crate::fixture::{Fixture, ProcessConnection};
use crate::stopwatch::Sample;
use crate::workload::{ACCESSES_PER_PROCESS, Observation, proposal};

const APPEND: u64 = 1;
const READ: u64 = 2;

/// Plays all instances, `in_flight` at a time. With `batch` all frames that follow from one message of the
/// server leave as one message; without, each access is a message of its own.
pub(crate) async fn run<T: FrameCodec>(
    fixture: &Fixture,
    in_flight: usize,
    batch: bool,
) -> anyhow::Result<Sample> {
    let watch = fixture.stopwatch();
    let observations = observe::<T>(fixture, in_flight, batch).await?;
    let instances = fixture.ids.len();
    let sample = watch.stop(instances, instances * fixture.connections.len() * ACCESSES_PER_PROCESS);
    fixture.judge(&observations)?;
    Ok(sample)
}

/// The same without a stopwatch: returns the observations, by process and then by instance.
pub(crate) async fn observe<T: FrameCodec>(
    fixture: &Fixture,
    in_flight: usize,
    batch: bool,
) -> anyhow::Result<Vec<Vec<Observation>>> {
    let ids: Arc<[String]> = fixture.ids.clone().into();
    let mut streams = JoinSet::new();
    for connection in &fixture.connections {
        streams.spawn(play::<T>(connection.clone(), ids.clone(), fixture.real, in_flight, batch));
    }
    let mut observations = vec![Vec::new(); fixture.connections.len()];
    while let Some(stream) = streams.join_next().await {
        let (process, own) = stream??;
        observations[process] = own;
    }
    Ok(observations)
}

/// Plays all instances as one process. Returns its number, and its observations by instance.
async fn play<T: FrameCodec>(
    connection: ProcessConnection,
    ids: Arc<[String]>,
    real: bool,
    in_flight: usize,
    batch: bool,
) -> anyhow::Result<(usize, Vec<Observation>)> {
    let (out, requests) = unbounded_channel();
    let mut process = Process::<T>::new(connection.process, ids, out, real, in_flight, batch);
    for slot in 0..in_flight {
        process.open(slot)?;
    }
    process.flush()?;
    let requests = connection.principal.request(UnboundedReceiverStream::new(requests));
    let mut answers = T::attach(connection.principal.channel.clone(), requests).await?.into_inner();
    while process.open > 0 {
        let message = answers.message().await?.context("the stream ended")?;
        T::visit(message, &mut process)?;
        process.flush()?;
    }
    Ok((process.process, process.observations))
}

/// The client of one process.
struct Process<T: FrameCodec> {
    process: usize,
    ids: Arc<[String]>,
    out: UnboundedSender<T::Request>,
    in_flight: usize,
    batch: bool,
    /// Whether it also sends hello and decision: the floor knows neither.
    real: bool,
    /// The instance of each channel.
    channels: Vec<usize>,
    /// Channels on which the server has answered the decision, so that they may be used again.
    free: Vec<u32>,
    /// Frames of the next message.
    frames: T,
    /// Instances that have begun and not ended.
    open: usize,
    /// By instance.
    observations: Vec<Observation>,
}

impl<T: FrameCodec> Process<T> {
    fn new(
        process: usize,
        ids: Arc<[String]>,
        out: UnboundedSender<T::Request>,
        real: bool,
        in_flight: usize,
        batch: bool,
    ) -> Self {
        Self {
            process,
            observations: vec![Observation::EMPTY; ids.len()],
            ids,
            out,
            in_flight,
            batch,
            real,
            channels: Vec::new(),
            free: Vec::new(),
            frames: T::default(),
            open: 0,
        }
    }

    /// Begins an instance on a free channel: hello and append.
    fn open(&mut self, instance: usize) -> anyhow::Result<()> {
        let Some(id) = self.ids.get(instance) else { return Ok(()) };
        let channel = match self.free.pop() {
            Some(channel) => channel,
            None => {
                self.channels.push(instance);
                u32::try_from(self.channels.len() - 1)?
            }
        };
        self.channels[channel as usize] = instance;
        self.open += 1;
        if self.real {
            self.frames.hello(channel, id);
        }
        self.access(channel, APPEND, Op::Append(proposal(self.process, instance)))
    }

    fn access(&mut self, channel: u32, number: u64, op: Op) -> anyhow::Result<()> {
        self.frames.access(channel, number, op);
        if self.batch { Ok(()) } else { self.flush() }
    }

    /// Sends the frames as one message.
    fn flush(&mut self) -> anyhow::Result<()> {
        match self.frames.message() {
            Some(message) => self.out.send(message).ok().context("the stream is gone"),
            None => Ok(()),
        }
    }

    fn instance(&self, channel: u32) -> anyhow::Result<usize> {
        self.channels.get(channel as usize).copied().context("an answer on no channel")
    }
}

impl<T: FrameCodec> FrameVisitor for Process<T> {
    fn appended(&mut self, channel: u32, phase: u64, result: &AppendResult) -> anyhow::Result<()> {
        let instance = self.instance(channel)?;
        self.observations[instance].record_append_result(phase, result)?;
        self.access(channel, READ, Op::Read)
    }

    fn read<'a>(
        &mut self,
        channel: u32,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()> {
        let instance = self.instance(channel)?;
        let decision = self.observations[instance].record_list(phase, values)?;
        if self.real {
            self.frames.decide(channel, decision.bytes());
        } else {
            self.decided(channel);
        }
        self.open(instance + self.in_flight)
    }

    fn decided(&mut self, channel: u32) {
        self.open -= 1;
        self.free.push(channel);
    }
}
