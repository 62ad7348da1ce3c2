//! Far more accesses ahead than may wait, on one stream, and then calls as fast as they go, many at a time.
//!
//! What is accepted of it the process does in its phases as anybody would. The rest is refused in-band: the
//! first access above the pipeline bound is an offence, what follows it on the stream is not (F8d).

use stickycas_model::types::AccessNumber;
use tokio::task::JoinSet;

use super::field::Field;
use super::stream::{CHANNEL, Reply, Stream, append, read};
use crate::error::Error;

/// Frames in one message: a server may take a message with more for one that breaks the protocol.
const FRAMES_PER_MESSAGE: usize = 512;
/// Calls that go on at a time.
const CALLERS: u32 = 16;

pub(super) async fn attack(field: &Field) -> Result<(), Error> {
    accesses(field).await?;
    calls(field).await;
    Ok(())
}

async fn accesses(field: &Field) -> Result<(), Error> {
    let (mut stream, welcomed) = Stream::open(field).await?;
    let value = Field::value(welcomed.own.process);
    let mut number = welcomed.own.next;
    let mut frames = Vec::new();
    for _ in 0..field.count {
        frames.push(if number == AccessNumber::FIRST {
            append(CHANNEL, number, value.as_bytes())
        } else {
            read(CHANNEL, number)
        });
        number = number.next();
        if frames.len() == FRAMES_PER_MESSAGE {
            stream.say(std::mem::take(&mut frames))?;
        }
    }
    stream.say(frames)?;
    // As many as wait are answered when their phases come, and nobody waits for that.
    let mut refusals = field.count.saturating_sub(welcomed.params.spec().pipeline);
    while refusals > 0 {
        if let Reply::Refused(_) = stream.reply().await? {
            refusals -= 1;
        }
    }
    Ok(())
}

async fn calls(field: &Field) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let field = field.clone();
        let share = field.count / CALLERS + u32::from(caller < field.count % CALLERS);
        callers.spawn(async move {
            for _ in 0..share {
                field.tally.attempts(1);
                if let Err(status) = field.connection.instances().get(field.get_request()).await {
                    field.tally.ended(&status);
                }
            }
        });
    }
    // A caller does not panic, and whoever stops the attack drops them all.
    while callers.join_next().await.is_some() {}
}
