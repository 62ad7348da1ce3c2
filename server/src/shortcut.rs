//! The short way of the calls that come most often: to their service, past the router.
//!
//! The router looks a path up among those of all services, and hands the call on through a chain of boxes. A call that
//! waits for its phase keeps them all, and what waits is what fills the caches.

use std::task::{Context, Poll, ready};

use http::{Request, Response};
use tokio_util::either::Either;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::{Layer, Service};

/// Sends the calls of one service straight to it, and all others on.
#[derive(Clone, Debug)]
pub(crate) struct ShortcutLayer<S>(S);

impl<S> ShortcutLayer<S> {
    /// To this service.
    pub(crate) fn to(service: S) -> Self {
        Self(service)
    }
}

impl<S: Clone, R> Layer<R> for ShortcutLayer<S> {
    type Service = Shortcut<S, R>;

    fn layer(&self, others: R) -> Shortcut<S, R> {
        Shortcut { service: self.0.clone(), others }
    }
}

/// The service of [`ShortcutLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Shortcut<S, R> {
    service: S,
    others: R,
}

impl<S, R, B> Service<Request<B>> for Shortcut<S, R>
where
    S: Service<Request<B>, Response = Response<Body>> + NamedService,
    R: Service<Request<B>, Response = Response<Body>, Error = S::Error>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, R::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.service.poll_ready(cx))?;
        self.others.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_of::<S>(request.uri().path()) {
            Either::Left(self.service.call(request))
        } else {
            Either::Right(self.others.call(request))
        }
    }
}

/// Whether a method of this service has the path.
fn is_of<S: NamedService>(path: &str) -> bool {
    let method = path.strip_prefix('/').and_then(|path| path.strip_prefix(S::NAME));
    method.is_some_and(|method| method.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named;

    impl NamedService for Named {
        const NAME: &'static str = "a.v1.Named";
    }

    #[test]
    fn methods_of_the_service_are_told_from_those_of_others() {
        assert!(is_of::<Named>("/a.v1.Named/Call"));
        for other in ["/a.v1.NamedElse/Call", "/a.v1.Other/Call", "a.v1.Named/Call", "/a.v1.Named", "/", ""] {
            assert!(!is_of::<Named>(other), "{other}");
        }
    }
}
