//! Who is calling: the seam between the channel and the handlers (SPEC section 10).
//!
//! The [border](crate::border) puts a [`Caller`] beside every request; handlers know nothing else and never look
//! at a field for it. There is one way to identify callers so far, and it proves nothing: it believes what they say.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderMap;
use stickycas_proto::principal::{PRINCIPAL_KEY, principal_from_metadata};
use stickycas_proto::status::RpcRefusal;

use crate::config::Config;

/// How the server tells who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// The metadata key [`PRINCIPAL_KEY`] is believed. Anybody can claim to be anybody.
    InsecurePrincipals,
}

/// An identity that the server has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Principal(Arc<str>);

impl Principal {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Principal {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Who may do what, and how callers are told apart.
#[derive(Debug)]
pub(crate) struct Authenticator {
    auth_mode: AuthMode,
    coordinators: BTreeSet<String>,
    observers: BTreeSet<String>,
    principal_bytes: usize,
}

impl Authenticator {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            auth_mode: config.auth_mode,
            coordinators: config.coordinators.clone(),
            observers: config.observers.clone(),
            principal_bytes: config.limits.principal_bytes,
        }
    }

    /// Whose request it is that has these headers.
    pub(crate) fn identify<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, RpcRefusal> {
        match self.auth_mode {
            AuthMode::InsecurePrincipals => self.from_metadata(headers),
        }
    }

    /// Whether the principal may create instances (F11).
    pub(crate) fn is_coordinator(&self, principal: &Principal) -> bool {
        self.coordinators.contains(principal.as_str())
    }

    /// Whether the principal may look at every instance (F13).
    pub(crate) fn is_observer(&self, principal: &Principal) -> bool {
        self.observers.contains(principal.as_str())
    }

    fn from_metadata<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, RpcRefusal> {
        let given = headers.get_all(PRINCIPAL_KEY).iter().map(|name| name.to_str().ok());
        principal_from_metadata(given, self.principal_bytes)
    }
}
