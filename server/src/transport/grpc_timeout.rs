//! Responds with DEADLINE_EXCEEDED when the deadline of a call (`grpc-timeout`) passes.
//!
//! tonic's own timer would respond with CANCELLED, which tells the caller nothing about its access. The
//! deadline covers unary calls to their end, and streams up to their beginning. The layer of calls refuses a
//! deadline that cannot be read ([`refuse_malformed_timeout`]).

use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::time::{Instant, timeout_at};
use tokio_util::either::Either;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use crate::gate::Gates;

pub(super) const GRPC_TIMEOUT: &str = "grpc-timeout";

/// A service with deadlines on its calls. See the module.
#[derive(Clone, Debug)]
pub(crate) struct GrpcTimeout<S> {
    inner: S,
    gates: Gates,
}

impl<S> GrpcTimeout<S> {
    /// The clients of this service are told that a deadline has passed when everything is committed that was
    /// logged before.
    pub(crate) fn new(inner: S, gates: Gates) -> Self {
        Self { inner, gates }
    }
}

impl<S, B> Service<Request<B>> for GrpcTimeout<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future =
        Either<S::Future, std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let timeout = request.headers().get(GRPC_TIMEOUT).and_then(grpc_timeout);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let call = self.inner.call(request);
        let Some(deadline) = deadline else { return Either::Left(call) };
        let gates = self.gates.clone();
        Either::Right(Box::pin(async move {
            if let Ok(response) = timeout_at(deadline, call).await {
                return response;
            }
            // It tells that an access was accepted.
            let told = gates.everything_committed().await;
            let refused = told.err().unwrap_or_else(deadline_exceeded);
            Ok(refused.to_status().into_http())
        }))
    }
}

/// INTERNAL for a deadline that cannot be read, as other servers of gRPC refuse it: without one the call
/// would wait for longer than its caller. `None`: it can be read, or there is none.
pub(crate) fn refuse_malformed_timeout(headers: &HeaderMap) -> Option<Response<Body>> {
    const MALFORMED: &str = "malformed grpc-timeout: give at most eight digits and one of H, M, S, m, u, n";
    let is_malformed = headers.get(GRPC_TIMEOUT).is_some_and(|timeout| grpc_timeout(timeout).is_none());
    is_malformed.then(|| Status::internal(MALFORMED).into_http())
}

fn deadline_exceeded() -> RpcRefusal {
    RpcRefusal::new(
        RefusalReason::Deadline,
        "the deadline passed; an access that was accepted waits on or was executed: ask again with the same number",
    )
}

/// The time that the caller allows: at most eight digits and a unit (the gRPC protocol over HTTP/2). `None`:
/// it is malformed.
pub(super) fn grpc_timeout(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(text: &str) -> Option<Duration> {
        grpc_timeout(&text.parse().unwrap())
    }

    #[test]
    fn every_unit_is_read_and_malformed_text_is_not() {
        assert_eq!(timeout("2S"), Some(Duration::from_secs(2)));
        assert_eq!(timeout("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(timeout("1H"), Some(Duration::from_secs(3600)));
        for malformed in
            ["", "S", "-1S", "123456789S", "1", "1x", "1.5S", " 1S", "1S ", "+1S", "1S,2S", "é1S"]
        {
            assert_eq!(timeout(malformed), None, "{malformed:?}");
        }
    }
}
