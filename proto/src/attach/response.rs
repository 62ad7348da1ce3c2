//! What the server says, as a client reads it.

use std::ops::Range;

use bytes::Bytes;
use prost::Message as _;

use super::wire_format::{FieldReader, WireType, key};
use crate::v1;
use crate::v1::server_frame::Frame;

/// One message of the server: its frames, in order, and the bytes that they came in.
#[derive(Clone, Debug, Default)]
pub struct DecodedResponse {
    frames: Vec<ResponseFrame>,
    /// Where the values of reads stand.
    bytes: Bytes,
}

/// One frame of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseFrame {
    /// A read was executed.
    Read {
        /// The channel of the instance.
        channel: u32,
        /// The access number; 0 is none.
        number: u64,
        /// The phase; 0: outside phases (F10).
        phase: u64,
        /// The first position asked for.
        start: u32,
        /// The values from there on.
        values: Values,
        /// How long the list is.
        length: u32,
        /// Whether no entry will be added any more.
        sealed: bool,
    },
    /// An append was executed.
    Append {
        /// The channel of the instance.
        channel: u32,
        /// The access number; 0 is none.
        number: u64,
        /// The phase; 0 is none.
        phase: u64,
        /// How it ended.
        result: v1::AppendResult,
    },
    /// A decision was taken.
    Decided {
        /// The channel of the instance.
        channel: u32,
    },
    /// Anything else; `None` if it is nothing known.
    Other(Option<Box<Frame>>),
}

/// The values of a read: where they stand in their message, each with its key and length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    place: Range<usize>,
    count: usize,
}

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// The key of a value among the fields of a read.
const VALUE: u8 = key(2, BYTES);

impl DecodedResponse {
    /// Reads an `AttachResponse`.
    ///
    /// # Errors
    /// If the bytes are no such message.
    pub fn read(message: Bytes) -> Result<Self, prost::DecodeError> {
        if let Some(frames) = read_plain(&message) {
            return Ok(Self { frames, bytes: message });
        }
        let bytes = Bytes::from(v1::AttachResponse::decode(message)?.encode_to_vec());
        let frames = read_plain(&bytes).expect("what was just written is plain");
        Ok(Self { frames, bytes })
    }

    /// The frames, in order.
    #[must_use]
    pub fn frames(&self) -> &[ResponseFrame] {
        &self.frames
    }

    /// The values of one of its reads, in the order of their positions.
    pub fn values(&self, values: &Values) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut rest = FieldReader(self.bytes.get(values.place.clone()).unwrap_or_default());
        (0..values.count).map(move |_| rest.bytes_at(VALUE).unwrap_or_default())
    }
}

fn read_plain(message: &[u8]) -> Option<Vec<ResponseFrame>> {
    /// About as many bytes has a frame of a server that sends many; so many frames are not many yet.
    const FRAME: usize = 32;
    const FEW: usize = 256;
    let mut frames = Vec::with_capacity((message.len() / FRAME + 1).min(FEW));
    let mut rest = FieldReader(message);
    while rest.has(key(1, BYTES)) {
        let frame = rest.bytes()?;
        let end = message.len() - rest.0.len();
        frames.push(match plain_frame(frame, end) {
            Some(learnt) => learnt,
            None => other(frame)?,
        });
    }
    rest.end()?;
    Some(frames)
}

/// One of the frames that come often. It ends at `end` of its message.
fn plain_frame(frame: &[u8], end: usize) -> Option<ResponseFrame> {
    let mut rest = FieldReader(frame);
    let learnt = if rest.has(key(1, BYTES)) {
        answer(FieldReader(rest.bytes()?), end)?
    } else if rest.has(key(4, BYTES)) {
        let mut decided = FieldReader(rest.bytes()?);
        let channel = decided.short_number_at(key(1, NUMBER))?;
        decided.end()?;
        ResponseFrame::Decided { channel }
    } else {
        return None;
    };
    rest.end()?;
    Some(learnt)
}

fn answer(mut answer: FieldReader<'_>, end: usize) -> Option<ResponseFrame> {
    let channel = answer.short_number_at(key(1, NUMBER))?;
    let number = answer.number_at(key(2, NUMBER))?;
    let phase = answer.number_at(key(3, NUMBER))?;
    if answer.has(key(4, BYTES)) {
        let result = append(FieldReader(answer.bytes()?))?;
        answer.end()?;
        return Some(ResponseFrame::Append { channel, number, phase, result });
    }
    if !answer.has(key(5, BYTES)) {
        return None;
    }
    let mut read = FieldReader(answer.bytes()?);
    answer.end()?;
    let start = read.short_number_at(key(1, NUMBER))?;
    let before = end - read.0.len();
    let mut count = 0;
    while read.has(VALUE) {
        read.bytes()?;
        count += 1;
    }
    let values = Values { place: before..end - read.0.len(), count };
    let length = read.short_number_at(key(3, NUMBER))?;
    let sealed = read.number_at(key(4, NUMBER))? != 0;
    read.end()?;
    Some(ResponseFrame::Read { channel, number, phase, start, values, length, sealed })
}

fn append(mut append: FieldReader<'_>) -> Option<v1::AppendResult> {
    let outcome = append.short_number_at(key(1, NUMBER))?.cast_signed();
    let position = if append.has(key(2, NUMBER)) { Some(append.number()? as u32) } else { None };
    append.end()?;
    Some(v1::AppendResult { outcome, position })
}

/// Any frame but a read, of whose values nobody here would know where they stand.
fn other(frame: &[u8]) -> Option<ResponseFrame> {
    match v1::ServerFrame::decode(frame).ok()?.frame {
        Some(Frame::Answer(v1::Answer { result: Some(v1::answer::Result::Read(_)), .. })) => None,
        Some(Frame::Answer(v1::Answer {
            channel,
            number,
            phase,
            result: Some(v1::answer::Result::Append(result)),
        })) => Some(ResponseFrame::Append { channel, number, phase, result }),
        Some(Frame::Decided(v1::Decided { channel })) => Some(ResponseFrame::Decided { channel }),
        frame => Some(ResponseFrame::Other(frame.map(Box::new))),
    }
}
