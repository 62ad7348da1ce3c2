//! Which principal a request comes from.
//!
//! There is one mode so far, and it proves nothing: the principal is the one that the metadata names.

use http::HeaderMap;
use http::request::Parts;
use stickycas_proto::principal::{PRINCIPAL_KEY, principal_from_metadata};
use stickycas_proto::status::RpcRefusal;

use super::principal::Principal;
use crate::config::{AuthMode, Config};

/// Identifies the principals of requests.
#[derive(Debug)]
pub(crate) struct Authenticator {
    mode: AuthMode,
    principal_bytes: usize,
}

impl Authenticator {
    pub(crate) fn new(config: &Config) -> Self {
        Self { mode: config.auth_mode, principal_bytes: config.limits.principal_bytes }
    }

    /// The principal of the request with these parts: all that a mode may need is among them. Tokens are headers;
    /// what the handshake of a connection has proved is in the extensions, with its `Connection`.
    ///
    /// # Errors
    /// If the request has no valid identity.
    pub(crate) fn identify(&self, parts: &Parts) -> Result<Principal, RpcRefusal> {
        match self.mode {
            AuthMode::InsecurePrincipals => from_metadata(&parts.headers, self.principal_bytes),
        }
    }
}

fn from_metadata(headers: &HeaderMap, principal_bytes: usize) -> Result<Principal, RpcRefusal> {
    let names = headers.get_all(PRINCIPAL_KEY).iter().map(|name| name.to_str().ok());
    principal_from_metadata(names, principal_bytes).map(Principal::new)
}
