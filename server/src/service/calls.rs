//! The unary calls of `StickyCasService`, and the way into Attach.

use std::sync::Arc;
use std::time::Instant;

use stickycas_model::access::{Access, Answer};
use stickycas_model::history::{Offence, OffenceKind};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, ProcessId};
use stickycas_proto::attach::{self, StickyCasService};
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::access::{access_from_append, access_from_read, value_from_wire};
use stickycas_proto::convert::answer::append_response;
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::{
    AppendRequest, AppendResponse, DecideRequest, DecideResponse, ReadRequest, RefusalReason,
};
use tonic::{Request, Response, Status, Streaming};

use super::attach::AttachStream;
use super::{Service, draining};
use crate::call_layer::Caller;
use crate::instances::{Answered, Instance, NotTaken, Taken, Ticket};
use crate::quota::{Counter, Quota};
use crate::transport::Connection;

#[tonic::async_trait]
impl StickyCasService for Service {
    type AttachStream = AttachStream;

    async fn attach(
        &self,
        request: Request<Streaming<attach::DecodedRequest>>,
    ) -> Result<Response<AttachStream>, Status> {
        let caller = self.caller(request.extensions())?;
        let permit = caller.account.take(Quota::AttachStreams);
        let permit = permit.inspect_err(|refused| {
            caller.account.file_offence(OffenceKind::QuotaExceeded, &refused.message)
        })?;
        let connection = request.extensions().get::<Connection>().cloned();
        Ok(Response::new(AttachStream::new(self.clone(), caller, connection, request.into_inner(), permit)))
    }
}

impl Service {
    /// The append is taken when this returns; what it returns waits for the answer, and keeps nothing else.
    pub(super) fn append(
        &self,
        caller: &Caller,
        request: &AppendRequest,
    ) -> impl Future<Output = Result<AppendResponse, Status>> + use<> {
        let read = |process, params: &Params| access_from_append(request, process, params);
        let answered = self.answered(self.take(caller, &request.instance_id, request.access_number, read));
        async move {
            let Answered { phase, answer, .. } = answered.await?;
            match answer {
                Answer::Append(answer) => Ok(append_response(phase, answer)),
                Answer::Read(_) => Err(RpcRefusal::internal().into()),
            }
        }
    }

    /// As [`Self::append`].
    pub(super) fn read(
        &self,
        caller: &Caller,
        request: &ReadRequest,
    ) -> impl Future<Output = Result<Answered, RpcRefusal>> + use<> {
        let read = |process, _: &Params| access_from_read(request, process);
        self.answered(self.take(caller, &request.instance_id, request.access_number, read))
    }

    pub(super) fn decide(&self, caller: &Caller, request: &DecideRequest) -> Result<DecideResponse, Status> {
        let (instance, process) = self.member(caller, request.instance_id.parse().ok())?;
        let value = value_from_wire("value", &request.value, instance.params())
            .map_err(|error| refuse_content(&instance, process, None, &error))?;
        instance.decide(process, None, value, Instant::now()).map_err(|error| self.not_taken(&error))?;
        Ok(DecideResponse {})
    }

    /// The instance with this id, at which the caller is about to act, and which process of it the caller is.
    /// No id: what was given is none.
    pub(super) fn member(
        &self,
        caller: &Caller,
        id: Option<InstanceId>,
    ) -> Result<(Arc<Instance>, ProcessId), RpcRefusal> {
        let id = id.ok_or_else(|| {
            caller.account.file_offence(OffenceKind::Malformed, &WireError::InstanceId.to_string());
            RpcRefusal::from(&WireError::InstanceId)
        })?;
        let instance = self.0.instances.get(id)?;
        match instance.process_of(&caller.principal) {
            Some(process) => {
                caller.account.remember_instance(&instance, process);
                Ok((instance, process))
            }
            None => {
                tracing::warn!(instance = %id, principal = ?caller.principal.as_str(), "foreign identity");
                let why = format!("{:?} is no process of instance {id}", caller.principal.as_str());
                caller.account.file_offence(OffenceKind::ForeignIdentity, &why);
                Err(RpcRefusal::new(RefusalReason::NotAMember, why))
            }
        }
    }

    /// One access by a unary call, handed to the instance in one step. Whoever hangs up while it waits loses the
    /// answer and not the access (F8a).
    fn take(
        &self,
        caller: &Caller,
        id: &str,
        number: u64,
        read: impl FnOnce(ProcessId, &Params) -> Result<Access, WireError>,
    ) -> Result<Taken<Ticket>, RpcRefusal> {
        let (instance, process) = self.member(caller, id.parse().ok())?;
        let access = read(process, instance.params())
            .map_err(|error| refuse_content(&instance, process, AccessNumber::new(number), &error))?;
        let taken = instance.call(access).map_err(|error| {
            let refused = self.not_taken(&error);
            if matches!(error, NotTaken::TooManyCallers) {
                let (kind, detail) = (OffenceKind::QuotaExceeded, refused.message.clone());
                instance.file_offence(Offence { process, kind, number: None, phase: None, detail });
            }
            refused
        })?;
        if matches!(taken, Taken::AnsweredBefore(_) | Taken::WaitedBefore(_)) {
            caller.account.count(Counter::AccessRepeated);
        }
        Ok(taken)
    }

    /// Waits for the answer, if need be.
    fn answered(
        &self,
        taken: Result<Taken<Ticket>, RpcRefusal>,
    ) -> impl Future<Output = Result<Answered, RpcRefusal>> + use<> {
        let drain = self.0.drain.clone();
        async move {
            let ticket = match taken? {
                Taken::Answered(answered) | Taken::AnsweredBefore(answered) => return Ok(answered),
                Taken::Waits(ticket) | Taken::WaitedBefore(ticket) => ticket,
            };
            // Those who wait are told when draining begins; whoever has come in between looks again.
            if drain.has_begun() {
                return Err(draining());
            }
            match ticket.await {
                Ok(outcome) => outcome.map_err(|refusal| RpcRefusal::from(&refusal)),
                // Nobody will answer any more, with the access still waiting.
                Err(_) if drain.has_begun() => Err(draining()),
                Err(_) => Err(expired()),
            }
        }
    }

    pub(super) fn not_taken(&self, error: &NotTaken) -> RpcRefusal {
        match error {
            NotTaken::Refused(refusal) => RpcRefusal::from(refusal),
            NotTaken::Expired => expired(),
            NotTaken::TooManyCallers => {
                let limit = self.0.limits.callers_per_access;
                let why = format!("{limit} calls wait for this access, as many as may");
                RpcRefusal::new(RefusalReason::TooManyWaiting, why)
                    .with_retry_after(self.0.limits.retry_after)
            }
        }
    }
}

pub(super) fn expired() -> RpcRefusal {
    RpcRefusal::new(RefusalReason::InstanceUnknown, "the instance has expired")
}

/// Refuses what a message of a member contains, which is an offence (B2).
pub(super) fn refuse_content(
    instance: &Instance,
    process: ProcessId,
    number: Option<AccessNumber>,
    error: &WireError,
) -> RpcRefusal {
    let kind = match error {
        WireError::Value { error, .. } => OffenceKind::from(*error),
        _ => OffenceKind::Malformed,
    };
    instance.file_offence(Offence { process, kind, number, phase: None, detail: error.to_string() });
    RpcRefusal::from(error)
}
