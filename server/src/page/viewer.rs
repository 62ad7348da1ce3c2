//! Who looks, at what, and until when: as for Watch (SPEC F13), and as long as what was proven counts.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use stickycas_page::events::NOTHING;
use stickycas_page::source::{Events, Refused};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_stream::Stream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::Code;

use super::Page;
use super::listener::Peer;
use super::permits::ViewerPermit;
use crate::auth::{Principal, Registration, Rights, StreamProof, VerifiedToken, identify_viewer};
use crate::instances::Instance;
use crate::service::{ViewBasis, view_basis};

/// How often something is sent on a stream, if only to show that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Who looks.
#[derive(Clone)]
pub(crate) struct Viewer(Option<Proven>);

/// Who has shown a token.
#[derive(Clone)]
struct Proven {
    principal: Principal,
    rights: Rights,
    token: Option<Arc<VerifiedToken>>,
}

impl Page {
    /// The viewer that makes the request with this head, which needs work: it is charged for it.
    ///
    /// # Errors
    /// If it proves nothing, or asks too often, or the server takes nothing.
    pub(super) fn identify(&self, parts: &Parts) -> Result<Viewer, Refused> {
        self.service.check_serving().map_err(|refused| refusal(&refused))?;
        let Some(store) = &self.credentials else {
            self.permits.request(None)?;
            return Ok(Viewer(None));
        };
        let peer = parts.extensions.get::<Peer>().ok_or_else(|| refusal(&RpcRefusal::internal()))?;
        let mut too_many = None;
        let identity = identify_viewer(store, &parts.headers, peer.0, || {
            self.permits.request(None).map_err(|refused| {
                too_many = Some(refused);
                RpcRefusal::new(RefusalReason::RateExceeded, "too many tokens")
            })
        });
        let identity = identity.map_err(|refused| too_many.unwrap_or_else(|| refusal(&refused)))?;
        self.permits.request(Some(&identity.principal))?;
        Ok(Viewer(Some(Proven {
            principal: identity.principal,
            rights: identity.rights,
            token: identity.token,
        })))
    }

    /// The events of a stream of this viewer, until it has to end. `as_observer`: it is open to it as an observer only.
    ///
    /// # Errors
    /// If what was proven does not count any more.
    pub(super) fn guarded(
        &self,
        viewer: &Viewer,
        as_observer: bool,
        permit: ViewerPermit,
        events: Events,
    ) -> Result<Events, Refused> {
        let signal = self.drain.child_token();
        let registration = match (&viewer.0, &self.credentials) {
            (Some(proven), Some(store)) => {
                let proof = StreamProof {
                    token: proven.token.clone(),
                    observer: as_observer.then(|| proven.principal.clone()),
                };
                let registered = store.register_stream(&proof, signal.clone());
                registered.map_err(|ended| refusal(&ended.refusal()))?
            }
            _ => None,
        };
        let mut keep_alive = interval(KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        keep_alive.reset();
        let end = Box::pin(signal.cancelled_owned());
        Ok(Box::pin(Guarded { events, end, registration, keep_alive, _permit: permit }))
    }
}

impl Viewer {
    /// Its principal; `None`: nobody proves anything here.
    pub(super) fn principal(&self) -> Option<&Principal> {
        self.0.as_ref().map(|proven| &proven.principal)
    }

    /// Whether it may look at every instance.
    pub(super) fn sees_all(&self) -> bool {
        self.0.as_ref().is_none_or(|proven| proven.rights.observer)
    }

    /// As what it may look at an instance.
    ///
    /// # Errors
    /// If it may not.
    pub(super) fn basis(&self, instance: &Instance) -> Result<ViewBasis, Refused> {
        let Some(Proven { principal, rights, token }) = &self.0 else { return Ok(ViewBasis::Observer) };
        let scope = token.as_ref().map_or(Rights::ALL, |token| token.scope);
        view_basis(principal, *rights, scope, instance).map_err(|refused| refusal(&refused))
    }
}

/// What a browser is told in place of a refusal of gRPC.
pub(super) fn refusal(refused: &RpcRefusal) -> Refused {
    let status = match refused.reason.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut why = refused.message.clone();
    if status == StatusCode::UNAUTHORIZED {
        why += ": `stickycas-client page-link` prints a link with a token";
    }
    Refused { status, why }
}

/// See [`Page::guarded`].
struct Guarded {
    events: Events,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    registration: Option<Registration>,
    keep_alive: Interval,
    _permit: ViewerPermit,
}

impl Stream for Guarded {
    type Item = Result<Bytes, Refused>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.end.as_mut().poll(cx).is_ready() {
            let ended = self.registration.as_ref().and_then(Registration::why);
            let why = ended.map_or_else(
                || RpcRefusal::new(RefusalReason::Draining, "the server is shutting down"),
                |ended| ended.refusal(),
            );
            return Poll::Ready(Some(Err(refusal(&why))));
        }
        if let Poll::Ready(event) = self.events.as_mut().poll_next(cx) {
            self.keep_alive.reset();
            return Poll::Ready(event);
        }
        self.keep_alive.poll_tick(cx).map(|_| Some(Ok(NOTHING)))
    }
}
