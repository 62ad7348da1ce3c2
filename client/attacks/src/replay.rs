//! Its own old messages again: in the session that sent them, from one that a newer has replaced, in that
//! newer one, and after it has left. None of it is an offence: an access that is known gets its first answer
//! again (F8b), an older session is refused (F8e), and so is a new access of a process that has left (F10).

use stickycas_model::types::{AccessNumber, Value};
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;
use tonic::Status;

use super::attack_context::AttackContext;
use super::stream::{CHANNEL, Reply, Stream, append};
use stickycas_client::Error;

/// The access that is replayed, and what it was answered first.
pub(super) struct Kept {
    number: AccessNumber,
    value: Value,
    first: v1::Answer,
}

impl Kept {
    fn frames(&self) -> Vec<v1::ClientFrame> {
        vec![append(CHANNEL, self.number, self.value.as_bytes())]
    }

    fn is_as_first(&self, phase: u64, result: Option<v1::AppendResult>) -> bool {
        phase == self.first.phase && result.map(v1::answer::Result::Append) == self.first.result
    }
}

pub(super) async fn before_it_leaves(context: &AttackContext) -> Result<Kept, Error> {
    let (mut older, welcomed) = Stream::open(context).await?;
    let (process, number) = (welcomed.own.process, welcomed.own.next);
    let value = AttackContext::value(process);
    older.say(vec![append(CHANNEL, number, value.as_bytes())])?;
    let first = loop {
        if let Reply::Answered(first) = older.reply().await? {
            break first;
        }
    };
    let kept = Kept { number, value, first };
    again(context, &mut older, &kept).await?;
    let (mut newer, _) = Stream::open(context).await?;
    for _ in 0..context.count {
        older.say(kept.frames())?;
        match older.reply().await? {
            Reply::Refused(refused) if refused.reason == RefusalReason::SessionReplaced => {}
            other => context.tally.surprise(&format!("an older session was told {other:?}")),
        }
    }
    again(context, &mut newer, &kept).await?;
    Ok(kept)
}

/// The same access on a session that counts.
async fn again(context: &AttackContext, stream: &mut Stream, kept: &Kept) -> Result<(), Error> {
    for _ in 0..context.count {
        stream.say(kept.frames())?;
        let reply = stream.reply().await?;
        if reply != Reply::Answered(kept.first.clone()) {
            context.tally.surprise(&format!("first told {:?}, then {reply:?}", kept.first));
        }
    }
    Ok(())
}

pub(super) async fn after_it_left(context: &AttackContext, kept: Kept) -> Result<(), Error> {
    for _ in 0..context.count {
        context.tally.attempts(2);
        let request = context.append_request(kept.number, kept.value.as_bytes(), false);
        match context.connection.list().append(request).await.map(tonic::Response::into_inner) {
            Ok(v1::AppendResponse { phase, result }) if kept.is_as_first(phase, result) => {}
            Ok(response) => {
                context.tally.surprise(&format!("first told {:?}, after leaving {response:?}", kept.first));
            }
            Err(status) => drop(context.tally.ended(&status)),
        }
        let late = context.append_request(kept.number, b"another", false);
        match context.connection.list().append(late).await {
            Ok(_) => context.tally.surprise("a new access was taken of a process that has left"),
            Err(status) => told(context, &status),
        }
    }
    Ok(())
}

fn told(context: &AttackContext, status: &Status) {
    context.tally.ended(status);
}
