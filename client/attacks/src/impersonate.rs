//! Calls as somebody it is not: without an identity, with two, with a name that nobody gave; and as itself in
//! roles that it has not, and on a channel that it never opened.
//!
//! Where the server knows callers by certificates, the stolen name is that of the creator, who could close the instance:
//! named in the metadata of its own connection, in a certificate that no CA of the server has signed, and on a
//! connection without any. A judge that hears reports is told of others' ends in the same ways.
//!
//! Only what it does as itself can be laid at its door: the others are refused and counted, nobody knows whose
//! they were. Everything here is beside the process's own session.

use std::iter::repeat_n;

use bytes::Bytes;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, SanType};
use rustls_pki_types::PrivateKeyDer;
use stickycas_client::raw::ClientConfig;
use stickycas_client::{Credentials, Error};
use stickycas_model::types::AccessNumber;
use stickycas_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;

use super::attack_context::AttackContext;
use super::byte_stream::broken;
use super::byte_stream::{Shown, is_ended_by_peer, tls};
use super::raw::{PREFACE, Raw, framed};
use super::stream::{CHANNEL, Stream, append};

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    // Seen at the instance before it misbehaves, it can be blamed there for what names none.
    let (_seen, _) = Stream::open(context).await?;
    let stolen = match context.config().credentials() {
        None => format!("{}-or-not", context.principal()),
        Some(_) => context.creator().await?,
    };
    let mut raw = Raw::connect(context.config(), None).await?;
    for (principals, method, body) in repeat_n(round(context, &stolen), context.count as usize).flatten() {
        let principals: Vec<&str> = principals.iter().map(String::as_str).collect();
        refused(context, &mut raw, method, &principals, body).await?;
    }
    // A listener for tokens asks for no certificate.
    let certified = context.config().credentials().filter(|own| own.trust_domain().is_some());
    if let Some(credentials) = certified {
        for _ in 0..context.count {
            unproven(context, context.config(), credentials, &stolen).await?;
        }
        judge(context).await?;
    }
    unopened_channel(context).await
}

type Call = (Vec<String>, &'static str, Bytes);

/// Calls that must all be refused, each in the name of all these.
fn round(context: &AttackContext, stolen: &str) -> Vec<Call> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let me = context.principal();
    let get = framed(&context.get_request());
    let append = framed(&context.append_request(AccessNumber::FIRST, b"stolen", false));
    let close = framed(&v1::CloseRequest { instance_id: context.instance.to_string() });
    let create = framed(&v1::CreateRequest { roster: vec![me.to_owned()], ..v1::CreateRequest::default() });
    let mut round = vec![
        (names(&[me, stolen]), "StickyCasService/Append", append.clone()),
        (names(&[stolen]), "StickyCasService/Append", append),
        (names(&[stolen]), "InstanceService/Get", get.clone()),
        (names(&[stolen]), "InstanceService/Close", close.clone()),
        (names(&[me]), "InstanceService/Close", close),
        (names(&[me]), "InstanceService/Create", create),
    ];
    // With a certificate, a call that names nobody is one of its own.
    if context.config().credentials().is_none() {
        round.insert(0, (Vec::new(), "InstanceService/Get", get));
    }
    round
}

async fn refused(
    context: &AttackContext,
    raw: &mut Raw,
    method: &str,
    principals: &[&str],
    body: Bytes,
) -> Result<(), Error> {
    context.tally.attempts(1);
    let status = raw.call(method, principals, body).await?;
    if status.code() == Code::Ok {
        context.tally.surprise(&format!("{method} as {principals:?} was answered"));
    }
    context.tally.ended(&status);
    Ok(())
}

/// Connections that prove nothing: without a certificate, and with one that names somebody else and that nobody has
/// signed who may.
async fn unproven(
    context: &AttackContext,
    config: &ClientConfig,
    credentials: &Credentials,
    stolen: &str,
) -> Result<(), Error> {
    let trust_domain = credentials.trust_domain().unwrap_or_default();
    for shown in [Shown::Nothing, self_signed(trust_domain, stolen)?] {
        context.tally.attempts(1);
        let mut connection = tls(config, credentials.folder(), shown).await?;
        // Whether it is let in, the first frame of the server tells.
        let said = async {
            connection.write_all(PREFACE).await?;
            connection.read_exact(&mut [0; 9]).await
        };
        match said.await {
            Ok(_) => context.tally.surprise("a connection that proves nothing was let in"),
            Err(error) if is_ended_by_peer(&error) => context.tally.cut(),
            Err(error) => return Err(broken(config, error)),
        }
    }
    Ok(())
}

/// A certificate as that of this principal would be, signed with its own key.
fn self_signed(trust_domain: &str, principal: &str) -> Result<Shown, Error> {
    let made = || {
        let mut params = CertificateParams::default();
        let uri = format!("spiffe://{trust_domain}/principal/{principal}");
        params.subject_alt_names = vec![SanType::URI(uri.try_into()?)];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?, key))
    };
    let made = made().map_err(|error: rcgen::Error| Error::InvalidArgument(error.to_string()));
    let (certificate, key) = made?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Ok(Shown::Certificates(vec![certificate.der().clone()], key))
}

/// Reports of another's end, to a judge that knows reporters by certificates as well.
async fn judge(context: &AttackContext) -> Result<(), Error> {
    let Some(judge) = &context.judge else { return Ok(()) };
    let Some(credentials) = judge.credentials() else { return Ok(()) };
    let others = context.others().await?;
    let report = framed(&v1::ReportRequest {
        instance_id: context.instance.to_string(),
        ..v1::ReportRequest::default()
    });
    let mut raw = Raw::connect(judge, None).await?;
    for _ in 0..context.count {
        for other in &others {
            refused(context, &mut raw, "JudgeService/Report", &[other], report.clone()).await?;
        }
        if let Some(other) = others.first() {
            unproven(context, judge, credentials, other).await?;
        }
    }
    Ok(())
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
