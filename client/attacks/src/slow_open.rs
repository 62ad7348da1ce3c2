//! Opens connections and says nothing, not even of a handshake, until the server ends them.

use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

use super::attack_context::AttackContext;
use super::byte_stream::tcp;
use stickycas_client::Error;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let mut silent = JoinSet::new();
    for _ in 0..context.count {
        context.tally.attempts(1);
        let mut stream = tcp(context.config()).await?;
        // A reset is an end as well.
        silent.spawn(async move { drop(stream.read_to_end(&mut Vec::new()).await) });
    }
    // They are there, and the process may go on: it can take long until they are ended.
    context.tally.effect();
    while silent.join_next().await.is_some() {
        context.tally.cut();
    }
    Ok(())
}
