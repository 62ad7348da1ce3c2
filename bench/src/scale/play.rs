//! Correct processes on Attach streams, one stream for each principal, many instances in flight.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_loadgen::load::seen::Answered;
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::types::{Phase, Position, Value};
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AttachRequest, AttachResponse, ClientFrame, Decision, Hello, Read, ReadResult, access,
    answer, server_frame,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::town::{Principal, WARPS};

/// An open Attach stream of one principal.
pub(super) struct Line {
    out: UnboundedSender<AttachRequest>,
    answers: Streaming<AttachResponse>,
}

impl Line {
    /// Opens it, and says this first.
    pub(super) async fn open(principal: &Principal, first: Vec<ClientFrame>) -> anyhow::Result<Self> {
        let (out, requests) = unbounded_channel();
        out.send(AttachRequest { frames: first }).context("the stream is gone")?;
        let requests = principal.request(UnboundedReceiverStream::new(requests));
        let mut client = StickyCasServiceClient::new(principal.channel.clone());
        let answers = client.attach(requests).await?.into_inner();
        Ok(Self { out, answers })
    }

    /// Sends these frames as one message.
    pub(super) fn say(&self, frames: Vec<ClientFrame>) -> anyhow::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.out.send(AttachRequest { frames }).context("the stream is gone")
    }

    /// The next message. Refusals are errors: nobody here does anything that could be refused.
    pub(super) async fn hear(&mut self) -> anyhow::Result<Vec<server_frame::Frame>> {
        use server_frame::Frame;
        let message = self.answers.message().await?.context("the stream ended")?;
        let frames = message.frames.into_iter().filter_map(|frame| frame.frame);
        let frames: Vec<_> = frames.collect();
        if let Some(refused) = frames.iter().find(|it| matches!(it, Frame::Refusal(_) | Frame::Replaced(_))) {
            bail!("refused: {refused:?}");
        }
        Ok(frames)
    }
}

pub(super) fn hello(channel: usize, id: &str) -> ClientFrame {
    Hello { channel: channel as u32, instance_id: id.to_owned(), incarnation: 1 }.into()
}

pub(super) fn append(channel: usize, number: u64, value: Bytes) -> ClientFrame {
    Access { channel: channel as u32, number, op: Some(access::Op::Append(Append { value })) }.into()
}

pub(super) fn read(channel: usize, number: u64) -> ClientFrame {
    Access { channel: channel as u32, number, op: Some(access::Op::Read(Read { start: 0 })) }.into()
}

/// What this principal proposes in this instance: 8 bytes, one of a few values.
pub(super) fn proposal(principal: usize, instance: usize) -> Bytes {
    Bytes::from(format!("value {:02}", (principal * 7 + instance) % 100))
}

/// What a principal saw of one instance.
pub(super) struct Played {
    /// Its number among the ids.
    pub(super) instance: usize,
    pub(super) accesses: Vec<Answered>,
    pub(super) decision: Bytes,
}

/// One principal through all its instances, `in_flight` of them at a time: says hello, appends, reads and decides.
/// `mine`: the instances by number, in ascending order. The stream stays open. What it saw is not judged here.
pub(super) async fn play(
    principal: &Principal,
    number: usize,
    ids: &[String],
    mine: &[usize],
    in_flight: usize,
) -> anyhow::Result<(Line, Vec<Played>)> {
    let begin = |place: usize| {
        let (channel, instance) = (place % in_flight, mine[place]);
        let value = proposal(number, instance);
        [hello(channel, &ids[instance]), append(channel, 1, value), read(channel, 2)]
    };
    let first = (0..in_flight.min(mine.len())).flat_map(begin).collect();
    let mut line = Line::open(principal, first).await?;
    // Where each channel is among the instances.
    let mut places: Vec<usize> = (0..in_flight).collect();
    let mut appended: Vec<Option<Answered>> = vec![None; in_flight];
    let (mut played, mut over) = (Vec::with_capacity(mine.len()), 0);
    while over < mine.len() {
        let mut frames = Vec::new();
        for frame in line.hear().await? {
            match frame {
                server_frame::Frame::Decided(_) => over += 1,
                server_frame::Frame::Answer(answer) => {
                    let channel = answer.channel as usize;
                    let phase = Phase::new(answer.phase).context("answered in no phase")?;
                    let result = match answer.result.context("an answer without a result")? {
                        answer::Result::Append(append) => {
                            let answer = AppendAnswer::try_from(&append)?;
                            appended[channel] = Some(Answered::Append { phase, answer });
                            continue;
                        }
                        answer::Result::Read(read) => read,
                    };
                    let append =
                        appended[channel].take().context("the read was answered before the append")?;
                    let place = &mut places[channel];
                    let decision = mode(&result)?;
                    played.push(Played {
                        instance: mine[*place],
                        accesses: vec![append, whole_list(phase, &result)?],
                        decision: decision.clone(),
                    });
                    frames.push(Decision { channel: answer.channel, value: decision }.into());
                    *place += in_flight;
                    if *place < mine.len() {
                        frames.extend(begin(*place));
                    }
                }
                _ => {}
            }
        }
        line.say(frames)?;
    }
    Ok((line, played))
}

/// A read as the judge wants to be told.
fn whole_list(phase: Phase, read: &ReadResult) -> anyhow::Result<Answered> {
    let ReadResult { start, values, length, sealed } = read;
    let count = u32::try_from(values.len())?;
    let answer = ReadAnswer { start: Position::new(*start), count, length: *length, sealed: *sealed };
    let entries = values.iter().map(|value| Value::new(value).context("an empty value"));
    Ok(Answered::Read { phase: Some(phase), answer, entries: entries.collect::<anyhow::Result<_>>()? })
}

/// The most frequent value of a whole list, of equals the smallest.
fn mode(read: &ReadResult) -> anyhow::Result<Bytes> {
    ensure!(read.sealed && read.values.len() == WARPS as usize, "not the whole list: {read:?}");
    let count = |value: &Bytes| read.values.iter().filter(|it| *it == value).count();
    let best = read.values.iter().max_by_key(|value| (count(value), std::cmp::Reverse(*value)));
    best.cloned().context("an empty list")
}
