//! Values above the instance's limit, on a stream and by calls, and whole messages above the server's.

use super::field::Field;
use super::stream::{CHANNEL, Stream, append};
use crate::error::Error;

/// More than a message may have: a server takes 4 MiB unless told otherwise.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024 + 1;

pub(super) async fn attack(field: &Field) -> Result<Stream, Error> {
    let (mut stream, welcomed) = Stream::open(field).await?;
    let number = welcomed.own.next;
    let value = vec![b'x'; welcomed.params.spec().max_value_bytes as usize + 1];
    for _ in 0..field.count {
        stream.say(vec![append(CHANNEL, number, &value)])?;
        stream.reply().await?;
    }
    for bytes in [value, vec![b'x'; MESSAGE_BYTES]] {
        for _ in 0..field.count {
            field.tally.attempts(1);
            let request = field.append_request(number, &bytes, false);
            match field.connection.list().append(request).await {
                Ok(_) => field.tally.surprise("an oversized value was taken"),
                Err(status) => drop(field.tally.ended(&status)),
            }
        }
    }
    Ok(stream)
}
