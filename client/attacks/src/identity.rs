//! Calls that prove nothing: as somebody else, and with forged tokens.

use std::iter::repeat_n;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyPair, PKCS_ED25519, SanType, SigningKey as _};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Map, Value, json};
use stickycas_client::raw::ClientConfig;
use stickycas_client::{Credentials, Error};
use stickycas_model::types::AccessNumber;
use stickycas_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;

use super::context::AttackContext;
use super::stream::{Stream, append};
use super::wire::{PREFACE, Raw, Shown, broken, framed, is_ended_by_peer, tls};

/// Calls as somebody it is not: without an identity, with two, with a name that nobody gave; and as itself in
/// roles that it has not, and on a channel that it never opened.
///
/// Where the server knows callers by certificates, the stolen name is that of the creator, who could close
/// the instance: named in the metadata of its own connection, in a certificate that no CA of the server has
/// signed, and on a connection without any. A judge that hears reports is told of others' ends in the same
/// ways.
///
/// Only calls as itself can become offences of it: the others are refused and counted, and their caller is
/// not known. All calls are beside the process's own session.
pub(super) async fn impersonate(context: &AttackContext) -> Result<(), Error> {
    // Seen at the instance before it misbehaves, it can be blamed there for what names none.
    let (_seen, _) = Stream::open(context).await?;
    let stolen = match context.config().credentials() {
        None => format!("{}-or-not", context.principal()),
        Some(_) => context.view().await?.instance.creator,
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
    if !context.tally.ended(&raw.call(method, principals, body).await?) {
        context.tally.surprise(&format!("{method} as {principals:?} was answered"));
    }
    Ok(())
}

/// Connections that prove nothing: without a certificate, and with a self-signed one of the stolen name.
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
        stream.say(vec![append(AccessNumber::FIRST, b"stolen")])?;
        stream.reply().await?;
    }
    Ok(())
}

/// Connections at a time.
const FLOODERS: u32 = 8;
/// Calls on one connection, before the next one is opened.
const CALLS_PER_CONNECTION: u32 = 32;
/// How far from now the times of tokens are.
const HOUR: Duration = Duration::from_secs(3600);
/// More than a server reads of a token.
const TOO_LONG: usize = 4 * 1024;

/// Calls with bearer tokens that prove nothing, as fast as it can, many on each connection and over ever new
/// ones.
///
/// Each token names one other process of the instance as its subject, so that a server that blamed what it
/// reads would blame that one. Most name the key, the issuer and the audience of `stickycas-server
/// credentials`, or those of the attacker's own token, so that the server has to look at their signature: the
/// dearest part of a call.
///
/// The aim is the server's listener for tokens. Where the attacker knows of none it goes to the one that it
/// has: there tokens are refused beside a certificate, and where names are believed nobody looks at them, and
/// the call has no identity.
pub(super) async fn bad_token_flood(context: &AttackContext) -> Result<(), Error> {
    let others = context.others().await?;
    let subject = others.first().map_or(context.principal(), String::as_str);
    let tokens: Arc<[String]> = forged(context.config(), subject)?.into();
    let mut flooding = JoinSet::new();
    for share in context.shares(FLOODERS) {
        flooding.spawn(flood(context.clone(), tokens.clone(), share));
    }
    while let Some(flooded) = flooding.join_next().await {
        // One that panicked has not done its share.
        flooded.map_err(|error| Error::Protocol(error.to_string()))??;
    }
    Ok(())
}

/// So many calls, a new connection for each few.
async fn flood(context: AttackContext, tokens: Arc<[String]>, mut left: u32) -> Result<(), Error> {
    let mut tokens = tokens.iter().cycle();
    while left > 0 {
        let calls = left.min(CALLS_PER_CONNECTION);
        left -= calls;
        match on_one_connection(&context, tokens.by_ref().take(calls as usize)).await {
            // The server need not take all that come: the next one is another.
            Err(Error::Unreachable { sent: true, .. }) => context.tally.cut(),
            ended => ended?,
        }
    }
    Ok(())
}

