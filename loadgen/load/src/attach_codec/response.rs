//! Responses of the server, decoded so that the values of reads stay in the message.

use std::ops::Range;

use bytes::Bytes;
use prost::Message as _;
use stickycas_model::params::Params;
use stickycas_model::types::AccessNumber;
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::answer::AnswerData;
use stickycas_proto::v1;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::wire_format::{FieldReader, WireType, key};

/// A decoded `AttachResponse`: its frames, in order, and the message that holds their values.
#[derive(Clone, Debug, Default)]
pub struct DecodedResponse {
    frames: Vec<ResponseFrame>,
    message: Bytes,
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
    /// Any other frame; `None` if its kind is not known.
    Other(Option<Box<Frame>>),
}

/// The values of a read: their place in the message, each with its key and length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    place: Range<usize>,
    count: usize,
}

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// The key of a frame in its message.
const FRAME: u8 = key(1, BYTES);
/// The key of a value among the fields of a read.
const VALUE: u8 = key(2, BYTES);

impl DecodedResponse {
    /// Decodes an `AttachResponse`.
    ///
    /// # Errors
    /// If the bytes are no such message.
    pub fn decode(message: Bytes) -> Result<Self, prost::DecodeError> {
        if let Some(frames) = decode_frames(&message) {
            return Ok(Self { frames, message });
        }
        // Encoded once more by the generated types, the message has the form that the reader knows.
        let message = Bytes::from(v1::AttachResponse::decode(message)?.encode_to_vec());
        let frames = decode_frames(&message).expect("generated code encodes each field once and in order");
        Ok(Self { frames, message })
    }

    /// The frames, in order.
    #[must_use]
    pub fn frames(&self) -> &[ResponseFrame] {
        &self.frames
    }

    /// The values of one of its reads, in the order of their positions.
    pub fn values(&self, values: &Values) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut rest = FieldReader::new(self.message.get(values.place.clone()).unwrap_or_default());
        (0..values.count).map(move |_| rest.bytes_field(VALUE).unwrap_or_default())
    }

    /// The answer that one of its frames carries, and the access that is answered.
    ///
    /// # Errors
    /// If the frame is no answer, or does not fit the parameters of the instance.
    pub fn answer(
        &self,
        frame: &ResponseFrame,
        params: &Params,
    ) -> Result<(AccessNumber, AnswerData), WireError> {
        let (number, answer) = match frame {
            ResponseFrame::Append { number, phase, result, .. } => {
                (*number, AnswerData::from_append_result(*phase, result))
            }
            ResponseFrame::Read { number, phase, start, values, length, sealed, .. } => {
                let values = self.values(values);
                (*number, AnswerData::from_read_values(*phase, *start, values, *length, *sealed, params))
            }
            ResponseFrame::Decided { .. } | ResponseFrame::Other(_) => {
                return Err(WireError::Missing("result"));
            }
        };
        Ok((AccessNumber::new(number).ok_or(WireError::Zero("number"))?, answer?))
    }
}

fn decode_frames(message: &[u8]) -> Option<Vec<ResponseFrame>> {
    /// The usual length of a frame, and the most frames for which room is made at once.
    const FRAME_BYTES: usize = 32;
    const MAX_RESERVED: usize = 256;
    let mut frames = Vec::with_capacity((message.len() / FRAME_BYTES + 1).min(MAX_RESERVED));
    let mut rest = FieldReader::new(message);
    while rest.take_key(FRAME) {
        let frame = rest.bytes()?;
        let end = message.len() - rest.remaining();
        frames.push(match frequent_frame(frame, end) {
            Some(frame) => frame,
            None => rare_frame(frame)?,
        });
    }
    rest.end()?;
    Some(frames)
}

/// An answer or an acknowledged decision, which are frequent. The frame ends at `end` of its message.
fn frequent_frame(frame: &[u8], end: usize) -> Option<ResponseFrame> {
    let mut rest = FieldReader::new(frame);
    let frame = if let Some(fields) = rest.message_field(key(1, BYTES)) {
        answer(fields, end)?
    } else {
        let mut decided = rest.message_field(key(4, BYTES))?;
        let channel = decided.u32_field(key(1, NUMBER))?;
        decided.end()?;
        ResponseFrame::Decided { channel }
    };
    rest.end()?;
    Some(frame)
}

fn answer(mut answer: FieldReader<'_>, end: usize) -> Option<ResponseFrame> {
    let channel = answer.u32_field(key(1, NUMBER))?;
    let number = answer.u64_field(key(2, NUMBER))?;
    let phase = answer.u64_field(key(3, NUMBER))?;
    if let Some(append) = answer.message_field(key(4, BYTES)) {
        let result = append_result(append)?;
        answer.end()?;
        return Some(ResponseFrame::Append { channel, number, phase, result });
    }
    let mut read = answer.message_field(key(5, BYTES))?;
    answer.end()?;
    let start = read.u32_field(key(1, NUMBER))?;
    let before = end - read.remaining();
    let mut count = 0;
    while read.take_key(VALUE) {
        read.bytes()?;
        count += 1;
    }
    let values = Values { place: before..end - read.remaining(), count };
    let length = read.u32_field(key(3, NUMBER))?;
    let sealed = read.u64_field(key(4, NUMBER))? != 0;
    read.end()?;
    Some(ResponseFrame::Read { channel, number, phase, start, values, length, sealed })
}

fn append_result(mut append: FieldReader<'_>) -> Option<v1::AppendResult> {
    let outcome = append.u32_field(key(1, NUMBER))?.cast_signed();
    let position = if append.take_key(key(2, NUMBER)) { Some(append.varint()? as u32) } else { None };
    append.end()?;
    Some(v1::AppendResult { outcome, position })
}

/// Any frame, by the generated types. `None` for a read, whose values would not be found in the message.
fn rare_frame(frame: &[u8]) -> Option<ResponseFrame> {
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
