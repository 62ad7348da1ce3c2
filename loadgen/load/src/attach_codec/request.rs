//! Frames of a client, written straight into a message.

use bytes::Bytes;
use prost::Message as _;
use stickycas_model::process::RawOp;
use stickycas_proto::v1;
use stickycas_proto::wire_format::{
    WireType, bytes_field_len, key, number_field_len, write_bytes_field, write_bytes_header,
    write_number_field,
};

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// The key of a frame in its message.
const FRAME: u8 = key(1, BYTES);

/// An encoded `AttachRequest`: frames that [`encode_access`], [`encode_hello`] and [`encode_decision`] wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedRequest(pub Vec<u8>);

/// Adds an access.
pub fn encode_access(message: &mut Vec<u8>, channel: u32, number: u64, op: &RawOp) {
    let op_length = match op {
        RawOp::Append(value) if value.as_bytes().is_empty() => 0,
        RawOp::Append(value) => bytes_field_len(value.as_bytes().len()),
        RawOp::Read(start) => number_field_len(start.get().into()),
    };
    let access_length =
        number_field_len(channel.into()) + number_field_len(number) + bytes_field_len(op_length);
    write_bytes_header(message, FRAME, bytes_field_len(access_length));
    write_bytes_header(message, key(1, BYTES), access_length);
    write_number_field(message, key(1, NUMBER), channel.into());
    write_number_field(message, key(2, NUMBER), number);
    match op {
        RawOp::Append(value) => {
            write_bytes_header(message, key(3, BYTES), op_length);
            if op_length > 0 {
                write_bytes_field(message, key(1, BYTES), value.as_bytes());
            }
        }
        RawOp::Read(start) => {
            write_bytes_header(message, key(4, BYTES), op_length);
            write_number_field(message, key(1, NUMBER), start.get().into());
        }
    }
}

/// Adds a hello.
pub fn encode_hello(message: &mut Vec<u8>, channel: u32, instance: &str, incarnation: u64) {
    encode_generated(message, v1::Hello { channel, instance_id: instance.to_owned(), incarnation });
}

/// Adds the report of a decision.
pub fn encode_decision(message: &mut Vec<u8>, channel: u32, value: &[u8]) {
    encode_generated(message, v1::Decision { channel, value: Bytes::copy_from_slice(value) });
}

/// Adds a frame that is sent once in an instance: nothing is gained by writing it by hand.
fn encode_generated(message: &mut Vec<u8>, frame: impl Into<v1::ClientFrame>) {
    message.push(FRAME);
    frame.into().encode_length_delimited(message).expect("a vector grows");
}
