//! The layer around every service of ours: it admits calls, and counts how they end.
//!
//! A call that comes in is identified, charged to the account of its principal and takes a permit of its
//! quota; a call above a limit goes no further. When it ends it is counted: refused, with the reason, or
//! abandoned by its client. The permit is held until the response has left the server. A refusal leaves when
//! everything is committed that was logged before it: the offence that it was filed as, and all that it tells
//! of an instance.
//!
//! Any client may call health and reflection, and paths that do not exist. Such a call passes here all the
//! same: it is charged to its principal, or, if it shows no identity, to the one account of all clients
//! without identity, as is each call that is refused for want of one. A request that is no gRPC is refused
//! before anything runs.

mod call;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Layer, Service};

use self::call::{Call, CallFuture, Ending, Refusal};
use crate::auth::{Authenticator, Identity, Principal, Rights, VerifiedToken, audit};
use crate::gate::Gates;
use crate::limits::Limits;
use crate::poll_clock;
use crate::quota::{Account, ChargedVerification, Counter, Method, NoPermit, Permit, Principals, Quota};
use crate::transport::{
    BodyState, Connection, LimitedBody, PREFIX, RequestLimits, ResponseHold, refuse_malformed_timeout,
};

/// The caller of an admitted call. Handlers find it in the extensions of the request, and look nowhere else
/// for it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) rights: Rights,
    /// The token that has proven the principal; `None`: the connection has.
    pub(crate) token: Option<Arc<VerifiedToken>>,
    /// The quotas and the counts of the principal.
    pub(crate) account: Arc<Account>,
    /// The state of the body of the request.
    pub(crate) request: Arc<BodyState>,
}

impl Caller {
    /// The rights to which the token narrows those of the principal; all rights without a token.
    pub(crate) fn scope(&self) -> Rights {
        self.token.as_ref().map_or(Rights::ALL, |token| token.scope)
    }
}

/// Admits the calls of a service. See the module.
#[derive(Clone, Debug)]
pub(crate) struct CallLayer {
    policy: Arc<CallPolicy>,
    /// `None`: a service of ours, whose methods are counted one by one and whose callers have an identity.
    open_to_all: Option<Method>,
}

#[derive(Debug)]
struct CallPolicy {
    authenticator: Authenticator,
    principals: Principals,
    limits: Limits,
    gates: Gates,
}

/// A call that goes on to its service.
struct Admitted {
    account: Arc<Account>,
    permit: Permit,
    request: Arc<BodyState>,
    /// `None`: the service is open to all.
    caller: Option<Caller>,
}

impl CallLayer {
    pub(crate) fn new(
        authenticator: Authenticator,
        limits: &Limits,
        principals: Principals,
        gates: Gates,
    ) -> Self {
        let limits = limits.clone();
        let policy = Arc::new(CallPolicy { authenticator, principals, limits, gates });
        Self { policy, open_to_all: None }
    }

    /// The layer around a service that any client may call. Its calls are counted as this method.
    pub(crate) fn open_to_all(&self, method: Method) -> Self {
        Self { policy: self.policy.clone(), open_to_all: Some(method) }
    }
}

impl CallPolicy {
    /// Admits the request with these parts.
    fn admit(&self, request: &Parts, is_open: bool) -> Result<Admitted, RpcRefusal> {
        let connection = request.extensions.get::<Connection>();
        let (identity, account) = if is_open {
            (None, self.account_of_open(request, connection))
        } else {
            let (identity, account) = self.account(request, connection)?;
            (Some(identity), account)
        };
        let permit = charge(&account, connection).inspect_err(|none| {
            account.count_refusal(none.refused.reason);
            if let Some(offence) = none.offence() {
                account.file_offence(offence, &none.refused.message);
            }
        })?;
        let state = Arc::<BodyState>::default();
        let caller = identity.map(|Identity { principal, rights, token }| Caller {
            principal,
            rights,
            token,
            account: account.clone(),
            request: state.clone(),
        });
        Ok(Admitted { account, permit, request: state, caller })
    }

    /// The identity of a request, and what was charged for the verification of its token.
    fn identify(
        &self,
        request: &Parts,
        connection: Option<&Connection>,
    ) -> (Result<Identity, RpcRefusal>, Option<ChargedVerification>) {
        let verified = Cell::new(None);
        let charge = || {
            verified.set(Some(self.charged(connection).charge_verification()?));
            Ok(())
        };
        let peer = connection.map(Connection::peer);
        (self.authenticator.identify(&request.headers, peer, charge), verified.get())
    }

