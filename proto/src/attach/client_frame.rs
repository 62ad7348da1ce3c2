//! What a client asks for, as it writes it and as the server reads it.

use std::iter;

use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use stickycas_model::process::RawOp;
use stickycas_model::types::{Position, RawValue};

use super::wire_format::{
    FieldReader, WireType, bytes_length, key, number_length, write_bytes, write_key, write_number,
};
use crate::names::InstanceId;
use crate::v1;
use crate::v1::client_frame::Frame;

/// One frame of a client. Nothing in it is checked but that it is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedFrame {
    /// Perform an access.
    Access {
        /// The channel of the instance.
        channel: u32,
        /// The access number; 0 is none.
        number: u64,
        /// What it does; `None` if absent or unknown.
        op: Option<RawOp>,
    },
    /// Open an instance.
    Hello {
        /// The channel that it is to have.
        channel: u32,
        /// The instance; `None` if the text is no id.
        instance: Option<InstanceId>,
        /// Names one life of the client; 0 if not told.
        incarnation: u64,
    },
    /// Report a decision.
    Decision {
        /// The channel of the instance.
        channel: u32,
        /// The decision.
        value: RawValue,
    },
    /// Nothing, or nothing known.
    Unknown,
}

/// One message of a client: its frames, in order, [`MAX_FRAMES`] of them at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodedRequest(pub Vec<DecodedFrame>);

/// Of one message so many frames are read: a frame takes two bytes on the wire and far more once it is read, so many of
/// them would fill the memory before anybody could count them.
pub const MAX_FRAMES: usize = 4_096;

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

impl DecodedRequest {
    /// Reads an `AttachRequest`. Of one that has too many frames to be read whole, that is all that can be told.
    ///
    /// # Errors
    /// If the bytes are no such message.
    pub fn read(message: &[u8]) -> Result<Self, prost::DecodeError> {
        match Self::read_plain(message) {
            Some(request) => Ok(request),
            None if has_too_many_frames(message) => Ok(Self(vec![DecodedFrame::Unknown; MAX_FRAMES])),
            None => v1::AttachRequest::decode(message).map(Self::from),
        }
    }

    fn read_plain(message: &[u8]) -> Option<Self> {
        /// About as many bytes has a frame of a client that sends many; so many frames are not many yet.
        const FRAME: usize = 16;
        const FEW: usize = 64;
        let mut frames = Vec::with_capacity((message.len() / FRAME + 1).min(FEW));
        let mut rest = FieldReader(message);
        while rest.has(key(1, BYTES)) {
            if frames.len() == MAX_FRAMES {
                return Some(Self(frames));
            }
            frames.push(frame(FieldReader(rest.bytes()?))?);
        }
        rest.end()?;
        Some(Self(frames))
    }
}

/// Whether a message has more frames than are read.
fn has_too_many_frames(mut message: &[u8]) -> bool {
    let mut next = || {
        let (tag, wire_type) = decode_key(&mut message).ok()?;
        skip_field(wire_type, tag, &mut message, DecodeContext::default()).ok()?;
        Some(tag)
    };
    iter::from_fn(&mut next).filter(|tag| *tag == 1).nth(MAX_FRAMES).is_some()
}

fn frame(mut frame: FieldReader<'_>) -> Option<DecodedFrame> {
    let asked = if frame.has(key(1, BYTES)) {
        access(FieldReader(frame.bytes()?))?
    } else if frame.has(key(2, BYTES)) {
        hello(FieldReader(frame.bytes()?))?
    } else if frame.has(key(3, BYTES)) {
        decision(FieldReader(frame.bytes()?))?
    } else {
        return None;
    };
    frame.end()?;
    Some(asked)
}

fn access(mut access: FieldReader<'_>) -> Option<DecodedFrame> {
    let channel = access.short_number_at(key(1, NUMBER))?;
    let number = access.number_at(key(2, NUMBER))?;
    let op = if access.has(key(3, BYTES)) {
        let mut append = FieldReader(access.bytes()?);
        let value = append.bytes_at(key(1, BYTES))?;
        append.end()?;
        RawOp::Append(RawValue::new(value))
    } else if access.has(key(4, BYTES)) {
        let mut read = FieldReader(access.bytes()?);
        let start = read.short_number_at(key(1, NUMBER))?;
        read.end()?;
        RawOp::Read(Position::new(start))
    } else {
        return None;
    };
    access.end()?;
    Some(DecodedFrame::Access { channel, number, op: Some(op) })
}

