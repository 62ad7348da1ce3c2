//! The unary calls of `StickyCasService`.

use std::future::ready;
use std::pin::Pin;

use stickycas_model::access::{Access, Answer, Op};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::attach::{self, StickyCasService};
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::access::{access_from_append, access_from_read, value_from_wire};
use stickycas_proto::convert::answer::{append_response, read_response};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{
    AppendRequest, AppendResponse, DecideRequest, DecideResponse, ReadRequest, ReadResponse, RefusalReason,
};
use tokio_util::either::Either;
use tonic::{Request, Response, Status, Streaming};

use super::Service;
use super::attach::{AttachStream, charge_round, logged_bytes};
use super::authorization::refused_content;
use super::instances::longest_read;
use crate::call_layer::Caller;
use crate::gate::Uncommitted;
use crate::instances::{CompletedAccess, UnaryAccess, UnaryAnswer, Waiter};
use crate::quota::Counter;
use crate::transport::HeldAnswer;

#[tonic::async_trait]
impl StickyCasService for Service {
    type AttachStream = AttachStream;

    async fn attach(
        &self,
        request: Request<Streaming<attach::DecodedRequest>>,
    ) -> Result<Response<AttachStream>, Status> {
        Ok(Response::new(AttachStream::open(self, request)?))
    }

    async fn append(&self, request: Request<AppendRequest>) -> Result<Response<AppendResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        let append = request.get_ref();
        let decode = |process, params: &Params| access_from_append(append, process, params);
        let answer = self.answer(self.submit(&caller, &append.instance_id, append.access_number, decode));
        drop((caller, request));
        let CompletedAccess { phase, answer, .. } = answer.await?;
        let Answer::Append(answer) = answer else { return Err(RpcRefusal::internal().into()) };
        Ok(Response::new(append_response(phase, answer)))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        let read = request.get_ref();
        let decode = |process, _: &Params| access_from_read(read, process);
        let answer = self.answer(self.submit(&caller, &read.instance_id, read.access_number, decode));
        let account = caller.account.clone();
        drop((caller, request));
        let access = answer.await?;
        let Answer::Read(answer) = access.answer else { return Err(RpcRefusal::internal().into()) };
        // Before it is made: as long as the client does not take it, it counts as unread, each value with its
        // key and length.
        let bytes = access.values().map(|value| value.len() + 4).sum();
        let held = HeldAnswer::new(account, bytes)?;
        let mut response = Response::new(read_response(access.phase, answer, access.values()));
        response.extensions_mut().insert(held);
        Ok(response)
    }

    async fn decide(&self, request: Request<DecideRequest>) -> Result<Response<DecideResponse>, Status> {
        let caller = self.caller(request.extensions())?;
        // Boxed: a call that waits keeps little memory.
        let decided = Box::pin(self.submit_decision(&caller, request.get_ref())?.committed());
        drop((caller, request));
        decided.await??;
        Ok(Response::new(DecideResponse {}))
    }
}

// When these functions return, their inputs are submitted; their callers only wait.
impl Service {
    /// Hands a decision to its instance, in one step.
    fn submit_decision(
        &self,
        caller: &Caller,
        request: &DecideRequest,
    ) -> Result<Uncommitted<Result<(), RpcRefusal>>, RpcRefusal> {
        let (instance, process) = self.member(caller, request.instance_id.parse().ok())?;
        let value = match value_from_wire("value", &request.value, instance.params()) {
            Ok(value) => value,
            Err(error) => {
                let (offence, refused) = refused_content(process, None, &error);
                return Ok(instance.refuse_call(offence, refused));
            }
        };
        let charge = instance.charge_log(&caller.account, value.as_bytes().len())?;
        let decided = instance.call_decide(process, value);
        instance.keep_charge(charge);
        Ok(decided)
    }

    /// Hands one access to its instance, in one step. A call that is cancelled while the access waits loses
    /// the answer and not the access (F8a).
    fn submit(
        &self,
        caller: &Caller,
        id: &str,
        number: u64,
        decode: impl FnOnce(ProcessId, &Params) -> Result<Access, WireError>,
    ) -> Result<UnaryAnswer, RpcRefusal> {
        let (instance, process) = self.member(caller, id.parse().ok())?;
        charge_round(caller, &instance)?;
        let access = match decode(process, instance.params()) {
            Ok(access) => access,
            Err(error) => {
                let (offence, refused) = refused_content(process, AccessNumber::new(number), &error);
                return Ok(UnaryAnswer::Known(instance.refuse_call(offence, refused)));
            }
        };
        if matches!(access.op, Op::Read { .. }) {
            check_unary_read(instance.params())?;
        }
        let charge = instance.charge_log(&caller.account, logged_bytes(&access))?;
        let UnaryAccess { answer, repeated } = instance.call(access);
        if repeated {
            caller.account.count(Counter::AccessRepeated);
        } else {
            instance.keep_charge(charge);
        }
        Ok(answer)
    }

    /// Waits for the answer to an access. A call that waits for its phase should keep little memory, so rare
    /// parts are boxed.
    fn answer(
        &self,
        submitted: Result<UnaryAnswer, RpcRefusal>,
    ) -> impl Future<Output = Result<CompletedAccess, RpcRefusal>> + use<> {
        let known: Pin<Box<dyn Future<Output = _> + Send>> = match submitted {
            Ok(UnaryAnswer::Waiting(waiter)) => return Either::Right(wait(waiter, self.clone())),
            Ok(UnaryAnswer::Known(known)) => Box::pin(async { known.committed().await? }),
            Err(refused) => Box::pin(ready(Err(refused))),
        };
        Either::Left(known)
    }
}

/// The most bytes of values that an answer to a unary read may have.
const UNARY_READ_BYTES: usize = 1024 * 1024;

/// Refuses a unary read of an instance whose answers may be longer than unary calls have them.
fn check_unary_read(params: &Params) -> Result<(), RpcRefusal> {
    let longest = longest_read(params);
    if longest <= UNARY_READ_BYTES {
        return Ok(());
    }
    let why = format!(
        "a read of this instance may have {longest} bytes, and the answer to a unary call {UNARY_READ_BYTES} at most: read on Attach"
    );
    Err(RpcRefusal::new(RefusalReason::ReadTooLarge, why))
}

/// Waits until the access is executed.
async fn wait(waiter: Waiter, service: Service) -> Result<CompletedAccess, RpcRefusal> {
    // Calls that wait are cancelled when draining begins; a call that came in between checks again.
    if service.0.drain.is_cancelled() {
        return Err(Box::pin(service.interrupted()).await);
    }
    match waiter.await {
        Ok(outcome) => outcome.map_err(|refused| *refused),
        // The server drains, with the access still waiting.
        Err(_) if service.0.drain.is_cancelled() => Err(Box::pin(service.interrupted()).await),
        Err(_) => Err(service.expired()),
    }
}
