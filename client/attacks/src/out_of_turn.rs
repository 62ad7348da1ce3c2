//! Calls with `no_wait`, whoever's phase it is: in others' it is refused, which is legal and counts towards the
//! rate (F7); in its own it is the process's access as any other.

use std::time::Duration;

use stickycas_model::types::AccessNumber;
use stickycas_proto::v1;

use super::attack_context::AttackContext;
use super::stream::Stream;
use stickycas_client::Error;

/// Between two calls, so that they fall into more than one phase.
const APART: Duration = Duration::from_millis(2);

/// The session is what makes it a process that has joined: else there would be no phases yet.
pub(super) async fn attack(context: &AttackContext) -> Result<Stream, Error> {
    let (stream, welcomed) = Stream::open(context).await?;
    let value = AttackContext::value(welcomed.own.process);
    let mut number = welcomed.own.next;
    for _ in 0..context.count {
        context.tally.attempts(1);
        let mut list = context.connection.list();
        let refused = if number == AccessNumber::FIRST {
            list.append(context.append_request(number, value.as_bytes(), true)).await.err()
        } else {
            list.read(read_request(context, number)).await.err()
        };
        match refused {
            Some(status) => drop(context.tally.ended(&status)),
            None => number = number.next(),
        }
        tokio::time::sleep(APART).await;
    }
    Ok(stream)
}

fn read_request(context: &AttackContext, number: AccessNumber) -> v1::ReadRequest {
    v1::ReadRequest {
        instance_id: context.instance.to_string(),
        access_number: number.get(),
        start: 0,
        no_wait: true,
    }
}
