//! Processes that append, read and decide on one Attach stream each.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Answer, Append, AttachRequest, ClientFrame, Decision, Hello, Read, access, answer, server_frame,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::rig::{Line, Rig};
use crate::stopwatch::Sample;
use crate::work::{ACCESSES_PER_PROCESS, Saw, proposal};

const APPEND: u64 = 1;
const READ: u64 = 2;

/// All processes through all instances, `in_flight` of them at a time. With `batch` all that follows from one
/// message of the server goes out as one message, else each access has a message of its own.
pub(crate) async fn run(rig: &Rig, in_flight: usize, batch: bool) -> anyhow::Result<Sample> {
    let ids: Arc<[String]> = rig.ids.clone().into();
    let watch = rig.stopwatch();
    let mut streams = JoinSet::new();
    for line in &rig.lines {
        streams.spawn(play(line.clone(), ids.clone(), in_flight, batch));
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
async fn play(
    line: Line,
    ids: Arc<[String]>,
    in_flight: usize,
    batch: bool,
) -> anyhow::Result<(usize, Vec<Saw>)> {
    let (out, requests) = unbounded_channel();
    let mut client = StickyCasServiceClient::new(line.channel.clone());
    let mut process = Process::new(&line, ids, out, batch);
    for slot in 0..in_flight {
        process.open(slot, in_flight)?;
    }
    process.flush()?;
    let requests = line.request(UnboundedReceiverStream::new(requests));
    let mut answers = client.attach(requests).await?.into_inner();
    while process.open > 0 {
        let answer = answers.message().await?.context("the stream ended")?;
        for frame in answer.frames {
            process.take(frame.frame.context("an empty frame")?, in_flight)?;
        }
        process.flush()?;
    }
    Ok((process.process, process.saw))
}

/// The client of one process.
struct Process {
    process: usize,
    ids: Arc<[String]>,
    out: UnboundedSender<AttachRequest>,
    batch: bool,
    /// Whether it says nothing but its accesses: the floor knows neither sessions nor decisions.
    bare: bool,
    /// The instance that each channel is on.
    channels: Vec<usize>,
    /// Frames to be sent.
    frames: Vec<ClientFrame>,
    /// Instances begun and not ended.
    open: usize,
    /// By instance.
    saw: Vec<Saw>,
}

impl Process {
    fn new(line: &Line, ids: Arc<[String]>, out: UnboundedSender<AttachRequest>, batch: bool) -> Self {
        Self {
            process: line.process,
            saw: vec![Saw::NOTHING; ids.len()],
            ids,
            out,
            batch,
            bare: line.principal.is_none(),
            channels: Vec::new(),
            frames: Vec::new(),
            open: 0,
        }
    }

    /// Begins with an instance, on the channel that is free: says hello and appends.
    fn open(&mut self, instance: usize, in_flight: usize) -> anyhow::Result<()> {
        let Some(id) = self.ids.get(instance) else { return Ok(()) };
        let index = instance % in_flight;
        if index == self.channels.len() {
            self.channels.push(instance);
        }
        self.channels[index] = instance;
        self.open += 1;
        let channel = u32::try_from(index)?;
        if !self.bare {
            self.frames.push(Hello { channel, instance_id: id.clone(), incarnation: 1 }.into());
        }
        let value = proposal(self.process, instance);
        self.access(channel, APPEND, access::Op::Append(Append { value }))
    }

    fn access(&mut self, channel: u32, number: u64, op: access::Op) -> anyhow::Result<()> {
        self.frames.push(Access { channel, number, op: Some(op) }.into());
        if self.batch { Ok(()) } else { self.flush() }
    }

    /// Sends what is to be sent as one message.
    fn flush(&mut self) -> anyhow::Result<()> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let frames = std::mem::take(&mut self.frames);
        self.out.send(AttachRequest { frames }).context("the stream is gone")
    }

    fn take(&mut self, frame: server_frame::Frame, in_flight: usize) -> anyhow::Result<()> {
        use server_frame::Frame;
        match frame {
            Frame::Answer(answer) => self.learn(answer, in_flight),
            Frame::Welcome(_) => Ok(()),
            Frame::Decided(_) => {
                self.open -= 1;
                Ok(())
            }
            refused @ (Frame::Refusal(_) | Frame::Replaced(_)) => bail!("refused: {refused:?}"),
        }
    }

    fn learn(&mut self, answer: Answer, in_flight: usize) -> anyhow::Result<()> {
        let Answer { channel, phase, .. } = answer;
        let instance = *self.channels.get(channel as usize).context("an answer on no channel")?;
        let saw = &mut self.saw[instance];
        let decision = match answer.result.context("an answer without a result")? {
            answer::Result::Append(append) => {
                saw.appended(phase, &append)?;
                return self.access(channel, READ, access::Op::Read(Read { start: 0 }));
            }
            answer::Result::Read(read) => saw.read(phase, &read)?,
        };
        if self.bare {
            self.open -= 1;
        } else {
            self.frames.push(Decision { channel, value: decision.bytes() }.into());
        }
        self.open(instance + in_flight, in_flight)
    }
}
