//! Bytes that are no message: as the body of a call and on a stream, where the server knows whose they are; as
//! frames of HTTP/2, and as the first bytes of a connection, where it cannot.

use stickycas_model::random::SplitMix64;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::attack_context::AttackContext;
use super::byte_stream::broken;
use super::byte_stream::{connect, is_ended_by_peer, tcp};
use super::raw::{PREFACE, Raw, prefixed};
use super::stream::Stream;
use stickycas_client::Error;

/// Bytes that no protobuf message begins with: the key of a field has ten at most.
const NO_KEY: [u8; 11] = [0xff; 11];
/// Random bytes behind them.
const RANDOM_WORDS: usize = 16;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    // Seen at the instance before it misbehaves, it can be blamed there for what names none.
    let (_seen, _) = Stream::open(context).await?;
    let mut random = SplitMix64::new(context.seed);
    let mut raw = Raw::connect(context.config(), None).await?;
    let me = [context.principal()];
    for _ in 0..context.count {
        for method in ["StickyCasService/Append", "StickyCasService/Attach", "InstanceService/Get"] {
            context.tally.attempts(1);
            let status = raw.call(method, &me, prefixed(&garbage(&mut random))).await?;
            if !context.tally.ended(&status) {
                context.tally.surprise(&format!("{method} took garbage"));
            }
        }
    }
    for _ in 0..context.count {
        // A frame of its kind and length only by chance.
        let begun = [PREFACE, &garbage(&mut random)].concat();
        connection(context, connect(context.config()).await?, &begun).await?;
        // In the place of a handshake, where there is one.
        connection(context, tcp(context.config()).await?, &garbage(&mut random)).await?;
    }
    Ok(())
}

fn garbage(random: &mut SplitMix64) -> Vec<u8> {
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
    // Nothing more comes, so whoever waits for more knows that it waits in vain.
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
