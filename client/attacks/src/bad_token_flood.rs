//! Calls with bearer tokens that prove nothing, as fast as it can, many on each connection and over ever new ones.
//!
//! Each token names one other process of the instance as its subject, so that a server that blamed what it reads would blame
//! that one. Most name the key, the issuer and the audience of `stickycas-server credentials`, or those of the attacker's own
//! token, so that the server has to look at their signature: the dearest part of a call.
//!
//! The aim is the server's listener for tokens. Where the attacker knows of none it goes to the one that it has: there tokens
//! are refused beside a certificate, and where names are believed nobody looks at them, and the call has no identity.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};
use serde_json::{Map, Value, json};
use stickycas_client::Error;
use stickycas_client::raw::ClientConfig;
use tokio::task::JoinSet;
use tonic::Code;

use super::attack_context::AttackContext;
use super::byte_stream::{Shown, connect, tls};
use super::raw::{Raw, framed};

/// Connections at a time.
const FLOODERS: u32 = 8;
/// Calls on one connection, before the next one is opened.
const CALLS_PER_CONNECTION: u32 = 32;
/// How far from now the times of tokens are.
const HOUR: Duration = Duration::from_secs(3600);
/// More than a server reads of a token.
const TOO_LONG: usize = 4 * 1024;

pub(super) async fn attack(context: &AttackContext) -> Result<(), Error> {
    let others = context.others().await?;
    let subject = others.first().map_or(context.principal(), String::as_str);
    let tokens: Arc<[String]> = forged(context.config(), subject)?.into();
    let mut flooding = JoinSet::new();
    for flooder in 0..FLOODERS {
        let share = context.count / FLOODERS + u32::from(flooder < context.count % FLOODERS);
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
        None => Raw::over(context.config(), connect(context.config()).await?).await?,
        Some(server) => {
            let folder = server.credentials().map(stickycas_client::Credentials::folder);
            let folder = folder.ok_or_else(|| Error::InvalidArgument("tokens need TLS".to_owned()))?;
            Raw::over(server, tls(server, folder, Shown::Nothing).await?).await?
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
        let status = raw.status(call).await?;
        if status.code() == Code::Ok {
            context.tally.surprise("a call with a forged token was answered");
        }
        context.tally.ended(&status);
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
