//! Correct processes on Attach: one stream for each principal, many instances in flight.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_load::observations::AnsweredAccess;
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

use super::fixture::WARPS;
use crate::principal::Principal;

/// An open Attach stream of one principal.
pub(super) struct AttachStream {
    requests: UnboundedSender<AttachRequest>,
    answers: Streaming<AttachResponse>,
}

impl AttachStream {
    /// Opens it, and sends these frames.
    pub(super) async fn open(principal: &Principal, first: Vec<ClientFrame>) -> anyhow::Result<Self> {
        let (sender, requests) = unbounded_channel();
        sender.send(AttachRequest { frames: first }).context("the stream is gone")?;
        let requests = principal.request(UnboundedReceiverStream::new(requests));
        let mut client = StickyCasServiceClient::new(principal.channel.clone());
        let answers = client.attach(requests).await?.into_inner();
        Ok(Self { requests: sender, answers })
    }

    /// Sends these frames as one message.
    pub(super) fn send(&self, frames: Vec<ClientFrame>) -> anyhow::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.requests.send(AttachRequest { frames }).context("the stream is gone")
    }

    /// The frames of the next message. Refusals are errors: no measurement causes any.
    pub(super) async fn receive(&mut self) -> anyhow::Result<Vec<server_frame::Frame>> {
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

/// The proposal of this principal in this instance: 8 bytes, one of a few values.
pub(super) fn proposal(principal: usize, instance: usize) -> Bytes {
    Bytes::from(format!("value {:02}", (principal * 7 + instance) % 100))
}

/// The answers that a principal received in one instance, and its decision.
pub(super) struct PlayedInstance {
    /// The number of the instance among the ids.
    pub(super) instance: usize,
    pub(super) accesses: Vec<AnsweredAccess>,
    pub(super) decision: Bytes,
}

/// Plays the instances of one principal, `in_flight` at a time: hello, append, read and decide. `own`: the numbers of
/// its instances, in ascending order. Returns the stream, which stays open, and the observations, which are not
/// judged.
pub(super) async fn play(
    principal: &Principal,
    number: usize,
    ids: &[String],
    own: &[usize],
    in_flight: usize,
) -> anyhow::Result<(AttachStream, Vec<PlayedInstance>)> {
    let begin = |place: usize| {
        let (channel, instance) = (place % in_flight, own[place]);
        let value = proposal(number, instance);
        [hello(channel, &ids[instance]), append(channel, 1, value), read(channel, 2)]
    };
    let first = (0..in_flight.min(own.len())).flat_map(begin).collect();
    let mut stream = AttachStream::open(principal, first).await?;
    // The index into `own` of each channel.
    let mut places: Vec<usize> = (0..in_flight).collect();
    let mut appended: Vec<Option<AnsweredAccess>> = vec![None; in_flight];
    let (mut played, mut ended) = (Vec::with_capacity(own.len()), 0);
    while ended < own.len() {
        let mut frames = Vec::new();
        for frame in stream.receive().await? {
            match frame {
                server_frame::Frame::Decided(_) => ended += 1,
                server_frame::Frame::Answer(answer) => {
                    let channel = answer.channel as usize;
                    let phase = Phase::new(answer.phase).context("answered in no phase")?;
                    let result = match answer.result.context("an answer without a result")? {
                        answer::Result::Append(append) => {
                            let answer = AppendAnswer::try_from(&append)?;
                            appended[channel] = Some(AnsweredAccess::Append { phase, answer });
                            continue;
                        }
                        answer::Result::Read(read) => read,
                    };
                    let append =
                        appended[channel].take().context("the read was answered before the append")?;
                    let place = &mut places[channel];
                    let decision = mode(&result)?;
                    played.push(PlayedInstance {
                        instance: own[*place],
                        accesses: vec![append, whole_list(phase, &result)?],
                        decision: decision.clone(),
                    });
                    frames.push(Decision { channel: answer.channel, value: decision }.into());
                    *place += in_flight;
                    if *place < own.len() {
                        frames.extend(begin(*place));
                    }
                }
                _ => {}
            }
        }
        stream.send(frames)?;
    }
    Ok((stream, played))
}

/// A read in the type of the judge.
fn whole_list(phase: Phase, read: &ReadResult) -> anyhow::Result<AnsweredAccess> {
    let ReadResult { start, values, length, sealed } = read;
    let count = u32::try_from(values.len())?;
    let answer = ReadAnswer { start: Position::new(*start), count, length: *length, sealed: *sealed };
    let entries = values.iter().map(|value| Value::new(value).context("an empty value"));
    Ok(AnsweredAccess::Read { phase: Some(phase), answer, entries: entries.collect::<anyhow::Result<_>>()? })
}

/// The most frequent value of a whole list; of several, the smallest.
fn mode(read: &ReadResult) -> anyhow::Result<Bytes> {
    ensure!(read.sealed && read.values.len() == WARPS as usize, "not the whole list: {read:?}");
    let count = |value: &Bytes| read.values.iter().filter(|it| *it == value).count();
    let best = read.values.iter().max_by_key(|value| (count(value), std::cmp::Reverse(*value)));
    best.cloned().context("an empty list")
}
