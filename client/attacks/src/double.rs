//! Two contents for one access number within one session: the first counts, the others are refused and are
//! offences (F8c).

use super::attack_context::AttackContext;
use super::stream::{CHANNEL, Reply, Stream, append};
use stickycas_client::Error;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let (mut stream, welcomed) = Stream::open(context).await?;
    let (process, number) = (welcomed.own.process, welcomed.own.next);
    let first = append(CHANNEL, number, AttackContext::value(process).as_bytes());
    // In one message, so that nothing can come between.
    let others = (0..context.count).map(|copy| append(CHANNEL, number, format!("other-{copy}").as_bytes()));
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
