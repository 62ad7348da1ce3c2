//! Which principal a request comes from.
//!
//! Where clients show certificates, a connection is one principal, and nothing that a request says changes that. In the
//! other mode, which proves nothing, the principal is the one that the metadata names.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use http::request::Parts;
use stickycas_proto::principal::{PRINCIPAL_KEY, principal_from_metadata};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::principal::Principal;
use crate::config::{AuthMode, Config};
use crate::transport::Connection;

/// Identifies the principals of requests.
#[derive(Debug)]
pub(crate) struct Authenticator {
    mode: AuthMode,
}

impl Authenticator {
    pub(crate) fn new(config: &Config) -> Self {
        Self { mode: config.auth_mode.clone() }
    }

    /// The principal of the request with these parts: all that a mode may need is among them. Tokens are headers;
    /// what the handshake of a connection has proved is in the extensions, with its `Connection`.
    ///
    /// # Errors
    /// If the request has no valid identity.
    pub(crate) fn identify(&self, parts: &Parts) -> Result<Principal, RpcRefusal> {
        match &self.mode {
            AuthMode::Certificates(_) => from_certificate(parts),
            AuthMode::InsecurePrincipals => from_metadata(&parts.headers),
        }
    }
}

fn from_certificate(parts: &Parts) -> Result<Principal, RpcRefusal> {
    let refuse = |why: String| RpcRefusal::new(RefusalReason::NoIdentity, why);
    let connection = parts.extensions.get::<Connection>();
    let identity = connection.and_then(Connection::identity);
    let identity = identity.ok_or_else(|| refuse("the connection has shown no certificate".to_owned()))?;
    let name = identity.principal.as_str();
    if parts.headers.get_all(PRINCIPAL_KEY).iter().any(|given| given.as_bytes() != name.as_bytes()) {
        return Err(refuse(format!(
            "{PRINCIPAL_KEY} names another than the certificate, which names {name}"
        )));
    }
    if parts.headers.contains_key(AUTHORIZATION) {
        return Err(refuse("tokens are not taken here: callers are known by their certificates".to_owned()));
    }
    Ok(identity.principal.clone())
}

fn from_metadata(headers: &HeaderMap) -> Result<Principal, RpcRefusal> {
    let names = headers.get_all(PRINCIPAL_KEY).iter().map(|name| name.to_str().ok());
    principal_from_metadata(names).map(Principal::new)
}