    /// The identity of a request, and the account of its principal, which mostly is that of the connection. A
    /// request that fails here has proven no principal: it is counted, and no principal is blamed.
    fn account(
        &self,
        request: &Parts,
        connection: Option<&Connection>,
    ) -> Result<(Identity, Arc<Account>), RpcRefusal> {
        let (identity, verified) = self.identify(request, connection);
        let identity =
            identity.map_err(|refused| self.unidentified(connection, verified.is_some(), refused))?;
        let charged = self.charged(connection);
        let account = match connection.and_then(Connection::account) {
            Some(account) if account.principal() == Some(&identity.principal) => account.clone(),
            _ => self.principals.account(&identity.principal).map_err(|refused| {
                // It has no account that could be charged.
                let again = if verified.is_some() { Ok(()) } else { charged.charge_call() };
                let refused = again.err().unwrap_or(refused);
                self.principals.all().count_refusal(refused.reason);
                refused
            })?,
        };
        if let Some(verified) = verified {
            charged
                .pass_verification_to(&account, verified)
                .inspect_err(|refused| account.count_refusal(refused.reason))?;
        }
        Ok((identity, account))
    }

    /// The account of a request to a service that is open to all: that of the principal that it proves, if it
    /// proves one; else that of the principal whose connection it is, or of all clients without identity.
    fn account_of_open(&self, request: &Parts, connection: Option<&Connection>) -> Arc<Account> {
        let charged = self.charged(connection);
        let (identity, verified) = self.identify(request, connection);
        let account = identity.ok().and_then(|identity| self.principals.account(&identity.principal).ok());
        let Some(verified) = verified else { return account.unwrap_or_else(|| charged.clone()) };
        account.filter(|account| charged.pass_verification_to(account, verified).is_ok()).unwrap_or_else(
            || {
                // The call goes on as one without identity.
                charged.keep_verification(verified);
                charged.clone()
            },
        )
    }

    /// Counts a request that proves no principal, and charges it unless it `is_charged`, as is one whose
    /// token was verified. Returns its refusal.
    fn unidentified(
        &self,
        connection: Option<&Connection>,
        is_charged: bool,
        refused: RpcRefusal,
    ) -> RpcRefusal {
        let (anonymous, peer) = (self.principals.anonymous(), connection.map(Connection::peer));
        let takes_token = self.authenticator.takes_token(peer);
        let charged = if is_charged { Ok(()) } else { self.charged(connection).charge_call() };
        let refused = charged.err().unwrap_or(refused);
        anonymous.count_refusal(refused.reason);
        if takes_token && refused.reason == RefusalReason::NoIdentity {
            anonymous.count(Counter::TokenRefused);
        }
        if let Some(address) = self.authenticator.audited(peer) {
            audit::call_refused(&refused.message, address);
        }
        refused
    }

    /// Charges a request that is no gRPC: to the principal of its connection, or to those without identity.
    /// It is refused in any case.
    fn charge_foreign(&self, request: &Parts) {
        let _ = self.charged(request.extensions.get::<Connection>()).charge_call();
    }

    /// The account of the principal of a connection, or that of all clients without identity.
    fn charged<'a>(&'a self, connection: Option<&'a Connection>) -> &'a Arc<Account> {
        connection.and_then(Connection::account).unwrap_or(self.principals.anonymous())
    }

    /// The limits of a request of this method. Only a caller that may make a call that is large by nature may
    /// send so much.
    fn request_limits(&self, method: Method, caller: Option<&Caller>) -> RequestLimits {
        let Limits { call_bytes, message_bytes, request_timeout: timeout, .. } = self.limits;
        let may_pause = method == Method::Attach;
        let is_single = !matches!(method, Method::Attach | Method::Reflection | Method::Unknown);
        let is_large =
            may_pause || (method == Method::Create && caller.is_some_and(|it| it.rights.coordinator));
        if is_large {
            // Of Attach any number of messages.
            let bytes = if may_pause { usize::MAX } else { message_bytes.saturating_add(PREFIX) };
            return RequestLimits { bytes, message_bytes, timeout, may_pause, is_single };
        }
        let message_bytes = call_bytes.saturating_sub(PREFIX).min(message_bytes);
        RequestLimits { bytes: call_bytes, message_bytes, timeout, may_pause, is_single }
    }
}

/// Whether the method responds with a stream that has a quota of its own.
fn is_stream(method: Method) -> bool {
    matches!(method, Method::Attach | Method::Watch)
}