fn hello(mut hello: FieldReader<'_>) -> Option<DecodedFrame> {
    let channel = hello.short_number_at(key(1, NUMBER))?;
    // What is no id may not even be text, which is not for us to say.
    let instance = Some(InstanceId::from_hex(hello.bytes_at(key(2, BYTES))?)?);
    let incarnation = hello.number_at(key(3, NUMBER))?;
    hello.end()?;
    Some(DecodedFrame::Hello { channel, instance, incarnation })
}

fn decision(mut decision: FieldReader<'_>) -> Option<DecodedFrame> {
    let channel = decision.short_number_at(key(1, NUMBER))?;
    let value = RawValue::new(decision.bytes_at(key(2, BYTES))?);
    decision.end()?;
    Some(DecodedFrame::Decision { channel, value })
}

impl From<v1::AttachRequest> for DecodedRequest {
    fn from(request: v1::AttachRequest) -> Self {
        Self(request.frames.into_iter().map(DecodedFrame::from).collect())
    }
}

impl From<v1::ClientFrame> for DecodedFrame {
    fn from(frame: v1::ClientFrame) -> Self {
        match frame.frame {
            Some(Frame::Access(v1::Access { channel, number, op })) => {
                Self::Access { channel, number, op: op.map(RawOp::from) }
            }
            Some(Frame::Hello(v1::Hello { channel, instance_id, incarnation })) => {
                Self::Hello { channel, instance: instance_id.parse().ok(), incarnation }
            }
            Some(Frame::Decision(v1::Decision { channel, value })) => {
                Self::Decision { channel, value: RawValue::new(&value) }
            }
            None => Self::Unknown,
        }
    }
}

impl From<v1::access::Op> for RawOp {
    fn from(op: v1::access::Op) -> Self {
        match op {
            v1::access::Op::Append(append) => Self::Append(RawValue::new(&append.value)),
            v1::access::Op::Read(read) => Self::Read(Position::new(read.start)),
        }
    }
}

/// Adds an access.
pub fn encode_access(message: &mut Vec<u8>, channel: u32, number: u64, op: &RawOp) {
    let what = match op {
        RawOp::Append(value) if value.as_bytes().is_empty() => 0,
        RawOp::Append(value) => bytes_length(value.as_bytes().len()),
        RawOp::Read(start) => number_length(start.get().into()),
    };
    let access = number_length(channel.into()) + number_length(number) + bytes_length(what);
    write_key(message, key(1, BYTES), bytes_length(access));
    write_key(message, key(1, BYTES), access);
    write_number(message, key(1, NUMBER), channel.into());
    write_number(message, key(2, NUMBER), number);
    match op {
        RawOp::Append(value) => {
            write_key(message, key(3, BYTES), what);
            if what > 0 {
                write_bytes(message, key(1, BYTES), value.as_bytes());
            }
        }
        RawOp::Read(start) => {
            write_key(message, key(4, BYTES), what);
            write_number(message, key(1, NUMBER), start.get().into());
        }
    }
}

/// Adds a hello.
pub fn encode_hello(message: &mut Vec<u8>, channel: u32, instance: &str, incarnation: u64) {
    let hello = v1::Hello { channel, instance_id: instance.to_owned(), incarnation };
    encode_frame(message, hello);
}

/// Adds the report of a decision.
pub fn encode_decision(message: &mut Vec<u8>, channel: u32, value: &[u8]) {
    let decision = v1::Decision { channel, value: bytes::Bytes::copy_from_slice(value) };
    encode_frame(message, decision);
}

fn encode_frame(message: &mut Vec<u8>, frame: impl Into<v1::ClientFrame>) {
    message.push(key(1, BYTES));
    frame.into().encode_length_delimited(message).expect("a vector grows");
}
