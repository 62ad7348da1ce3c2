//! Its own old messages again: in the session that sent them, from one that a newer has replaced, in that
//! newer one, and after it has left. None of it is an offence: an access that is known gets its first answer
//! again (F8b), an older session is refused (F8e), and so is a new access of a process that has left (F10).

use stickycas_model::types::{AccessNumber, Value};
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;
use tonic::Status;

use super::field::Field;
use super::stream::{CHANNEL, Reply, Stream, append};
use crate::error::Error;

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

pub(super) async fn before_it_leaves(field: &Field) -> Result<Kept, Error> {
    let (mut older, welcomed) = Stream::open(field).await?;
    let (process, number) = (welcomed.own.process, welcomed.own.next);
    let value = Field::value(process);
    older.say(vec![append(CHANNEL, number, value.as_bytes())])?;
    let first = loop {
        if let Reply::Answered(first) = older.reply().await? {
            break first;
        }
    };
    let kept = Kept { number, value, first };
    again(field, &mut older, &kept).await?;
    let (mut newer, _) = Stream::open(field).await?;
    for _ in 0..field.count {
        older.say(kept.frames())?;
        match older.reply().await? {
            Reply::Refused(refused) if refused.reason == RefusalReason::SessionReplaced => {}
            other => field.tally.surprise(&format!("an older session was told {other:?}")),
        }
    }
    again(field, &mut newer, &kept).await?;
    Ok(kept)
}

/// The same access on a session that counts.
async fn again(field: &Field, stream: &mut Stream, kept: &Kept) -> Result<(), Error> {
    for _ in 0..field.count {
        stream.say(kept.frames())?;
        let reply = stream.reply().await?;
        if reply != Reply::Answered(kept.first.clone()) {
            field.tally.surprise(&format!("first told {:?}, then {reply:?}", kept.first));
        }
    }
    Ok(())
}

pub(super) async fn after_it_left(field: &Field, kept: Kept) -> Result<(), Error> {
    for _ in 0..field.count {
        field.tally.attempts(2);
        let request = field.append_request(kept.number, kept.value.as_bytes(), false);
        match field.connection.list().append(request).await.map(tonic::Response::into_inner) {
            Ok(v1::AppendResponse { phase, result }) if kept.is_as_first(phase, result) => {}
            Ok(response) => {
                field.tally.surprise(&format!("first told {:?}, after leaving {response:?}", kept.first));
            }
            Err(status) => drop(field.tally.ended(&status)),
        }
        let late = field.append_request(kept.number, b"another", false);
        match field.connection.list().append(late).await {
            Ok(_) => field.tally.surprise("a new access was taken of a process that has left"),
            Err(status) => told(field, &status),
        }
    }
    Ok(())
}

fn told(field: &Field, status: &Status) {
    field.tally.ended(status);
}
