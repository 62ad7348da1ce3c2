//! HTTP/2 frames made by hand, for attacks that no client library sends.

use stickycas_client::Error;
use stickycas_proto::principal::PRINCIPAL_KEY;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};

use super::attack_context::AttackContext;
use super::byte_stream::broken;
use super::byte_stream::{ByteStream, connect, scheme};
use super::raw::{PREFACE, prefixed};

/// Kinds and flags of HTTP/2 frames, and an error code.
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const CANCEL: u32 = 8;
/// Bytes of the head of a frame.
pub(super) const HEAD: usize = 9;
/// A frame for the window of a stream or of the connection.
pub(super) const WINDOW_UPDATE: u8 = 8;
const PING: u8 = 6;
/// The flag of an answered PING.
const ACK: u8 = 1;

/// A connection on which one call was answered, so that the server can know whose it is.
pub(super) async fn open_with_a_call(
    context: &AttackContext,
) -> Result<(ReadHalf<ByteStream>, WriteHalf<ByteStream>), Error> {
    let (mut read, mut write) = tokio::io::split(connect(context.config()).await?);
    let first = frame(HEADERS, END_HEADERS, 1, &call(context));
    let empty = frame(DATA, END_STREAM, 1, &prefixed(&[]));
    let begun = async {
        write.write_all(&[PREFACE, &first, &empty].concat()).await?;
        answered(&mut read).await
    };
    begun.await.map_err(|error| broken(context.config(), error))?;
    Ok((read, write))
}

/// A PING. Frames are answered in their order, so its answer shows that all before it was read.
pub(super) fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8])
}

/// Until the server ends the connection, however it does. Once it has answered a [`ping`], the attack has had an effect.
pub(super) async fn drain(context: &AttackContext, read: &mut (impl AsyncRead + Unpin)) {
    while let Ok((kind, flags)) = next_frame(read).await {
        if kind == PING && flags & ACK != 0 {
            context.tally.effect();
        }
    }
}

/// Until the first call has its answer: HEADERS of some stream.
async fn answered(read: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    while next_frame(read).await?.0 != HEADERS {}
    Ok(())
}

/// Kind and flags of the next frame; what it carries is passed over.
async fn next_frame(read: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(u8, u8)> {
    let mut head = [0; HEAD];
    read.read_exact(&mut head).await?;
    let length = u64::from(u32::from_be_bytes([0, head[0], head[1], head[2]]));
    tokio::io::copy(&mut (&mut *read).take(length), &mut tokio::io::sink()).await?;
    Ok((head[3], head[4]))
}

/// An HTTP/2 frame (RFC 9113, section 4.1).
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call (RFC 7541): two of the static table, the others as literals.
pub(super) fn call(context: &AttackContext) -> Vec<u8> {
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
