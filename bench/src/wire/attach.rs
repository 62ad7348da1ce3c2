//! Processes that append, read and decide on one Attach stream each.

use std::sync::Arc;

use anyhow::Context as _;
use stickycas_proto::v1::AppendResult;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::tongue::{Act, Listener, Tongue};
use crate::rig::{Line, Rig};
use crate::stopwatch::Sample;
use crate::work::{ACCESSES_PER_PROCESS, Saw, proposal};

const APPEND: u64 = 1;
const READ: u64 = 2;

/// All processes through all instances, `in_flight` of them at a time. With `batch` all that follows from one
/// message of the server goes out as one message, else each access has a message of its own.
pub(super) async fn run<T: Tongue>(rig: &Rig, in_flight: usize, batch: bool) -> anyhow::Result<Sample> {
    let ids: Arc<[String]> = rig.ids.clone().into();
    let watch = rig.stopwatch();
    let mut streams = JoinSet::new();
    for line in &rig.lines {
        streams.spawn(play::<T>(line.clone(), ids.clone(), rig.real, in_flight, batch));
    }
    let mut saw = vec![Vec::new(); rig.lines.len()];
    while let Some(stream) = streams.join_next().await {
        let (process, own) = stream??;
        saw[process] = own;
    }
    let sample = watch.stop(ids.len(), ids.len() * rig.lines.len() * ACCESSES_PER_PROCESS);
    rig.judge(&saw)?;
    Ok(sample)
}

/// One process through all instances. Which one, and what it saw, by instance.
async fn play<T: Tongue>(
    line: Line,
    ids: Arc<[String]>,
    real: bool,
    in_flight: usize,
    batch: bool,
) -> anyhow::Result<(usize, Vec<Saw>)> {
    let (out, requests) = unbounded_channel();
    let mut process = Process::<T>::new(line.process, ids, out, real, in_flight, batch);
    for slot in 0..in_flight {
        process.open(slot)?;
    }
    process.flush()?;
    let requests = line.request(UnboundedReceiverStream::new(requests));
    let mut answers = T::attach(line.channel.clone(), requests).await?.into_inner();
    while process.open > 0 {
        let heard = answers.message().await?.context("the stream ended")?;
        T::listen(heard, &mut process)?;
        process.flush()?;
    }
    Ok((process.process, process.saw))
}

/// The client of one process.
struct Process<T: Tongue> {
    process: usize,
    ids: Arc<[String]>,
    out: UnboundedSender<T::Said>,
    in_flight: usize,
    batch: bool,
    /// Whether it also says hello and what it decides: the floor knows neither sessions nor decisions.
    real: bool,
    /// The instance that each channel is on.
    channels: Vec<usize>,
    /// To be sent.
    frames: T,
    /// Instances begun and not ended.
    open: usize,
    /// By instance.
    saw: Vec<Saw>,
}

impl<T: Tongue> Process<T> {
    fn new(
        process: usize,
        ids: Arc<[String]>,
        out: UnboundedSender<T::Said>,
        real: bool,
        in_flight: usize,
        batch: bool,
    ) -> Self {
        Self {
            process,
            saw: vec![Saw::NOTHING; ids.len()],
            ids,
            out,
            in_flight,
            batch,
            real,
            channels: Vec::new(),
            frames: T::default(),
            open: 0,
        }
    }

    /// Begins with an instance, on the channel that is free: says hello and appends.
    fn open(&mut self, instance: usize) -> anyhow::Result<()> {
        let Some(id) = self.ids.get(instance) else { return Ok(()) };
        let index = instance % self.in_flight;
        if index == self.channels.len() {
            self.channels.push(instance);
        }
        self.channels[index] = instance;
        self.open += 1;
        let channel = u32::try_from(index)?;
        if self.real {
            self.frames.hello(channel, id);
        }
        self.access(channel, APPEND, Act::Append(proposal(self.process, instance)))
    }

    fn access(&mut self, channel: u32, number: u64, act: Act) -> anyhow::Result<()> {
        self.frames.access(channel, number, act);
        if self.batch { Ok(()) } else { self.flush() }
    }

    /// Sends what is to be sent as one message.
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

impl<T: Tongue> Listener for Process<T> {
    fn appended(&mut self, channel: u32, phase: u64, result: &AppendResult) -> anyhow::Result<()> {
        let instance = self.instance(channel)?;
        self.saw[instance].appended(phase, result)?;
        self.access(channel, READ, Act::Read)
    }

    fn read<'a>(
        &mut self,
        channel: u32,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()> {
        let instance = self.instance(channel)?;
        let decision = self.saw[instance].read_all(phase, values)?;
        if self.real {
            self.frames.decide(channel, decision.bytes());
        } else {
            self.open -= 1;
        }
        self.open(instance + self.in_flight)
    }

    fn decided(&mut self) {
        self.open -= 1;
    }
}
