//! The refusal of calls of services that do not exist.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;

/// Responds to every call with UNIMPLEMENTED.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownService;

impl<B> tower::Service<Request<B>> for UnknownService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Ok(Status::unimplemented("there is no such service").into_http()))
    }
}
