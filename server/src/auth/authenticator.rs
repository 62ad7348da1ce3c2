//! The principal of a request, and its rights.
//!
//! With certificates of clients, a connection is one principal, and no request changes that. On the listener
//! for tokens each call proves its principal by a token. In the other mode, which proves nothing, the
//! principal is the one that the metadata names.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use stickycas_certificates::seconds_since_1970;
use stickycas_proto::principal::{PRINCIPAL_KEY, principal_from_metadata};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::audit;
use super::certificate::ClientIdentity;
use super::credentials::Credentials;
use super::principal::Principal;
use super::roles::{Rights, Roles};
use super::store::CredentialStore;
use super::token_cache::VerifiedToken;

/// Identifies the principals of requests.
#[derive(Debug)]
pub(crate) enum Authenticator {
    /// By the proofs of connections and tokens.
    Proven(Arc<CredentialStore>),
    /// By the names that clients give themselves.
    Insecure(Roles),
}

/// The facts about a caller that follow from its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<'a> {
    /// The identity that the handshake has proven.
    pub(crate) identity: Option<&'a ClientIdentity>,
    pub(crate) address: SocketAddr,
    /// Whether the connection belongs to a principal.
    pub(crate) is_claimed: bool,
}

/// The identity of a caller.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) principal: Principal,
    pub(crate) rights: Rights,
    /// The token that has proven the principal; `None`: the connection has.
    pub(crate) token: Option<Arc<VerifiedToken>>,
}

impl Authenticator {
    /// The principal of a request with these headers from this peer; `None`: its connection is not known, in
    /// tests. `charge` is called before a token is verified.
    ///
    /// # Errors
    /// If the request has no valid identity, or `charge` fails.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer<'_>>,
        charge: impl FnOnce() -> Result<(), RpcRefusal>,
    ) -> Result<Identity, RpcRefusal> {
        let credentials = match self {
            Self::Insecure(roles) => return from_metadata(headers, roles),
            Self::Proven(store) => store.now(),
        };
        match peer.and_then(|peer| peer.identity) {
            Some(proven) => from_certificate(headers, proven, &credentials),
            None => from_token(headers, peer, &credentials, charge),
        }
    }

    /// Whether a request from this peer has to be identified by a token.
    pub(crate) fn takes_token(&self, peer: Option<Peer<'_>>) -> bool {
        matches!(self, Self::Proven(_)) && peer.is_none_or(|peer| peer.identity.is_none())
    }

    /// The address of this peer for the audit log. `None`: no client proves anything here.
    pub(crate) fn audited(&self, peer: Option<Peer<'_>>) -> Option<SocketAddr> {
        peer.filter(|_| matches!(self, Self::Proven(_))).map(|peer| peer.address)
    }
}

fn refuse(why: impl Into<String>) -> RpcRefusal {
    RpcRefusal::new(RefusalReason::NoIdentity, why)
}

fn from_certificate(
    headers: &HeaderMap,
    proven: &ClientIdentity,
    credentials: &Credentials,
) -> Result<Identity, RpcRefusal> {
    let name = proven.principal.as_str();
    if names_another(headers, name) {
        return Err(refuse(format!(
            "{PRINCIPAL_KEY} names another than the certificate, which names {name}"
        )));
    }
    if headers.contains_key(AUTHORIZATION) {
        return Err(refuse("tokens are not taken here: callers are known by their certificates"));
    }
    let rights = credentials.roles.rights(&proven.principal);
    Ok(Identity { principal: proven.principal.clone(), rights, token: None })
}

fn from_token(
    headers: &HeaderMap,
    peer: Option<Peer<'_>>,
    credentials: &Credentials,
    charge: impl FnOnce() -> Result<(), RpcRefusal>,
) -> Result<Identity, RpcRefusal> {
    let tokens =
        credentials.tokens.as_ref().ok_or_else(|| refuse("the connection has shown no certificate"))?;
    let given = bearer(headers)?;
    let now = seconds_since_1970();
    let known = tokens.known(given, now);
    let is_new = known.is_none() || peer.is_some_and(|peer| !peer.is_claimed);
    let token = match known {
        Some(token) => token,
        None => {
            charge()?;
            tokens.verify(given, now).map_err(|error| refuse(error.to_string()))?
        }
    };
    let name = token.principal.as_str();
    if names_another(headers, name) {
        return Err(refuse(format!("{PRINCIPAL_KEY} names another than the token, which names {name}")));
    }
    if is_new && let Some(peer) = peer {
        audit::token_admitted(&token, peer.address);
    }
    let rights = credentials.roles.rights(&token.principal).and(token.scope);
    Ok(Identity { principal: token.principal.clone(), rights, token: Some(token) })
}

/// The token of a request, which has exactly one.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&[u8], RpcRefusal> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let value = match (given.next(), given.next()) {
        (Some(value), None) => value.as_bytes(),
        (None, _) => return Err(refuse("give a token in the metadata: authorization: Bearer TOKEN")),
        (Some(_), Some(_)) => return Err(refuse("authorization is given more than once")),
    };
    // The name of a scheme has no case (RFC 9110, section 11.1).
    match value.split_at_checked("Bearer ".len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => Ok(token),
        _ => Err(refuse("authorization has no token: give Bearer TOKEN")),
    }
}

/// Whether the metadata names a principal that is not the proven one.
fn names_another(headers: &HeaderMap, proven: &str) -> bool {
    headers.get_all(PRINCIPAL_KEY).iter().any(|given| given.as_bytes() != proven.as_bytes())
}

pub(super) fn from_metadata(headers: &HeaderMap, roles: &Roles) -> Result<Identity, RpcRefusal> {
    let names = headers.get_all(PRINCIPAL_KEY).iter().map(|name| name.to_str().ok());
    let principal = principal_from_metadata(names).map(Principal::new)?;
    Ok(Identity { rights: roles.rights(&principal), principal, token: None })
}
