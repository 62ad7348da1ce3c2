//! The border: what every call of ours passes on its way in and out.
//!
//! On its way in a call gets its caller, is charged to the caller's account and takes a place of its share; what is
//! above a limit goes no further. On its way out it is counted: why it was refused, or that nobody waited for the
//! answer; the answer keeps the permit until it is gone. Health and reflection do not pass here: they are for whoever asks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use stickycas_model::history::OffenceKind;
use stickycas_proto::status::RpcRefusal;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Layer, Service};

use crate::auth::{Authenticator, Principal};
use crate::config::Config;
use crate::quota::{Account, Counter, Permit, Principals, Quota};
use crate::transport::{BodyState, Connection, DecodeFailure, LimitedBody, PermitBody};

/// Who calls and what it may do beyond being a process of an instance.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Who.
    pub(crate) principal: Principal,
    /// May create instances (F11).
    pub(crate) coordinator: bool,
    /// May look at every instance (F13).
    pub(crate) observer: bool,
    /// What the principal may still ask for, and what is kept of what it does.
    pub(crate) account: Arc<Account>,
    /// How the request's messages end.
    pub(crate) request: Arc<BodyState>,
}

/// Puts the border around a service.
#[derive(Clone, Debug)]
pub(crate) struct CallLayer(Arc<CallPolicy>);

#[derive(Debug)]
struct CallPolicy {
    authenticator: Authenticator,
    principals: Principals,
    call_bytes: usize,
}

impl CallLayer {
    pub(crate) fn new(config: &Config, principals: Principals) -> Self {
        let authenticator = Authenticator::new(config);
        Self(Arc::new(CallPolicy { authenticator, principals, call_bytes: config.limits.call_bytes }))
    }
}

impl CallPolicy {
    /// Lets a request in, or says why not.
    fn admit<B>(&self, request: &Request<B>) -> Result<(Caller, Permit), RpcRefusal> {
        let name = self.authenticator.identify(request.headers());
        let name = name.inspect_err(|refused| self.principals.all().count_refusal(refused.reason))?;
        let connection = request.extensions().get::<Connection>();
        let account = match connection.and_then(Connection::account) {
            Some(owner) if owner.principal().as_str() == name => owner.clone(),
            _ => self
                .principals
                .account(name)
                .inspect_err(|refused| self.principals.all().count_refusal(refused.reason))?,
        };
        let permit = charge(connection, &account).inspect_err(|refused| {
            account.count_refusal(refused.reason);
            account.file_offence(OffenceKind::QuotaExceeded, &refused.message);
        })?;
        let principal = account.principal().clone();
        let caller = Caller {
            coordinator: self.authenticator.is_coordinator(&principal),
            observer: self.authenticator.is_observer(&principal),
            principal,
            account,
            request: Arc::default(),
        };
        Ok((caller, permit))
    }
}

impl CallPolicy {
    /// Bytes that a call of this method may send. What is large by nature is so only for those who may make the call.
    fn bytes_of(&self, path: &str, caller: &Caller) -> usize {
        match method(path) {
            // As long as it likes, in messages that tonic bounds one by one.
            "Attach" => usize::MAX,
            "Create" if caller.coordinator => usize::MAX,
            _ => self.call_bytes,
        }
    }
}

/// Whether the method answers with a stream, which has a share of its own.
fn is_stream(path: &str) -> bool {
    matches!(method(path), "Attach" | "Watch")
}

/// What comes behind the service in a path.
fn method(path: &str) -> &str {
    let path = path.strip_prefix('/').unwrap_or_default();
    path.split_once('/').map_or("", |(_, method)| method)
}

/// Whether the principal may make this call and have this connection. What is refused is paid for like any other.
fn charge(connection: Option<&Connection>, account: &Arc<Account>) -> Result<Permit, RpcRefusal> {
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
    type Future = tokio_util::either::Either<
        CallFuture<S::Future>,
        std::future::Ready<Result<Response<Body>, S::Error>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        use tokio_util::either::Either;
        match self.policy.admit(&request) {
            Ok((caller, permit)) => {
                let path = request.uri().path();
                let (account, end) = (caller.account.clone(), caller.request.clone());
                let call = Call { account, request: end, permit, streams: is_stream(path) };
                let limit = self.policy.bytes_of(path, &caller);
                request.extensions_mut().insert(caller);
                let request = request.map(|body| LimitedBody::new(body, call.request.clone(), limit));
                Either::Left(CallFuture { inner: self.inner.call(request), call: Some(call) })
            }
            Err(refused) => Either::Right(std::future::ready(Ok(refused.to_status().into_http()))),
        }
    }
}

impl<S: NamedService> NamedService for CallService<S> {
    const NAME: &'static str = S::NAME;
}

/// A call on its way, until it is answered or its stream has begun.
pub(crate) struct CallFuture<F> {
    inner: F,
    call: Option<Call>,
}

struct Call {
    account: Arc<Account>,
    request: Arc<BodyState>,
    permit: Permit,
    streams: bool,
}

impl<F, E> Future for CallFuture<F>
where
    F: Future<Output = Result<Response<Body>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let response = ready!(Pin::new(&mut self.inner).poll(cx))?;
        let Some(call) = self.call.take() else { return Poll::Ready(Ok(response)) };
        Poll::Ready(Ok(call.answer(response)))
    }
}

impl<F> Drop for CallFuture<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call.account.count(Counter::CallAbandoned);
        }
    }
}

impl Call {
    /// Counts a refusal. A call that was refused at once has its status among the headers, and nothing behind them.
    fn answer(self, response: Response<Body>) -> Response<Body> {
        let Some(status) = Status::from_header_map(response.headers()) else {
            return if self.streams { response } else { self.hold(response) };
        };
        if self.request.is_broken() {
            self.account.count(Counter::CallAbandoned);
            return response;
        }
        match DecodeFailure::of(&status, &self.request) {
            Some(unreadable) => {
                let refused = DecodeFailure::refused(&status, &self.request);
                self.account.count(unreadable.counter());
                self.account.count_refusal(refused.reason);
                self.account.file_offence(unreadable.offence(), &refused.message);
                refused.to_status().into_http()
            }
            None => {
                self.account.count_status(&status);
                response
            }
        }
    }

    /// The answer takes the call's permit until it is gone.
    fn hold(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(PermitBody::new(body, self.permit)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_known_by_its_whole_path() {
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
