//! The parts of a request before its message. The functions that try bytes are the server's own.

pub(super) use stickycas_server::fuzzing::{headers, http2_frames as frames, messages};

/// Bytes cut into chunks of these lengths, as `stickycas_server::fuzzing` reads them.
fn cut(lengths: &[u8], bytes: &[u8]) -> Vec<u8> {
    let count = u8::try_from(lengths.len()).expect("a few lengths");
    [&[count], lengths, bytes].concat()
}

fn frame(code: u8, flags: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[code, flags, 0, 0, 0, 1], content].concat()
}

/// A connection with one call, one with a frame of every type, and these in chunks.
pub(super) fn frames_seeds() -> Vec<Vec<u8>> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let call = [
        PREFACE,
        &frame(4, 0, &[0, 3, 0, 0, 0, 100]),
        &frame(1, 4, b"\x83"),
        &frame(0, 0, &[0; 9]),
        &frame(0, 1, &[]),
    ];
    let every = (0..12).flat_map(|code| frame(code, 0, &[code; 4])).collect::<Vec<_>>();
    let every = [PREFACE, &every].concat();
    let chunks: [&[u8]; 4] = [&[], &[1], &[24, 9, 3], &[7, 30, 1, 200]];
    chunks.iter().flat_map(|lengths| [cut(lengths, &call.concat()), cut(lengths, &every)]).collect()
}

/// Messages as they are, empty, too long, cut off and compressed.
pub(super) fn messages_seeds() -> Vec<Vec<u8>> {
    let bodies: [&[u8]; 6] = [
        b"\0\0\0\0\x03abc",
        b"\0\0\0\0\0\0\0\0\0\x01x",
        b"\0\0\0\x01\x2d",
        b"\0\0\0\0\x05abc",
        b"\0\0\0\0\x01a\x01\0\0\0\x01b",
        b"\0\0\0",
    ];
    let all = bodies.iter().flat_map(|body| [cut(&[], body), cut(&[1], body), cut(&[5, 2, 9], body)]);
    // The longest that may be, and one byte more.
    let long = |length: u16| cut(&[9], &[&[0; 3], &length.to_be_bytes()[..], &[7; 301]].concat());
    all.chain([long(300), long(301)]).collect()
}

/// Every header as it should be and in other forms.
pub(super) fn headers_seeds() -> Vec<Vec<u8>> {
    let headers: [&[u8]; 10] = [
        b"\0p-1",
        b"\0p-1\n\0p-2",
        b"\0..",
        b"\x01Bearer a.b.c",
        b"\x01bEARER a",
        b"\x01Basic a",
        b"\x022S",
        b"\x0299999999H\n\x03identity",
        b"\x021u\n\x02x",
        b"\x03gzip\n\0Ann.B_9\n\x01Bearer ",
    ];
    headers.iter().map(|headers| headers.to_vec()).collect()
}
