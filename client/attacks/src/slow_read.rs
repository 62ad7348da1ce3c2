//! Asks for much on a stream that it never reads: its window is too small for what it asks for, and nothing of
//! what comes is ever taken out of it. The welcome alone is looked at: only then is the session there.
//!
//! It asks for the same answer again and again, which is legal and takes no phases. The stream stays open while
//! the process goes on elsewhere, so that what the server keeps for it lies there to the end.

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use stickycas_proto::v1;

use super::attack_context::AttackContext;
use super::byte_stream::broken;
use super::raw::{Raw, framed};
use super::stream::{CHANNEL, append};
use stickycas_client::Error;

/// Bytes that the server may send before it has to wait: the welcome, and not many answers.
const WINDOW: u32 = 1024;
/// Frames in one message: as many as a server takes unless told otherwise, and as many as it lets lie unread before it
/// stops to listen; so one message does it, and nothing hangs on when the next comes in.
const FRAMES_PER_MESSAGE: u32 = 1_024;

/// What is held open and never read.
pub(super) struct Unread {
    _connection: Raw,
    _answers: RecvStream,
    _send: SendStream<Bytes>,
}

pub(super) async fn attack(context: &AttackContext) -> Result<Unread, Error> {
    let own = context.own().await?;
    let (number, value) = (own.next, AttackContext::value(own.process));
    let mut raw = Raw::connect(context.config(), Some(WINDOW)).await?;
    let (response, mut send) = raw.begin("StickyCasService/Attach", &[context.principal()]).await?;
    let mut say = |frames: Vec<v1::ClientFrame>| {
        let sent = send.send_data(framed(&v1::AttachRequest { frames }), false);
        sent.map_err(|error| broken(context.config(), error))
    };
    let incarnation = rand::random_range(1..=u64::MAX);
    let hello = v1::Hello { channel: CHANNEL, instance_id: context.instance.to_string(), incarnation };
    say(vec![hello.into()])?;
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
        say((0..frames).map(|_| append(CHANNEL, number, value.as_bytes())).collect())?;
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
