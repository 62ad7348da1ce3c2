//! Far more accesses ahead than may wait, on one stream, and then calls as fast as they go, many at a time.
//!
//! What is accepted of it the process does in its phases as anybody would. The rest is refused in-band: the
//! first access above the pipeline bound is an offence, what follows it on the stream is not (F8d).

use stickycas_model::types::AccessNumber;
use tokio::task::JoinSet;

use super::attack_context::AttackContext;
use super::stream::{CHANNEL, Stream, append, read};
use stickycas_client::Error;

/// Frames in one message: a server may take a message with more for one that breaks the protocol.
const FRAMES_PER_MESSAGE: usize = 512;
/// Calls that go on at a time.
const CALLERS: u32 = 16;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    accesses(context).await?;
    calls(context).await;
    Ok(())
}

async fn accesses(context: &AttackContext) -> Result<(), Error> {
    let (mut stream, welcomed) = Stream::open(context).await?;
    let value = AttackContext::value(welcomed.own.process);
    let mut number = welcomed.own.next;
    let last = number.get() + u64::from(context.count) - 1;
    let mut frames = Vec::new();
    for _ in 0..context.count {
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
    if !frames.is_empty() {
        stream.say(frames)?;
    }
    // Those that wait are answered when their phases come, and nobody waits for that: the last is refused at once.
    while stream.numbered_reply().await?.0 < last {}
    Ok(())
}

async fn calls(context: &AttackContext) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let context = context.clone();
        let share = context.count / CALLERS + u32::from(caller < context.count % CALLERS);
        callers.spawn(async move {
            for _ in 0..share {
                context.tally.attempts(1);
                if let Err(status) = context.connection.instances().get(context.get_request()).await {
                    context.tally.ended(&status);
                }
            }
        });
    }
    // A caller does not panic, and whoever stops the attack drops them all.
    while callers.join_next().await.is_some() {}
}