/// The response to a request that is no gRPC, or whose deadline cannot be read; `None` if it is one.
fn refuse_other_than_grpc(request: &Parts) -> Option<Response<Body>> {
    let refuse = |code| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = code;
        response
    };
    if request.method != http::Method::POST {
        let mut refused = refuse(StatusCode::METHOD_NOT_ALLOWED);
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(refused);
    }
    let content_type = request.headers.get(CONTENT_TYPE).map_or(&[][..], HeaderValue::as_bytes);
    if !is_grpc(content_type) {
        return Some(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    refuse_malformed_timeout(&request.headers)
}

/// Whether a content type is that of gRPC with messages of Protocol Buffers, with parameters or without.
fn is_grpc(content_type: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let Some((head, format)) = essence.split_at_checked(GRPC.len()) else { return false };
    head.eq_ignore_ascii_case(GRPC) && (format.is_empty() || format.eq_ignore_ascii_case(b"+proto"))
}

/// The method of a path `/service/method`.
fn method(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or_default();
    path.split_once('/').map_or("", |(_, method)| method)
}

/// Charges a call, refused or not, and claims the connection for its principal.
fn charge(account: &Arc<Account>, connection: Option<&Connection>) -> Result<Permit, NoPermit> {
    account.charge_call().map_err(NoPermit::own)?;
    if let Some(connection) = connection
        && account.principal().is_some()
    {
        connection.claim(account)?;
    }
    account.take(Quota::Calls)
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner, policy: self.policy.clone(), open_to_all: self.open_to_all }
    }
}

/// The service of [`CallLayer`].
#[derive(Clone, Debug)]
pub(crate) struct CallService<S> {
    inner: S,
    policy: Arc<CallPolicy>,
    open_to_all: Option<Method>,
}

impl<S> CallService<S> {
    /// The gates of the answers to a call. Services that are open to all tell nothing of instances.
    fn gates(&self) -> Gates {
        if self.open_to_all.is_some() { Gates::NONE } else { self.policy.gates.clone() }
    }
}

impl<S, B> Service<Request<B>> for CallService<S>
where
    S: Service<Request<LimitedBody<B>>, Response = Response<Body>>,
    S::Future: Unpin,
    B: http_body::Body<Data = Bytes> + Unpin,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let method = self.open_to_all.unwrap_or_else(|| Method::from_name(method(parts.uri.path())));
        let policy = &self.policy;
        policy.principals.totals().calls[method as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(refused) = refuse_other_than_grpc(&parts) {
            policy.charge_foreign(&parts);
            return CallFuture::Foreign(Some(refused));
        }
        match policy.admit(&parts, self.open_to_all.is_some()) {
            Ok(Admitted { account, permit, request, caller }) => {
                let limits = policy.request_limits(method, caller.as_ref());
                let gates = self.gates();
                let call_gates = gates.of_call();
                let body = LimitedBody::new(body, request.clone(), limits, account.clone(), gates);
                let principals = policy.principals.clone();
                let ending = Ending { method, principals, begun: Some(poll_clock::now()) };
                let connection = parts.extensions.get::<Connection>().cloned();
                let call = Some(Call {
                    ending,
                    request,
                    hold: ResponseHold { account, permit: Some(permit), connection, answer: None },
                    gates: call_gates,
                });
                if let Some(caller) = caller {
                    parts.extensions.insert(caller);
                }
                let inner = self.inner.call(Request::from_parts(parts, body));
                CallFuture::Running { inner, call }
            }
            Err(refused) => {
                let ending = Ending { method, principals: self.policy.principals.clone(), begun: None };
                CallFuture::Refused(Refusal::new(
                    ending,
                    &self.gates().of_call(),
                    Some(refused.reason),
                    (refused.reason.code(), refused.to_status().into_http()),
                    None,
                ))
            }
        }
    }
}

impl<S: NamedService> NamedService for CallService<S> {
    const NAME: &'static str = S::NAME;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_recognised_by_its_whole_path() {
        let is_stream = |path| is_stream(Method::from_name(method(path)));
        assert!(is_stream("/stickycas.v1.StickyCasService/Attach"));
        assert!(is_stream("/stickycas.v1.InstanceService/Watch"));
        for other in [
            "/stickycas.v1.StickyCasService/Append",
            "/stickycas.v1.StickyCasService/x/Attach",
            "/Attach",
            "Attach",
            "",
        ] {
            assert!(!is_stream(other), "{other}");
        }
    }

    #[test]
    fn only_protocol_buffers_over_grpc_are_grpc() {
        for good in ["application/grpc", "application/grpc+proto", "Application/GRPC ; a=b"] {
            assert!(is_grpc(good.as_bytes()), "{good}");
        }
        for bad in
            ["", "application/grp", "application/grpc-web", "application/grpc+json", "application/grpcx"]
        {
            assert!(!is_grpc(bad.as_bytes()), "{bad}");
        }
    }
}
