//! The border: what every call of ours passes on its way in and out.
//!
//! On its way in a call gets its caller, is charged to the caller's account and takes a place of its share; what is
//! above a limit goes no further. On its way out it is counted: why it was refused, or that nobody waited for the
//! answer; the answer keeps the place until it is gone. Health and reflection do not pass here: they are for whoever asks.

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

use crate::config::Config;
use crate::identity::{Caller, Directory};
use crate::peer::Peer;
use crate::principals::{Account, Incident, Place, Principals, Share};
use crate::unread::Unread;
use crate::unreadable::{RequestEnd, Unreadable, Watched};

/// Puts the border around a service.
#[derive(Clone, Debug)]
pub(crate) struct BorderLayer(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    directory: Directory,
    principals: Principals,
    call_bytes: usize,
}

impl BorderLayer {
    pub(crate) fn new(config: &Config, principals: Principals) -> Self {
        let directory = Directory::new(config);
        Self(Arc::new(Gate { directory, principals, call_bytes: config.limits.call_bytes }))
    }
}

impl Gate {
    /// Lets a request in, or says why not.
    fn admit<B>(&self, request: &Request<B>) -> Result<(Caller, Place), RpcRefusal> {
        let name = self.directory.identify(request.headers());
        let name = name.inspect_err(|refused| self.principals.all().refuse(refused.reason))?;
        let peer = request.extensions().get::<Peer>();
        let account = match peer.and_then(Peer::owner) {
            Some(owner) if owner.principal().as_str() == name => owner.clone(),
            _ => self
                .principals
                .account(name)
                .inspect_err(|refused| self.principals.all().refuse(refused.reason))?,
        };
        let place = charge(peer, &account).inspect_err(|refused| {
            account.refuse(refused.reason);
            account.blame(OffenceKind::QuotaExceeded, &refused.message);
        })?;
        Ok((self.directory.caller(account, Arc::default()), place))
    }
}

impl Gate {
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
fn charge(peer: Option<&Peer>, account: &Arc<Account>) -> Result<Place, RpcRefusal> {
    account.charge_call()?;
    if let Some(peer) = peer {
        peer.speak(account)?;
    }
    account.take(Share::Calls)
}

impl<S> Layer<S> for BorderLayer {
    type Service = Border<S>;

    fn layer(&self, inner: S) -> Border<S> {
        Border { inner, gate: self.0.clone() }
    }
}

/// The service of [`BorderLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Border<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S, B> Service<Request<B>> for Border<S>
where
    S: Service<Request<Watched<B>>, Response = Response<Body>>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = tokio_util::either::Either<
        Answering<S::Future>,
        std::future::Ready<Result<Response<Body>, S::Error>>,
    >;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        use tokio_util::either::Either;
        match self.gate.admit(&request) {
            Ok((caller, place)) => {
                let path = request.uri().path();
                let (account, end) = (caller.account.clone(), caller.request.clone());
                let call = Call { account, request: end, place, streams: is_stream(path) };
                let limit = self.gate.bytes_of(path, &caller);
                request.extensions_mut().insert(caller);
                let request = request.map(|body| Watched::new(body, call.request.clone(), limit));
                Either::Left(Answering { inner: self.inner.call(request), call: Some(call) })
            }
            Err(refused) => Either::Right(std::future::ready(Ok(refused.to_status().into_http()))),
        }
    }
}

impl<S: NamedService> NamedService for Border<S> {
    const NAME: &'static str = S::NAME;
}

/// A call on its way, until it is answered or its stream has begun.
pub(crate) struct Answering<F> {
    inner: F,
    call: Option<Call>,
}

struct Call {
    account: Arc<Account>,
    request: Arc<RequestEnd>,
    place: Place,
    streams: bool,
}

impl<F, E> Future for Answering<F>
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

impl<F> Drop for Answering<F> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call.account.note(Incident::CallAbandoned);
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
            self.account.note(Incident::CallAbandoned);
            return response;
        }
        match Unreadable::of(&status, &self.request) {
            Some(unreadable) => {
                let refused = Unreadable::refused(&status, &self.request);
                self.account.note(unreadable.incident());
                self.account.refuse(refused.reason);
                self.account.blame(unreadable.offence(), &refused.message);
                refused.to_status().into_http()
            }
            None => {
                self.account.refuse_with(&status);
                response
            }
        }
    }

    /// The answer takes the call's place until it is gone.
    fn hold(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Unread::new(body, self.place)))
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
