//! Two contents for one access number within one session: the first counts, the others are refused and are
//! offences (F8c).

use super::field::Field;
use super::stream::{CHANNEL, Reply, Stream, append};
use crate::error::Error;

pub(super) async fn attack(field: &Field) -> Result<(), Error> {
    let (mut stream, welcomed) = Stream::open(field).await?;
    let (process, number) = (welcomed.own.process, welcomed.own.next);
    let first = append(CHANNEL, number, Field::value(process).as_bytes());
    // In one message, so that nothing can come between.
    let others = (0..field.count).map(|copy| append(CHANNEL, number, format!("other-{copy}").as_bytes()));
    stream.say(std::iter::once(first).chain(others).collect())?;
    let mut refused = 0;
    while refused < field.count {
        match stream.reply().await? {
            Reply::Refused(_) => refused += 1,
            // That of the first, whose phase has come.
            Reply::Answered(_) => {}
        }
    }
    Ok(())
}
