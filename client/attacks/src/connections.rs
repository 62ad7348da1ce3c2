//! Connections that never come to a request: they say nothing, half a greeting, or bytes that are no message.

use stickycas_client::Error;
use stickycas_model::random::SplitMix64;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::context::AttackContext;
use super::stream::Stream;
use super::wire::{PREFACE, Raw, broken, connect, is_ended_by_peer, prefixed, scheme, tcp};

/// Opens connections and says nothing, not even of a handshake, until the server ends them.
pub(super) async fn slow_open(context: &AttackContext) -> Result<(), Error> {
    halt_after(context, &[]).await
}

/// Opens connections, begins a handshake of TLS on each and stops, until the server ends them. Without TLS it
/// begins the preface of HTTP/2 and stops.
pub(super) async fn handshake_flood(context: &AttackContext) -> Result<(), Error> {
    /// The beginning of a ClientHello of 512 bytes (RFC 8446, section 4.1.2): the record, the message, its
    /// version.
    const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let (preface, _) = PREFACE.split_at(PREFACE.len() / 2);
    halt_after(context, if scheme(context.config()) == "https" { CLIENT_HELLO } else { preface }).await
}

/// Opens connections, says this on each and no more, until the server ends them.
async fn halt_after(context: &AttackContext, begin: &'static [u8]) -> Result<(), Error> {
    let mut halting = JoinSet::new();
    for _ in 0..context.count {
        context.tally.attempts(1);
        let mut stream = tcp(context.config()).await?;
        // One that is ended at once is ended as well, and so is one that is reset.
        let _ = stream.write_all(begin).await;
        halting.spawn(async move { drop(stream.read_to_end(&mut Vec::new()).await) });
    }
    // They are there, and the process may go on: it can take long until they are ended.
    context.tally.effect();
    while halting.join_next().await.is_some() {
        context.tally.cut();
    }
    Ok(())
}

/// Bytes that are no message: as the body of a call and on a stream, where the server knows whose they are;
/// as frames of HTTP/2, and as the first bytes of a connection, where it cannot.
pub(super) async fn garbage(context: &AttackContext) -> Result<(), Error> {
    // Seen at the instance before it misbehaves, it can be blamed there for what names none.
    let (_seen, _) = Stream::open(context).await?;
    let mut random = SplitMix64::new(context.seed);
    let mut raw = Raw::connect(context.config(), None).await?;
    let me = [context.principal()];
    for _ in 0..context.count {
        for method in ["StickyCasService/Append", "StickyCasService/Attach", "InstanceService/Get"] {
            context.tally.attempts(1);
            let status = raw.call(method, &me, prefixed(&bytes(&mut random))).await?;
            if !context.tally.ended(&status) {
                context.tally.surprise(&format!("{method} took garbage"));
            }
        }
    }
    for _ in 0..context.count {
        // A frame of its kind and length only by chance.
        let begun = [PREFACE, &bytes(&mut random)].concat();
        connection(context, connect(context.config()).await?, &begun).await?;
        // In the place of a handshake, where there is one.
        connection(context, tcp(context.config()).await?, &bytes(&mut random)).await?;
    }
    Ok(())
}

fn bytes(random: &mut SplitMix64) -> Vec<u8> {
    /// No protobuf message begins with these: the key of a field has ten at most.
    const NO_KEY: [u8; 11] = [0xff; 11];
    const RANDOM_WORDS: usize = 16;
    let words = std::iter::repeat_with(|| random.next_u64().to_le_bytes());
    NO_KEY.into_iter().chain(words.take(RANDOM_WORDS).flatten()).collect()
}

/// These bytes on a connection, until the server ends it.
async fn connection(
    context: &AttackContext,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: &[u8],
) -> Result<(), Error> {
    context.tally.attempts(1);
    // The end of the stream tells a server that waits for more that nothing more comes.
    let said = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        stream.read_to_end(&mut Vec::new()).await
    };
    match said.await {
        // Closed in the middle of it is closed.
        Ok(_) => context.tally.cut(),
        Err(error) if is_ended_by_peer(&error) => context.tally.cut(),
        Err(error) => return Err(broken(context.config(), error)),
    }
    Ok(())
}
