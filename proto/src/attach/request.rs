//! Decodes the requests of a client.

use std::iter;

use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use stickycas_model::process::RawOp;
use stickycas_model::types::{Position, RawValue};

use crate::convert::client_frame::DecodedFrame;
use crate::names::InstanceId;
use crate::v1;
use crate::wire_format::{FieldReader, WireType, key};

/// A decoded `AttachRequest`: its frames in order, [`MAX_FRAMES`] at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedRequest(pub Vec<DecodedFrame>);

/// The most frames that are decoded of one request. A frame takes two bytes on the wire and far more once it
/// is decoded, so a message of many frames could fill the memory before the server has counted them.
pub const MAX_FRAMES: usize = 4_096;

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// The key of a frame in its message.
const FRAME: u8 = key(1, BYTES);

impl DecodedRequest {
    /// Decodes an `AttachRequest`. If the message has more than [`MAX_FRAMES`] frames, the result has exactly
    /// so many, and they may be [`DecodedFrame::Unknown`].
    ///
    /// # Errors
    /// If the bytes are no such message.
    pub fn decode(message: &[u8]) -> Result<Self, prost::DecodeError> {
        match decode_frames(message) {
            Some(frames) => Ok(Self(frames)),
            None if has_too_many_frames(message) => Ok(Self(vec![DecodedFrame::Unknown; MAX_FRAMES])),
            None => v1::AttachRequest::decode(message).map(Self::from),
        }
    }
}

impl From<v1::AttachRequest> for DecodedRequest {
    fn from(request: v1::AttachRequest) -> Self {
        Self(request.frames.into_iter().map(DecodedFrame::from).collect())
    }
}

/// The frames of a message in the usual encoding; `None` if it has another one.
fn decode_frames(message: &[u8]) -> Option<Vec<DecodedFrame>> {
    /// The usual length of a frame, and the most frames for which room is made at once.
    const FRAME_BYTES: usize = 16;
    const MAX_RESERVED: usize = 64;
    let mut frames = Vec::with_capacity((message.len() / FRAME_BYTES + 1).min(MAX_RESERVED));
    let mut rest = FieldReader::new(message);
    while let Some(frame) = rest.message_field(FRAME) {
        if frames.len() == MAX_FRAMES {
            return Some(frames);
        }
        frames.push(decode_frame(frame)?);
    }
    rest.end()?;
    Some(frames)
}

/// Whether a message in any encoding has more than [`MAX_FRAMES`] frames.
fn has_too_many_frames(mut message: &[u8]) -> bool {
    let mut next_tag = || {
        let (tag, wire_type) = decode_key(&mut message).ok()?;
        skip_field(wire_type, tag, &mut message, DecodeContext::default()).ok()?;
        Some(tag)
    };
    iter::from_fn(&mut next_tag).filter(|tag| *tag == 1).nth(MAX_FRAMES).is_some()
}

fn decode_frame(mut frame: FieldReader<'_>) -> Option<DecodedFrame> {
    let decoded = if let Some(fields) = frame.message_field(key(1, BYTES)) {
        decode_access(fields)?
    } else if let Some(fields) = frame.message_field(key(2, BYTES)) {
        decode_hello(fields)?
    } else {
        decode_decision(frame.message_field(key(3, BYTES))?)?
    };
    frame.end()?;
    Some(decoded)
}

fn decode_access(mut access: FieldReader<'_>) -> Option<DecodedFrame> {
    let channel = access.u32_field(key(1, NUMBER))?;
    let number = access.u64_field(key(2, NUMBER))?;
    let op = if let Some(mut append) = access.message_field(key(3, BYTES)) {
        let value = append.bytes_field(key(1, BYTES))?;
        append.end()?;
        RawOp::Append(RawValue::new(value))
    } else {
        let mut read = access.message_field(key(4, BYTES))?;
        let start = read.u32_field(key(1, NUMBER))?;
        read.end()?;
        RawOp::Read(Position::new(start))
    };
    access.end()?;
    Some(DecodedFrame::Access { channel, number, op: Some(op) })
}

fn decode_hello(mut hello: FieldReader<'_>) -> Option<DecodedFrame> {
    let channel = hello.u32_field(key(1, NUMBER))?;
    // The bytes of another text need not be UTF-8: the generated types check that.
    let instance = Some(InstanceId::from_hex(hello.bytes_field(key(2, BYTES))?)?);
    let incarnation = hello.u64_field(key(3, NUMBER))?;
    hello.end()?;
    Some(DecodedFrame::Hello { channel, instance, incarnation })
}

fn decode_decision(mut decision: FieldReader<'_>) -> Option<DecodedFrame> {
    let channel = decision.u32_field(key(1, NUMBER))?;
    let value = RawValue::new(decision.bytes_field(key(2, BYTES))?);
    decision.end()?;
    Some(DecodedFrame::Decision { channel, value })
}
