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
use crate::principals::Account;
use crate::unreadable::RequestEnd;

/// How the server tells who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identification {
    /// The metadata key [`PRINCIPAL_KEY`] is believed. Anybody can claim to be anybody.
    InsecurePrincipals,
}

/// An identity that the server has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(Arc<str>);

impl Principal {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Principal {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Who calls and what it may do beyond being a process of an instance.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    /// May create instances (F11).
    pub coordinator: bool,
    /// May look at every instance (F13).
    pub observer: bool,
    /// What the principal may still ask for, and what is kept of what it does.
    pub(crate) account: Arc<Account>,
    /// How the request's messages end.
    pub(crate) request: Arc<RequestEnd>,
}

/// Who may do what, and how callers are told apart.
#[derive(Debug)]
pub(crate) struct Directory {
    identification: Identification,
    coordinators: BTreeSet<String>,
    observers: BTreeSet<String>,
    principal_bytes: usize,
}

impl Directory {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            identification: config.identification,
            coordinators: config.coordinators.clone(),
            observers: config.observers.clone(),
            principal_bytes: config.limits.principal_bytes,
        }
    }

    /// Whose request it is that has these headers.
    pub(crate) fn identify<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, RpcRefusal> {
        match self.identification {
            Identification::InsecurePrincipals => self.believe(headers),
        }
    }

    /// The caller whose account this is.
    pub(crate) fn caller(&self, account: Arc<Account>, request: Arc<RequestEnd>) -> Caller {
        let principal = account.principal().clone();
        Caller {
            coordinator: self.coordinators.contains(principal.as_str()),
            observer: self.observers.contains(principal.as_str()),
            principal,
            account,
            request,
        }
    }

    fn believe<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, RpcRefusal> {
        let given = headers.get_all(PRINCIPAL_KEY).iter().map(|name| name.to_str().ok());
        principal_from_metadata(given, self.principal_bytes)
    }
}
