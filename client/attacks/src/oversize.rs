//! Values above the instance's limit, on a stream and by calls, and whole messages above the server's.

use super::attack_context::AttackContext;
use super::stream::{CHANNEL, Stream, append};
use stickycas_client::Error;

/// More than a message may have: a server takes 4 MiB unless told otherwise.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024 + 1;

pub(super) async fn attack(context: &AttackContext) -> Result<Stream, Error> {
    let (mut stream, welcomed) = Stream::open(context).await?;
    let number = welcomed.own.next;
    let value = vec![b'x'; welcomed.params.spec().max_value_bytes as usize + 1];
    for _ in 0..context.count {
        stream.say(vec![append(CHANNEL, number, &value)])?;
        stream.reply().await?;
    }
    for bytes in [value, vec![b'x'; MESSAGE_BYTES]] {
        for _ in 0..context.count {
            context.tally.attempts(1);
            let request = context.append_request(number, &bytes, false);
            match context.connection.list().append(request).await {
                Ok(_) => context.tally.surprise("an oversized value was taken"),
                Err(status) => drop(context.tally.ended(&status)),
            }
        }
    }
    Ok(stream)
}
