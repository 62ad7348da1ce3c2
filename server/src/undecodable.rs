//! Says MALFORMED of a message that is none.
//!
//! tonic refuses what it cannot decode before a handler sees it: with INTERNAL, which would tell the caller of
//! a bug of ours, or with OUT_OF_RANGE if it is too large, and without details. For either the rules know
//! INVALID_ARGUMENT (SPEC section 11). What our handlers refuse carries details, so the two are told apart.

use std::task::{Context, Poll};

use http::{Request, Response};
use stickycas_proto::status::Refused;
use stickycas_proto::v1::RefusalReason;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::util::MapResponse;
use tower::{Layer, Service};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UndecodableLayer;

type Reword = fn(Response<Body>) -> Response<Body>;

/// The service of [`UndecodableLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Undecodable<S>(MapResponse<S, Reword>);

impl<S> Layer<S> for UndecodableLayer {
    type Service = Undecodable<S>;

    fn layer(&self, inner: S) -> Undecodable<S> {
        Undecodable(MapResponse::new(inner, reword))
    }
}

impl<S, B> Service<Request<B>> for Undecodable<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = <MapResponse<S, Reword> as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.0.call(request)
    }
}

impl<S: NamedService> NamedService for Undecodable<S> {
    const NAME: &'static str = S::NAME;
}

/// A call that was refused at once has its status among the headers.
fn reword(response: Response<Body>) -> Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(status)
            if matches!(status.code(), Code::Internal | Code::OutOfRange) && status.details().is_empty() =>
        {
            Refused::new(RefusalReason::Malformed, status.message()).to_status().into_http()
        }
        _ => response,
    }
}
