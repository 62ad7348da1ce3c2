//! Correct processes on Attach: one stream for each principal, many instances in flight.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use stickycas_load::observations::AnsweredAccess;
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::types::{Phase, Position, Value};
use stickycas_proto::v1::{ReadResult, answer, server_frame};

use super::fixture::WARPS;
use crate::attach_stream::{AttachStream, append, decide, hello, read};
use crate::principal::Principal;

/// The proposal of this principal in this instance: 8 bytes, one of a few values.
pub(crate) fn proposal(principal: usize, instance: usize) -> Bytes {
    Bytes::from(format!("value {:02}", (principal * 7 + instance) % 100))
}

/// When the accesses of a process were sent, and when they were answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessTimes {
    pub(crate) sent: Instant,
    /// The append, then the read.
    pub(crate) answered: [Instant; 2],
}

/// The answers that a principal received in one instance, and its decision.
pub(crate) struct PlayedInstance {
    /// The number of the instance among the ids.
    pub(crate) instance: usize,
    pub(crate) accesses: Vec<AnsweredAccess>,
    /// When both accesses were sent, and the answers to each of them came.
    pub(crate) times: AccessTimes,
    pub(crate) decision: Bytes,
}

/// Plays the instances of one principal, `in_flight` at a time: hello, append, read and decide. `own`: the
/// numbers of its instances, in ascending order. Returns the stream, which stays open, and the observations,
/// which are not judged.
pub(crate) async fn play(
    principal: &Principal,
    number: usize,
    ids: &[String],
    own: &[usize],
    in_flight: usize,
) -> anyhow::Result<(AttachStream, Vec<PlayedInstance>)> {
    let begin = |place: usize| {
        let (channel, instance) = (place % in_flight, own[place]);
        let value = proposal(number, instance);
        [hello(channel as u32, &ids[instance]), append(channel as u32, 1, value), read(channel as u32, 2)]
    };
    let first = (0..in_flight.min(own.len())).flat_map(begin).collect();
    let mut stream = AttachStream::open(principal, first).await?;
    // The index into `own` of each channel.
    let mut places: Vec<usize> = (0..in_flight).collect();
    let mut appended: Vec<Option<(AnsweredAccess, Instant)>> = vec![None; in_flight];
    let mut sent = vec![Instant::now(); in_flight];
    let (mut played, mut ended) = (Vec::with_capacity(own.len()), 0);
    while ended < own.len() {
        let mut frames = Vec::new();
        for frame in stream.receive().await? {
            match frame {
                server_frame::Frame::Decided(decided) => {
                    ended += 1;
                    let channel = decided.channel as usize;
                    places[channel] += in_flight;
                    if places[channel] < own.len() {
                        frames.extend(begin(places[channel]));
                        sent[channel] = Instant::now();
                    }
                }
                server_frame::Frame::Answer(answer) => {
                    let channel = answer.channel as usize;
                    let phase = Phase::new(answer.phase).context("answered in no phase")?;
                    let result = match answer.result.context("an answer without a result")? {
                        answer::Result::Append(append) => {
                            let answer = AppendAnswer::try_from(&append)?;
                            let append = AnsweredAccess::Append { phase, answer };
                            appended[channel] = Some((append, Instant::now()));
                            continue;
                        }
                        answer::Result::Read(read) => read,
                    };
                    let (append, appended) =
                        appended[channel].take().context("the read was answered before the append")?;
                    let times = AccessTimes { sent: sent[channel], answered: [appended, Instant::now()] };
                    let decision = mode(&result)?;
                    played.push(PlayedInstance {
                        instance: own[places[channel]],
                        accesses: vec![append, whole_list(phase, &result)?],
                        times,
                        decision: decision.clone(),
                    });
                    frames.push(decide(answer.channel, decision));
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
