//! A call from its admission to its response: it is counted when it ends, and a refusal leaves when
//! everything is committed that was logged before it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::Response;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tonic::body::Body;
use tonic::{Code, Status};

use super::is_stream;
use crate::gate::{CallGates, Gate};
use crate::quota::{Counter, Method, Permit, Principals};
use crate::transport::{BodyState, DecodeFailure, ResponseHold, held_body};

/// A call, until there is a response or its stream begins.
pub(crate) enum CallFuture<F> {
    /// It is admitted.
    Running { inner: F, call: Option<Call> },
    /// Its refusal waits until it may be told.
    Refused(Box<Refusal>),
    /// It was no gRPC.
    Foreign(Option<Response<Body>>),
}

/// An admitted call.
pub(crate) struct Call {
    pub(super) ending: Ending,
    pub(super) request: Arc<BodyState>,
    pub(super) hold: ResponseHold,
    /// The gates of its answers.
    pub(super) gates: CallGates,
}

/// Counts a call when it ends.
pub(super) struct Ending {
    pub(super) method: Method,
    pub(super) principals: Principals,
    /// The moment at which it was admitted.
    pub(super) begun: Option<Instant>,
}

impl Ending {
    fn count(&self, code: Code) {
        let ended = &self.principals.totals().ended_calls;
        ended.count(self.method, code);
        if let Some(begun) = self.begun {
            ended.count_duration(self.method, begun.elapsed());
        }
    }
}

/// The refusal of a call, until it may be told.
pub(crate) struct Refusal {
    ending: Ending,
    gate: Gate,
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
            Self::Foreign(refused) => {
                Poll::Ready(Ok(refused.take().expect("a future is not polled after its end")))
            }
        }
    }
}

impl Refusal {
    pub(super) fn new(
        ending: Ending,
        gates: &CallGates,
        reason: Option<RefusalReason>,
        response: (Code, Response<Body>),
        permit: Option<Permit>,
    ) -> Box<Self> {
        let gate = gates.refusal(reason, is_told_without_space(ending.method, reason));
        Box::new(Self { ending, gate, response: Some(response), _permit: permit })
    }
}

/// Whether a refusal for this reason says nothing that may not be committed: that there is no space for an
/// instance, or none of this name. An instance that is gone is found until that is committed.
fn is_told_without_space(method: Method, reason: Option<RefusalReason>) -> bool {
    matches!(
        (method, reason),
        (Method::Create, Some(RefusalReason::TooManyInstances))
            | (Method::Get, Some(RefusalReason::InstanceUnknown))
    )
}

impl Future for Refusal {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let opened = ready!(Pin::new(&mut self.gate).poll(cx));
        let response = self.response.take().expect("a future is not polled after its end");
        let failed = opened.err().map(|why| (why.reason.code(), why.to_status().into_http()));
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
        self.hold.account.count(Counter::CallAbandoned);
        self.ending.count(Code::Cancelled);
    }

    /// Counts how the call ended, unless it was refused: that is counted when the refusal leaves. A refused
    /// call has its status among the headers, and no body.
    ///
    /// # Errors
    /// If it was refused.
    fn finish(mut self, mut response: Response<Body>) -> Result<Response<Body>, Box<Refusal>> {
        let Some(status) = Status::from_header_map(response.headers()) else {
            self.ending.count(Code::Ok);
            if is_stream(self.ending.method) {
                self.hold.permit = None;
            }
            self.hold.answer = response.extensions_mut().remove();
            return Ok(response.map(|body| held_body(body, self.hold)));
        };
        if self.request.is_broken() {
            self.abandoned();
            return Ok(response);
        }
        let (status, response) = match self.request.second_message() {
            Some(status) => (status.clone(), status.into_http()),
            None => (status, response),
        };
        let account = &self.hold.account;
        let (reason, refused) = match (self.request.overload(), DecodeFailure::of(&status, &self.request)) {
            // No offence: the path to the client may be slow.
            (Some(refused), _) => {
                account.count_refusal(refused.reason);
                (Some(refused.reason), (refused.reason.code(), refused.to_status().into_http()))
            }
            (None, Some(failure)) => {
                let refused = DecodeFailure::refusal(&status, &self.request);
                account.count(failure.counter());
                account.count_refusal(refused.reason);
                account.file_offence(failure.offence(), &refused.message);
                (Some(refused.reason), (refused.reason.code(), refused.to_status().into_http()))
            }
            (None, None) => {
                account.count_status(&status);
                // It tells nothing of what was logged, and that the server serves again may be waiting for
                // the disk.
                let reason = RpcRefusal::from_status(&status).map(|refused| refused.reason);
                if reason == Some(RefusalReason::Recovering) {
                    self.ending.count(status.code());
                    return Ok(response);
                }
                (reason, (status.code(), response))
            }
        };
        Err(Refusal::new(self.ending, &self.gates, reason, refused, self.hold.permit))
    }
}
