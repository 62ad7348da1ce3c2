//! Decoders of this folder for [`crate::fuzzing`], each beside a second one that is written as the standard
//! is: over all bytes at once, and so without the states between two chunks.

use std::time::Duration;

use http::HeaderMap;

use super::frame_headers::{FrameHeaders, FrameTally, PREFACE};
use super::grpc_timeout::{GRPC_TIMEOUT, grpc_timeout};
use super::message_framing::{Announced, MessageFraming, PREFIX, Scanned};
use crate::fuzzing::in_chunks;
use crate::quota::FrameType;

/// The frames of a connection are counted alike however their bytes are cut, and as the standard has them.
pub fn http2_frames(bytes: &[u8]) {
    let Some((chunks, all)) = in_chunks(bytes) else { return };
    let mut headers = FrameHeaders::new();
    let mut counted = FrameTally::default();
    for chunk in chunks {
        let tally = headers.count(chunk);
        counted.control += tally.control;
        counted.by_type.iter_mut().zip(tally.by_type).for_each(|(all, part)| *all += part);
    }
    let whole = FrameHeaders::new().count(all);
    assert_eq!((counted.control, counted.by_type), (whole.control, whole.by_type), "cut and whole");
    assert_eq!(whole, frames_by_the_standard(all));
}

fn frames_by_the_standard(bytes: &[u8]) -> FrameTally {
    let (mut tally, mut open) = (FrameTally::default(), 0);
    let mut rest = bytes.get(PREFACE..).unwrap_or_default();
    while let [high, middle, low, code, flags, s1, s2, s3, s4, behind @ ..] = rest {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let frame = FrameType::of(*code);
        let stream = u32::from_be_bytes([*s1, *s2, *s3, *s4]) & 0x7fff_ffff;
        tally.by_type[frame as usize] += 1;
        let ends_a_request = flags & 1 == 1 && open > 0;
        match frame {
            FrameType::Headers => {
                open += 1;
                tally.first_opened.get_or_insert(stream);
            }
            FrameType::Data if length > 0 => {}
            FrameType::Data if ends_a_request => open -= 1,
            _ => tally.control += 1,
        }
        let is_early = tally.first_opened.is_some_and(|first| stream >= first);
        tally.early_resets += u32::from(frame == FrameType::RstStream && is_early);
        rest = behind.get(length..).unwrap_or_default();
    }
    tally
}

/// The ends of messages are found alike however their bytes are cut, and where the standard has them.
pub(crate) fn messages(bytes: &[u8]) {
    const LONGEST: usize = 300;
    let Some((chunks, all)) = in_chunks(bytes) else { return };
    let (mut framing, mut at, mut complete) = (MessageFraming::default(), 0, 0);
    let mut refused = None;
    for chunk in chunks {
        match framing.scan(chunk, LONGEST) {
            Scanned::Complete(0) => {}
            Scanned::Complete(count) => complete = at + count,
            Scanned::Refused(why) => {
                refused = Some(why);
                break;
            }
        }
        at += chunk.len();
    }
    match (messages_by_the_standard(all, LONGEST), refused) {
        ((_, Some(expected)), Some(why)) => assert_eq!(why, expected),
        ((end, None), None) => assert_eq!(complete, end),
        (expected, refused) => panic!("{refused:?} in place of {expected:?}"),
    }
}

/// The end of the last complete message, and the reason for which the one behind it is refused.
fn messages_by_the_standard(bytes: &[u8], longest: usize) -> (usize, Option<Announced>) {
    let mut end = 0;
    loop {
        let rest = &bytes[end..];
        if rest.first().is_some_and(|compressed| *compressed != 0) {
            return (end, Some(Announced::Compressed));
        }
        let [_, a, b, c, d, message @ ..] = rest else { return (end, None) };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if length > longest {
            return (end, Some(Announced::TooLong));
        }
        if message.len() < length {
            return (end, None);
        }
        end += PREFIX + length;
    }
}

/// A deadline is what its digits and its unit say.
pub(crate) fn timeout_header(headers: &HeaderMap) {
    let Some(timeout) = headers.get(GRPC_TIMEOUT).and_then(grpc_timeout) else { return };
    let text = headers[GRPC_TIMEOUT].to_str().expect("it was read as a text");
    let (digits, unit) = text.split_at(text.len() - 1);
    assert!((1..=8).contains(&digits.len()), "{text:?}");
    let number: u32 = digits.parse().expect("eight digits are a number");
    let unit = match unit {
        "H" => Duration::from_secs(3600),
        "M" => Duration::from_secs(60),
        "S" => Duration::from_secs(1),
        "m" => Duration::from_millis(1),
        "u" => Duration::from_micros(1),
        "n" => Duration::from_nanos(1),
        other => panic!("{other:?} is no unit"),
    };
    assert_eq!(timeout, unit * number);
}