/// A call with each of these tokens, all of them before any is answered.
async fn on_one_connection(
    context: &AttackContext,
    tokens: impl Iterator<Item = &String>,
) -> Result<(), Error> {
    let mut raw = match &context.token_server {
        None => Raw::connect(context.config(), None).await?,
        Some(server) => {
            let folder = server.credentials().map(Credentials::folder);
            let folder = folder.ok_or_else(|| Error::InvalidArgument("tokens need TLS".to_owned()))?;
            Raw::over(server, tls(server, folder, Shown::Nothing).await?, None).await?
        }
    };
    let mut calls = Vec::new();
    for token in tokens {
        context.tally.attempts(1);
        let authorization = format!("Bearer {token}");
        let get = framed(&context.get_request());
        calls.push(raw.begin_whole("InstanceService/Get", &[("authorization", &authorization)], get).await?);
    }
    for call in calls {
        if !context.tally.ended(&raw.status(call).await?) {
            context.tally.surprise("a call with a forged token was answered");
        }
    }
    Ok(())
}

/// Tokens of all kinds that prove nothing.
fn forged(config: &ClientConfig, subject: &str) -> Result<Vec<String>, Error> {
    let (header, claims) = genuine(config).unwrap_or_else(development);
    let with = |object: &Map<String, Value>, name: &str, value: Value| {
        let mut object = object.clone();
        object.insert(name.to_owned(), value);
        object
    };
    let claims = with(&claims, "sub", subject.into());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let expired = with(&claims, "exp", (now.saturating_sub(HOUR)).as_secs().into());
    let later = with(&claims, "nbf", (now + HOUR).as_secs().into());
    let long = with(&claims, "x", "x".repeat(TOO_LONG).into());
    let key = KeyPair::generate_for(&PKCS_ED25519);
    let key = key.map_err(|error| Error::InvalidArgument(error.to_string()))?;
    let token = |header: &Map<String, Value>, claims: &Map<String, Value>| {
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = key.sign(signed.as_bytes());
        let signature = signature.map_err(|error| Error::InvalidArgument(error.to_string()))?;
        Ok::<_, Error>(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    };
    let unsigned = format!("{}.{}.", part(&with(&header, "alg", "none".into())), part(&claims));
    Ok(vec![
        // The key of somebody else.
        token(&header, &claims)?,
        token(&with(&header, "kid", "another".into()), &claims)?,
        token(&header, &expired)?,
        token(&header, &later)?,
        // A secret that both would have to know, in the place of a key pair.
        token(&with(&header, "alg", "HS256".into()), &claims)?,
        unsigned,
        // A key that it brings itself.
        token(&with(&header, "jku", "https://example.org/keys".into()), &claims)?,
        token(&header, &long)?,
        token(&header, &with(&claims, "aud", "others".into()))?,
        "no.token.at-all".to_owned(),
        String::new(),
    ])
}

fn part(json: &Map<String, Value>) -> String {
    URL_SAFE_NO_PAD.encode(Value::Object(json.clone()).to_string())
}

/// Header and claims of the attacker's own token, if it has one.
fn genuine(config: &ClientConfig) -> Option<(Map<String, Value>, Map<String, Value>)> {
    let authorization = config.authorization()?;
    let token = authorization.to_str().ok()?.strip_prefix("Bearer ")?.to_owned();
    let mut parts = token.split('.').map(|part| {
        let json = URL_SAFE_NO_PAD.decode(part).ok()?;
        serde_json::from_slice::<Map<String, Value>>(&json).ok()
    });
    Some((parts.next()??, parts.next()??))
}

/// Those of a token of `stickycas-server credentials`.
fn development() -> (Map<String, Value>, Map<String, Value>) {
    let object = |value: Value| value.as_object().cloned().unwrap_or_default();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let header = json!({"typ": "JWT", "alg": "EdDSA", "kid": "development"});
    let claims = json!({
        "iss": "stickycas", "aud": "stickycas", "sub": "", "iat": now, "nbf": now,
        "exp": now + HOUR.as_secs(),
    });
    (object(header), object(claims))
}
