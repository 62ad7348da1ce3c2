//! Attacks of a process on its own session and access numbers, on a session of its own.

use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use stickycas_client::Error;
use stickycas_model::byzantine::own_value;
use stickycas_model::types::{AccessNumber, Value};
use stickycas_proto::v1;
use stickycas_proto::v1::RefusalReason;
use tokio::task::JoinSet;

use super::context::AttackContext;
use super::stream::{Reply, Stream, append, hello, read};
use super::wire::{Raw, broken, framed};

/// Calls with `no_wait` in any phase: in a phase of others the call is refused, which is legal and counts
/// towards the rate (F7); in a phase of its own it is an access as any other. The session makes the process
/// one that has joined: else there would be no phases yet.
pub(super) async fn out_of_turn(context: &AttackContext) -> Result<Stream, Error> {
    /// Between two calls, so that they fall into more than one phase.
    const APART: Duration = Duration::from_millis(2);
    let (stream, welcomed) = Stream::open(context).await?;
    let value = own_value(welcomed.own.process);
    let mut number = welcomed.own.next;
    for _ in 0..context.count {
        context.tally.attempts(1);
        let mut list = context.connection.list();
        let refused = if number == AccessNumber::FIRST {
            list.append(context.append_request(number, value.as_bytes(), true)).await.err()
        } else {
            let instance_id = context.instance.to_string();
            let access_number = number.get();
            list.read(v1::ReadRequest { instance_id, access_number, start: 0, no_wait: true }).await.err()
        };
        match refused {
            Some(status) => drop(context.tally.ended(&status)),
            None => number = number.next(),
        }
        tokio::time::sleep(APART).await;
    }
    Ok(stream)
}

/// Two contents for one access number within one session: the first counts, the others are refused and are
/// offences (F8c).
pub(super) async fn double(context: &AttackContext) -> Result<(), Error> {
    let (mut stream, welcomed) = Stream::open(context).await?;
    let (process, number) = (welcomed.own.process, welcomed.own.next);
    let first = append(number, own_value(process).as_bytes());
    // In one message, so that nothing can come between.
    let others = (0..context.count).map(|copy| append(number, format!("other-{copy}").as_bytes()));
    stream.say(std::iter::once(first).chain(others).collect())?;
    let mut refused = 0;
    while refused < context.count {
        match stream.reply().await? {
            Reply::Refused(_) => refused += 1,
            // That of the first, whose phase has come.
            Reply::Answered(_) => {}
        }
    }
    Ok(())
}

