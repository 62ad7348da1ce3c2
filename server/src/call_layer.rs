//! The layer around every service of ours: it admits calls, and counts how they end.
//!
//! A call that comes in is identified, charged to the account of its principal and takes a permit of its quota; a
//! call above a limit goes no further. When it ends it is counted: refused and why, or abandoned by its client. The
//! permit is held until the response has left the server. A refusal leaves when everything is committed that was logged
//! before it: the offence that it was filed as, and whatever it tells of an instance. Health and reflection are served without this layer: any
//! client may call them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::request::Parts;
use http::{Request, Response};
use stickycas_model::history::OffenceKind;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::auth::{Authenticator, Identity, Principal, Rights, VerifiedToken, audit};
use crate::commit_log::{CommitLog, REFUSAL_BYTES};
use crate::limits::Limits;
use crate::quota::{Account, Counter, Method, Permit, Principals, Quota};
use crate::transport::{BodyState, Connection, DecodeFailure, LimitedBody, permit_body};

/// The caller of an admitted call. Handlers find it in the extensions of the request, and look nowhere else for it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) rights: Rights,
    /// What has proven the principal, if it was not the connection.
    pub(crate) token: Option<Arc<VerifiedToken>>,
    /// The quotas and the counts of the principal.
    pub(crate) account: Arc<Account>,
    /// How the body of the request ends.
    pub(crate) request: Arc<BodyState>,
}

impl Caller {
    /// To what a token narrows the rights of the principal.
    pub(crate) fn scope(&self) -> Rights {
        self.token.as_ref().map_or(Rights::ALL, |token| token.scope)
    }
}

/// Admits the calls of a service. See the module.
#[derive(Clone, Debug)]
pub(crate) struct CallLayer(Arc<CallPolicy>);

#[derive(Debug)]
struct CallPolicy {
    authenticator: Authenticator,
    principals: Principals,
    call_bytes: usize,
    log: Arc<dyn CommitLog>,
}

impl CallLayer {
    pub(crate) fn new(
        authenticator: Authenticator,
        limits: &Limits,
        principals: Principals,
        log: Arc<dyn CommitLog>,
    ) -> Self {
        Self(Arc::new(CallPolicy { authenticator, principals, call_bytes: limits.call_bytes, log }))
    }
}

impl CallPolicy {
    /// The caller of the request with these parts, and the permit of the call.
    fn admit(&self, request: &Parts) -> Result<(Caller, Permit), RpcRefusal> {
        let connection = request.extensions.get::<Connection>();
        let (Identity { principal, rights, token }, account) = self.account(request, connection)?;
        let permit = charge(&account, connection).inspect_err(|refused| {
            account.count_refusal(refused.reason);
            account.file_offence(OffenceKind::QuotaExceeded, &refused.message);
        })?;
        let caller = Caller { principal, rights, token, account, request: Arc::default() };
        Ok((caller, permit))
    }

    /// Who makes the request, and the account of that principal, which mostly is that of the connection. What fails has
    /// proven nobody: it is counted, and no principal is blamed.
    fn account(
        &self,
        request: &Parts,
        connection: Option<&Connection>,
    ) -> Result<(Identity, Arc<Account>), RpcRefusal> {
        let of_connection = connection.and_then(Connection::account);
        let anonymous = self.principals.anonymous();
        let identified =
            self.authenticator.identify(request, || of_connection.unwrap_or(anonymous).charge_call());
        let identity = identified.inspect_err(|refused| self.count_unidentified(request, refused))?;
        let account = match of_connection {
            Some(account) if account.principal() == Some(&identity.principal) => account.clone(),
            _ => self
                .principals
                .account(&identity.principal)
                .inspect_err(|refused| self.principals.all().count_refusal(refused.reason))?,
        };
        Ok((identity, account))
    }

    fn count_unidentified(&self, request: &Parts, refused: &RpcRefusal) {
        let anonymous = self.principals.anonymous();
        anonymous.count_refusal(refused.reason);
        if self.authenticator.takes_token(request) {
            anonymous.count(Counter::TokenRefused);
        }
        if let Some(address) = self.authenticator.audited(request) {
            audit::call_refused(&refused.message, address);
        }
    }

    /// Bytes that the request of this method may have. Only a caller who may make a call that is large by nature may
    /// send so much.
    fn max_request_bytes(&self, path: &str, caller: &Caller) -> usize {
        match method(path) {
            // Any number of messages, each of which tonic bounds.
            "Attach" => usize::MAX,
            "Create" if caller.rights.coordinator => usize::MAX,
            _ => self.call_bytes,
        }
    }
}

/// Whether the method responds with a stream. Streams have a quota of their own.
fn is_stream(path: &str) -> bool {
    matches!(method(path), "Attach" | "Watch")
}

/// The method of a path `/service/method`.
fn method(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or_default();
    path.split_once('/').map_or("", |(_, method)| method)
}

/// Charges a call, refused or not, and claims the connection for its principal.
fn charge(account: &Arc<Account>, connection: Option<&Connection>) -> Result<Permit, RpcRefusal> {
    account.charge_call()?;
    if let Some(connection) = connection {
        connection.claim(account)?;
    }
    account.take(Quota::Calls)
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner, policy: self.0.clone() }
    }
}

/// The service of [`CallLayer`].
#[derive(Clone, Debug)]
pub(crate) struct CallService<S> {
    inner: S,
    policy: Arc<CallPolicy>,
}

