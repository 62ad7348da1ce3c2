//! A span for each call, from its request to the end of its response, for traces. Only with the feature
//! `otlp`.
//!
//! It names the method and the gRPC status, and no data of a client: names of methods that do not exist are
//! one name. A trace that the client began is not continued, for its id and its sampling are not to be
//! trusted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::body::Body;
use tower::Service;
use tracing::Span;

use crate::quota::Method;

/// A service with a span for each of its calls. See the module.
#[derive(Clone, Debug)]
pub(crate) struct CallSpans<S>(pub(crate) S);

impl<S, B> Service<Request<B>> for CallSpans<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = Method::from_name(request.uri().path().rsplit('/').next().unwrap_or_default());
        let span = tracing::info_span!(
            "call",
            otel.name = method.name(),
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.method = method.name(),
            rpc.grpc.status_code = tracing::field::Empty,
        );
        let response = span.in_scope(|| self.0.call(request));
        Box::pin(async move {
            let response = response.await?;
            record_status(&span, response.headers());
            Ok(response.map(|body| Body::new(SpanBody { body, span })))
        })
    }
}

fn record_status(span: &Span, headers: &HeaderMap) {
    let status = headers.get("grpc-status").and_then(|status| status.to_str().ok()?.parse::<u32>().ok());
    if let Some(status) = status {
        span.record("rpc.grpc.status_code", status);
    }
}

/// A response whose span ends with it.
struct SpanBody {
    body: Body,
    span: Span,
}

impl http_body::Body for SpanBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            record_status(&self.span, trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
