//! Arbitrary frames of Attach, and what may happen to an encoded message. The tests of the load generator use
//! them too.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, encode_key, encode_varint, skip_field};
use stickycas_proto::v1;
use stickycas_proto::v1::parameters::PatienceChoice;

/// Small numbers, numbers at which an encoding changes its length, and any.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..300_u64, Just(1 << 14), Just(1 << 63), Just(u64::MAX), any::<u64>()]
}

pub(crate) fn short_number() -> impl Strategy<Value = u32> {
    number().prop_map(|number| number as u32)
}

pub(crate) fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 0..20), vec(any::<u8>(), 120..140)].prop_map(Bytes::from)
}

/// Any frame of a client.
pub(crate) fn client_frame() -> impl Strategy<Value = v1::ClientFrame> {
    let append = bytes().prop_map(|value| v1::access::Op::Append(v1::Append { value }));
    let read = short_number().prop_map(|start| v1::access::Op::Read(v1::Read { start }));
    let access = (short_number(), number(), option::weighted(0.9, prop_oneof![append, read]))
        .prop_map(|(channel, number, op)| v1::Access { channel, number, op }.into());
    let id = prop_oneof!["[0-9a-f]{32}", "[0-9A-F]{30,33}", ".{0,4}"];
    let hello = (short_number(), id, number()).prop_map(|(channel, instance_id, incarnation)| {
        v1::Hello { channel, instance_id, incarnation }.into()
    });
    let decision =
        (short_number(), bytes()).prop_map(|(channel, value)| v1::Decision { channel, value }.into());
    prop_oneof![8 => access, 4 => hello, 4 => decision, 1 => Just(v1::ClientFrame { frame: None })]
}

fn append_result() -> impl Strategy<Value = v1::AppendResult> {
    (any::<i32>(), option::of(short_number()))
        .prop_map(|(outcome, position)| v1::AppendResult { outcome, position })
}

pub(crate) fn own() -> impl Strategy<Value = v1::Own> {
    let op = prop_oneof![
        bytes().prop_map(|value| v1::waiting_access::Op::Append(v1::Append { value })),
        short_number().prop_map(|start| v1::waiting_access::Op::Read(v1::Read { start })),
    ];
    let waiting = (number(), option::of(op)).prop_map(|(number, op)| v1::WaitingAccess { number, op });
    let append =
        (number(), option::of(append_result())).prop_map(|(phase, result)| v1::FirstAppend { phase, result });
    (short_number(), number(), vec(waiting, 0..3), option::of(append), option::of(bytes())).prop_map(
        |(process, next_access_number, waiting, append, decided)| v1::Own {
            process,
            next_access_number,
            waiting,
            append,
            decided,
        },
    )
}

fn duration() -> impl Strategy<Value = prost_types::Duration> {
    any::<(i64, i32)>().prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos })
}

pub(crate) fn parameters() -> impl Strategy<Value = v1::Parameters> {
    let patience = prop_oneof![
        duration().prop_map(PatienceChoice::Patience),
        Just(PatienceChoice::EndlessPatience(v1::EndlessPatience {})),
    ];
    let sizes = [(); 6].map(|()| short_number());
    let choices = (any::<(i32, i32, i32)>(), option::of(number()), vec(short_number(), 0..3));
    let times = (option::of(patience), option::of(duration()), option::of(duration()));
    (sizes, choices, times).prop_map(|(sizes, choices, times)| {
        let [processes, warp_size, read_size, pipeline, max_value_bytes, append_rounds] = sizes;
        let ((order, arbiter, append_window), seed, priority) = choices;
        let (patience_choice, join_timeout, pace) = times;
        v1::Parameters {
            processes,
            warp_size,
            read_size,
            order,
            seed,
            arbiter,
            priority,
            append_window,
            patience_choice,
            join_timeout,
            pace,
            pipeline,
            max_value_bytes,
            append_rounds,
        }
    })
}

/// Any frame of a server.
pub(crate) fn server_frame() -> impl Strategy<Value = v1::ServerFrame> {
    use v1::answer::Result;
    let read = (short_number(), vec(bytes(), 0..9), short_number(), any::<bool>())
        .prop_map(|(start, values, length, sealed)| v1::ReadResult { start, values, length, sealed });
    let result = prop_oneof![append_result().prop_map(Result::Append), read.prop_map(Result::Read)];
    let answer = (short_number(), number(), number(), option::weighted(0.9, result))
        .prop_map(|(channel, number, phase, result)| v1::Answer { channel, number, phase, result }.into());
    let decided = short_number().prop_map(|channel| v1::Decided { channel }.into());
    let replaced = (short_number(), short_number(), number())
        .prop_map(|(channel, session, incarnation)| v1::Replaced { channel, session, incarnation }.into());
    let owner = (".{0,9}", number());
    let refusal =
        (short_number(), number(), any::<(i32, i32)>(), ".{0,9}", number(), option::of(duration()), owner)
            .prop_map(
                |(
                    channel,
                    access_number,
                    (code, reason),
                    message,
                    expected_access_number,
                    retry_after,
                    (owner, epoch),
                )| {
                    v1::Refusal {
                        channel,
                        access_number,
                        code,
                        reason,
                        message,
                        expected_access_number,
                        retry_after,
                        owner,
                        epoch,
                    }
                    .into()
                },
            );
    let welcome = (short_number(), short_number(), option::of(own()), option::of(parameters())).prop_map(
        |(channel, session, own, parameters)| v1::Welcome { channel, session, own, parameters }.into(),
    );
    let nothing = Just(v1::ServerFrame { frame: None });
    prop_oneof![8 => answer, 3 => decided, 1 => replaced, 1 => refusal, 1 => welcome, 1 => nothing]
}