/// Values above the instance's limit, on a stream and by calls, and whole messages above the server's.
pub(super) async fn oversize(context: &AttackContext) -> Result<Stream, Error> {
    /// More than a message may have: a server takes 4 MiB unless told otherwise.
    const MESSAGE_BYTES: usize = 4 * 1024 * 1024 + 1;
    let (mut stream, welcomed) = Stream::open(context).await?;
    let number = welcomed.own.next;
    let value = vec![b'x'; welcomed.params.spec().max_value_bytes as usize + 1];
    for _ in 0..context.count {
        stream.say(vec![append(number, &value)])?;
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

/// Far more accesses ahead than may wait, on one stream, and then calls as fast as they go, many at a time.
///
/// The accepted accesses are performed in the phases of the process, as those of any other. The rest is
/// refused in-band: the first access above the pipeline bound is an offence, those behind it on the stream
/// are not (F8d).
pub(super) async fn flood(context: &AttackContext) -> Result<(), Error> {
    accesses(context).await?;
    calls(context).await;
    Ok(())
}

async fn accesses(context: &AttackContext) -> Result<(), Error> {
    /// A server may take a message with more for one that breaks the protocol.
    const FRAMES_PER_MESSAGE: usize = 512;
    let (mut stream, welcomed) = Stream::open(context).await?;
    let value = own_value(welcomed.own.process);
    let numbers = std::iter::successors(Some(welcomed.own.next), |number| Some(number.next()));
    let numbers: Vec<_> = numbers.take(context.count as usize).collect();
    for numbers in numbers.chunks(FRAMES_PER_MESSAGE) {
        let frame = |number: &AccessNumber| match *number {
            AccessNumber::FIRST => append(*number, value.as_bytes()),
            number => read(number),
        };
        stream.say(numbers.iter().map(frame).collect())?;
    }
    // Those that wait are answered when their phases come, and nobody waits for that: the last is refused at
    // once.
    let last = numbers.last().map_or(0, |number| number.get());
    while stream.numbered_reply().await?.0 < last {}
    Ok(())
}

async fn calls(context: &AttackContext) {
    /// Calls that go on at a time.
    const CALLERS: u32 = 16;
    let mut callers = JoinSet::new();
    for share in context.shares(CALLERS) {
        let context = context.clone();
        callers.spawn(async move {
            for _ in 0..share {
                context.tally.attempts(1);
                if let Err(status) = context.connection.instances().get(context.get_request()).await {
                    context.tally.ended(&status);
                }
            }
        });
    }
    // A caller does not panic, and all are dropped when the attack is stopped.
    while callers.join_next().await.is_some() {}
}

/// A stream that is held open and not read any more, with its connection.
pub(super) struct Unread {
    _connection: Raw,
    _answers: RecvStream,
    _send: SendStream<Bytes>,
}

/// Asks for much on a stream that it never reads: its window is too small for the answers, and is never
/// freed. Only the welcome is read: it shows that the session is open.
///
/// It asks for the same answer again and again, which is legal and takes no phases. The stream stays open
/// while the process goes on elsewhere, so that what the server keeps for it lies there to the end.
pub(super) async fn slow_read(context: &AttackContext) -> Result<Unread, Error> {
    /// Bytes that the server may send before it has to wait: the welcome, and not many answers.
    const WINDOW: u32 = 1024;
    /// Frames in one message: as many as a server takes unless told otherwise, and as many as it lets lie
    /// unread before it stops to listen; so one message does it, and nothing hangs on when the next comes in.
    const FRAMES_PER_MESSAGE: u32 = 1_024;
    let own = context.view().await?.own;
    let own = own.ok_or_else(|| Error::Protocol("the state of the process is missing".to_owned()))?;
    let (number, value) = (own.next, own_value(own.process));
    let mut raw = Raw::connect(context.config(), Some(WINDOW)).await?;
    let (response, mut send) = raw.begin("StickyCasService/Attach", &[context.principal()]).await?;
    let mut say = |frames: Vec<v1::ClientFrame>| {
        let sent = send.send_data(framed(&v1::AttachRequest { frames }), false);
        sent.map_err(|error| broken(context.config(), error))
    };
    say(vec![hello(context)])?;
    let broke = |error| broken(context.config(), error);
    let mut answers = response.await.map_err(broke)?.into_body();
    let welcome = answers.data().await.transpose().map_err(broke)?;
    // Elsewhere it waits for the answer, which can be asked for again from then on.
    let request = context.append_request(number, value.as_bytes(), false);
    let answered = context.connection.list().append(request).await;
    answered.map_err(|status| context.connection.error(&status))?;
    context.tally.attempts(u64::from(context.count));
    let mut left = context.count;
    while left > 0 {
        let frames = left.min(FRAMES_PER_MESSAGE);
        say((0..frames).map(|_| append(number, value.as_bytes())).collect())?;
        left -= frames;
    }
    // A window that is full shows that the first message was taken in; with few answers it never is.
    let mut came = welcome.map_or(0, |welcome| welcome.len());
    while let Some(more) = answers.data().await.transpose().map_err(broke)? {
        came += more.len();
        if came >= WINDOW as usize || context.count < FRAMES_PER_MESSAGE {
            break;
        }
    }
    Ok(Unread { _connection: raw, _answers: answers, _send: send })
}

/// The access that is replayed, and what it was answered first.
pub(super) struct Kept {
    number: AccessNumber,
    value: Value,
    first: v1::Answer,
}

impl Kept {
    fn frames(&self) -> Vec<v1::ClientFrame> {
        vec![append(self.number, self.value.as_bytes())]
    }

    fn is_as_first(&self, phase: u64, result: Option<v1::AppendResult>) -> bool {
        phase == self.first.phase && result.map(v1::answer::Result::Append) == self.first.result
    }
}

/// Its own old messages again: in the session that sent them, from one that a newer has replaced, in that
/// newer one, and after it has left. None of it is an offence: an access that is known gets its first answer
/// again (F8b), an older session is refused (F8e), and so is a new access of a process that has left (F10).
pub(super) async fn replay(context: &AttackContext) -> Result<Kept, Error> {
    let (mut older, welcomed) = Stream::open(context).await?;
    let (process, number) = (welcomed.own.process, welcomed.own.next);
    let value = own_value(process);
    older.say(vec![append(number, value.as_bytes())])?;
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

pub(super) async fn replay_after_leaving(context: &AttackContext, kept: Kept) -> Result<(), Error> {
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
            Err(status) => drop(context.tally.ended(&status)),
        }
    }
    Ok(())
}