impl<S, B> Service<Request<B>> for CallService<S>
where
    S: Service<Request<LimitedBody<B>>, Response = Response<Body>>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = CallFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        let method = Method::from_name(method(parts.uri.path()));
        self.policy.principals.usage().calls[method as usize].fetch_add(1, Ordering::Relaxed);
        match self.policy.admit(&parts) {
            Ok((caller, permit)) => {
                let path = parts.uri.path();
                let limit = self.policy.max_request_bytes(path, &caller);
                let body = LimitedBody::new(body, caller.request.clone(), limit, self.policy.log.clone());
                let (account, request) = (caller.account.clone(), caller.request.clone());
                let (is_stream, log) = (is_stream(path), self.policy.log.clone());
                let principals = self.policy.principals.clone();
                let ending = Ending { method, principals, begun: Some(Instant::now()) };
                let call = Some(Call { ending, account, request, permit, is_stream, log });
                parts.extensions.insert(caller);
                let inner = self.inner.call(Request::from_parts(parts, body));
                CallFuture::Running { inner, call }
            }
            Err(refused) => {
                let ending = Ending { method, principals: self.policy.principals.clone(), begun: None };
                CallFuture::Refused(Refusal::new(
                    ending,
                    &self.policy.log,
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

/// A call, until there is a response or its stream begins.
pub(crate) enum CallFuture<F> {
    /// It is admitted.
    Running { inner: F, call: Option<Call> },
    /// Its refusal waits until it may be told.
    Refused(Box<Refusal>),
}

/// An admitted call.
pub(crate) struct Call {
    ending: Ending,
    account: Arc<Account>,
    request: Arc<BodyState>,
    permit: Permit,
    is_stream: bool,
    log: Arc<dyn CommitLog>,
}

/// Counts a call when it ends.
struct Ending {
    method: Method,
    principals: Principals,
    /// When it was admitted.
    begun: Option<Instant>,
}

impl Ending {
    fn count(&self, code: Code) {
        let ended = &self.principals.usage().ended_calls;
        ended.count(self.method, code);
        if let Some(begun) = self.begun {
            ended.count_duration(self.method, begun.elapsed());
        }
    }
}

/// The refusal of a call, until everything is committed that was logged before it.
pub(crate) struct Refusal {
    ending: Ending,
    log: Arc<dyn CommitLog>,
    committed: Option<oneshot::Receiver<()>>,
    /// With its code; `None` once it was told.
    response: Option<(Code, Response<Body>)>,
    _permit: Option<Permit>,
}

impl<F, E> Future for CallFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Self::Running { inner, call } = &mut *self {
            let response = ready!(Pin::new(inner).poll(cx))?;
            let Some(call) = call.take() else { return Poll::Ready(Ok(response)) };
            match call.finish(response) {
                Ok(response) => return Poll::Ready(Ok(response)),
                Err(refusal) => *self = Self::Refused(refusal),
            }
        }
        match &mut *self {
            Self::Running { .. } => unreachable!("its response has come"),
            Self::Refused(refusal) => Pin::new(refusal).poll(cx).map(Ok),
        }
    }
}

impl Refusal {
    fn new(
        ending: Ending,
        log: &Arc<dyn CommitLog>,
        response: (Code, Response<Body>),
        permit: Option<Permit>,
    ) -> Box<Self> {
        let committed = log.barrier(REFUSAL_BYTES);
        Box::new(Self { ending, log: log.clone(), committed, response: Some(response), _permit: permit })
    }
}

impl Future for Refusal {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        if let Some(committed) = &mut self.committed {
            let _ = ready!(Pin::new(committed).poll(cx));
        }
        let response = self.response.take().expect("a future is not polled after its end");
        // After a failure nothing else is told.
        let failure = self.log.failure();
        let failed = failure.map(|failure| (failure.reason.code(), failure.to_status().into_http()));
        let (code, response) = failed.unwrap_or(response);
        self.ending.count(code);
        Poll::Ready(response)
    }
}

/// The client did not wait for it.
impl Drop for Refusal {
    fn drop(&mut self) {
        if self.response.is_some() {
            self.ending.count(Code::Cancelled);
        }
    }
}

impl<F> Drop for CallFuture<F> {
    fn drop(&mut self) {
        if let Self::Running { call, .. } = self
            && let Some(call) = call.take()
        {
            call.abandoned();
        }
    }
}

impl Call {
    /// The client is gone, or its deadline has passed.
    fn abandoned(&self) {
        self.account.count(Counter::CallAbandoned);
        self.ending.count(Code::Cancelled);
    }

    /// Counts how the call ended, unless it was refused: that is counted when the refusal leaves. A refused call has its
    /// status among the headers, and no body.
    ///
    /// # Errors
    /// If it was refused.
    fn finish(self, response: Response<Body>) -> Result<Response<Body>, Box<Refusal>> {
        let Some(status) = Status::from_header_map(response.headers()) else {
            self.ending.count(Code::Ok);
            return Ok(if self.is_stream {
                response
            } else {
                response.map(|body| permit_body(body, self.permit))
            });
        };
        if self.request.is_broken() {
            self.abandoned();
            return Ok(response);
        }
        let refused = match DecodeFailure::of(&status, &self.request) {
            Some(failure) => {
                let refused = DecodeFailure::refusal(&status, &self.request);
                self.account.count(failure.counter());
                self.account.count_refusal(refused.reason);
                self.account.file_offence(failure.offence(), &refused.message);
                (refused.reason.code(), refused.to_status().into_http())
            }
            None => {
                self.account.count_status(&status);
                // It tells nothing of what was logged, and that the server serves again may be waiting for the disk.
                let reason = RpcRefusal::from_status(&status).map(|refused| refused.reason);
                if reason == Some(RefusalReason::Recovering) {
                    self.ending.count(status.code());
                    return Ok(response);
                }
                (status.code(), response)
            }
        };
        Err(Refusal::new(self.ending, &self.log, refused, Some(self.permit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_recognised_by_its_whole_path() {
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
}
