//! Calls as somebody it is not: without an identity, with two, with a name that nobody gave; and as itself in
//! roles that it has not, and on a channel that it never opened.
//!
//! Only what it does as itself can be laid at its door: the others are refused and counted, nobody knows whose
//! they were. Everything here is beside the process's own session.

use std::iter::repeat_n;

use stickycas_model::types::AccessNumber;
use stickycas_proto::v1;
use tonic::Code;

use super::field::Field;
use super::raw::{Raw, framed};
use super::stream::{CHANNEL, Stream, append};
use crate::error::Error;

pub(super) async fn attack(field: &Field) -> Result<(), Error> {
    let mut raw = Raw::connect(field.target(), None).await?;
    let me = field.principal();
    let impostor = format!("{me}-or-not");
    let get = framed(&field.get_request());
    let append = framed(&field.append_request(AccessNumber::FIRST, b"stolen", false));
    let close = framed(&v1::CloseRequest { instance_id: field.instance.to_string() });
    let create = framed(&v1::CreateRequest { roster: vec![me.to_owned()], ..v1::CreateRequest::default() });
    let round: [(&[&str], _, _); 6] = [
        (&[], "InstanceService/Get", &get),
        (&[me, &impostor], "StickyCasService/Append", &append),
        (&[&impostor], "StickyCasService/Append", &append),
        (&[&impostor], "InstanceService/Get", &get),
        (&[me], "InstanceService/Close", &close),
        (&[me], "InstanceService/Create", &create),
    ];
    for (principals, method, body) in repeat_n(round, field.count as usize).flatten() {
        field.tally.attempts(1);
        let status = raw.call(method, principals, body.clone()).await?;
        if status.code() == Code::Ok {
            field.tally.surprise(&format!("{method} as {principals:?} was answered"));
        }
        field.tally.ended(&status);
    }
    unopened_channel(field).await
}

/// A session that is not its own: it has none on this stream.
async fn unopened_channel(field: &Field) -> Result<(), Error> {
    let mut stream = Stream::new(field).await?;
    for _ in 0..field.count {
        stream.say(vec![append(CHANNEL, AccessNumber::FIRST, b"stolen")])?;
        stream.reply().await?;
    }
    Ok(())
}