/// One damage to an encoded message.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    /// Another byte in the place of one.
    Change(Index, u8),
    /// A byte less.
    Remove(Index),
    /// More bytes, among others a repeated field, an unknown one, or a number in too many bytes.
    Insert(Index, Vec<u8>),
    /// The rest is missing.
    Truncate(Index),
}

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    let piece = prop_oneof![
        vec(any::<u8>(), 1..4),
        Just(vec![0x08, 0x07]),
        Just(vec![0x10, 0x81, 0x00]),
        Just(vec![0x78, 0x01]),
        Just(vec![0x0a, 0x00]),
        Just(vec![0x0a, 0x02, 0x08, 0x01]),
        Just(vec![0x88, 0x00, 0x01]),
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Change(at, byte)),
        any::<Index>().prop_map(Mutation::Remove),
        (any::<Index>(), piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        any::<Index>().prop_map(Mutation::Truncate),
    ]
}

/// The message with these damages.
pub(crate) fn mutated(mut message: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let length = message.len();
        match mutation {
            Mutation::Insert(at, piece) => {
                drop(message.splice(at.index(length + 1)..at.index(length + 1), piece.clone()));
            }
            _ if length == 0 => {}
            Mutation::Change(at, byte) => message[at.index(length)] = *byte,
            Mutation::Remove(at) => drop(message.remove(at.index(length))),
            Mutation::Truncate(at) => message.truncate(at.index(length)),
        }
    }
    message
}

/// One change of a list of fields that protobuf allows, though no encoder makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reencoding {
    /// The fields as they are.
    Same,
    /// The fields in the opposite order.
    Reversed,
    /// The first field once more, at the end.
    Repeated,
    /// An unknown field before all others: a number.
    UnknownNumber,
    /// An unknown field behind all others: bytes, with a field number of two bytes.
    UnknownBytes,
}

impl Reencoding {
    pub(crate) const ALL: [Self; 5] =
        [Self::Same, Self::Reversed, Self::Repeated, Self::UnknownNumber, Self::UnknownBytes];

    fn apply(self, fields: &mut Vec<Vec<u8>>) {
        match self {
            Self::Same => {}
            Self::Reversed => fields.reverse(),
            Self::Repeated => fields.extend(fields.first().cloned()),
            Self::UnknownNumber => fields.insert(0, vec![0x78, 0x01]),
            Self::UnknownBytes => fields.push(vec![0xfa, 0x3f, 0x02, 0x08, 0x01]),
        }
    }
}

/// The message with these changes, one after the other, to the fields of each message in it. Bytes that look
/// like a message count as one.
pub(crate) fn reencoded(message: &[u8], changes: &mut impl Iterator<Item = Reencoding>) -> Vec<u8> {
    let Some(fields) = split(message) else { return message.to_vec() };
    let mut fields: Vec<Vec<u8>> =
        fields.into_iter().map(|field| with_content_reencoded(field, changes)).collect();
    if let Some(change) = changes.next() {
        change.apply(&mut fields);
    }
    fields.concat()
}

/// The encoded fields of a message; `None` if the bytes are none.
fn split(mut message: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while message.has_remaining() {
        let before = message;
        let (tag, wire_type) = decode_key(&mut message).ok()?;
        skip_field(wire_type, tag, &mut message, DecodeContext::default()).ok()?;
        fields.push(&before[..before.len() - message.len()]);
    }
    Some(fields)
}

fn with_content_reencoded(field: &[u8], changes: &mut impl Iterator<Item = Reencoding>) -> Vec<u8> {
    let mut rest = field;
    let Ok((tag, WireType::LengthDelimited)) = decode_key(&mut rest) else { return field.to_vec() };
    let _length = prost::encoding::decode_varint(&mut rest);
    let content = reencoded(rest, changes);
    let mut reencoded = Vec::new();
    encode_key(tag, WireType::LengthDelimited, &mut reencoded);
    encode_varint(content.len() as u64, &mut reencoded);
    reencoded.extend(content);
    reencoded
}

pub(crate) fn reencodings() -> impl Strategy<Value = Vec<Reencoding>> {
    vec(proptest::sample::select(&Reencoding::ALL[..]), 0..20)
}
