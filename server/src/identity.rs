//! Who is calling: the seam between the channel and the handlers (SPEC section 10).
//!
//! A layer puts a [`Caller`] beside every request; handlers know nothing else and never look at a field for
//! it. There is one way to identify callers so far, and it proves nothing: it believes what they say.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use stickycas_proto::names::PRINCIPAL_KEY;
use stickycas_proto::status::Refused;
use stickycas_proto::v1::RefusalReason;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Layer, Service};

use crate::config::Config;

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

/// Who calls and what it may do beyond being a process of an instance.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who.
    pub principal: Principal,
    /// May create instances (F11).
    pub coordinator: bool,
    /// May look at every instance (F13).
    pub observer: bool,
}

/// Puts a [`Caller`] beside each request, or refuses it.
#[derive(Clone, Debug)]
pub(crate) struct IdentityLayer(Arc<Directory>);

#[derive(Debug)]
struct Directory {
    identification: Identification,
    coordinators: BTreeSet<String>,
    observers: BTreeSet<String>,
    principal_bytes: usize,
}

impl IdentityLayer {
    pub(crate) fn new(config: &Config) -> Self {
        Self(Arc::new(Directory {
            identification: config.identification,
            coordinators: config.coordinators.clone(),
            observers: config.observers.clone(),
            principal_bytes: config.limits.principal_bytes,
        }))
    }
}

impl Directory {
    fn identify(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        match self.identification {
            Identification::InsecurePrincipals => self.believe(headers),
        }
    }

    fn believe(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let refuse = |why: String| Refused::new(RefusalReason::NoIdentity, why);
        let mut names = headers.get_all(PRINCIPAL_KEY).iter();
        let name = match (names.next(), names.next()) {
            (Some(name), None) => name,
            (None, _) => return Err(refuse(format!("name yourself in the metadata key {PRINCIPAL_KEY}"))),
            (Some(_), Some(_)) => return Err(refuse(format!("{PRINCIPAL_KEY} is given more than once"))),
        };
        let name = name.to_str().map_err(|_| refuse(format!("{PRINCIPAL_KEY} is not visible ASCII")))?;
        if name.is_empty() || name.len() > self.principal_bytes {
            return Err(refuse(format!("{PRINCIPAL_KEY} has 1 to {} bytes", self.principal_bytes)));
        }
        Ok(Caller {
            principal: Principal::new(name),
            coordinator: self.coordinators.contains(name),
            observer: self.observers.contains(name),
        })
    }
}

impl<S> Layer<S> for IdentityLayer {
    type Service = Identify<S>;

    fn layer(&self, inner: S) -> Identify<S> {
        Identify { inner, directory: self.0.clone() }
    }
}

/// The service of [`IdentityLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Identify<S> {
    inner: S,
    directory: Arc<Directory>,
}

impl<S, B> Service<Request<B>> for Identify<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = tokio_util::either::Either<S::Future, std::future::Ready<Result<Response<Body>, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        use tokio_util::either::Either;
        match self.directory.identify(request.headers()) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Either::Left(self.inner.call(request))
            }
            Err(refused) => Either::Right(std::future::ready(Ok(refused.to_status().into_http()))),
        }
    }
}

impl<S: NamedService> NamedService for Identify<S> {
    const NAME: &'static str = S::NAME;
}
