//! Calls as somebody it is not: without an identity, with two, with a name that nobody gave; and as itself in
//! roles that it has not, and on a channel that it never opened.
//!
//! Only what it does as itself can be laid at its door: the others are refused and counted, nobody knows whose
//! they were. Everything here is beside the process's own session.

use std::iter::repeat_n;

use stickycas_model::types::AccessNumber;
use stickycas_proto::v1;
use tonic::Code;

use super::attack_context::AttackContext;
use super::raw::{Raw, framed};
use super::stream::{CHANNEL, Stream, append};
use stickycas_client::Error;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    // Seen at the instance before it misbehaves, it can be blamed there for what names none.
    let (_seen, _) = Stream::open(context).await?;
    let mut raw = Raw::connect(context.config(), None).await?;
    let me = context.principal();
    let impostor = format!("{me}-or-not");
    let get = framed(&context.get_request());
    let append = framed(&context.append_request(AccessNumber::FIRST, b"stolen", false));
    let close = framed(&v1::CloseRequest { instance_id: context.instance.to_string() });
    let create = framed(&v1::CreateRequest { roster: vec![me.to_owned()], ..v1::CreateRequest::default() });
    let round: [(&[&str], _, _); 6] = [
        (&[], "InstanceService/Get", &get),
        (&[me, &impostor], "StickyCasService/Append", &append),
        (&[&impostor], "StickyCasService/Append", &append),
        (&[&impostor], "InstanceService/Get", &get),
        (&[me], "InstanceService/Close", &close),
        (&[me], "InstanceService/Create", &create),
    ];
    for (principals, method, body) in repeat_n(round, context.count as usize).flatten() {
        context.tally.attempts(1);
        let status = raw.call(method, principals, body.clone()).await?;
        if status.code() == Code::Ok {
            context.tally.surprise(&format!("{method} as {principals:?} was answered"));
        }
        context.tally.ended(&status);
    }
    unopened_channel(context).await
}

/// A session that is not its own: it has none on this stream.
async fn unopened_channel(context: &AttackContext) -> Result<(), Error> {
    let mut stream = Stream::new(context).await?;
    for _ in 0..context.count {
        stream.say(vec![append(CHANNEL, AccessNumber::FIRST, b"stolen")])?;
        stream.reply().await?;
    }
    Ok(())
}
